"""Layouts: how one copy of a model is split."""

from __future__ import annotations

from dataclasses import asdict

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from deployments.domain.errors import Conflict, InvalidLayout, NotFound, Taken
from deployments.domain.placement import check_layout, layout_kinds
from deployments.domain.plugins import Layout
from deployments.domain.specs import LayoutSpec, ModelFacts
from deployments.models import ParallelLayout
from deployments.services import naming
from deployments.services.access import Actor, Role, require
from deployments.transitions import record

MAX_SIZE = 1024


def kinds() -> list[Layout]:
    """Every kind of layout there is, for forms and documentation."""
    return list(layout_kinds().values())


def list_layouts() -> list[ParallelLayout]:
    """All layouts, by name."""
    return list(ParallelLayout.objects.order_by("name"))


def get_layout(layout_name: str) -> ParallelLayout:
    """The layout called `layout_name`."""
    row = ParallelLayout.objects.filter(name=naming.known(layout_name)).first()
    if row is None:
        raise NotFound(f"There is no layout {layout_name!r}.", remedy="Add it first.", field="layout")
    return row


def add_layout(
    actor: Actor,
    *,
    name: str,
    kind: str,
    backend: str = "mp",
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    data_parallel_size: int = 1,
) -> ParallelLayout:
    """A new layout. Rows never change: another split is another layout.

    Raises:
        InvalidLayout: Sizes that no model could use with this kind.
        Conflict: The name is taken.
    """
    require(actor, Role.operator, "add layouts")
    naming.name(name)
    spec = LayoutSpec(kind, backend, tensor_parallel_size, pipeline_parallel_size, data_parallel_size)
    _check(spec)
    try:
        with transaction.atomic():
            layout = ParallelLayout.objects.create(name=name, **asdict(spec))
    except IntegrityError:
        raise Taken(f"There is a layout {name!r} already.", remedy="Choose another name.", field="name") from None
    record("layout", layout.pk, "", "ADDED", "APPLIED", kind, actor=actor.name, name=name)
    return layout


def _check(spec: LayoutSpec) -> None:
    """Refuse what no model could use."""
    for field in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        if not 1 <= getattr(spec, field) <= MAX_SIZE:
            raise InvalidLayout(f"A size is between 1 and {MAX_SIZE}.", field=field)
    if spec.backend not in ("mp", "ray"):
        raise InvalidLayout(f"{spec.backend!r} is not a backend.", remedy="Choose mp or ray.", field="backend")
    for problem in check_layout(spec, ModelFacts(path="")):
        if problem.severity == "error":
            raise naming.problem_error(problem)


def remove_layout(actor: Actor, layout_name: str) -> None:
    """Forget a layout that no deployment uses, and removed deployments that did."""
    require(actor, Role.operator, "remove layouts")
    layout = get_layout(layout_name)
    try:
        with transaction.atomic():
            layout.deployments.filter(removed_at__isnull=False).delete()
            layout.delete()
    except ProtectedError:
        raise Conflict(f"Deployments use the layout {layout_name!r}.", remedy="Remove them first.") from None
    record("layout", layout_name, "", "REMOVED", "APPLIED", actor=actor.name, name=layout_name)
