"""A fleet that looks like somebody's: machines, models, and deployments in every state that a page has to show."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from django.utils import timezone

from deployments.models import Deployment, Node
from deployments.remote.stub import StubLauncher
from deployments.remote.stub_facts import cpu_host, h200_host, qwen2_folder
from deployments.remote.stub_node import StubProcess
from deployments.services import deployments, jobs, keys, layouts, models, nodes
from deployments.services.access import Actor
from deployments.services.deployments import DeploymentInput
from tests.browser import live, telemetry

LOGS = Path(__file__).parents[1] / "golden" / "logs"
BIG = "/models/Qwen2.5-32B-Instruct"
SMALL = "/models/Qwen2.5-7B-Instruct"


def fleet(stub: StubLauncher, admin: Actor) -> None:
    """Everything, moved on until it stands still."""
    keys.generate_key(admin, name="fleet")
    for name in ("atlas-01", "atlas-02", "atlas-03", "bench"):
        _node(stub, admin, name)
    ticks(6)
    _accept(admin)
    ticks(6)
    _node(stub, admin, "atlas-04")
    for name, path in (("qwen2.5-7b", SMALL), ("qwen2.5-32b", BIG)):
        models.register_model(admin, name=name, path=path)
    for name, size in (("tp2", 2), ("tp4", 4), ("tp8", 8)):
        layouts.add_layout(admin, name=name, kind="tensor", tensor_parallel_size=size)
    layouts.add_layout(admin, name="single", kind="single")
    ticks(6)
    models.fingerprint_files(admin, models.get_model("qwen2.5-7b"), ["atlas-01", "atlas-02"])
    _deploy(admin, stub)
    _trouble(admin, stub)
    telemetry.hear()


def ticks(count: int) -> None:
    for _ in range(count):
        # The lease of a look ends with it, and the next one need not wait for its moment.
        Deployment.objects.filter(removed_at=None).update(next_look_at=timezone.now())
        live.tick()


def _node(stub: StubLauncher, admin: Actor, name: str) -> None:
    item = {"name": name, "address": f"{name}.cluster.example", "user": "pilot", "key": "fleet"}
    if name == "bench":
        item |= {"jump": {"address": "bastion.example", "user": "ops"}}
    (node,) = nodes.add_nodes(admin, [item])
    facts = cpu_host(name) if name == "bench" else h200_host(name)
    machine = stub.node(node.pk, facts)
    machine.models[BIG] = qwen2_folder()
    if name == "atlas-03":
        del machine.models[BIG]


def _accept(admin: Actor) -> None:
    for _ in range(2):
        rows = [row for row in nodes.fingerprints() if row["undecided"]]
        prints = [(row["node"], row["offered"], row["jump_offered"]) for row in rows]
        nodes.accept_host_keys(
            admin, [{"node": node, "fingerprint": host, "jump_fingerprint": jump} for node, host, jump in prints]
        )
        ticks(4)


def _deploy(admin: Actor, stub: StubLauncher) -> None:
    deployments.apply(
        admin,
        DeploymentInput("chat-7b", "qwen2.5-7b", "tp2", replicas=2, args=("--max-model-len", "16384")),
    )
    ticks(10)
    deployments.apply(admin, DeploymentInput("old-chat", "qwen2.5-7b", "single", nodes=("atlas-02",)))
    ticks(8)
    from deployments.domain.states import Wish

    deployments.set_wish(admin, "old-chat", Wish.STOPPED)
    ticks(6)
    for machine in stub._nodes.values():
        machine.ready_after = None
    deployments.apply(admin, DeploymentInput("coder-32b", "qwen2.5-32b", "tp4", nodes=("atlas-02",)))
    ticks(4)
    process = newest(stub, "coder-32b")
    log = (LOGS / "cpu-tp2-ready.log").read_text(encoding="utf-8").splitlines(keepends=True)
    process.log += "".join(log[:60]).encode()
    deployments.apply(
        admin, DeploymentInput("judge", "qwen2.5-7b", "single", nodes=("atlas-03",), args=("--max-model-length", "9"))
    )
    ticks(4)
    failing = newest(stub, "judge")
    failing.log += (LOGS / "cpu-fail-unknown-flag.log").read_bytes()
    failing.end(timezone.now().timestamp(), code=2)
    ticks(6)


def newest(stub: StubLauncher, name: str) -> StubProcess:
    """What runs on the simulated machine for the newest process of a deployment."""
    row = Deployment.objects.get(name=name).processes.order_by("-created_at")[0]
    return stub.node(row.node_id).processes[str(row.pk)]


def _trouble(admin: Actor, stub: StubLauncher) -> None:
    silent = Node.objects.get(name="bench")
    stub.node(silent.pk).silent = True
    long_ago = timezone.now() - timedelta(seconds=90)
    Node.objects.filter(pk=silent.pk).update(heard_at=long_ago)
    changed = Node.objects.get(name="atlas-03")
    Node.objects.filter(pk=changed.pk).update(offered_host_key=stub.host_key_of("reinstalled.example").public)
    ticks(2)
    jobs.start_job(
        admin,
        kind="install_environment",
        nodes=[nodes.get_node("atlas-01"), nodes.get_node("atlas-02")],
        args={"path": "/opt/vllm-next", "packages": ["vllm==0.33.0", "ray[default]==2.60.0"]},
    )
    ticks(4)
