"""Tokens and users."""

from __future__ import annotations

from typing import Any

from ninja import Router, Status

from deployments.api.asking import Asking, answers_secret
from deployments.schemas.access import Me, NewToken, Token, TokenInput, User, UserChange, UserInput
from deployments.services import access, people

router = Router(tags=["access"])


@router.get("/me", response=Me)
def who_am_i(request: Asking) -> Any:
    """Who is asking, and what they may do."""
    return {"name": request.auth.name, "role": request.auth.role.name}


@router.get("/tokens", response=list[Token])
def list_tokens(request: Asking) -> Any:
    """The caller's tokens; an admin sees everybody's."""
    return [Token.of(row) for row in access.list_tokens(request.auth)]


@router.post("/tokens", response={201: NewToken})
@answers_secret
def create_token(request: Asking, body: TokenInput) -> Any:
    """A new token for the signed-in user; its text is in this answer only."""
    row, text = access.create_token(request.auth, **body.dict())
    return Status(201, NewToken(**Token.values(row), text=text))


@router.delete("/tokens/{int:token}", response=Token)
def revoke_token(request: Asking, token: int) -> Any:
    """End a token at once."""
    return Token.of(access.revoke_token(request.auth, token))


@router.get("/users", response=list[User])
def list_users(request: Asking) -> Any:
    """Everybody with an account."""
    return people.list_users(request.auth)


@router.post("/users", response={201: User})
def create_user(request: Asking, body: UserInput) -> Any:
    """A person who may sign in."""
    user = access.create_user(request.auth, **body.dict())
    name = user.get_username()
    return Status(201, {"id": user.pk, "name": name, "role": body.role, "active": True, "last_login": None})


@router.patch("/users/{int:user}", response=list[User])
def change_user(request: Asking, user: int, body: UserChange) -> Any:
    """Give somebody another role, or disable or enable the account; the answer is the whole table."""
    people.change_user(request.auth, user, role=body.role, active=body.active)
    return people.list_users(request.auth)
