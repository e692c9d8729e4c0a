"""Which node and which accelerators each process of a replica gets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from . import layouts, rules
from .errors import InvalidLayout, Unplaceable
from .plugins import Layout, Problem, RenderContext, Seat, discover
from .specs import Assignment, LayoutSpec, ModelFacts, NodeView, ProcessSpec
from .states import NodeIntent, NodeState


def layout_kinds() -> dict[str, Layout]:
    """All layouts by kind."""
    return discover(layouts, "LAYOUT", "kind")


def layout_of(spec: LayoutSpec) -> Layout:
    """The plug-in of a layout.

    Raises:
        InvalidLayout: There is no such kind.
    """
    kinds = layout_kinds()
    if spec.kind not in kinds:
        raise InvalidLayout(
            f"There is no layout {spec.kind!r}.", remedy=f"Choose one of {', '.join(kinds)}.", field="kind"
        )
    return kinds[spec.kind]


def check_layout(spec: LayoutSpec, model: ModelFacts) -> list[Problem]:
    """All problems of a layout's sizes against a model: those of its kind, and those of the numbered rules."""
    return layout_of(spec).check(spec, model) + rules.check(rules.Subject.of(spec, model))


def unfit(node: NodeView, seat: Seat) -> str | None:
    """Why a node cannot take a seat now, in words; None if it can."""
    if node.intent is not NodeIntent.ACTIVE:
        return f"{node.name} is {node.intent.value.lower()}"
    if node.state is not NodeState.READY:
        return f"{node.name} is {node.state.value.lower().replace('_', ' ')}"
    if not node.environment:
        return f"{node.name} has no engine environment (run the install job, or set one)"
    if node.model_path is None:
        return f"{node.name} does not have the model's files"
    if len(node.free_accelerators) < seat.accelerators:
        return f"{node.name} has {len(node.free_accelerators)} of {seat.accelerators} accelerators free"
    if len(free_ports(node, len(seat.ports))) < len(seat.ports):
        return f"{node.name} has no free port left in {node.port_range[0]}-{node.port_range[1]}"
    return None


def free_ports(node: NodeView, count: int) -> list[int]:
    """The first `count` ports of the node's range that nobody holds; those that were listened on come last."""
    first, last = node.port_range
    quiet: list[int] = []
    heard: list[int] = []
    for port in range(first, last + 1):
        if len(quiet) == count:
            break
        if port not in node.used_ports:
            (heard if port in node.heard_ports else quiet).append(port)
    return (quiet + heard)[:count]


def place(spec: LayoutSpec, nodes: Sequence[NodeView], wanted: Iterable[int] = ()) -> tuple[Assignment, ...]:
    """Seats for one replica: one assignment per process, the tightest fitting node first.

    Args:
        spec: The layout.
        nodes: The fleet as it is now.
        wanted: Node ids to choose among; empty = any.

    Raises:
        Unplaceable: No node can take a seat; the detail lists why for each.
    """
    return assign(layout_of(spec).seats(spec), nodes, wanted)


def assign(seats: Iterable[Seat], nodes: Sequence[NodeView], wanted: Iterable[int] = ()) -> tuple[Assignment, ...]:
    """As `place`, for seats that are known already; each takes what those before it have left."""
    choice = frozenset(wanted)
    pool = {node.id: node for node in nodes if not choice or node.id in choice}
    assignments = []
    for seat in seats:
        node = _tightest(pool.values(), seat)
        if node is None:
            reasons = [reason for candidate in pool.values() if (reason := unfit(candidate, seat))]
            raise Unplaceable(
                f"No node can take {seat.accelerators} accelerator{'s' if seat.accelerators != 1 else ''} now: "
                + ("; ".join(reasons) if reasons else "there is no node to choose from")
                + ".",
                detail={"reasons": reasons},
            )
        assignments.append(_assign(node, seat))
        pool[node.id] = _without(node, assignments[-1])
    return tuple(assignments)


def _without(node: NodeView, taken: Assignment) -> NodeView:
    """What is left of a node for the next seat of the same replica."""
    left = tuple(slot for slot in node.free_accelerators if slot not in taken.accelerators)
    return replace(node, free_accelerators=left, used_ports=node.used_ports | set(taken.ports.values()))


def _tightest(pool: Iterable[NodeView], seat: Seat) -> NodeView | None:
    fitting = [node for node in pool if unfit(node, seat) is None]
    return min(fitting, key=lambda node: (len(node.free_accelerators), node.name), default=None)


def _assign(node: NodeView, seat: Seat) -> Assignment:
    ports = dict(zip(seat.ports, free_ports(node, len(seat.ports)), strict=True))
    return Assignment(node.id, node.free_accelerators[: seat.accelerators], ports)


def render(context: RenderContext) -> tuple[ProcessSpec, ...]:
    """The processes of one replica: what preview shows and launch sends."""
    return layout_of(context.layout).render(context)
