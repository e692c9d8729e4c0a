"""People who may sign in, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction

from deployments.domain.errors import Conflict, NotFound
from deployments.models import Member
from deployments.services.access import Actor, Role, actor_of_user, parse_role, require
from deployments.transitions import record, ring_person


@dataclass(frozen=True, slots=True)
class Person:
    """A user as the users page shows one."""

    id: int
    name: str
    role: str
    active: bool
    last_login: datetime | None


def list_users(actor: Actor) -> list[Person]:
    """Everybody with an account, by name."""
    require(actor, Role.admin, "see users")
    return [_person(user) for user in get_user_model().objects.select_related("member").order_by("username")]


def _person(user: Any) -> Person:
    role = "admin" if user.is_superuser else user.member.role if hasattr(user, "member") else "viewer"
    return Person(user.pk, user.get_username(), role, user.is_active, user.last_login)


def change_user(actor: Actor, user_id: int, *, role: str | None = None, active: bool | None = None) -> None:
    """Give a person another role, or disable or enable the account; tokens follow it at once.

    Raises:
        Conflict: It would leave the panel without anybody who may administer it.
    """
    require(actor, Role.admin, "change users")
    with transaction.atomic():
        user = get_user_model().objects.select_for_update().filter(pk=user_id).first()
        if user is None:
            raise NotFound(f"There is no user {user_id}.")
        if role is not None:
            user.is_superuser = False
            Member.objects.update_or_create(user=user, defaults={"role": parse_role(role).name})
        if active is not None:
            user.is_active = active
        user.save(update_fields=["is_superuser", "is_active"])
        if not _somebody_administers():
            raise Conflict(
                "Nobody would be left who may administer the panel.", remedy="Make another user admin first."
            )
        said = ", ".join([*([f"role {role}"] if role else []), *([] if active is None else [f"active {active}"])])
        record("user", user.pk, "", "CHANGED", "APPLIED", said, actor=actor.name, name=user.get_username())
        ring_person(user.pk)


def _somebody_administers() -> bool:
    people = [actor_of_user(user) for user in get_user_model().objects.filter(is_active=True)]
    return any(person is not None and person.role is Role.admin for person in people)
