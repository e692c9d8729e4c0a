"""A browser on the real pages of a running panel with simulated machines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

# Playwright's synchronous calls run an event loop in this thread; Django must not refuse the database because of it.
os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")


@dataclass
class Browser:
    """A browser and where its panel is; `complaints` collects what its consoles said."""

    url: str
    context: object
    complaints: list[str] = field(default_factory=list)

    def page(self, **options: object):
        """A page in a context of its own (`viewport`, `color_scheme`, `java_script_enabled` ...)."""
        page = self.context.new_context(base_url=self.url, **options).new_page()  # type: ignore[attr-defined]
        page.set_default_timeout(15_000)
        page.on("console", lambda said: said.type in ("error", "warning") and self.complaints.append(said.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        return page


def apart(work: Callable[..., object], *args: object, **named: object) -> None:
    """Done in another thread: the one of the browser runs an event loop, where nothing can be announced."""

    from django.db import connection

    def done() -> None:
        work(*args, **named)
        connection.close()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(done).result()


@pytest.fixture
def panel(servers: None, transactional_db: None, stub: object, chromium: object, settings) -> Iterator[Browser]:
    """A browser on a panel whose worker and observer are at work."""
    from tests.browser import live

    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    with live.served() as url, live.working():
        yield Browser(url, chromium)


@pytest.fixture
def still(servers: None, transactional_db: None, stub: object, chromium: object, settings) -> Iterator[Browser]:
    """A browser on a panel where nothing moves unless the test moves it."""
    from tests.browser import live

    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    with live.served() as url:
        yield Browser(url, chromium)


@pytest.fixture
def stub() -> Iterator[object]:
    """A launcher of simulated nodes."""
    from deployments.remote import use_launcher
    from deployments.remote.stub import StubLauncher

    launcher = StubLauncher(check_host_keys=True)
    previous = use_launcher(launcher)
    yield launcher
    use_launcher(previous)


@pytest.fixture
def looks() -> Path:
    """Where pictures of pages go."""
    folder = Path(__file__).parents[2] / "build" / "looks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
