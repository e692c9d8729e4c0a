"""Pytest fixtures of the lab: `lab_hosts` makes labs for one test, `engine` is the real engine for a whole run.

Where the machine cannot carry them a test is skipped and says what is missing; with CI=true it fails instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from tests.lab import engine as engines
from tests.lab import needs
from tests.lab.hosts import Lab
from tests.lab.panel import Panel


def give_up(reason: str) -> NoReturn:
    """Skip the test loudly, or fail it where a missing part may not pass unseen (CI=true)."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _labs() -> Iterator[Callable[..., Lab]]:
    if reasons := needs.missing():
        give_up("the lab needs: " + "; ".join(reasons))
    labs: list[Lab] = []

    def make(count: int = 2, **options: Any) -> Lab:
        options.setdefault("binds", engines.binds())
        labs.append(Lab(count, **options).up())
        return labs[-1]

    yield make
    for lab in labs:
        lab.down()


@pytest.fixture
def lab_hosts() -> Iterator[Callable[..., Lab]]:
    """A function (count, **as for Lab) -> a running Lab; every lab made with it ends with the test."""
    yield from _labs()


@pytest.fixture(scope="module")
def module_lab() -> Iterator[Callable[..., Lab]]:
    """`lab_hosts` for labs that all tests of a module share."""
    yield from _labs()


@pytest.fixture(scope="module")
def panel() -> Iterator[Panel]:
    """A real panel of this module's own, signed in to. It ends before the labs, as long as a test asks for them first.

    What it printed is shown when a test fails.
    """
    if not sys.platform.startswith("linux"):
        give_up(f"the embedded panel needs Linux (this is {sys.platform})")
    with Panel() as panel:
        yield panel
        print(panel.output)


@pytest.fixture(scope="session")
def engine() -> engines.Engine:
    """The engine environment and tiny model, made on first use: two minutes, 3 GB."""
    try:
        return engines.build()
    except engines.EngineUnavailable as error:
        give_up(f"the engine: {error}")
