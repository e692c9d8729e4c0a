"""Pytest fixtures of the lab: `lab_hosts` makes labs for one test, `engine` is the real engine for a whole run.

Where the machine cannot carry them a test is skipped and says what is missing; with CI=true it fails instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from tests.lab import engine as engines
from tests.lab import needs
from tests.lab.hosts import Lab


def give_up(reason: str) -> NoReturn:
    """Skip the test loudly, or fail it where a missing part may not pass unseen (CI=true)."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def lab_hosts() -> Iterator[Callable[..., Lab]]:
    """A function (count, **as for Lab) -> a running Lab; every lab made with it ends with the test."""
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


@pytest.fixture(scope="session")
def engine() -> engines.Engine:
    """The engine environment and tiny model, made on first use: two minutes, 3 GB."""
    try:
        return engines.build()
    except engines.EngineUnavailable as error:
        give_up(f"the engine: {error}")
