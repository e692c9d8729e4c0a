"""The calls to nodes, and what their results mean. One action = one idempotent call; an error is a result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from deployments.domain.plan import Collect, Launch, Stop
from deployments.domain.policy import Policy
from deployments.domain.states import PROCESS_FINAL, ProcessState, Reason
from deployments.models import Deployment, Process
from deployments.remote import launcher
from deployments.remote.launcher import (
    HelperFailed,
    NodeTarget,
    RemoteError,
    Started,
    StartRequest,
    StopProof,
    StopRequest,
)
from deployments.reports import record_port_in_use
from deployments.targets import installation_id, target_of
from deployments.transitions import move

WIDTH = 64
# The node has said that nothing was started; anything else may have started it and lost the answer.
DEFINITE = frozenset({"FENCED", "EXEC_FAILED", "PORT_IN_USE", "DIR_MISSING", "INVALID_ID", "DISK_FULL"})
REASONS = {
    "FENCED": Reason.FENCED,
    "PORT_IN_USE": Reason.PORT_IN_USE,
    "EXEC_FAILED": Reason.ENGINE_MISSING,
    "AUTH_FAILED": Reason.AUTH_FAILED,
    "HOST_KEY_CHANGED": Reason.HOST_KEY_CHANGED,
    "HOST_KEY_UNKNOWN": Reason.HOST_KEY_UNKNOWN,
    "INTERPRETER_MISSING": Reason.INTERPRETER_MISSING,
    "INTERPRETER_TOO_OLD": Reason.INTERPRETER_MISSING,
}


@dataclass(frozen=True, slots=True)
class Call:
    """One action with all it needs, so that it can be done without the database."""

    action: Launch | Stop | Collect
    process: Process
    target: NodeTarget
    request: StartRequest | StopRequest | None
    first: bool = True


def prepare(deployment: Deployment, actions: Sequence[Launch | Stop | Collect], policy: Policy) -> list[Call]:
    """Write down that each launch is about to be asked for, then gather what the calls need."""
    if not actions:
        return []
    rows = {
        str(row.pk): row
        for row in Process.objects.filter(pk__in=[a.process_id for a in actions]).select_related(
            "node__jump__key", "node__key"
        )
    }
    calls = []
    installation = installation_id()
    launches = {action.process_id for action in actions if isinstance(action, Launch)}
    pending = _ask_for(launches, policy)
    for action in actions:
        process = rows[action.process_id]
        first = process.launch_requested_at is None
        if isinstance(action, Launch) and action.process_id not in pending:
            continue
        target = target_of(process.node, installation)
        calls.append(Call(action, process, target, _request(deployment, process, action), first))
    return calls


def _ask_for(launches: Collection[str], policy: Policy) -> set[str]:
    """Write down that launches are asked for and by when they must have come to something; those still PENDING."""
    if not launches:
        return set()
    now = timezone.now()
    deadline = now + timedelta(seconds=policy.launch_deadline)
    with transaction.atomic():
        rows = Process.objects.select_for_update(no_key=True).filter(pk__in=launches, state=ProcessState.PENDING)
        pending = {str(pk) for pk in rows.order_by("pk").values_list("pk", flat=True)}
        first = Process.objects.filter(pk__in=pending, launch_requested_at=None)
        first.update(launch_requested_at=now, deadline=Coalesce("deadline", Value(deadline)))
    return pending


def _request(
    deployment: Deployment, process: Process, action: Launch | Stop | Collect
) -> StartRequest | StopRequest | None:
    if isinstance(action, Launch):
        return start_request(deployment, process)
    if isinstance(action, Stop):
        return StopRequest(action.process_id, action.grace_s, action.kill_s, process.spec.get("stop_signal", "TERM"))
    return None


def start_request(deployment: Deployment, process: Process) -> StartRequest:
    """A process row as the node is told to start it."""
    spec = process.spec
    return StartRequest(
        process=str(process.pk),
        replica=str(process.replica_id),
        attempt=process.attempt,
        role=spec["role"],
        argv=tuple(spec["argv"]),
        env=spec["env"],
        secrets={name: deployment.api_key for name in spec["secrets"]},
        probe=spec["probe"],
        ports=tuple(spec["ports"].values()),
        accelerators=tuple(spec["accelerators"]),
    )


def perform(calls: Sequence[Call]) -> list[tuple[Call, Any]]:
    """Make all calls side by side. A RemoteError is returned, not raised."""
    return list(zip(calls, side_by_side(_call, calls), strict=True))


def side_by_side(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """`function` of each item, at the same time, in the order of the items. It must not touch the database."""
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(WIDTH, len(items))) as pool:
        return list(pool.map(function, items))


def _call(call: Call) -> Any:
    try:
        if isinstance(call.request, StartRequest):
            return launcher().start(call.target, call.request)
        if isinstance(call.request, StopRequest):
            return launcher().stop(call.target, call.request)
        return launcher().collect(call.target, call.action.process_id)
    except RemoteError as error:
        return error


def record(deployment: Deployment, call: Call, result: Any, policy: Policy) -> bool:
    """Write down what a call brought. True = the process changed its state."""
    if isinstance(call.action, Launch):
        return _record_launch(deployment, call, result, policy)
    if isinstance(call.action, Stop):
        return _record_stop(call, call.action, result)
    if isinstance(result, RemoteError) and result.retryable and call.process.state not in PROCESS_FINAL:
        return False  # its stop waits for the node too, so there will be another chance
    box = {"error": result.as_dict()} if isinstance(result, RemoteError) else result
    Process.objects.filter(pk=call.process.pk, black_box__isnull=True).update(black_box=box)
    return False


def _record_launch(deployment: Deployment, call: Call, result: Started | RemoteError, policy: Policy) -> bool:
    process = call.process
    if isinstance(result, Started):
        patience = deployment.start_deadline or policy.start_deadline
        return move(
            process,
            ProcessState.STARTING,
            Reason.LAUNCHED,
            f"pid {result.pid}",
            evidence={"pid": result.pid, "start_time": result.start_time, "already": result.already},
            deadline=timezone.now() + timedelta(seconds=patience),
            pid=result.pid,
            launch_boot_id=result.boot_id,
            error=None,
        )
    result.node = result.node or process.node.name
    error = result.as_dict()
    pending = Process.objects.filter(pk=process.pk, state=ProcessState.PENDING)
    pending.update(error=error, note=result.message)
    refused = isinstance(result, HelperFailed) and result.code in DEFINITE
    if not refused and not (call.first and not result.sent and not result.retryable):
        if call.first and not result.sent:
            # Nothing left the panel, so there is nothing that a stop would have to prove.
            pending.update(launch_requested_at=None)
        return False
    if result.code == "PORT_IN_USE" and isinstance(result.detail.get("port"), int):
        record_port_in_use(process.node, result.detail["port"])
    reason = REASONS.get(result.code, Reason.EXEC_FAILED)
    # An earlier request may still be under way: then only a stop proves anything.
    end = ProcessState.FAILED if call.first else ProcessState.STOPPING
    return move(process, end, reason, result.message, evidence=error, error=error)


def _record_stop(call: Call, action: Stop, result: StopProof | RemoteError) -> bool:
    process = call.process
    if isinstance(result, RemoteError):
        note = f"the stop cannot be proven: {result.message}"
        Process.objects.filter(pk=process.pk).update(stop_evidence=result.as_dict(), note=note)
        return False
    evidence = {"proven": result.proven, "known": result.known, **result.evidence}
    if not result.proven:
        Process.objects.filter(pk=process.pk).update(stop_evidence=evidence, note=_what_is_left(evidence))
        return False
    return move(process, action.final, action.reason, process.note, evidence=evidence, stop_evidence=evidence)


def _what_is_left(evidence: dict[str, Any]) -> str:
    left = evidence.get("left") or {}
    parts = [f"pid {m['pid']} ({m.get('name', '?')})" for m in left.get("members") or ()]
    parts += [f"port {port}" for port in left.get("ports") or ()]
    parts += [f"accelerator {item}" for item in left.get("accelerators") or ()]
    return "still there: " + ", ".join(parts) if parts else "not proven yet"
