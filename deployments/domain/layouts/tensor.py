"""Tensor parallelism inside one node: every layer is split over N accelerators."""

from __future__ import annotations

from ..plugins import Layout, Problem, RenderContext, Seat
from ..rendering import engine_process
from ..specs import LayoutSpec, ModelFacts, ProcessSpec


def _check(layout: LayoutSpec, model: ModelFacts) -> list[Problem]:
    size = layout.tensor_parallel_size
    problems = []
    if size < 2 or layout.world_size != size:
        problems.append(
            Problem(
                "INVALID_LAYOUT",
                f"A tensor layout needs a tensor parallel size of 2 or more and no other split; it is {size}.",
                "Raise the tensor parallel size, or choose the single layout.",
                field="tensor_parallel_size",
            )
        )
    problems += _divides(size, model.num_attention_heads, "attention heads", error=True)
    problems += _kv_heads(size, model.num_key_value_heads)
    problems += _divides(size, model.vocab_size, "vocabulary entries", error=False)
    return problems


def _divides(size: int, whole: int | None, what: str, *, error: bool) -> list[Problem]:
    if not whole or size < 1 or whole % size == 0:
        return []
    fits = ", ".join(str(n) for n in range(2, min(whole, 64) + 1) if whole % n == 0 and n <= 16) or "1"
    return [
        Problem(
            "INVALID_LAYOUT",
            f"The model has {whole} {what}; they cannot be split over {size} ranks evenly.",
            f"Choose a tensor parallel size that divides {whole} ({fits})."
            if error
            else "Nothing to do: the engine pads the embedding.",
            field="tensor_parallel_size",
            severity="error" if error else "warning",
        )
    ]


def _kv_heads(size: int, heads: int | None) -> list[Problem]:
    if not heads or size < 1 or heads % size == 0 or size % heads == 0:
        return []
    return [
        Problem(
            "INVALID_LAYOUT",
            f"The model has {heads} key/value heads; {size} ranks can neither split nor replicate them evenly.",
            f"Choose a tensor parallel size that divides {heads} or is a multiple of it.",
            field="tensor_parallel_size",
        )
    ]


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
