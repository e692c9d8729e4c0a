"""The one browser of a run. Playwright's loop stays in the thread that started it, so there cannot be two."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--force-color-profile=srgb",
)  # fmt: skip


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    """Debian's Chromium, without a line to anywhere but the loopback."""
    if CHROMIUM is None:
        missing = "chromium is missing: `apt-get install chromium`, or name one with CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory(prefix="pilothouse-browser-") as home:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=list(QUIET), env={**os.environ, "HOME": home}
        )
        yield browser
        browser.close()
