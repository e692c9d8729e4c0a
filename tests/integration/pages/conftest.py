"""Browsers without a browser: Django's client, signed in with each role."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django.test import Client

    from deployments.services.access import Actor


def signed_in(actor: Actor) -> Client:
    """A client signed in as an actor's user."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    client = Client()
    client.force_login(get_user_model().objects.get(pk=actor.user_id))
    return client


@pytest.fixture
def as_admin(admin: Actor) -> Client:
    return signed_in(admin)


@pytest.fixture
def as_operator(operator: Actor) -> Client:
    return signed_in(operator)


@pytest.fixture
def as_viewer(viewer: Actor) -> Client:
    return signed_in(viewer)
