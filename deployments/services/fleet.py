"""The fleet at a glance: who owns which accelerator, and what needs somebody's attention."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from deployments.domain.evidence import evidence_of
from deployments.domain.plugins import Problem
from deployments.domain.rendering import platform_of
from deployments.domain.specs import ProcessEvidence
from deployments.domain.states import PROCESS_FINAL, DeploymentState, JobState, NodeState, ProcessState, Reason, Wish
from deployments.models import Accelerator, AcceleratorClaim, Deployment, Job, Node, Process
from deployments.services.nodes import fingerprints, get_node, list_nodes
from deployments.services.processes import problems_of, processes_of

TROUBLED = (DeploymentState.FAILED, DeploymentState.DEGRADED, DeploymentState.UNKNOWN)
SILENT = "A node that it runs on is silent; nothing is stopped because of this."
FINAL = [state.value for state in PROCESS_FINAL]


@dataclass(frozen=True, slots=True)
class Slot:
    """One accelerator and the living process that holds it (None = free)."""

    accelerator: Accelerator
    owner: Process | None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node with its accelerators in bus order."""

    node: Node
    slots: tuple[Slot, ...]

    @property
    def used(self) -> int:
        return sum(slot.owner is not None for slot in self.slots)


@dataclass(frozen=True, slots=True)
class Attention:
    """One thing that will not get better by itself: what (`node`, `key`, `deployment`, `process`, `job`) and which."""

    kind: str
    subject: str
    id: str
    state: str
    note: str
    remedy: str = ""


def fleet() -> list[NodeRow]:
    """All nodes, by name."""
    return _rows(list_nodes())


def node_row(node_name: str) -> NodeRow:
    """One node.

    Raises:
        NotFound: There is none of this name.
    """
    return _rows([get_node(node_name)])[0]


def _rows(nodes: list[Node]) -> list[NodeRow]:
    claims = AcceleratorClaim.objects.filter(released_at=None, node__in=nodes).select_related("process__deployment")
    # Large or to be decrypted, once a claim, and no map shows them.
    claims = claims.defer("process__spec", "process__black_box", "process__evidence", "process__deployment__api_key")
    owners: dict[int, dict[str, Process]] = defaultdict(dict)
    for claim in claims:
        owners[claim.node_id][claim.uuid] = claim.process
    return [
        NodeRow(node, tuple(Slot(a, owners[node.pk].get(a.uuid)) for a in node.accelerators.all() if _shown(a, owners)))
        for node in nodes
    ]


def _shown(accelerator: Accelerator, owners: dict[int, dict[str, Process]]) -> bool:
    """A vanished accelerator is shown for as long as somebody holds it."""
    return accelerator.present or accelerator.uuid in owners[accelerator.node_id]


def processes_on(node: Node) -> list[Process]:
    """The processes on a node that are not proven gone, the newest first."""
    rows = Process.objects.filter(node=node).exclude(state__in=FINAL)
    return list(rows.select_related("deployment", "replica").order_by("-created_at"))


def evidence_for(process: Process) -> ProcessEvidence | None:
    """What the node's newest report says about a process; None when it has not spoken yet."""
    report = process.node.report
    if not report:
        return None
    return evidence_of(report, str(process.pk), (process.spec.get("probe") or {}).get("model"))


def attention() -> list[Attention]:
    """What is waiting for somebody, the worst first."""
    return [*_deployments(), *_unproven(), *_keys(), *_nodes(), *_jobs()]


def _deployments() -> list[Attention]:
    found = []
    rows = Deployment.objects.filter(removed_at=None).exclude(wish=Wish.STOPPED).prefetch_related("replicas")
    for row in rows.order_by("name"):
        waits = any(replica.reason == "UNPLACEABLE" for replica in row.replicas.all() if replica.state != "STOPPED")
        if row.state in TROUBLED or waits:
            said = problems_of(row, processes_of(row))
            note, remedy = _said(said[0]) if said else ("", "")
            found.append(Attention("deployment", row.name, row.name, row.state, note, remedy))
    return found


def _said(problem: Problem) -> tuple[str, str]:
    """Note and remedy. How long a node has been silent is left out: the number would stand still while it grows."""
    return (SILENT if problem.code == Reason.NODE_SILENT else problem.message), problem.remedy


def _unproven() -> list[Attention]:
    rows = Process.objects.filter(state=ProcessState.STOPPING, stop_evidence__isnull=False)
    return [
        Attention("process", f"{row.deployment.name} / {row.role} {row.rank}", row.deployment.name, row.state, row.note)
        for row in rows.select_related("deployment")
        if not (row.stop_evidence or {}).get("proven")
    ]


def _keys() -> list[Attention]:
    return [
        Attention("key", row["node"], row["node"], "CHANGED" if row["changed"] else "OFFERED", "")
        for row in fingerprints()
        if row["undecided"]
    ]


def _nodes() -> list[Attention]:
    found = []
    for node in Node.objects.exclude(state=NodeState.READY).order_by("name"):
        error = node.error or {}
        if error.get("code") in ("HOST_KEY_UNKNOWN", "HOST_KEY_CHANGED"):
            continue
        if node.state != NodeState.UNKNOWN or error:
            note = error.get("message") or node.state_note
            found.append(Attention("node", node.name, node.name, node.state, note, error.get("remedy", "")))
    return found


def _jobs() -> list[Attention]:
    """Failed jobs that were neither retried nor followed by a success of the same kind."""
    newest: dict[str, Job] = {}
    for job in Job.objects.exclude(kind__in=("probe", "scan")).order_by("-created_at")[:50]:
        newest.setdefault(job.kind, job)
    return [
        Attention("job", job.title, str(job.pk), job.state, job.note)
        for job in newest.values()
        if job.state == JobState.FAILED
    ]


def accelerator_names(node_ids: set[int]) -> dict[tuple[int, str], str]:
    """What accelerators are called for people, by (node id, uuid): `GPU 3`, `CPU slot 0`."""
    rows = Accelerator.objects.filter(node_id__in=node_ids)
    return {(row.node_id, row.uuid): slot_name(row) for row in rows}


def accelerator_names_by_node() -> dict[tuple[str, str], str]:
    """The same for all nodes, by (node name, uuid)."""
    return {(row.node.name, row.uuid): slot_name(row) for row in Accelerator.objects.select_related("node")}


def slot_name(row: Accelerator) -> str:
    """An accelerator's short name; a MIG instance shows the end of its UUID, as its index is its GPU's."""
    word = platform_of(row.platform).slot_word
    return f"{word} {row.index} MIG …{row.uuid[-8:]}" if row.mig else f"{word} {row.index}"
