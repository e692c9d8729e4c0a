"""The chat page as Django's clients see it: streamed, whole, refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.db import connections
from django.test import AsyncClient, Client

from deployments.domain.states import Wish
from deployments.remote.stub import StubLauncher
from deployments.services import deployments
from deployments.services.access import Actor
from deployments.services.deployments import DeploymentInput

from ..panel import found_model, ready_node, settle, single_layout
from .reading import read

pytestmark = pytest.mark.django_db(transaction=True)
later = sync_to_async
PAGE = "/deployments/chat/chat/"
FORM = {"said": "Hello", "mode": "chat", "max_tokens": "64", "temperature": "0.5"}
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(autouse=True)
async def _no_connection_stays(db: None) -> AsyncIterator[None]:
    """Synchronous parts of asynchronous requests run in a thread whose connection outlives the request here."""
    yield
    await later(connections.close_all)()


@pytest.fixture
def served(stub: StubLauncher, admin: Actor) -> StubLauncher:
    ready_node(admin)
    found_model(admin)
    single_layout(admin)
    settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one")))
    return stub


async def signed_in(actor: Actor, **options: Any) -> AsyncClient:
    client = AsyncClient(**options)
    await client.aforce_login(await get_user_model().objects.aget(pk=actor.user_id))
    return client


async def ask(client: AsyncClient, **changes: str) -> Any:
    """The answer to a message of the page's script."""
    body = urlencode({**FORM, **changes})
    headers = {"Accept": "text/event-stream"}
    return await client.post(PAGE, body, content_type="application/x-www-form-urlencoded", headers=headers)


def event(part: bytes) -> dict[str, Any]:
    return json.loads(part.decode().removeprefix("data: "))


async def test_words_are_streamed_while_the_engine_still_works(served: StubLauncher, operator: Actor) -> None:
    served.chat.gate.clear()
    answer = await ask(await signed_in(operator))
    assert answer.status_code == 200
    assert [answer.headers[name] for name in ("Content-Type", "Cache-Control", "X-Accel-Buffering")] == [
        "text/event-stream",
        "no-store",
        "no",
    ]
    parts = aiter(answer)
    assert event(await anext(parts))["kind"] == "began"
    assert event(await anext(parts)) == {"kind": "text", "text": "Good"}
    assert served.chat.open == 1
    served.chat.gate.set()
    *words, done = [event(part) async for part in parts]
    assert "".join(word["text"] for word in words) == " day, captain."
    assert (done["kind"], done["finish_reason"], done["node"]) == ("done", "stop", "node-1")


async def test_the_conversation_so_far_and_the_system_message_are_sent(served: StubLauncher, operator: Actor) -> None:
    before = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ahoy"}]
    answer = await ask(await signed_in(operator), before=json.dumps(before), system="Be brief.", temperature="0")
    assert [part async for part in answer]
    ((path, body),) = served.chat.heard
    assert path == "/v1/chat/completions"
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        *before,
        {"role": "user", "content": "Hello"},
    ]
    assert (body["max_tokens"], body["temperature"]) == (64, 0.0)


async def test_a_streamed_error_is_worded_in_the_readers_language(served: StubLauncher, operator: Actor) -> None:
    served.chat.refusal = (400, '{"error": {"message": "no chat template"}}')
    client = await signed_in(operator)
    _, failed = [event(part) async for part in await ask(client)]
    assert failed["error"]["code"] == "NO_CHAT_TEMPLATE"
    assert failed["error"]["remedy"].startswith("Use plain completion")
    assert set(failed["error"]) == {"code", "message", "remedy", "node"}


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"said": ""}, 400, "INVALID_INPUT"),
        ({"max_tokens": "0"}, 400, "INVALID_INPUT"),
        ({"temperature": "nan"}, 400, "INVALID_INPUT"),
        ({"before": "[1]"}, 400, "INVALID_INPUT"),
        ({"before": '[{"role": "root", "content": "x"}]'}, 400, "INVALID_INPUT"),
        ({"before": "[" * 100_000}, 400, "INVALID_INPUT"),
        ({"before": r'[{"role": "user", "content": "\ud800"}]'}, 400, "INVALID_INPUT"),
    ],
)
async def test_what_cannot_be_asked_is_refused_before_the_stream(
    served: StubLauncher, operator: Actor, changes: dict[str, str], status: int, code: str
) -> None:
    answer = await ask(await signed_in(operator), **changes)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert served.chat.heard == []


async def test_viewers_strangers_and_other_sites_get_no_word(
    served: StubLauncher, operator: Actor, viewer: Actor
) -> None:
    for client in (await signed_in(viewer), AsyncClient(), await signed_in(operator, enforce_csrf_checks=True)):
        assert (await ask(client)).status_code == 403
    assert served.chat.heard == []


def test_a_viewer_is_told_that_it_takes_an_operator(served: StubLauncher, as_viewer: Client) -> None:
    answer = as_viewer.get(PAGE)
    assert answer.status_code == 403
    assert "that takes operator" in read(answer).text
    assert PAGE not in read(as_viewer.get("/deployments/chat/")).links


def test_the_way_leads_from_a_ready_deployment(served: StubLauncher, as_operator: Client) -> None:
    assert PAGE in read(as_operator.get("/deployments/chat/")).links


async def test_a_deployment_that_is_not_ready_is_said_to_be_so(
    served: StubLauncher, admin: Actor, operator: Actor
) -> None:
    await later(settle)(await later(deployments.set_wish)(admin, "chat", Wish.STOPPED))
    client = await signed_in(operator)
    answer = await ask(client)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "NOT_READY")
    page = read(await client.get(PAGE))
    assert "nobody would answer" in page.text
    assert ("button", "disabled", "") in page.attributes


def test_without_scripts_the_whole_answer_comes_as_a_page(served: StubLauncher, as_operator: Client) -> None:
    served.chat.words = (HOSTILE, " done")
    page = read(as_operator.post(PAGE, FORM))
    assert f"{HOSTILE} done" in page.text
    assert page.scripts == [""] * len(page.scripts)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    (before,) = [dict(attrs) for attrs in _hidden(page) if dict(attrs).get("name") == "before"]
    kept = json.loads(before["value"])
    assert kept == [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": f"{HOSTILE} done"}]
    as_operator.post(PAGE, {**FORM, "said": "And?", "before": before["value"]})
    assert served.chat.heard[-1][1]["messages"] == [*kept, {"role": "user", "content": "And?"}]


def _hidden(page: Any) -> list[list[tuple[str, str]]]:
    """The attributes of each input, in order."""
    found: list[list[tuple[str, str]]] = []
    for tag, name, value in page.attributes:
        if tag == "input":
            if name == "type":
                found.append([])
            found[-1].append((name, value))
    return found


def test_without_scripts_an_error_stands_on_the_page_and_the_message_stays(
    served: StubLauncher, as_operator: Client
) -> None:
    served.chat.refusal = (400, '{"error": {"message": "default chat template is no longer allowed"}}')
    answer = as_operator.post(PAGE, FORM)
    assert answer.status_code == 400
    page = read(answer)
    assert "Use plain completion" in page.text
    assert "Hello" in page.text
    assert "This field is required." in read(as_operator.post(PAGE, {**FORM, "said": ""})).text


def test_the_page_is_kept_by_nobody(served: StubLauncher, as_operator: Client) -> None:
    assert as_operator.get(PAGE)["Cache-Control"] == "no-store"


def test_a_name_that_leads_nowhere(stub: StubLauncher, as_operator: Client) -> None:
    assert as_operator.get("/deployments/other/chat/").status_code == 404
