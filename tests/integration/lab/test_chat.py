"""Chatting with an engine that only its own machine reaches: over real SSH, word by word, through the API."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from typing import Any

import pytest

from tests.lab import fake_engine, needs
from tests.lab.engine import Engine
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.lab.panel import Panel, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
SMALL = ["--max-model-len", "512", "--kv-cache-memory-bytes", "64M"]
START_S = 300.0
HOLD = {"messages": [{"role": "user", "content": "HOLD"}], "stream": True}


def serve(host: Host, panel: Panel) -> int:
    """A deployment whose engine listens on its host's loopback only. Returns the port."""
    environment = fake_engine.install(host)
    panel.add_hosts([host], environment, cluster_address="127.0.0.1")
    panel.add_model("fake", fake_engine.put_model(host), nodes=[host.name])
    panel.add_layout("single", "single")
    panel.deploy("talk", model="fake", layout="single")
    (endpoint,) = panel.wait_deployment("talk", "READY")["endpoints"]
    return int(endpoint["url"].rpartition(":")[2].partition("/")[0])


def events(panel: Panel, body: dict[str, Any], name: str = "talk") -> Generator[dict[str, Any], None, None]:
    """The events of a streamed answer as they come; closing it hangs up."""
    headers = {"Authorization": f"Bearer {panel.token}", "Content-Type": "application/json"}
    url = f"{panel.url}/api/v1/deployments/{name}/chat"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def look(host: Host, port: int, path: str = "/fake/streams") -> dict[str, int]:
    """What the engine says to somebody on its own machine."""
    code = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}{path}').read().decode())"
    return json.loads(host.ssh(f"{needs.HOST_PYTHON} -c {shlex.quote(code)}").stdout)


def test_an_engine_that_only_its_own_machine_reaches_is_talked_to_and_hung_up_on(
    lab_hosts: Callable[..., Lab], panel: Panel
) -> None:
    (host,) = lab_hosts(1).hosts
    port = serve(host, panel)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://{host.address}:{port}/health", timeout=5)

    words = events(panel, HOLD)
    assert [next(words)["kind"], next(words)] == ["began", {"kind": "text", "text": "The"}]
    assert look(host, port) == {"open": 1, "finished": 0, "aborted": 0}
    words.close()
    gone = {"open": 0, "finished": 0, "aborted": 1}
    until(lambda: look(host, port) == gone, 60, lambda: f"the engine still says {look(host, port)}")

    words = events(panel, HOLD)
    assert [next(words)["kind"], next(words)["kind"]] == ["began", "text"]
    look(host, port, "/fake/release")
    *rest, done = words
    assert "".join(word["text"] for word in rest) == " ship is on her course."
    said = [done[name] for name in ("kind", "node", "finish_reason", "completion_tokens")]
    assert said == ["done", host.name, "stop", 7]
    assert 0 < done["first_words_s"] <= done["took_s"]

    panel.stop_deployment("talk")
    assert panel.ask("POST", "/deployments/talk/chat", {"prompt": "x"})[0] == 409


@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_the_real_engine_streams_refuses_and_stops(lab_hosts: Callable[..., Lab], engine: Engine) -> None:
    (host,) = lab_hosts(1).hosts
    with Panel() as panel:
        panel.add_hosts([host], engine, cluster_address="127.0.0.1")
        panel.add_layout("single", "single")
        for name, path in (("talk", engine.model), ("bare", without_template(host, engine))):
            panel.add_model(name, path, nodes=[host.name])
            panel.deploy(name, model=name, layout="single", args=SMALL)
        for name in ("talk", "bare"):
            panel.wait_deployment(name, "READY", START_S)

        status, body = panel.ask("POST", "/deployments/bare/chat", {"messages": HOLD["messages"]})
        assert (status, body["error"]["code"]) == (422, "NO_CHAT_TEMPLATE"), body
        options = {"max_tokens": 32, "temperature": 0, "stream": True}
        for name, asked in (("talk", HOLD), ("bare", {"prompt": "Once upon a time"})):
            began, *words, done = events(panel, {**asked, **options}, name)
            assert (began["kind"], done["kind"]) == ("began", "done"), done
            assert {word["kind"] for word in words} == {"text"}
            assert done["finish_reason"] in ("length", "stop")
            assert 0 < done["completion_tokens"] <= 32
            assert 0 < done["first_words_s"] <= done["took_s"]
        status, body = panel.ask("POST", "/deployments/bare/chat", {"prompt": "x", "max_tokens": 9999})
        assert (status, body["error"]["code"]) == (422, "ENGINE_REFUSED"), body

        # The same request once to its end and once hung up on: the engine makes fewer tokens, and is idle again.
        url = panel.deployment("bare")["endpoints"][0]["url"].removesuffix("/v1")
        long = {"prompt": "Once upon a time", **options, "max_tokens": 480}
        before = made(host, url)
        *_, done = events(panel, long, "bare")
        until(lambda: made(host, url) == before + done["completion_tokens"], 60, lambda: f"{made(host, url)} tokens")
        words = events(panel, long, "bare")
        assert [next(words)["kind"], next(words)["kind"]] == ["began", "text"]
        words.close()
        until(lambda: metric(host, url, "num_requests_running") == 0, 60, lambda: "the engine still works")
        assert made(host, url) < before + 2 * done["completion_tokens"]


def made(host: Host, url: str) -> float:
    """Tokens that an engine has made."""
    return metric(host, url, "generation_tokens_total")


def metric(host: Host, url: str, name: str) -> float:
    """One of an engine's figures, read on its own machine."""
    code = f"import urllib.request as u; print(u.urlopen('{url}/metrics').read().decode())"
    text = host.ssh(f"{needs.HOST_PYTHON} -c {shlex.quote(code)}").stdout
    (value,) = re.findall(rf"^vllm:{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)
    return float(value)


def without_template(host: Host, engine: Engine) -> str:
    """The tiny model in a folder of the host, without its chat template."""
    target = host.path("/home/bare")
    shutil.copytree(engine.model, target, ignore=shutil.ignore_patterns("chat_template*"))
    return "/home/bare"
