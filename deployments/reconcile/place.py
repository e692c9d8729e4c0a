"""Writing down the next attempt of a replica: seats, claims, processes; all of it or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from deployments.domain.errors import Conflict, DomainError
from deployments.domain.placement import layout_of, place, render
from deployments.domain.plugins import RenderContext
from deployments.domain.rules.fleet import allowed
from deployments.domain.specs import EngineOptions, ModelFacts, NodeView, ProcessSpec
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
    return render_on(deployment, views, place(layout, list(views.values()), _allowed(deployment, views, wanted)))


def _allowed(deployment: Deployment, views: Mapping[int, NodeView], wanted: Sequence[int]) -> list[int]:
    """Ids of the nodes to choose among, without those on which the numbered rules know that the launch would fail."""
    layout = layout_spec(deployment.layout)
    options = EngineOptions(tuple(deployment.args), deployment.env)
    pool = [views[id] for id in wanted or views if id in views]
    seats = max(1, len(layout_of(layout).seats(layout)))
    return allowed(pool, layout, model_facts(deployment.model), deployment.model.config, options, seats) or list(wanted)


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


def place_attempts(deployment: Deployment, attempts: Mapping[str, int], token: str) -> None:
    """Give replicas (id to number of the attempt) their seats, or write down why there are none and when to look again.

    Each gets all of its seats or none. Leaves out those whose attempt is no longer the one that was planned for, and
    does nothing when the lease `token` is gone.
    """
    if not attempts:
        return
    try:
        with transaction.atomic():
            # Placing is one at a time: the fleet that was looked at is the fleet that is claimed.
            # Keys stay readable, so that nobody who only points at a node or a replica waits for us in a circle.
            list(Node.objects.select_for_update(no_key=True).order_by("pk").values_list("pk"))
            rows = list(Replica.objects.select_for_update(no_key=True).filter(pk__in=attempts).order_by("index"))
            if Deployment.objects.filter(pk=deployment.pk, lease_token=token).exists():
                _place_all(deployment, [row for row in rows if _is_next(row, attempts[str(row.pk)])])
    except IntegrityError:
        for row in Replica.objects.filter(pk__in=attempts):
            _later(row, Conflict("Somebody else took a seat at the same moment."))


def _is_next(replica: Replica, attempt: int) -> bool:
    return replica.attempt == attempt - 1 and replica.state != ReplicaState.STOPPED


def _place_all(deployment: Deployment, replicas: Sequence[Replica]) -> None:
    """One after the other, each on what the ones before have left."""
    layout = layout_spec(deployment.layout)
    views = node_views(deployment.model)
    wanted = _allowed(deployment, views, list(deployment.nodes.values_list("pk", flat=True)))
    seated: list[tuple[Replica, ProcessSpec]] = []
    for replica in replicas:
        try:
            specs = render_on(deployment, views, place(layout, list(views.values()), wanted))
            _count(replica)
        except DomainError as error:
            _later(replica, error)
            continue
        for spec in specs:
            views[spec.node_id] = _without(views[spec.node_id], spec)
        seated += [(replica, spec) for spec in specs]
    _write(deployment, seated)


def _without(view: NodeView, spec: ProcessSpec) -> NodeView:
    """A node after a process has got its seat there."""
    free = tuple(slot for slot in view.free_accelerators if slot.uuid not in spec.accelerators)
    return replace(view, free_accelerators=free, used_ports=view.used_ports | set(spec.ports.values()))


def _count(replica: Replica) -> None:
    """Count the attempt that has its seats."""
    attempt = replica.attempt + 1
    values: dict[str, Any] = {"attempt": attempt, "next_attempt_at": None}
    note = f"attempt {attempt} has its seats"
    if replica.state != ReplicaState.PENDING:
        if not move(replica, ReplicaState.PENDING, Reason.PLACED, note, **values):
            raise Conflict("The replica changed while it was placed.")
    else:
        Replica.objects.filter(pk=replica.pk).update(**values, reason=Reason.PLACED, note=note)
        replica.attempt = attempt


def _write(deployment: Deployment, seated: Sequence[tuple[Replica, ProcessSpec]]) -> None:
    """The processes and what they claim."""
    processes: list[Process] = []
    slots: list[AcceleratorClaim] = []
    ports: list[PortClaim] = []
    for replica, spec in seated:
        process = Process(
            deployment=deployment,
            replica=replica,
            node_id=spec.node_id,
            attempt=replica.attempt,
            role=spec.role,
            group=spec.group,
            member=spec.member,
            rank=spec.rank,
            wave=spec.wave,
            spec=asdict(spec),
        )
        on_node = {"process": process, "node_id": spec.node_id}
        processes.append(process)
        slots += [AcceleratorClaim(uuid=uuid, **on_node) for uuid in spec.accelerators]
        ports += [PortClaim(port=port, name=name, **on_node) for name, port in spec.ports.items()]
    Process.objects.bulk_create(processes)
    AcceleratorClaim.objects.bulk_create(slots)
    PortClaim.objects.bulk_create(ports)


def _later(replica: Replica, error: DomainError) -> None:
    """The state stays as it is: a replica that backs off does so, one that waits for seats waits."""
    Replica.objects.filter(pk=replica.pk).update(
        reason=Reason.UNPLACEABLE,
        note=error.message,
        next_attempt_at=timezone.now() + timedelta(seconds=PLACE_AGAIN_S),
    )
