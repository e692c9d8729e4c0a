"""One engine on one accelerator."""

from __future__ import annotations

from ..plugins import Layout, Problem, RenderContext, Seat
from ..rendering import engine_process
from ..specs import LayoutSpec, ModelFacts, ProcessSpec


def _check(layout: LayoutSpec, model: ModelFacts) -> list[Problem]:
    if layout.world_size == 1:
        return []
    return [
        Problem(
            "INVALID_LAYOUT",
            f"A single layout has one rank; its sizes multiply to {layout.world_size}.",
            "Set all sizes to 1 or choose the tensor layout.",
            field="tensor_parallel_size",
        )
    ]


def _seats(layout: LayoutSpec) -> tuple[Seat, ...]:
    return (Seat(accelerators=1),)


def _render(context: RenderContext) -> tuple[ProcessSpec, ...]:
    (seat,) = context.assignments
    return (engine_process(context, seat),)


LAYOUT = Layout(
    kind="single",
    title="Single",
    summary="One engine on one accelerator. Choose it when the model fits one.",
    check=_check,
    seats=_seats,
    render=_render,
)
