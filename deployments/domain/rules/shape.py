"""Rules 1 to 6: the model's shape against the sizes of the split."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..plugins import Problem
from .rule import Rule, doubtful, listed, wrong
from .subject import Subject

TP = "tensor_parallel_size"
# Sizes that are worth suggesting; nobody has more accelerators in one tensor parallel group.
SIZES = range(1, 65)


def heads(subject: Subject) -> int | None:
    """Attention heads of the model."""
    return subject.model.num_attention_heads or subject.whole("num_attention_heads", "n_head")


def sizes_that(fits: Callable[[int], bool], most: int) -> tuple[int, ...]:
    """Tensor parallel sizes of at most `most` that fit."""
    return tuple(size for size in SIZES if size <= most and fits(size))


def attention_heads(subject: Subject) -> Iterator[Problem]:
    """1: the attention heads divide by TP."""
    size, count = subject.tensor_parallel_size, heads(subject)
    if size == 1:
        return
    if count is None:
        yield doubtful(
            TP,
            f"The model's number of attention heads is not known, so a tensor parallel size of {size} is unchecked.",
            "Read the model's config.json again, or choose a power of two.",
        )
    elif count % size:
        fits = sizes_that(lambda n: count % n == 0, count)
        yield wrong(
            TP,
            f"The model has {count} attention heads; they cannot be split over {size} ranks evenly.",
            f"Choose a tensor parallel size that divides {count}: {listed(fits)}.",
            fits,
        )


RULES = (Rule(1, "Attention heads divide by the tensor parallel size", attention_heads),)
