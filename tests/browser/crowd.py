"""Fleets of any size as rows of the database, without machines: for pages that have to fit two GPUs and 800."""

from __future__ import annotations

import random

from django.utils import timezone

from deployments.models import (
    Accelerator,
    AcceleratorClaim,
    Deployment,
    LanguageModel,
    Node,
    ParallelLayout,
    Process,
    Replica,
)
from deployments.remote.stub_facts import uuid_of

NAMES = ("chat-7b", "coder-32b", "judge", "embed", "vision-72b", "draft", "summaries", "moe-large")
STATES = ("READY",) * 7 + ("STARTING", "UNHEALTHY", "READY", "READY", "FAILED")


def gather(nodes: int, gpus: int, named: str = "") -> None:
    """`nodes` machines with `gpus` GPUs each, most of them held by engines of up to eight deployments.

    Args:
        named: What all names begin with, so that a crowd can join another.
    """
    chance = random.Random(nodes * gpus)
    deployments = [_deployment(named + name) for name in NAMES[: max(1, min(8, nodes * gpus // 2))]]
    for place in range(nodes):
        node = _node(f"{named}rack{place // 8 + 1:02}-{place % 8 + 1}", gpus)
        slots = list(node.accelerators.all())
        while slots:
            size = min(len(slots), chance.choice((1, 2, 4, 8)))
            if chance.random() < 0.85 or gpus < 4:
                _engine(chance.choice(deployments), node, slots[:size], chance.choice(STATES) if nodes > 1 else "READY")
            slots = slots[size:]


def _node(name: str, gpus: int) -> Node:
    memory = {"total": 2048 * 1024**3, "available": 1800 * 1024**3}
    facts = {"memory": memory, "cpu": {"cores": 192}}
    node = Node.objects.create(name=name, address=name, state="READY", heard_at=timezone.now(), facts=facts)
    Accelerator.objects.bulk_create(
        Accelerator(
            node=node,
            uuid=f"GPU-{uuid_of(f'{name}/{index}')}",
            index=index,
            name="NVIDIA H200",
            memory_mib=143_771,
            platform="cuda",
        )
        for index in range(gpus)
    )
    return node


def _deployment(name: str) -> Deployment:
    model, _ = LanguageModel.objects.get_or_create(name=f"{name}-model", defaults={"path": f"/models/{name}"})
    layout, _ = ParallelLayout.objects.get_or_create(name="crowd", defaults={"kind": "tensor"})
    return Deployment.objects.create(
        name=name, served_name=name, model=model, layout=layout, api_key="sk-of-a-picture", state="READY"
    )


def _engine(deployment: Deployment, node: Node, slots: list[Accelerator], state: str) -> None:
    index = deployment.replicas.count()
    replica = Replica.objects.create(deployment=deployment, index=index, generation=1, attempt=1, state=state)
    process = Process.objects.create(
        deployment=deployment,
        replica=replica,
        node=node,
        attempt=1,
        role="engine",
        group="engine",
        member=0,
        rank=0,
        wave=0,
        spec={"accelerators": [slot.uuid for slot in slots]},
        state=state,
    )
    AcceleratorClaim.objects.bulk_create(AcceleratorClaim(process=process, node=node, uuid=slot.uuid) for slot in slots)
