"""A plan as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from deployments.domain.activation import GIB, Range
from deployments.domain.memory import Rank
from deployments.domain.plan_words import gib
from deployments.domain.planner import Candidate, Plan, Refusal

MOST_LAYOUTS, MOST_REFUSALS = 12, 12
HEADS = ("Layout", "Accelerators", "Fits", "Context", "Requests at it", "Weights", "Cache", "Copies")


def lines(plan: Plan) -> Iterator[str]:
    """The plan, line by line: layouts, the recommended one in full, what is ruled out and why."""
    if plan.unknown:
        yield f"Nothing can be said: {plan.unknown.message}"
        yield f"  {plan.unknown.remedy}"
        return
    if plan.candidates:
        yield from _table([HEADS, *(_row(candidate) for candidate in plan.candidates[:MOST_LAYOUTS])])
        yield from _rest(len(plan.candidates) - MOST_LAYOUTS)
        yield ""
        yield from _recommended(plan.candidates[0])
    else:
        yield "Nothing fits."
    if plan.refusals:
        yield ""
        yield "Ruled out:"
        for refusal in plan.refusals[:MOST_REFUSALS]:
            yield from _refused(refusal)
        yield from _rest(len(plan.refusals) - MOST_REFUSALS)
    yield from (f"Held: {words}" for words in plan.held)


def _rest(count: int) -> Iterator[str]:
    if count > 0:
        yield f"  and {count} more (--json has all)"


def _row(candidate: Candidate) -> tuple[str, ...]:
    low, likely, _ = candidate.estimate.concurrency
    rank = _fullest(candidate)
    return (
        candidate.word,
        f"{candidate.gpus} x {candidate.device.name}",
        candidate.estimate.fits,
        f"{candidate.max_model_len}{' (shortened)' if candidate.shortened else ''}",
        f"{low:.1f} to {likely:.1f}",
        gib(rank.weights.likely),
        gib(rank.cache.likely),
        str(candidate.copies),
    )


def _fullest(candidate: Candidate) -> Rank:
    return min(candidate.estimate.ranks, key=lambda rank: rank.cache.likely)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _recommended(candidate: Candidate) -> Iterator[str]:
    where = f"{candidate.per_node} x {candidate.device.name}"
    where += f" on each of {candidate.nodes} nodes" if candidate.nodes > 1 else " on one node"
    yield f"Recommended: {candidate.word} ({candidate.kind}), {where}"
    flags = [f"--max-model-len {candidate.max_model_len}", f"--gpu-memory-utilization {candidate.utilization:g}"]
    yield f"  start it with {' '.join(flags)}"
    yield from (f"  {reason}" for reason in candidate.reasons)
    yield from (f"  Mind: {problem.message} {problem.remedy}".rstrip() for problem in candidate.warnings)
    yield ""
    yield "Memory of each accelerator, GiB (least, likely, most):"
    for rank in candidate.estimate.ranks:
        if len(candidate.estimate.ranks) > 1:
            yield f"  layers {rank.stage.first} to {rank.stage.last - 1}"
        yield from _table([_part(name, part) for name, part in _parts(rank)])


def _parts(rank: Rank) -> Iterable[tuple[str, Range]]:
    yield "budget", rank.budget
    yield "weights", rank.weights
    yield "activation", rank.activation
    yield "context", rank.context
    yield "graphs" if rank.graphs_counted else "graphs, beyond it", rank.graphs
    yield "cache", rank.cache
    yield "beyond the budget", rank.outside


def _part(name: str, part: Range) -> tuple[str, ...]:
    return f"  {name}", *(f"{value / GIB:.2f}" for value in (part.low, part.likely, part.high)), part.reason


def _refused(refusal: Refusal) -> Iterator[str]:
    rule = f" [rule {refusal.rule}]" if refusal.rule else ""
    yield f"  {refusal.word}: {refusal.problem.message}{rule}"
    if refusal.problem.remedy:
        yield f"    {refusal.problem.remedy}"
