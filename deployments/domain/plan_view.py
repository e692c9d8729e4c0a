"""A plan as plain data: what the API, the pages and `manage.py plan --json` show. Sizes in bytes."""

from __future__ import annotations

from typing import Any

from .activation import Range
from .anatomy import UnknownModel
from .memory import Estimate, Rank
from .planner import Candidate, Plan, Refusal
from .plugins import Problem

PARTS = ("weights", "activation", "context", "graphs", "cache", "budget", "outside")


def plan_dict(plan: Plan) -> dict[str, Any]:
    """The whole plan; `recommendation` is the index of the candidate to choose, None = nothing fits."""
    return {
        "candidates": [candidate_dict(candidate) for candidate in plan.candidates],
        "recommendation": 0 if plan.candidates else None,
        "refusals": [_refusal(refusal) for refusal in plan.refusals],
        "unknown": _unknown(plan.unknown) if plan.unknown else None,
        "held": list(plan.held),
    }


def candidate_dict(candidate: Candidate) -> dict[str, Any]:
    """One layout that fits, with the memory of each kind of rank."""
    sizes, figures = candidate.sizes, candidate.estimate
    return {
        "layout": candidate.word,
        "kind": candidate.kind,
        "tensor_parallel_size": sizes.tensor,
        "pipeline_parallel_size": sizes.pipeline,
        "data_parallel_size": sizes.data,
        "expert_parallel": sizes.expert_parallel,
        "nodes": candidate.nodes,
        "accelerators_per_node": candidate.per_node,
        "accelerators": candidate.gpus,
        "device": candidate.device.name,
        "machines": list(candidate.machines),
        "copies": candidate.copies,
        "gpu_memory_utilization": candidate.utilization,
        "max_model_len": candidate.max_model_len,
        "shortened": candidate.shortened,
        "fits": figures.fits,
        **_figures(figures),
        "crossings": [
            {"split": crossing.split, "size": crossing.size, "link": crossing.link, "words": crossing.words}
            for crossing in candidate.crossings
        ],
        "reasons": list(candidate.reasons),
        "warnings": [_problem(problem) for problem in candidate.warnings],
    }


def _figures(figures: Estimate) -> dict[str, Any]:
    return {
        "tokens": _ends(figures.tokens),
        "concurrency": _ends(tuple(round(value, 2) for value in figures.concurrency)),
        "longest_context": _ends(figures.longest),
        "request_bytes": figures.needed,
        "ranks": [_rank(rank) for rank in figures.ranks],
    }


def _ends(values: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("low", "likely", "high"), values, strict=True))


def _rank(rank: Rank) -> dict[str, Any]:
    parts: dict[str, Range] = {name: getattr(rank, name) for name in PARTS}
    return {
        "layers": [rank.stage.first, rank.stage.last],
        "token_bytes": rank.token_bytes,
        "graphs_in_budget": rank.graphs_counted,
        **{name: part.as_dict() for name, part in parts.items()},
    }


def _refusal(refusal: Refusal) -> dict[str, Any]:
    sizes = refusal.sizes
    return {
        "layout": refusal.word,
        "device": refusal.device,
        "tensor_parallel_size": sizes.tensor if sizes else None,
        "pipeline_parallel_size": sizes.pipeline if sizes else None,
        "data_parallel_size": sizes.data if sizes else None,
        "nodes": refusal.nodes,
        **_problem(refusal.problem),
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "code": problem.code,
        "rule": problem.rule,
        "message": problem.message,
        "remedy": problem.remedy,
        "setting": problem.setting,
        "values": list(problem.values),
    }


def _unknown(unknown: UnknownModel) -> dict[str, Any]:
    return {"what": unknown.what, "message": unknown.message, "remedy": unknown.remedy}
