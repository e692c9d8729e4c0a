"""A conversation through both launchers: the real helper and a fake engine behind it, and the simulated one."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deployments.remote.launcher import HelperFailed, NodeTarget, StartRequest, StopRequest
from deployments.remote.node_launcher import NodeLauncher
from deployments.remote.stub import StubLauncher
from tests.integration.remote.sshd import INSTALLATION

FAKE = Path(__file__).parents[2] / "fakes" / "fake_vllm.py"
TARGET = NodeTarget(1, "here", INSTALLATION)
CHAT = "/v1/chat/completions"


def body(words: str = "Hello", **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": words}], "stream": True, "max_tokens": 64, **more}


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@pytest.fixture
def launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int) -> Iterator[list[Any]]:
    """The real launcher and the stub, each with a running engine `p1`."""
    monkeypatch.setenv("PILOTHOUSE_STATE_ROOT", str(tmp_path / "state"))
    real, stub = NodeLauncher(), StubLauncher()
    probe = {"kind": "openai", "base_url": f"http://127.0.0.1:{port}", "model": "m"}
    argv = (str(FAKE), "serve", "m", "--host", "127.0.0.1", "--port", str(port))
    for launcher in (real, stub):
        launcher.start(TARGET, StartRequest("p1", "r1", 1, "engine", argv, probe=probe, ports=(port,)))
    yield [real, stub]
    real.stop(TARGET, StopRequest("p1", grace_s=2, kill_s=5))
    real.close()


async def up(launcher: Any) -> None:
    """Once the engine listens."""
    async with asyncio.timeout(30):
        while "startup complete" not in (await asyncio.to_thread(launcher.logs, TARGET, "p1", 0)).data:
            await asyncio.sleep(0.05)


def look(port: int) -> dict[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/fake/streams", timeout=10) as answer:
        return json.loads(answer.read())


async def test_both_bring_the_same_events(launchers: list[Any]) -> None:
    await up(launchers[0])
    for launcher in launchers:
        events = [event async for event in launcher.converse(TARGET, "p1", CHAT, body())]
        assert events[:2] == [{"asked": True}, {"status": 200}]
        lines = [line for event in events[2:] for line in event["lines"]]
        first, *_, usage, done = lines
        assert done == "data: [DONE]"
        assert set(json.loads(first[6:])["choices"][0]) == {"index", "delta", "finish_reason"}
        assert json.loads(usage[6:])["usage"]["completion_tokens"] > 0


async def test_both_refuse_in_the_same_words(launchers: list[Any]) -> None:
    real, stub = launchers
    await up(real)
    stub.chat.refusal = (404, json.dumps({"error": {"message": "The model `other` does not exist."}}))
    for launcher in launchers:
        with pytest.raises(HelperFailed) as caught:
            [event async for event in launcher.converse(TARGET, "p1", CHAT, body(model="other"))]
        assert (caught.value.code, caught.value.detail["status"]) == ("ENGINE_ANSWERED", 404)
        with pytest.raises(HelperFailed) as caught:
            [event async for event in launcher.converse(TARGET, "nobody", CHAT, body())]
        assert (caught.value.code, caught.value.node) == ("UNKNOWN_PROCESS", "here")


async def test_closing_the_iterator_ends_the_request_on_the_engine(launchers: list[Any], port: int) -> None:
    real, stub = launchers
    await up(real)
    stub.chat.gate.clear()
    for launcher in launchers:
        events = launcher.converse(TARGET, "p1", CHAT, body("HOLD"))
        async for event in events:
            if "lines" in event:
                break
        await events.aclose()
    assert (stub.chat.open, stub.chat.aborted) == (0, 1)
    async with asyncio.timeout(30):
        while await asyncio.to_thread(look, port) != {"open": 0, "finished": 0, "aborted": 1}:
            await asyncio.sleep(0.05)
