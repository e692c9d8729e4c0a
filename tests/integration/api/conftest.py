from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from deployments.services.access import Actor

    from .client import Program


def _program(actor: Actor) -> Program:
    from .client import Program, token_for

    return Program(token_for(actor))


@pytest.fixture
def api(admin: Actor) -> Program:
    """The API as an admin's program sees it."""
    return _program(admin)


@pytest.fixture
def operators_api(operator: Actor) -> Program:
    return _program(operator)


@pytest.fixture
def viewers_api(viewer: Actor) -> Program:
    return _program(viewer)
