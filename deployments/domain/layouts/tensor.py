"""Tensor parallelism inside one node: every layer is split over N accelerators."""

from __future__ import annotations

from ..plugins import Layout, Problem, RenderContext, Seat
from ..rendering import engine_process
from ..specs import LayoutSpec, ModelFacts, ProcessSpec


def _check(layout: LayoutSpec, model: ModelFacts) -> list[Problem]:
    size = layout.tensor_parallel_size
    problems: list[Problem] = []
    if size < 2 or layout.world_size != size:
        problems += _problem(
            f"A tensor layout needs a tensor parallel size of 2 or more and no other split; it is {size}.",
            "Raise the tensor parallel size, or choose the single layout.",
        )
    return problems + _backend(layout.backend)


def _problem(message: str, remedy: str, field: str = "tensor_parallel_size") -> list[Problem]:
    return [Problem("INVALID_LAYOUT", message, remedy, field=field)]


def _backend(backend: str) -> list[Problem]:
    if backend == "mp":
        return []
    return _problem(
        f"On one node the ranks are started by mp, not by {backend!r}.", "Set the backend to mp.", "backend"
    )


def _seats(layout: LayoutSpec) -> tuple[Seat, ...]:
    return (Seat(accelerators=layout.tensor_parallel_size),)


def _render(context: RenderContext) -> tuple[ProcessSpec, ...]:
    (seat,) = context.assignments
    sizes = (
        "--tensor-parallel-size",
        str(context.layout.tensor_parallel_size),
        "--distributed-executor-backend",
        context.layout.backend,
    )
    return (engine_process(context, seat, sizes),)


LAYOUT = Layout(
    kind="tensor",
    title="Tensor parallel",
    summary="Every layer split over the accelerators of one node. Choose it when the model does not fit one of them.",
    check=_check,
    seats=_seats,
    render=_render,
)
