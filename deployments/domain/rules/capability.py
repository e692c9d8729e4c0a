"""What the accelerators of the machines can compute."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..plugins import Problem
from ..specs import Accelerator
from .rule import Value, doubtful, wrong
from .subject import Host, Subject


def number(text: str | None) -> tuple[int, ...] | None:
    """A compute capability as numbers that compare; None = not known."""
    return tuple(int(part) for part in text.split(".")) if text and re.fullmatch(r"\d+\.\d+", text) else None


def seen(subject: Subject, minimum: str) -> Iterator[tuple[Host, Accelerator]]:
    """The machines with an accelerator below a compute capability, and the lowest that they have."""
    least = number(minimum) or ()
    for host in subject.hosts:
        known = [
            (has, slot.index, slot) for slot in host.accelerators or () if (has := number(slot.compute_capability))
        ]
        low = min(known, key=lambda item: item[:2], default=None)
        if low is not None and low[0] < least:
            yield host, low[2]


def enough_left(subject: Subject, host: Host, minimum: str) -> bool:
    """Whether a machine has enough accelerators for its ranks that reach a compute capability, or may have."""
    least = number(minimum) or ()
    return sum(1 for slot in host.accelerators or () if _may(slot, least)) >= ranks_on(subject)


def _may(slot: Accelerator, least: tuple[int, ...]) -> bool:
    has = number(slot.compute_capability)
    return has is None or has >= least


def ranks_on(subject: Subject) -> int:
    """Ranks that each machine runs."""
    if subject.data_parallel_size_local is not None:
        return subject.ranks_per_copy * subject.data_parallel_size_local
    return max(1, subject.world_size // subject.nodes)


def told(
    subject: Subject,
    host: Host,
    sure: bool,
    *,
    minimum: str,
    setting: str,
    message: str,
    remedy: str,
    values: Sequence[Value] = (),
) -> Problem:
    """A problem of a machine's accelerators: an error when it is `sure` and none of the machine's others would do."""
    certain = sure and not enough_left(subject, host, minimum)
    return (wrong if certain else doubtful)(setting, message, remedy, values, node=host.name)


def where(host: Host, slot: Accelerator) -> str:
    """An accelerator and its machine in words."""
    return f"{slot.name} on {host.name}"
