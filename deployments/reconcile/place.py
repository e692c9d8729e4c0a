"""Writing down the next attempt of a replica: seats, claims, processes; all of it or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from deployments.domain.errors import Conflict, DomainError
from deployments.domain.placement import place, render
from deployments.domain.plugins import RenderContext
from deployments.domain.specs import EngineOptions, ModelFacts, ProcessSpec
from deployments.domain.states import Reason, ReplicaState
from deployments.models import AcceleratorClaim, Deployment, LanguageModel, Node, PortClaim, Process, Replica
from deployments.targets import node_views
from deployments.transitions import move

from .load import layout_spec

# How long to wait before looking for seats again (s).
PLACE_AGAIN_S = 5


def model_facts(model: LanguageModel) -> ModelFacts:
    """A model row's facts as the planner's value."""
    return ModelFacts(path=model.path, **{k: v for k, v in model.facts.items() if k in ModelFacts.__dataclass_fields__})


def specs_for(deployment: Deployment, wanted: Sequence[int]) -> tuple[ProcessSpec, ...]:
    """The processes that the next replica of a deployment would be, on the fleet as it is now.

    Args:
        deployment: A row, saved or not.
        wanted: Ids of the nodes to choose among; empty = any.

    Raises:
        Unplaceable: No node can take them.
        InvalidLayout: The layout does not exist.
    """
    layout = layout_spec(deployment.layout)
    views = node_views(deployment.model)
    return render_on(deployment, views, place(layout, list(views.values()), wanted))


def render_on(deployment: Deployment, views, assignments) -> tuple[ProcessSpec, ...]:
    """The processes of a deployment on given seats."""
    return render(
        RenderContext(
            served_name=deployment.served_name,
            model=model_facts(deployment.model),
            layout=layout_spec(deployment.layout),
            nodes=views,
            assignments=assignments,
            options=EngineOptions(
                tuple(deployment.args), deployment.env, deployment.start_deadline, deployment.stop_grace
            ),
        )
    )


def place_attempt(deployment: Deployment, replica_id: str, attempt: int, token: str) -> None:
    """Give a replica its seats for `attempt`, or write down why there are none and when to look again.

    Does nothing when the lease `token` or the replica's attempt is no longer the one that was planned for.
    """
    replica = Replica.objects.get(pk=replica_id)
    try:
        with transaction.atomic():
            # Placing is one at a time: the fleet that was looked at is the fleet that is claimed.
            # Keys stay readable, so that nobody who only points at a node or a replica waits for us in a circle.
            list(Node.objects.select_for_update(no_key=True).order_by("pk").values_list("pk"))
            replica = Replica.objects.select_for_update(no_key=True).get(pk=replica_id)
            ours = Deployment.objects.filter(pk=deployment.pk, lease_token=token).exists()
            if not ours or replica.attempt != attempt - 1 or replica.state == ReplicaState.STOPPED:
                return
            wanted = list(deployment.nodes.values_list("pk", flat=True))
            _write(deployment, replica, attempt, specs_for(deployment, wanted))
    except IntegrityError:
        _later(replica, Conflict("Somebody else took a seat at the same moment."))
    except DomainError as error:
        _later(replica, error)


def _write(deployment: Deployment, replica: Replica, attempt: int, specs: tuple[ProcessSpec, ...]) -> None:
    values: dict[str, Any] = {"attempt": attempt, "next_attempt_at": None}
    if replica.state != ReplicaState.PENDING:
        note = f"attempt {attempt} has its seats"
        if not move(replica, ReplicaState.PENDING, Reason.PLACED, note, **values):
            raise Conflict("The replica changed while it was placed.")
    else:
        note = f"attempt {attempt} has its seats"
        Replica.objects.filter(pk=replica.pk).update(**values, reason=Reason.PLACED, note=note)
    for spec in specs:
        process = Process.objects.create(
            deployment=deployment,
            replica=replica,
            node_id=spec.node_id,
            attempt=attempt,
            role=spec.role,
            group=spec.group,
            member=spec.member,
            rank=spec.rank,
            wave=spec.wave,
            spec=asdict(spec),
        )
        for uuid in spec.accelerators:
            AcceleratorClaim.objects.create(process=process, node_id=spec.node_id, uuid=uuid)
        for name, port in spec.ports.items():
            PortClaim.objects.create(process=process, node_id=spec.node_id, port=port, name=name)


def _later(replica: Replica, error: DomainError) -> None:
    """The state stays as it is: a replica that backs off does so, one that waits for seats waits."""
    Replica.objects.filter(pk=replica.pk).update(
        reason=Reason.UNPLACEABLE,
        note=error.message,
        next_attempt_at=timezone.now() + timedelta(seconds=PLACE_AGAIN_S),
    )
