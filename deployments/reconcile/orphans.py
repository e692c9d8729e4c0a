"""What a node still runs though this database knows it as ended: the only processes that are stopped unasked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone

from deployments.domain.states import JOB_FINAL, PROCESS_FINAL, Reason
from deployments.models import JobStep, Node, Process
from deployments.remote import launcher
from deployments.remote.launcher import NodeTarget, RemoteError, StopProof, StopRequest
from deployments.targets import installation_id, target_of
from deployments.transitions import record

from .act import side_by_side

# Only what a node has said this recently is acted on (s).
RECENT_S = 60.0


def sweep() -> int:
    """Stop every orphan on the nodes that speak, and write it down. What does not go away is found again next time.

    Returns:
        How many were proven gone.
    """
    found = [(node, process) for node in _speaking() for process in _orphans(node)]
    installation = installation_id()
    answers = side_by_side(_stop, [(target_of(node, installation), process) for node, process in found])
    for (node, process), answer in zip(found, answers, strict=True):
        _write_down(node, process, answer)
    return sum(isinstance(answer, StopProof) and answer.proven for answer in answers)


def _speaking() -> Iterator[Node]:
    since = timezone.now() - timedelta(seconds=RECENT_S)
    return Node.objects.filter(heard_at__gt=since).select_related("key", "jump__key").defer("facts").iterator()


def _orphans(node: Node) -> list[Process | JobStep]:
    """Rows that ended before the node's newest report, which says that they live."""
    entries = (node.report.get("processes") or {}).items()
    alive = [name for name, entry in entries if (entry.get("alive") or entry.get("members")) and _is_uuid(name)]
    if not alive:
        return []
    ended = {"node": node, "state__in": [state.value for state in PROCESS_FINAL], "ended_at__lt": node.heard_at}
    over = {"node": node, "state__in": [state.value for state in JOB_FINAL], "finished_at__lt": node.heard_at}
    steps = JobStep.objects.filter(process__in=alive, **over).select_related("job")
    return [*Process.objects.filter(pk__in=alive, **ended), *steps]


def _is_uuid(name: str) -> bool:
    try:
        UUID(name)
    except ValueError:
        return False
    return True


def _id(row: Process | JobStep) -> str:
    return str(row.pk if isinstance(row, Process) else row.process)


def _stop(call: tuple[NodeTarget, Process | JobStep]) -> StopProof | RemoteError:
    target, row = call
    try:
        return launcher().stop(target, StopRequest(_id(row)))
    except RemoteError as error:
        return error


def _write_down(node: Node, row: Process | JobStep, answer: StopProof | RemoteError) -> None:
    if isinstance(answer, RemoteError) or not answer.proven:
        return
    links: dict[str, Any] = {"node_id": node.pk, "evidence": {"proven": True, **answer.evidence}}
    note = f"{node.name} still ran it though it counted as {row.state.lower()}"
    if isinstance(row, Process):
        links |= {"deployment_id": row.deployment_id, "name": f"{row.role} {row.rank}"}
        record("process", row.pk, row.state, row.state, Reason.ORPHAN_STOPPED, note, **links)
    else:
        record("job", row.job_id, row.state, row.state, Reason.ORPHAN_STOPPED, note, name=row.job.title, **links)
