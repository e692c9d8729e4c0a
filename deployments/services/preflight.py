"""What would make a launch on these nodes fail for certain, known before it is tried."""

from __future__ import annotations

from collections.abc import Sequence

from deployments.domain.placement import layout_of
from deployments.domain.plugins import Problem
from deployments.domain.specs import LayoutSpec, NodeView
from deployments.models import LanguageModel, ModelCopy, Node
from deployments.targets import node_views


def node_problems(model: LanguageModel, layout: LayoutSpec, wanted: Sequence[Node]) -> list[Problem]:
    """Problems of the nodes to choose among; errors when no node could take the layout even if all were free."""
    views = node_views(model)
    pool = [views[node.pk] for node in wanted] if wanted else list(views.values())
    if not pool:
        return [Problem("UNPLACEABLE", "There is no node.", "Add a node first.", field="nodes")]
    errors = dict(ModelCopy.objects.filter(model=model, present=False).values_list("node_id", "error"))
    seats = layout_of(layout).seats(layout)
    size = max((seat.accelerators for seat in seats), default=0)
    probed = set(Node.objects.filter(facts_at__isnull=False).values_list("pk", flat=True))
    known = [view for view in pool if view.id in probed]
    hopeless = {view.id: problem for view in known if (problem := _never(view, size, errors.get(view.id), model))}
    if len(hopeless) < len(pool):
        return [_as_warning(problem) for problem in hopeless.values()] if wanted else []
    return list(hopeless.values())


def _never(view: NodeView, size: int, missing: dict | None, model: LanguageModel) -> Problem | None:
    """The problem of a probed node that no waiting will cure."""
    if not view.environment:
        return Problem(
            "ENGINE_MISSING",
            f"vLLM is not installed on {view.name}, or not where its environment path says.",
            "Install an engine environment on the node (one job), or set the path of an existing one.",
            field="nodes",
            node=view.name,
        )
    if view.model_path is None:
        return _model_missing(view, missing, model)
    if len(view.accelerators) < size:
        return Problem(
            "UNPLACEABLE",
            f"{view.name} has {len(view.accelerators)} accelerators; the layout needs {size} on one node.",
            "Choose a smaller tensor parallel size or another node.",
            field="layout",
            node=view.name,
        )
    return None


def _model_missing(view: NodeView, missing: dict | None, model: LanguageModel) -> Problem:
    said = (missing or {}).get("message") or f"The folder {model.path} has not been found on {view.name}."
    remedy = (missing or {}).get("remedy") or "Copy the model there, or look for it again after copying it."
    return Problem("MODEL_MISSING", said, remedy, field="model", node=view.name)


def _as_warning(problem: Problem) -> Problem:
    return Problem(problem.code, problem.message, problem.remedy, problem.field, problem.node, "warning")
