"""The first token of a program, from the command line of the panel's machine."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from deployments.models import ApiToken
from deployments.services import access
from deployments.services.access import Role

pytestmark = pytest.mark.django_db


def issue(*words: str) -> str:
    out = StringIO()
    call_command("issue_token", *words, stdout=out)
    return out.getvalue()


def test_the_token_alone_is_printed_and_lets_its_user_in(operator):
    text = issue("--user", operator.name, "--scope", "operator", "--days", "3", "--name", "ci")
    assert text == text.strip() + "\n"
    actor = access.actor_of_token(text.strip())
    assert actor is not None
    assert (actor.name, actor.role) == (f"{operator.name}/ci", Role.operator)
    token = ApiToken.objects.get()
    assert (token.expires_at - token.created_at).days in (2, 3)


def test_without_more_words_it_may_only_look(operator):
    actor = access.actor_of_token(issue("--user", operator.name).strip())
    assert actor is not None
    assert actor.role is Role.viewer


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--user", "nobody"), "no active user 'nobody'"),
        (("--user", "{operator}", "--scope", "admin"), "takes admin"),
        (("--user", "{operator}", "--days", "0"), "lives 1 to"),
        (("--user", "{operator}", "--name", " "), "needs a name"),
    ],
)
def test_what_cannot_be_issued_is_said_and_nothing_is_made(operator, words, complaint):
    with pytest.raises(CommandError, match=complaint):
        issue(*(word.format(operator=operator.name) for word in words))
    assert not ApiToken.objects.exists()
