"""A small panel made of rows and simulated machines, and ways to move it on one step at a time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import F
from django.utils import timezone

from deployments import reconcile as reconciler
from deployments import reports
from deployments.domain.plan import Plan
from deployments.domain.policy import Policy
from deployments.domain.states import PROCESS_FINAL, ProcessState
from deployments.models import (
    AcceleratorClaim,
    Deployment,
    LanguageModel,
    ModelCopy,
    Node,
    ParallelLayout,
    PortClaim,
    Process,
    Replica,
)
from deployments.remote import launcher
from deployments.remote.stub import StubLauncher
from deployments.remote.stub_facts import cpu_host
from deployments.remote.stub_node import StubNode, StubProcess
from deployments.targets import target_of

# No waiting between attempts, and few of them; the rest is as in life.
QUICK = Policy(backoff_base=0.0, max_attempts=3)
FINAL = [state.value for state in PROCESS_FINAL]
MODEL = "/models/Qwen2.5-7B-Instruct"
STEPS = 40


def machine(stub: StubLauncher, name: str = "node-1", slots: int = 4, **columns: Any) -> Node:
    """A node row of this machine's kind, probed, with `slots` accelerators and the model's files."""
    values = {"kind": Node.Kind.LOCAL, "environment": "/opt/vllm", "cluster_address": "127.0.0.1", **columns}
    node = Node.objects.create(name=name, **values)
    stub.node(node.pk, cpu_host(name, cores=slots))
    target = target_of(node)
    reports.record_facts(node, launcher().probe(target, "/opt/vllm"))
    reports.record(node, launcher().report(target))
    for model in LanguageModel.objects.all():
        ModelCopy.objects.get_or_create(model=model, node=node, defaults={"path": model.path, "present": True})
    return node


def model() -> LanguageModel:
    """The one model, whose files are on every node there is."""
    row, _ = LanguageModel.objects.get_or_create(name="qwen", defaults={"path": MODEL})
    for node in Node.objects.all():
        ModelCopy.objects.get_or_create(model=row, node=node, defaults={"path": MODEL, "present": True})
    return row


def wish(name: str = "chat", *, tensor: int = 1, replicas: int = 1, **columns: Any) -> Deployment:
    """A deployment row that nobody has looked at yet."""
    kind = "single" if tensor == 1 else "tensor"
    layout, _ = ParallelLayout.objects.get_or_create(
        name=f"{kind}-{tensor}", defaults={"kind": kind, "tensor_parallel_size": tensor}
    )
    return Deployment.objects.create(
        name=name,
        served_name=name,
        model=model(),
        layout=layout,
        replicas_wished=replicas,
        api_key="sk-of-a-test",
        next_look_at=timezone.now(),
        **columns,
    )


def hear(deployment: Deployment) -> None:
    """Forget that the nodes were heard a moment ago, so that the next step asks them."""
    Node.objects.filter(processes__deployment=deployment, heard_at__isnull=False).update(
        heard_at=F("heard_at") - timedelta(seconds=2)
    )


def step(deployment: Deployment, policy: Policy = QUICK) -> Plan | None:
    """One step on fresh reports."""
    hear(deployment)
    return reconciler.reconcile(deployment.pk, policy)


def run(deployment: Deployment, policy: Policy = QUICK) -> Deployment:
    """Steps until one has nothing to do; the row as it is then."""
    for _ in range(STEPS):
        plan = step(deployment, policy)
        if plan is not None and not plan.actions:
            break
    else:
        raise AssertionError(f"{deployment.name} still moves after {STEPS} steps")
    deployment.refresh_from_db()
    return deployment


def until(deployment: Deployment, state: str, policy: Policy = QUICK) -> Process:
    """Steps until the newest process is in a state."""
    for _ in range(STEPS):
        newest = deployment.processes.order_by("-created_at").first()
        if newest is not None and newest.state == state:
            return newest
        step(deployment, policy)
    raise AssertionError(f"no process of {deployment.name} became {state}: {states(deployment)}")


def states(deployment: Deployment) -> list[tuple[int, str, str]]:
    """(attempt, state, reason) of every process, in order of creation."""
    rows = deployment.processes.order_by("created_at", "rank")
    return [(row.attempt, str(row.state), str(row.reason)) for row in rows]


def only_process(deployment: Deployment) -> Process:
    return deployment.processes.exclude(state__in=FINAL).get()


def only_replica(deployment: Deployment) -> Replica:
    return deployment.replicas.exclude(state="STOPPED").get()


def running(machine: StubNode) -> list[StubProcess]:
    """What really runs on a simulated machine."""
    return [process for process in machine.processes.values() if process.alive]


def claims(deployment: Deployment) -> int:
    """How many accelerators and ports a deployment's processes hold."""
    held = {"process__deployment": deployment, "released_at": None}
    return AcceleratorClaim.objects.filter(**held).count() + PortClaim.objects.filter(**held).count()


def later(row: Process | Replica | Node, column: str, seconds: float) -> None:
    """Let time pass for one column of a row: what it says lies `seconds` further back."""
    type(row).objects.filter(pk=row.pk).update(**{column: F(column) - timedelta(seconds=seconds)})


def assert_all_gone(deployment: Deployment, machines: list[StubNode]) -> None:
    """Nothing runs, every row is final, and every claim is given back."""
    assert [process.request.process for machine in machines for process in running(machine)] == []
    assert {row.state for row in deployment.processes.all()} <= {ProcessState.STOPPED, ProcessState.FAILED}
    assert claims(deployment) == 0
