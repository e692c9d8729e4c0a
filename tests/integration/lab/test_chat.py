"""Chatting with an engine that only its own machine reaches: over real SSH, word by word, through the API."""

from __future__ import annotations

import json
import shlex
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from typing import Any

import pytest

from tests.lab import fake_engine, needs
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.lab.panel import Panel, until

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
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


def events(panel: Panel, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
    """The events of a streamed answer as they come; closing it hangs up."""
    headers = {"Authorization": f"Bearer {panel.token}", "Content-Type": "application/json"}
    url = f"{panel.url}/api/v1/deployments/talk/chat"
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
