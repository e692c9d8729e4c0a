"""What would make a launch on these nodes fail for certain, known before it is tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deployments.domain import retired, rules
from deployments.domain.placement import layout_of
from deployments.domain.plugins import Problem
from deployments.domain.rules.fleet import ONE_MACHINE, told_once
from deployments.domain.specs import EngineOptions, LayoutSpec, ModelFacts, NodeView
from deployments.domain.states import NodeIntent
from deployments.models import LanguageModel, ModelCopy, Node
from deployments.targets import node_views

MIB = 1024 * 1024


def rule_problems(
    model: LanguageModel, facts: ModelFacts, layout: LayoutSpec, options: EngineOptions, wanted: Sequence[Node]
) -> list[Problem]:
    """Retired options, and problems of the numbered rules, on the nodes to choose among; each is said once."""
    rows = {node.pk: node for node in Node.objects.defer("report").prefetch_related("accelerators")}
    views = node_views(model, nodes=rows.values())
    pool = [views[node.pk] for node in wanted if node.pk in views] if wanted else list(views.values())
    seats = layout_of(layout).seats(layout)
    able = [view for view in pool if _could_take(view, max((seat.accelerators for seat in seats), default=0))]
    known: dict[str, Any] = {"config": model.config, "options": options, "nodes": max(1, len(seats))}
    subjects = [
        rules.Subject.of(layout, facts, hosts=[_host(view, rows[view.id])], platform=view.platform, **known)
        for view in able
    ] or [rules.Subject.of(layout, facts, **known)]
    versions = [subject.version for subject in subjects if subject.version is not None]
    problems = retired.check_args(options.args, versions) + retired.check_env(options.env, versions)
    found = [rules.check(subject, only=ONE_MACHINE) for subject in subjects]
    return problems + told_once(found, chosen=bool(wanted))


def _could_take(view: NodeView, size: int) -> bool:
    ready = view.environment is not None and view.model_path is not None and view.intent is NodeIntent.ACTIVE
    return ready and len(view.accelerators) >= size


def _host(view: NodeView, row: Node) -> rules.Host:
    """A node with what its last probe said beyond accelerators and engine."""
    facts = row.facts
    limits = facts.get("limits") or {}
    return replace(
        rules.Host.of(view),
        packages=(facts.get("environment") or {}).get("packages"),
        shm_mib=_mib((facts.get("shm") or {}).get("size")),
        ram_mib=_mib((facts.get("memory") or {}).get("total")),
        open_files=_limit(limits.get("nofile")),
        memlock_unlimited=None if not limits.get("memlock") else _limit(limits["memlock"]) is None,
    )


def _mib(size: Any) -> int | None:
    return int(size) // MIB if isinstance(size, int | float) and size > 0 else None


def _limit(pair: Any) -> int | None:
    """The hard limit, to which the engine raises its own; None = there is none, or not known."""
    hard = pair[1] if isinstance(pair, list) and len(pair) == 2 else None
    return hard if isinstance(hard, int) and hard >= 0 else None


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
    return replace(problem, severity="warning")
