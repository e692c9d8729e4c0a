"""The shape of what nodes answer, checked where it comes in, so that a node's garbage is an error of that node only.

What is checked is what jobs and the reconciler build on. Figures (`host`, `gpu`, `metrics`) only have to be objects
here: whoever reads them checks them, and wrong ones cost nothing but the figures.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from .launcher import HelperFailed

SHOWN_LETTERS = 300

Answer = TypeVar("Answer")

# The last second of the year 9999: no calendar reaches further.
Epoch = Annotated[float, msgspec.Meta(ge=0, le=253_402_300_799)]
Pid = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Small = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Figures = dict[str, Any]


class Exit(msgspec.Struct):
    code: Small | None = None
    signal: Small | None = None
    at: Epoch | None = None


class Member(msgspec.Struct):
    pid: Pid
    start_time: Count | None = None
    name: str | None = None
    rss: Count | None = None


class Health(msgspec.Struct):
    status: Small | None = None
    error: str | None = None


class Completion(msgspec.Struct):
    ok: bool
    status: Small | None = None
    error: str | None = None
    at: Epoch | None = None


class Probe(msgspec.Struct):
    health: Health | None = None
    models: list[str] | None = None
    completion: Completion | None = None
    at: Epoch | None = None


class LogExtent(msgspec.Struct):
    base: Count
    size: Count


class Process(msgspec.Struct):
    """One process of ours on a node. Only what is always known is required: a tombstone has little else."""

    alive: bool
    members: list[Member]
    log: LogExtent
    replica: str | None = None
    attempt: Count | None = None
    role: str | None = None
    pid: Pid | None = None
    start_time: Count | None = None
    started_at: Epoch | None = None
    supervised: bool = False
    exit: Exit | None = None
    tombstone: bool = False
    stopped: bool = False
    probe: Probe | None = None
    log_tail: str | None = None
    metrics: Figures | None = None


class Stray(msgspec.Struct):
    process: str
    pid: Pid
    installation: str | None = None
    name: str | None = None


class Report(msgspec.Struct):
    at: Epoch
    processes: dict[str, Process]
    boot_id: str | None = None
    uptime_s: Epoch | None = None
    hostname: str | None = None
    host: Figures | None = None
    gpu: Figures | None = None
    strays: list[Stray] = []
    ended: list[str] = []


class Stopped(msgspec.Struct):
    """What a stop's answer must say; the rest of it is evidence for people."""

    proven: bool
    known: bool


class ModelFile(msgspec.Struct):
    name: str
    size: Count | None = None


class ModelFolder(msgspec.Struct):
    exists: bool
    files: list[ModelFile]
    path: str | None = None
    config: dict[str, Any] | None = None
    config_error: str | None = None
    index_total_size: Count | None = None


class Cpu(msgspec.Struct):
    model: str | None = None
    cores: Annotated[int, msgspec.Meta(ge=0, le=2**20)] | None = None


class Memory(msgspec.Struct):
    total: Count | None = None


class NvidiaSmi(msgspec.Struct):
    xml: str | None = None
    compute_capabilities: dict[str, str | None] | None = None


class Facts(msgspec.Struct):
    """The part of a probe's facts that accelerators are made of. Any of it may be missing."""

    cpu: Cpu | None = None
    memory: Memory | None = None
    nvidia_smi: NvidiaSmi | None = None


def check_report(node: str, data: Any) -> dict[str, Any]:
    """The report as it came, unknown fields and all, once its structure is right.

    Raises:
        HelperFailed: BAD_REPORT; the message says which part is wrong.
    """
    try:
        msgspec.convert(data, Report)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _bad(node, "BAD_REPORT", "a report", f"{error}{_culprit(data)}") from None
    report: dict[str, Any] = data
    return report


def check_answer(node: str, verb: str, data: Any, type_: Any) -> dict[str, Any]:
    """A verb's answer as it came, once it has the structure of `type_`.

    Raises:
        HelperFailed: BAD_ANSWER.
    """
    read_answer(node, verb, data, type_)
    answer: dict[str, Any] = data
    return answer


def read_answer(node: str, verb: str, data: Any, type_: type[Answer]) -> Answer:
    """A verb's answer as one of the launcher's types; fields that the type does not have are dropped.

    Raises:
        HelperFailed: BAD_ANSWER.
    """
    try:
        return msgspec.convert(data, type_)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _bad(node, "BAD_ANSWER", f"an answer to `{verb}`", str(error)) from None


def _culprit(data: Any) -> str:
    """Names the first process whose entry is wrong: the checker tells the place, but not the key."""
    processes = data.get("processes") if isinstance(data, dict) else None
    for name, entry in processes.items() if isinstance(processes, dict) else ():
        try:
            msgspec.convert(entry, Process)
        except (msgspec.ValidationError, RecursionError):
            return f" (process {name[:128]})"
    return ""


def _bad(node: str, code: str, what: str, problem: str) -> HelperFailed:
    problem = problem[:SHOWN_LETTERS]
    return HelperFailed(
        f"{node} sent {what} that makes no sense: {problem}.",
        code=code,
        remedy="Something on the node answers wrongly in the helper's place, or its Python is broken. "
        "Give the node another interpreter, then probe it again.",
        detail={"problem": problem},
        node=node,
    )
