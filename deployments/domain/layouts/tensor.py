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
    problems += _backend(layout.backend)
    problems += _heads(size, model.num_attention_heads)
    problems += _kv_heads(size, model.num_key_value_heads)
    problems += _vocabulary(size, model.vocab_size)
    return problems


def _problem(message: str, remedy: str, field: str = "tensor_parallel_size") -> list[Problem]:
    return [Problem("INVALID_LAYOUT", message, remedy, field=field)]


def _backend(backend: str) -> list[Problem]:
    if backend == "mp":
        return []
    return _problem(
        f"On one node the ranks are started by mp, not by {backend!r}.", "Set the backend to mp.", "backend"
    )


def _heads(size: int, heads: int | None) -> list[Problem]:
    if not heads or size < 1 or heads % size == 0:
        return []
    fits = ", ".join(str(n) for n in range(2, min(heads, 16) + 1) if heads % n == 0)
    return _problem(
        f"The model has {heads} attention heads; they cannot be split over {size} ranks evenly.",
        f"Choose a tensor parallel size that divides {heads}" + (f" ({fits})." if fits else "."),
    )


def _vocabulary(size: int, entries: int | None) -> list[Problem]:
    # The engine pads the vocabulary to a multiple of 64 and then needs it to split evenly.
    padded = -(-(entries or 0) // 64) * 64
    if size < 1 or padded % size == 0:
        return []
    return _problem(
        f"The model's vocabulary, padded to {padded} entries, cannot be split over {size} ranks evenly.",
        "Choose a power of two as tensor parallel size.",
    )


def _kv_heads(size: int, heads: int | None) -> list[Problem]:
    if not heads or size < 1 or heads % size == 0 or size % heads == 0:
        return []
    return _problem(
        f"The model has {heads} key/value heads; {size} ranks can neither split nor replicate them evenly.",
        f"Choose a tensor parallel size that divides {heads} or is a multiple of it.",
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
