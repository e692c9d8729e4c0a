"""Talking to a deployment through the API: in one piece, as a stream, and how it fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient

from deployments.domain.states import Wish
from deployments.models import Process, Transition
from deployments.remote.launcher import Unreachable
from deployments.remote.stub import StubLauncher
from deployments.services import chat, deployments
from deployments.services.access import Actor
from deployments.services.deployments import DeploymentInput

from ..panel import found_model, ready_node, settle, single_layout
from .client import Program, token_for

pytestmark = pytest.mark.django_db(transaction=True)
later = sync_to_async
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
TEMPLATE = json.dumps(
    {"error": {"message": "default chat template is no longer allowed, so you must provide one.", "code": 400}}
)


def serve(admin: Actor) -> None:
    ready_node(admin)
    found_model(admin)
    single_layout(admin)
    settle(deployments.apply(admin, DeploymentInput(name="chat", model="qwen", layout="one", served_name="Qwen")))


@pytest.fixture
def served(stub: StubLauncher, admin: Actor) -> StubLauncher:
    serve(admin)
    return stub


class Stream:
    """The events of a streamed answer, one at a time."""

    def __init__(self, response: Any) -> None:
        assert response.status_code == 200, response.content
        self.response = response
        self.parts: AsyncIterator[bytes] = aiter(response)

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(30):
            part = await anext(self.parts)
        text = part.decode()
        assert text.startswith("data: ")
        assert text.endswith("\n\n")
        return json.loads(text[6:])

    async def rest(self) -> list[dict[str, Any]]:
        return [json.loads(part.decode()[6:]) async for part in self.parts]

    async def close(self) -> None:
        await self.parts.aclose()  # type: ignore[attr-defined]


async def stream(token: str, body: dict[str, Any] = HELLO) -> Stream:
    answer = await AsyncClient().post(
        "/api/v1/deployments/chat/chat",
        json.dumps({**body, "stream": True}),
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}"},
    )
    return Stream(answer)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_whole_answer_comes_with_its_figures(served: StubLauncher, operators_api: Program) -> None:
    answer = operators_api.ok("POST", "/deployments/chat/chat", {**HELLO, "max_tokens": 3, "temperature": 0.0})
    assert answer["text"] == "Good day,"
    assert (answer["finish_reason"], answer["prompt_tokens"], answer["completion_tokens"]) == ("length", 7, 3)
    assert 0 <= answer["first_words_s"] <= answer["took_s"]
    assert answer["process"] == str(Process.objects.get().pk)
    ((path, body),) = served.chat.heard
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "Qwen",
        "messages": HELLO["messages"],
        "max_tokens": 3,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_prompt_is_gone_on_from_in_plain_mode(served: StubLauncher, api: Program) -> None:
    assert api.ok("POST", "/deployments/chat/chat", {"prompt": "Once"})["text"] == "Good day, captain."
    ((path, body),) = served.chat.heard
    assert (path, body["prompt"], "messages" in body) == ("/v1/completions", "Once", False)


def test_what_is_said_is_written_down_nowhere(served: StubLauncher, api: Program) -> None:
    before = Transition.objects.count()
    api.ok("POST", "/deployments/chat/chat", HELLO)
    assert Transition.objects.count() == before


async def test_the_first_words_are_here_while_the_engine_still_works(served: StubLauncher, operator: Actor) -> None:
    served.chat.gate.clear()
    served.chat.thoughts = ("hm",)
    answer = await stream(await later(token_for)(operator))
    headers = answer.response.headers
    assert (headers["Content-Type"], headers["Cache-Control"]) == ("text/event-stream", "no-store")
    assert headers["X-Accel-Buffering"] == "no"
    assert "Content-Encoding" not in headers
    assert (await answer.next())["kind"] == "began"
    assert await answer.next() == {"kind": "thought", "text": "hm"}
    assert served.chat.open == 1
    served.chat.gate.set()
    *words, done = await answer.rest()
    assert "".join(word["text"] for word in words) == "Good day, captain."
    assert (done["kind"], done["finish_reason"], done["completion_tokens"]) == ("done", "stop", 6)
    assert (served.chat.open, served.chat.aborted) == (0, 0)


async def test_who_goes_away_ends_the_request_on_the_engine(served: StubLauncher, operator: Actor) -> None:
    served.chat.gate.clear()
    answer = await stream(await later(token_for)(operator))
    assert [(await answer.next())["kind"] for _ in range(2)] == ["began", "text"]
    await answer.close()
    await until(lambda: served.chat.aborted == 1)


async def test_a_connection_that_breaks_in_the_middle_leaves_what_came(served: StubLauncher, operator: Actor) -> None:
    served.chat.breaks_after = 2
    token = await later(token_for)(operator)
    for error in (None, Unreachable("The line was cut.")):
        served.chat.error = error
        _, *words, broke = await (await stream(token)).rest()
        assert "".join(word["text"] for word in words) == "Good day"
        assert (broke["kind"], broke["error"]["code"], broke["error"]["retryable"]) == ("error", "ANSWER_BROKE", True)
        assert broke["first_words_s"] is not None
        assert broke["completion_tokens"] is None


def test_a_broken_answer_in_one_piece_has_what_came_in_its_detail(served: StubLauncher, api: Program) -> None:
    served.chat.breaks_after = 2
    error = api.refused(502, "POST", "/deployments/chat/chat", HELLO)
    assert (error["code"], error["detail"]["answer"]["text"]) == ("ANSWER_BROKE", "Good day")


def test_a_model_without_a_chat_template_names_the_plain_mode(served: StubLauncher, api: Program) -> None:
    served.chat.refusal = (400, TEMPLATE)
    error = api.refused(422, "POST", "/deployments/chat/chat", HELLO)
    assert error["code"] == "NO_CHAT_TEMPLATE"
    assert "plain completion" in error["remedy"]
    assert api.refused(422, "POST", "/deployments/chat/chat", {"prompt": "x"})["code"] == "ENGINE_REFUSED"


@pytest.mark.parametrize(
    ("refusal", "status", "code", "words"),
    [
        (
            (400, '{"message": "too long", "object": "error"}'),
            422,
            "ENGINE_REFUSED",
            "The engine answered 400: too long",
        ),
        ((422, '{"detail": "bad"}'), 422, "ENGINE_REFUSED", "The engine answered 422: bad"),
        ((500, "Internal Server Error"), 502, "ENGINE_FAILED", "The engine answered 500: Internal Server Error"),
        ((401, '{"error": "Unauthorized"}'), 502, "ENGINE_FAILED", "The engine answered 401: Unauthorized"),
    ],
)
def test_an_engines_own_words_are_passed_on(
    served: StubLauncher, api: Program, refusal: tuple[int, str], status: int, code: str, words: str
) -> None:
    served.chat.refusal = refusal
    error = api.refused(status, "POST", "/deployments/chat/chat", HELLO)
    assert (error["code"], error["message"], error["node"]) == (code, words, "node-1")


def test_a_node_that_is_away_and_an_engine_that_is_gone_say_so(served: StubLauncher, api: Program) -> None:
    process = Process.objects.get()
    served.node(process.node_id).silent = True
    assert api.refused(502, "POST", "/deployments/chat/chat", HELLO)["code"] == "UNREACHABLE"
    served.node(process.node_id).silent = False
    served.node(process.node_id).exit(str(process.pk))
    assert api.refused(409, "POST", "/deployments/chat/chat", HELLO)["code"] == "NOT_READY"


def test_a_deployment_that_is_not_ready_is_a_conflict(served: StubLauncher, admin: Actor, api: Program) -> None:
    settle(deployments.set_wish(admin, "chat", Wish.STOPPED))
    error = api.refused(409, "POST", "/deployments/chat/chat", HELLO)
    assert (error["code"], error["message"]) == ("NOT_READY", "chat is stopped: none of its engines is ready.")
    assert served.chat.heard == []


def test_silence_and_length_have_limits(served: StubLauncher, api: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    served.chat.gate.clear()
    monkeypatch.setattr(chat, "SILENCE_S", 0.2)
    error = api.refused(504, "POST", "/deployments/chat/chat", HELLO)
    assert (error["code"], error["detail"]["answer"]["text"]) == ("ENGINE_SILENT", "Good")
    monkeypatch.setattr(chat, "TOTAL_S", 0.1)
    assert api.refused(504, "POST", "/deployments/chat/chat", HELLO)["code"] == "ANSWER_TOO_LONG"
    served.chat.gate.set()
    monkeypatch.setattr(chat, "TOTAL_S", 60.0)
    monkeypatch.setattr(chat, "ANSWER_LETTERS", 6)
    assert api.refused(504, "POST", "/deployments/chat/chat", HELLO)["code"] == "ANSWER_TOO_LONG"
    assert (served.chat.open, served.chat.aborted) == (0, 3)


async def test_only_so_many_answers_are_on_their_way_at_once(
    served: StubLauncher, operator: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "MAX_OPEN", 1)
    served.chat.gate.clear()
    token = await later(token_for)(operator)
    first = await stream(token)
    assert [(await first.next())["kind"] for _ in range(2)] == ["began", "text"]
    _, refused = await (await stream(token)).rest()
    assert (refused["error"]["code"], len(served.chat.heard)) == ("TOO_MANY_CHATS", 1)
    await first.close()
    served.chat.gate.set()
    assert (await (await stream(token)).rest())[-1]["kind"] == "done"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {**HELLO, "prompt": "both"},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": ["parts"]}]},
        {**HELLO, "max_tokens": 0},
        {**HELLO, "max_tokens": 1_000_000},
        {**HELLO, "temperature": -1},
        {**HELLO, "base_url": "http://169.254.169.254"},
        {"prompt": ""},
        {"prompt": "x" * 1_000_001},
    ],
)
def test_what_no_engine_need_be_asked_is_refused_here(served: StubLauncher, api: Program, body: dict[str, Any]) -> None:
    assert api.refused(422, "POST", "/deployments/chat/chat", body)["code"] == "INVALID_INPUT"
    assert served.chat.heard == []


def test_an_answer_is_not_kept_for_repeats(served: StubLauncher, api: Program) -> None:
    error = api.refused(422, "POST", "/deployments/chat/chat", HELLO, Idempotency_Key="k")
    assert error["field"] == "Idempotency-Key"
    assert served.chat.heard == []


def test_each_engine_takes_its_turn(stub: StubLauncher, admin: Actor, api: Program) -> None:
    serve(admin)
    settle(deployments.scale(admin, "chat", 2))
    seen = {api.ok("POST", "/deployments/chat/chat", HELLO)["process"] for _ in range(2)}
    assert len(seen) == 2
    gone = Process.objects.filter(pk__in=seen)[0]
    Process.objects.filter(pk=gone.pk).update(state="UNHEALTHY")
    assert {api.ok("POST", "/deployments/chat/chat", HELLO)["process"] for _ in range(3)} == seen - {str(gone.pk)}
