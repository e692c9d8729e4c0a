"""A simulated machine: what it says is decided by the test, and it keeps the node helper's promises.

It fences, remembers, refuses and proves as the real helper does, and answers in the same shapes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from .launcher import HelperFailed, StartRequest
from .stub_facts import no_environment, qwen2_folder, uuid_of
from .stub_process import ENDED_STAY_S, LOG_TAIL_BYTES, StubProcess
from .stub_telemetry import StubTelemetry

__all__ = ["StubNode", "StubProcess"]

COLLECT_TAIL_BYTES = 64 * 1024
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class StubNode:
    """One simulated machine. Tests change its attributes; `StubLauncher` calls its methods.

    Attributes:
        facts: What a probe brings, without `at` and the environment asked for.
        models: Model folders by path, as `read_model` answers without `path`.
        ready_after: For processes started from now on.
        silent: It does not answer at all.
        stubborn: What is stopped does not go away, so that no stop can be proven.
        driver_blocked: Queries of the NVIDIA driver hang.
        lost_gpu: Index of a GPU that fell off the bus.
        foreign: Somebody else computes on the first GPU.
        garbage: Figures are not what they should be (`telemetry`), or the whole report is not (`report`).
    """

    def __init__(self, facts: dict[str, Any], clock: Callable[[], float]) -> None:
        self.facts = facts
        self.models: dict[str, dict[str, Any]] = {"/models/Qwen2.5-7B-Instruct": qwen2_folder()}
        self.ready_after: int | None = 0
        self.silent = False
        self.stubborn = False
        self.driver_blocked = False
        self.lost_gpu: int | None = None
        self.foreign = False
        self.garbage: str | None = None
        self.processes: dict[str, StubProcess] = {}
        self.strays: list[dict[str, Any]] = []
        self._tombstones: dict[str, float] = {}
        self._fence: dict[str, int] = {}
        self._failures: list[tuple[str | None, Exception]] = []
        self._clock = clock
        self._telemetry = StubTelemetry(self)
        self._booted_at = clock() - 86400.0
        self._boots = 1
        self._next_pid = 4000

    # What tests do to it.

    def fail(self, error: Exception, verb: str | None = None, times: int = 1) -> None:
        """The next `times` calls (of `verb`, or of any) raise `error` instead."""
        self._failures += [(verb, error)] * times

    def exit(self, process: str, code: int | None = 1, signal: int | None = None, log: str | None = None) -> None:
        """The process ends by itself, with `log` as its last words."""
        if log is not None:
            self.processes[process].say(log)
        self.processes[process].end(self._clock(), code, signal)

    def reboot(self) -> None:
        """Everything that ran is gone without an exit that anybody saw, and the boot id is new."""
        self._boots += 1
        self._booted_at = self._clock()
        self.facts["boot_id"] = uuid_of(f"{self.facts['hostname']}/boot/{self._boots}")
        for process in self.processes.values():
            process.lost = process.lost or process.alive
            process.health = None

    def raise_failure(self, verb: str) -> None:
        for place, (wanted, error) in enumerate(self._failures):
            if wanted in (None, verb):
                del self._failures[place]
                raise error

    # What the helper does.

    def probe(self, environment: str | None, paths: Iterable[str] = ()) -> dict[str, Any]:
        facts = json.loads(json.dumps(self.facts))
        found = facts["environment"]
        if environment is not None and (found is None or found["path"] != environment):
            facts["environment"] = no_environment(environment)
        used = {port for process in self._live() for port in process.request.ports}
        return {
            "at": self._clock(),
            **facts,
            "listening": sorted({*facts["listening"], *used}),
            "clock": {"now": self._clock(), "ntp_synchronized": True},
            "paths": {path: self._path(path) for path in paths},
        }

    def start(self, request: StartRequest) -> dict[str, Any]:
        _check_id(request.process)
        _check_id(request.replica)
        known = self.processes.get(request.process)
        if known is None:
            self._refuse(request)
            self._fence[request.replica] = request.attempt
            known = self.processes[request.process] = self._begin(request)
            return self._started(known, already=False)
        return self._started(known, already=True)

    def stop(self, process: str) -> dict[str, Any]:
        _check_id(process)
        known = self.processes.get(process)
        if known is None:
            self._tombstones.setdefault(process, self._clock())
            return _stop_answer(known=False)
        killed = [member["pid"] for member in known.members()]
        if self.stubborn and known.alive:
            left = {"members": _names(known), "ports": list(known.request.ports), "accelerators": []}
            return _stop_answer(self._clock(), members=_names(known), pids=killed, left=left)
        answer = _stop_answer(self._clock(), members=_names(known), pids=killed)
        known.end(self._clock())
        known.stopped_at = known.stopped_at or self._clock()
        known.proof = {**answer, "exit": known.exit}
        return known.proof

    def report(self, metrics: Sequence[str] = (), gpu: bool = False, host: bool = True) -> dict[str, Any]:
        """What the node says now, with the figures that are asked for."""
        now = self._clock()
        kept = {name: process for name, process in self.processes.items() if not self._is_old(process, now)}
        fresh = {name for name, at in self._tombstones.items() if now - at <= ENDED_STAY_S}
        entries = {name: self._entry(process, now) for name, process in kept.items()}
        report = {
            "schema": 1,
            "at": now,
            "boot_id": self.facts["boot_id"],
            "uptime_s": now - self._booted_at,
            "hostname": self.facts["hostname"],
            "processes": entries | {name: dict(_TOMBSTONE) for name in fresh},
            "strays": list(self.strays),
            "ended": sorted({*(self._tombstones.keys() - fresh), *(self.processes.keys() - kept.keys())}),
        }
        self._telemetry.add(report, now, metrics=metrics, gpu=gpu, host=host)
        return report

    def collect(self, process: str) -> dict[str, Any]:
        known = self._known(process)
        self._look(known)
        request = {
            name: getattr(known.request, name) for name in StartRequest.__dataclass_fields__ if name != "secrets"
        }
        return {
            "log_tail": known.tail(COLLECT_TAIL_BYTES),
            "exit": known.exit,
            "members": [{**member, "alive": True} for member in known.members()],
            "request": json.loads(json.dumps(request, default=_plain)),
            "kernel": [],
            "ports": [_port(known, port) for port in known.request.ports],
            "at": self._clock(),
        }

    def logs(self, process: str, offset: int, limit: int) -> dict[str, Any]:
        known = self._known(process)
        self._look(known)
        size = len(known.log)
        start = max(0, size + offset) if offset < 0 else min(offset, size)
        data = bytes(known.log[start : start + limit])
        text = data.decode("utf-8", "replace")
        return {"offset": start, "next_offset": start + len(data), "base": 0, "size": size, "data": text}

    def read_model(self, path: str) -> dict[str, Any]:
        folder = self.models.get(path.rstrip("/"))
        if folder is None:
            raise HelperFailed(
                f"{path} does not exist; the deepest folder there is {self._parent(path)}.", code="PATH_MISSING"
            )
        return {"path": path, **json.loads(json.dumps(folder))}

    def forget(self, process: str) -> None:
        known = self.processes.get(process)
        if known is not None and known.alive:
            raise HelperFailed(f"Process {process} still runs.", code="STILL_RUNNING")
        self.processes.pop(process, None)
        self._tombstones[process] = 0.0

    # How it does it.

    def _refuse(self, request: StartRequest) -> None:
        if request.process in self._tombstones:
            raise HelperFailed(f"Process {request.process} was stopped before it was started.", code="FENCED")
        seen = self._fence.get(request.replica)
        if seen is not None and request.attempt < seen:
            message = f"Attempt {request.attempt} of {request.replica} is refused: attempt {seen} was here."
            raise HelperFailed(message, code="FENCED")
        taken = {port: process for process in self._live() for port in process.request.ports}
        for port in request.ports:
            if port in taken or port in self.facts["listening"]:
                pid = taken[port].pid if port in taken else None
                raise HelperFailed(
                    f"Port {port} is in use (pid {pid}).", code="PORT_IN_USE", detail={"port": port, "pid": pid}
                )

    def _begin(self, request: StartRequest) -> StubProcess:
        self._next_pid += 1
        process = StubProcess(request, self._next_pid, self._next_pid * 100, self._clock(), self.ready_after)
        process.say(f"starting {request.role} of {request.replica}, attempt {request.attempt}")
        return process

    def _started(self, process: StubProcess, already: bool) -> dict[str, Any]:
        boot_id = self.facts["boot_id"]
        return {"pid": process.pid, "start_time": process.start_time, "boot_id": boot_id, "already": already}

    def _live(self) -> list[StubProcess]:
        return [process for process in self.processes.values() if process.alive]

    def _known(self, process: str) -> StubProcess:
        if process not in self.processes:
            raise HelperFailed(f"This node knows no process {process}.", code="UNKNOWN_PROCESS")
        return self.processes[process]

    def _is_old(self, process: StubProcess, now: float) -> bool:
        return process.proof is not None and now - (process.stopped_at or now) > ENDED_STAY_S

    def _look(self, process: StubProcess) -> None:
        """A job moves on each time anybody looks at it."""
        if process.is_job and process.alive and _due(process):
            for line in self._job_lines(process.request):
                process.say(json.dumps(line))
            process.end(self._clock(), code=0)

    def _job_lines(self, request: StartRequest) -> list[dict[str, Any]]:
        if request.builtin:
            path = str(request.builtin.get("args", {}).get("path", ""))
            files = self.models.get(path.rstrip("/"), {}).get("files", [])
            name = hashlib.sha256(json.dumps([[file["name"], file["size"]] for file in files]).encode()).hexdigest()
            total = sum(file["size"] for file in files)
            return [
                *(
                    {"progress": 100 * (place + 1) // len(files), "file": file["name"]}
                    for place, file in enumerate(files)
                ),
                {"result": {"fingerprint": name, "files": len(files), "bytes": total}},
            ]
        steps = request.steps
        return [{"step": place, "of": len(steps), "argv": list(argv)} for place, argv in enumerate(steps, 1)]

    def _entry(self, process: StubProcess, now: float) -> dict[str, Any]:
        self._look(process)
        probe = self._probe_entry(process, now)
        passed = process.completed_at is not None and now - process.completed_at > ENDED_STAY_S
        return {
            "replica": process.request.replica,
            "attempt": process.request.attempt,
            "role": process.request.role,
            "pid": process.pid,
            "start_time": process.start_time,
            "started_at": process.started_at,
            "alive": process.alive,
            "supervised": process.alive,
            "exit": process.exit,
            "tombstone": False,
            "stopped": process.stopped_at is not None,
            "members": process.members(),
            "probe": probe,
            "log": {"base": 0, "size": len(process.log)},
            "log_tail": None if process.alive and passed else process.tail(LOG_TAIL_BYTES),
        }

    def _probe_entry(self, process: StubProcess, now: float) -> dict[str, Any] | None:
        probe = process.request.probe
        if not process.alive or not probe or probe.get("kind") != "openai":
            return None
        if process.completed_at is None and _due(process):
            process.health, process.completed_at = 200, now
            process.say("INFO:     Application startup complete.")
        return {
            "health": {"status": process.health, "error": None if process.health else "connection refused"},
            "models": [probe.get("model")] if process.completed_at else None,
            "completion": _completion(process),
            "at": now,
        }

    def _path(self, path: str) -> dict[str, Any]:
        """Model folders and what is above them are there; nothing else is."""
        there = any(PurePosixPath(path) in (known, *known.parents) for known in map(PurePosixPath, self.models))
        mounts = [disk["mount"] for disk in self.facts["disks"] if PurePosixPath(path).is_relative_to(disk["mount"])]
        mount = max(mounts, key=len, default="/")
        return {"exists": there, "folder": there, "readable": there, "writable": there, "mount": mount}

    def _parent(self, path: str) -> str:
        there = {str(parent) for known in self.models for parent in PurePosixPath(known).parents}
        return next((str(parent) for parent in PurePosixPath(path).parents if str(parent) in there), "/")


# What a report says of a process that was stopped before it was ever started.
_TOMBSTONE: dict[str, Any] = {
    **dict.fromkeys(("replica", "attempt", "role", "pid", "start_time", "started_at", "exit", "probe", "log_tail")),
    "alive": False,
    "supervised": False,
    "tombstone": True,
    "stopped": True,
    "members": [],
    "log": {"base": 0, "size": 0},
}


def _port(process: StubProcess, port: int) -> dict[str, Any]:
    return {"port": port, "open": process.alive, "pids": [process.pid] if process.alive else []}


def _due(process: StubProcess) -> bool:
    process.looks += 1
    return process.ready_after is not None and process.looks > process.ready_after


def _completion(process: StubProcess) -> dict[str, Any] | None:
    if process.completed_at is None:
        return None
    return {"ok": True, "status": 200, "error": None, "at": process.completed_at}


def _names(process: StubProcess) -> list[dict[str, Any]]:
    return [{"pid": member["pid"], "name": member["name"]} for member in process.members()]


def _stop_answer(
    at: float = 0.0,
    *,
    known: bool = True,
    members: list[dict[str, Any]] | None = None,
    pids: list[int] | None = None,
    left: dict[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "proven": left is None,
        "known": known,
        "members": members or [],
        "signals": [{"signal": "TERM", "at": at, "to": pids}] if pids else [],
        "left": left or {"members": [], "ports": [], "accelerators": []},
        "exit": None,
        "took_s": 0.0,
    }


def _check_id(name: str) -> None:
    if not _ID.fullmatch(name):
        raise HelperFailed(f"{name!r} is no valid name.", code="INVALID_ID")


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)
