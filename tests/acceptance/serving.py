"""Looking at engines from outside the panel: asking them without pause, and what their host's own ps shows."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from typing import Any

from tests.lab.host import Host
from tests.lab.observed import Process
from tests.lab.panel import Panel, until

# The smallest real engine: a short context and little cache.
SMALL = ["--max-model-len", "512", "--kv-cache-memory-bytes", "64M"]
# Launch to READY of a real engine takes 20 to 40 s on two idle cores; somebody else may be using them.
START_S = 400.0


class Asker:
    """Asks a deployment for one token again and again, from a thread, until the block ends; `failures` are kept.

    It asks the engine itself, so the panel's life does not matter to it.
    """

    def __init__(self, panel: Panel, deployment: str):
        [endpoint] = panel.deployment(deployment)["endpoints"]
        self.url = endpoint["url"]
        self.failures: list[str] = []
        self.answers = 0
        self._headers = {"Authorization": f"Bearer {panel.api_key(deployment)}", "Content-Type": "application/json"}
        served = panel.deployment(deployment)["served_name"]
        self._body = json.dumps({"model": served, "prompt": "Hello", "max_tokens": 1}).encode()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Asker:
        self._thread.start()
        self.wait_for_answers(1)
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()

    def ask(self) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}/completions", self._body, self._headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def wait_for_answers(self, more: int = 2) -> None:
        """Until `more` further requests have been answered."""
        goal = self.answers + more
        until(
            lambda: self.answers >= goal or self.failures,
            90,
            lambda: f"{self.url} does not answer: {self.failures}",
        )
        assert not self.failures

    def _run(self) -> None:
        while not self._end.wait(0.1):
            try:
                self.ask()
                self.answers += 1
            except (OSError, ValueError) as error:
                self.failures.append(f"{time.strftime('%H:%M:%S')} {error!r}")


class Talker:
    """Talks to a deployment through the panel's API without pause, from a thread, until the block ends."""

    def __init__(self, panel: Panel, deployment: str):
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(panel, f"/deployments/{deployment}/chat"), daemon=True)

    def __enter__(self) -> Talker:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self, panel: Panel, path: str) -> None:
        while not self._end.is_set():
            panel.api("POST", path, {"prompt": "Hello", "max_tokens": 50})


def named(host: Host, word: str) -> list[Process]:
    """Processes of the host with `word` in their command line, zombies left out."""
    return [p for p in host.processes() if word in p.command and not p.state.startswith("Z")]


def api_servers(host: Host) -> list[int]:
    """Pids of engines' main processes on a host; the fake one's children keep its command line."""
    found = [p for p in named(host, "vllm serve") if not p.name.startswith("VLLM::")]
    return [p.pid for p in found if p.ppid not in [other.pid for other in found]]


def transitions(panel: Panel, deployment: str, subject: str = "process") -> list[dict[str, Any]]:
    """What happened to a deployment's processes (or replicas), the oldest first."""
    found = panel.api("GET", f"/transitions?deployment={deployment}&subject={subject}&limit=200")["items"]
    return found[::-1]


def story(panel: Panel, process: str) -> list[tuple[str, str]]:
    """(state, reason) of each move of one process, in their order."""
    name = panel.api("GET", f"/processes/{process}")["deployment"]
    return [(row["new"], row["reason"]) for row in transitions(panel, name) if row["subject_id"] == process]
