"""Conversations through the helper: word by word, only with the process's own engine, and never longer than asked."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from .client import Client, Refused, until
from .conftest import Engines, interpreters

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
FOUND = interpreters()
KEY = "sk-only-on-the-node"


def asked(words: str = "Hello", **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": words}]
    return {"model": "m", "messages": messages, "stream": True, "max_tokens": 64, **more}


class Talk:
    """One request on its way; `lines` are the engine's own as they come."""

    def __init__(self, client: Client, process: str, path: str = CHAT, body: dict[str, Any] | None = None) -> None:
        self.client = client
        self.number = client.send("converse", process=process, path=path, body=asked() if body is None else body)
        self.result: dict[str, Any] | None = None
        self.events: list[dict[str, Any]] = []

    def lines(self) -> Iterator[str]:
        while "event" in (message := self.client.next(self.number)):
            self.events.append(message["event"])
            yield from message["event"].get("lines", ())
        self.result = message["result"]

    def words(self) -> Iterator[str]:
        for line in self.lines():
            if line.startswith("data: {") and (choices := json.loads(line[6:])["choices"]):
                yield choices[0].get("delta", {}).get("content") or choices[0].get("text") or ""


def look(port: int, path: str = "/fake/streams") -> dict[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return json.loads(answer.read())


@pytest.fixture
def engine(engines: Engines) -> str:
    """A running engine that wants a key."""
    probe = {**engines.request()["probe"], "api_key_env": "VLLM_API_KEY"}
    return engines.start(secrets={"VLLM_API_KEY": KEY}, probe=probe)


@pytest.mark.parametrize("path", [CHAT, PLAIN])
def test_words_come_one_by_one_and_the_engine_is_asked_with_its_key(client: Client, engine: str, path: str) -> None:
    body = asked() if path == CHAT else {"model": "m", "prompt": "Hello", "stream": True, "max_tokens": 64}
    talk = Talk(client, engine, path, body)
    assert "".join(talk.words()) == "The ship is on her course."
    assert talk.events[:2] == [{"asked": True}, {"status": 200}]
    assert talk.events[-1]["lines"][-1] == "data: [DONE]"
    assert talk.result is not None
    assert not talk.result["cancelled"]
    assert KEY not in str(talk.events)


@pytest.mark.parametrize("version", [name for name in FOUND if tuple(map(int, name.split("."))) >= (3, 8)])
def test_every_python_passes_an_answer_on(connect: Any, engine: str, version: str) -> None:
    talk = Talk(connect(interpreter=FOUND[version]), engine)
    assert "".join(talk.words()) == "The ship is on her course."


def test_the_first_word_is_here_while_the_engine_still_works(client: Client, engine: str, port: int) -> None:
    words = Talk(client, engine, body=asked("HOLD")).words()
    assert next(words) == "The"
    assert look(port) == {"open": 1, "finished": 0, "aborted": 0}
    look(port, "/fake/release")
    assert "".join(words) == " ship is on her course."


def test_a_cancelled_conversation_ends_on_the_engine(client: Client, engine: str, port: int) -> None:
    talk = Talk(client, engine, body=asked("HOLD"))
    words = talk.words()
    next(words)
    client.send("cancel", id=talk.number)
    assert list(words) == []
    assert talk.result is not None
    assert talk.result["cancelled"]
    until(lambda: look(port) == {"open": 0, "finished": 0, "aborted": 1}, "the engine saw the end")


def test_the_end_of_the_connection_ends_the_conversation_on_the_engine(
    connect: Any, client: Client, engine: str, port: int
) -> None:
    other = connect()
    next(Talk(other, engine, body=asked("HOLD")).words())
    other.close()
    until(lambda: look(port) == {"open": 0, "finished": 0, "aborted": 1}, "the engine saw the end")
    assert client.process(engine)["alive"]


def test_a_connection_that_the_engine_breaks_is_told_from_an_end(client: Client, engine: str) -> None:
    words = Talk(client, engine, body=asked("BREAK")).words()
    assert [next(words), next(words)] == ["The", " ship"]
    with pytest.raises(Refused) as caught:
        next(words)
    assert caught.value.code == "ENGINE_BROKE"


def test_an_engines_refusal_comes_with_its_status_and_words(client: Client, engine: str) -> None:
    with pytest.raises(Refused) as caught:
        list(Talk(client, engine, body=asked(model="other")).lines())
    assert caught.value.code == "ENGINE_ANSWERED"
    assert caught.value.detail["status"] == 404
    assert json.loads(caught.value.detail["body"])["error"]["message"] == "The model `other` does not exist."


@pytest.mark.parametrize(
    ("path", "code"),
    [("/metrics", "BAD_REQUEST"), ("http://127.0.0.1:1/v1/completions", "BAD_REQUEST"), (None, "BAD_REQUEST")],
)
def test_nothing_else_is_asked_of_an_engine(client: Client, engine: str, path: Any, code: str) -> None:
    with pytest.raises(Refused) as caught:
        client.call("converse", process=engine, path=path, body={})
    assert caught.value.code == code


def test_only_processes_that_are_engines_and_run_are_asked(client: Client, engines: Engines) -> None:
    sleeper, _ = client.start(argv=["/bin/sleep", "300"], probe={"kind": "alive"})
    ended, _ = client.start(**{**engines.request(), "argv": ["/bin/true"]})
    until(lambda: client.process(ended)["exit"], "it ended")
    for process, code in (("nobody", "UNKNOWN_PROCESS"), (sleeper, "NO_ENGINE"), (ended, "NOT_RUNNING")):
        with pytest.raises(Refused) as caught:
            client.call("converse", process=process, path=CHAT, body=asked())
        assert caught.value.code == code


def test_an_engine_that_takes_no_connection_says_so(client: Client, port: int) -> None:
    probe = {"kind": "openai", "base_url": f"http://127.0.0.1:{port}", "model": "m"}
    process, _ = client.start(argv=["/bin/sleep", "300"], probe=probe)
    with pytest.raises(Refused) as caught:
        list(Talk(client, process).lines())
    assert caught.value.code == "ENGINE_UNREACHABLE"
    assert f"127.0.0.1:{port}" in caught.value.message
