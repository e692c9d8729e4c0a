"""The processes of deployments: what they are, what they say, where they answer, what is wrong with them."""

from __future__ import annotations

import json
import uuid
from typing import Any

from deployments.domain.command import quote
from deployments.domain.errors import Conflict, NotFound
from deployments.domain.failures import read_failure
from deployments.domain.plugins import Problem
from deployments.domain.states import ProcessState, Reason, ReplicaState
from deployments.models import Deployment, Process, Replica
from deployments.remote import launcher
from deployments.remote.launcher import LogChunk
from deployments.services.access import Actor, Role, require
from deployments.targets import target_of
from deployments.transitions import move, nudge


def force_stopped(actor: Actor, process_id: str) -> Process:
    """Take an operator's word that a process is gone, where the proof cannot be had, and give its claims back.

    Raises:
        Conflict: It is not waiting for the proof of a stop.
    """
    require(actor, Role.admin, "force a stop without proof")
    process = get_process(process_id)
    if process.state != ProcessState.STOPPING:
        raise Conflict(f"The process is {process.state}; only a stop that waits for its proof can be forced.")
    note = f"taken as gone on the word of {actor.name}; {process.note}"
    move(process, ProcessState.STOPPED, Reason.FORCED_BY_OPERATOR, note, actor=actor.name)
    nudge(process.deployment)
    return process


def get_process(process_id: str) -> Process:
    """The process with this id."""
    try:
        key = uuid.UUID(str(process_id))
    except ValueError:
        raise NotFound(f"{process_id!r} is not the id of a process.") from None
    rows = Process.objects.select_related("deployment", "node__key", "node__jump__key", "replica")
    row = rows.filter(pk=key).first()
    if row is None:
        raise NotFound(f"There is no process {process_id}.")
    return row


def processes_of(deployment: Deployment, *, current: bool = True) -> list[Process]:
    """A deployment's processes, newest attempts first; `current` leaves out attempts that are over and superseded."""
    rows = deployment.processes.select_related("node", "replica").order_by("-created_at", "rank")
    if not current:
        return list(rows[:200])
    live = Replica.objects.filter(deployment=deployment).exclude(state=ReplicaState.STOPPED)
    newest: dict[uuid.UUID | None, int] = {replica.pk: replica.attempt for replica in live}
    return [row for row in rows[:400] if newest.get(row.replica_id) == row.attempt]


def read_log(
    actor: Actor, process_id: str, *, offset: int = -65536, limit: int = 65536, wait_s: float = 0.0
) -> LogChunk:
    """A piece of a process's log, read from its node.

    Raises:
        RemoteError: The node cannot be asked now.
    """
    require(actor, Role.viewer, "read logs")
    process = get_process(process_id)
    limit = max(1, min(limit, 256 * 1024))
    return launcher().logs(target_of(process.node), str(process.pk), offset, limit, max(0.0, min(wait_s, 30.0)))


def endpoints(deployment: Deployment) -> list[dict[str, Any]]:
    """Where a deployment answers: one entry per READY engine."""
    found = []
    for process in processes_of(deployment):
        base = (process.spec.get("probe") or {}).get("base_url")
        if process.state == ProcessState.READY and base:
            found.append({"process": str(process.pk), "node": process.node.name, "url": f"{base}/v1"})
    return found


def curl_line(deployment: Deployment, url: str, *, key: str = "$API_KEY") -> str:
    """A command that asks the deployment for a completion."""
    body = json.dumps({"model": deployment.served_name, "prompt": "Hello", "max_tokens": 16}, ensure_ascii=False)
    head = f'"Authorization: Bearer {key}"' if key.startswith("$") else quote(f"Authorization: Bearer {key}")
    return f"curl {url}/completions -H {head} -H 'Content-Type: application/json' -d {quote(body)}"


def problems_of(deployment: Deployment, processes: list[Process]) -> list[Problem]:
    """What stands in the way of a deployment now: processes with an error, and replicas that wait or failed.

    A replica that failed of what one of its processes says is not said again.
    """
    found = [problem for process in processes if (problem := _problem_of(process)) is not None]
    told = {(process.replica_id, process.reason) for process in processes}
    for replica in deployment.replicas.exclude(state=ReplicaState.STOPPED).order_by("index"):
        if replica.reason and Reason(replica.reason) in _TROUBLE and (replica.pk, replica.reason) not in told:
            message = replica.note or f"Replica {replica.index} is {replica.state}."
            found.append(Problem(replica.reason, message, field=f"replica {replica.index}"))
    return found


def _problem_of(process: Process) -> Problem | None:
    if process.error:
        error = process.error
        where = error.get("node") or process.node.name
        return Problem(error["code"], error["message"], error.get("remedy") or "", node=where)
    if process.reason and process.note and Reason(process.reason) in _TROUBLE:
        return Problem(process.reason, process.note, _remedy(process), node=process.node.name)
    return None


def _remedy(process: Process) -> str:
    """What to do about the cause: as the kept end of its log names it or, until that was collected, the note."""
    for text in ((process.black_box or {}).get("log_tail") or "", process.note.partition(": ")[2]):
        cause = read_failure(text)
        if cause is not None and cause[0] == process.reason:
            return cause[2]
    return ""


_TROUBLE = frozenset(Reason) - {
    Reason.APPLIED,
    Reason.ROLLED_UP,
    Reason.PLACED,
    Reason.LAUNCHED,
    Reason.PROBE_PASSED,
    Reason.ADOPTED,
    Reason.STOPPED_BY_OPERATOR,
    Reason.FORCED_BY_OPERATOR,
    Reason.SUPERSEDED,
}
