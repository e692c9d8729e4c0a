"""Whose a GPU's memory is, and what the GPUs of a machine are together. Missing is None, never 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .samples import Gpu, GpuProcess


@dataclass(frozen=True, slots=True)
class Memory:
    """A GPU's memory by owner, in bytes. `used` is what nobody's name could be put to; it is others' if `told`.

    Attributes:
        told: The driver says which processes hold how much; else only the sum is known, and it stands in `used`.
    """

    total: int | None
    ours: int = 0
    others: int = 0
    used: int = 0
    reserved: int = 0
    free: int | None = None
    told: bool = True


@dataclass(frozen=True, slots=True)
class Together:
    """GPUs of one machine: the mean utilisation (percent), sums of memory (bytes) and power (W).

    Attributes:
        count: Whole GPUs, instances of one not counted.
        read: How many of them say anything now.
    """

    count: int = 0
    read: int = 0
    utilization: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None


def memory_of(gpu: Gpu) -> Memory | None:
    """Who holds what; None when the use is not known. Parts never add up to more than the total."""
    if gpu.memory_used is None or not gpu.memory_total:
        return None
    reserved = gpu.memory_reserved or 0
    free = max(0, gpu.memory_total - gpu.memory_used - reserved)
    if gpu.processes is None or any(process.memory is None for process in gpu.processes):
        return Memory(gpu.memory_total, used=gpu.memory_used, reserved=reserved, free=free, told=False)
    ours = min(gpu.memory_used, _held(gpu.processes, lambda process: process.process is not None))
    others = min(gpu.memory_used - ours, _held(gpu.processes, lambda process: process.process is None))
    return Memory(gpu.memory_total, ours, others, gpu.memory_used - ours - others, reserved, free)


def _held(processes: Iterable[GpuProcess], wanted: Callable[[GpuProcess], bool]) -> int:
    return sum(process.memory or 0 for process in processes if wanted(process))


def together(gpus: Iterable[Gpu]) -> Together:
    whole = [gpu for gpu in gpus if not gpu.mig]
    return Together(
        count=len(whole),
        read=sum(gpu.utilization is not None or gpu.memory_used is not None for gpu in whole),
        utilization=_mean(gpu.utilization for gpu in whole),
        memory_used=_sum(gpu.memory_used for gpu in whole),
        memory_total=_sum(gpu.memory_total for gpu in whole),
        power_w=_sum(gpu.power_w for gpu in whole),
        power_limit_w=_sum(gpu.power_limit_w for gpu in whole),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
