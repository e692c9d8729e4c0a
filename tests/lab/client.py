"""Somebody who uses a panel through its REST API: requests, waiting, and the calls that the lab's tests make."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json as jsons
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.lab.engine import Engine
from tests.lab.host import Host
from tests.lab.hosts import Lab

FINE = (200, 201, 202, 204)
ANSWER_S = 60.0
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


class ApiError(AssertionError):
    """The API answered otherwise than expected; `status` and `body` say how."""

    def __init__(self, method: str, path: str, status: int, body: Any):
        super().__init__(f"{method} {path}: {status}: {body}")
        self.status = status
        self.body = body


class Client:
    """Somebody who uses a panel's API at `url` with a bearer token."""

    def __init__(self, url: str, token: str = ""):
        self.url = url.rstrip("/")
        self.token = token

    def api(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        expect: Collection[int] = FINE,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """One request below /api/v1. Returns the body read as JSON, or as text where it is none.

        Raises:
            ApiError: The status is none of `expect`.
            OSError: Nobody answers.
        """
        status, body = self.ask(method, path, json, headers=headers)
        if status not in expect:
            raise ApiError(method, path, status, body)
        return body

    def ask(
        self, method: str, path: str, json: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """One request below /api/v1, whatever comes of it: status and body."""
        data = None if json is None else jsons.dumps(json).encode()
        said = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        if data is not None:
            said["Content-Type"] = "application/json"
        request = urllib.request.Request(f"{self.url}/api/v1{path}", data, said, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return answer.status, _read(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _read(error.read())

    def wait(self, path: str, predicate: Callable[[Any], Any], timeout: float = 60.0) -> Any:
        """Ask for `path` until `predicate` takes the answer; returns that answer. A panel that is away is waited for.

        Raises:
            TimeoutError: It never did; the text holds the last answer.
        """
        deadline = time.monotonic() + timeout
        last: Any = None
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                last = self.ask("GET", path)
                if last[0] < 400 and predicate(last[1]):
                    return last[1]
            time.sleep(0.2)
        raise TimeoutError(f"{path} was not as awaited within {timeout:.0f} s; the last answer: {jsons.dumps(last)}")

    # Nodes

    def add_hosts(self, hosts: Sequence[Host], engine: Engine | Path | str | None = None, **fields: Any) -> None:
        """Add lab hosts as nodes of the same names, accept their host keys as their disks have them, wait for READY.

        `engine` is the environment on them (None: to be found); `fields` go to every node as they are.
        """
        environment = engine.root if isinstance(engine, Engine) else engine
        more = {**({"environment": str(environment)} if environment else {}), **fields}
        self.introduce(hosts, **more)
        self.accept(hosts)
        for host in hosts:
            self.wait_node(host.name, "READY")

    def introduce(self, hosts: Sequence[Host], **fields: Any) -> None:
        """Add lab hosts as nodes, without accepting anything yet."""
        key = key_name(hosts[0].lab)
        if key not in [row["name"] for row in self.api("GET", "/keys")]:
            self.api("POST", "/keys/paste", {"name": key, "private": hosts[0].key_path.read_text()})
        self.api("POST", "/nodes/many", {"nodes": [{**_node(host, key), **fields} for host in hosts]})

    def accept(self, hosts: Sequence[Host]) -> None:
        """Accept host keys, each compared with the key on the host's disk; a jump host's first, as a person would."""
        names = {host.name: host for host in hosts}
        for part, owner in (("jump_", lambda host: host.jump), ("", lambda host: host)):
            open_ = {name: owner(host) for name, host in names.items() if owner(host) is not None}
            if open_:
                rows = self._offers(open_, part)
                accepts = [{"node": row["node"], f"{part}fingerprint": row[f"{part}offered"]} for row in rows]
                self.api("POST", "/nodes/fingerprints/accept", {"accept": accepts})

    def _offers(self, expected: Mapping[str, Host], part: str) -> list[dict[str, Any]]:
        """The offers of these nodes, once all are what the hosts' disks say."""
        prints = {name: fingerprint(host.host_key) for name, host in expected.items()}

        def mine(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [row for row in rows if prints.get(row["node"], "") == row[f"{part}offered"]]

        return mine(self.wait("/nodes/fingerprints", lambda rows: len(mine(rows)) == len(prints)))

    def node(self, name: str) -> dict[str, Any]:
        return self.api("GET", f"/nodes/{name}")

    def wait_node(self, name: str, state: str, timeout: float = 60.0) -> dict[str, Any]:
        return self.wait(f"/nodes/{name}", lambda node: node["state"] == state, timeout)

    # Models, layouts, deployments

    def add_model(self, name: str, path: str | Path, nodes: Sequence[str] = ()) -> dict[str, Any]:
        """Register a model folder and wait until its nodes have been looked at. Returns the model."""
        answer = self.api("POST", "/models", {"name": name, "path": str(path), "nodes": list(nodes)})
        self.wait_job(answer["job"]["id"])
        return self.api("GET", f"/models/{quote(name)}")

    def add_layout(self, name: str, kind: str, **sizes: int) -> None:
        self.api("POST", "/layouts", {"name": name, "kind": kind, **sizes})

    def deploy(self, name: str, **wish: Any) -> dict[str, Any]:
        """Apply a wish (see the API's WishInput)."""
        return self.api("PUT", f"/deployments/{name}", wish)

    def deployment(self, name: str) -> dict[str, Any]:
        return self.api("GET", f"/deployments/{name}")

    def only_process(self, name: str) -> dict[str, Any]:
        """The one process of a deployment's current attempt."""
        [process] = self.deployment(name)["processes"]
        return process

    def wait_deployment(self, name: str, state: str, timeout: float = 60.0) -> dict[str, Any]:
        """The deployment once it is in `state`; one that FAILED instead is not waited for any longer."""
        found = self.wait(f"/deployments/{name}", lambda row: row["state"] in (state, "FAILED"), timeout)
        assert found["state"] == state, f"{name} is {found['state']}: {found['state_note']} {found['problems']}"
        return found

    def wait_process(self, name: str, predicate: Callable[[dict[str, Any]], Any], timeout: float = 60.0) -> Any:
        """The first process of a deployment's current attempt that `predicate` takes."""
        found = self.wait(f"/deployments/{name}", lambda row: any(map(predicate, row["processes"])), timeout)
        return next(process for process in found["processes"] if predicate(process))

    def stop_deployment(self, name: str, timeout: float = 60.0) -> dict[str, Any]:
        """Stop and wait for the proof."""
        self.api("POST", f"/deployments/{name}/stop")
        return self.wait(f"/deployments/{name}", lambda row: row["state"] == "STOPPED", timeout)

    def api_key(self, name: str) -> str:
        return str(self.api("POST", f"/deployments/{name}/api-key")["api_key"])

    def log(self, process: str, offset: int = 0, wait_s: float = 0.0) -> dict[str, Any]:
        """A piece of a process's log from `offset` on."""
        return self.api("GET", f"/processes/{process}/log?offset={offset}&limit=262144&wait_s={wait_s}")

    # Jobs

    def start_job(self, kind: str, nodes: Sequence[str], **args: Any) -> dict[str, Any]:
        return self.api("POST", "/jobs", {"kind": kind, "nodes": list(nodes), "args": args})

    def wait_job(self, job: str, states: Collection[str] = ENDED, timeout: float = 60.0) -> dict[str, Any]:
        """The job once it is in one of `states`: by default, over."""
        return self.wait(f"/jobs/{job}", lambda row: row["state"] in states, timeout)


def _node(host: Host, key: str) -> dict[str, Any]:
    item = {"name": host.name, "address": host.address, "port": host.port, "user": host.user, "key": key}
    if host.jump is not None:
        item["jump"] = {"address": host.jump.address, "port": host.jump.port, "user": host.jump.user}
    return item


def key_name(lab: Lab) -> str:
    """What the lab's SSH key is called in a panel."""
    return f"lab-{lab.folder.name}"


def fingerprint(public: str) -> str:
    """SHA256 fingerprint of a public key, as `ssh-keygen -l` writes it."""
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _read(text: bytes) -> Any:
    try:
        return jsons.loads(text) if text else None
    except ValueError:
        return text.decode(errors="replace")
