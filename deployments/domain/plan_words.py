"""What a plan says: names of layouts, what a split crosses, reasons for and against in one sentence each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from .accelerators import Device
from .activation import GIB
from .facts import MIB
from .memory import Estimate, Rank, Settings
from .parameters import Sizes
from .plugins import Problem

LINKS = {"nvlink": "NVLink", "pcie": "PCIe", "memory": "the machine's memory", "network": "the network"}
# How much a split over a link slows a copy down, only to order plans of equal size.
TENSOR_COST = {"nvlink": 0.1, "memory": 0.5, "pcie": 0.5, "network": 10.0}
PIPELINE_COST = {"nvlink": 0.6, "memory": 0.6, "pcie": 0.6, "network": 1.0}
MOST_UTILIZATION = 0.98


@dataclass(frozen=True, slots=True)
class Crossing:
    """One split and the link that it crosses."""

    split: str
    size: int
    link: str
    words: str
    cost: float


def kind_of(sizes: Sizes, nodes: int) -> str:
    """The kind of layout that these sizes make."""
    if sizes.data > 1:
        return "data_parallel"
    if nodes > 1:
        return "multinode"
    if sizes.tensor > 1 and sizes.pipeline > 1:
        return "tensor_pipeline"
    return "tensor" if sizes.tensor > 1 else "pipeline" if sizes.pipeline > 1 else "single"


def sizes_word(sizes: Sizes, nodes: int) -> str:
    """TP4 x PP2 on 2 nodes."""
    parts = [(sizes.tensor, "TP"), (sizes.pipeline, "PP"), (sizes.data, "DP"), (sizes.decode_context, "DCP")]
    said = " x ".join(f"{name}{size}" for size, name in parts if size > 1) or "single"
    return said + (f" on {nodes} nodes" if nodes > 1 else "")


def crossings(sizes: Sizes, nodes: int, device: Device, *, rdma: bool | None) -> tuple[Crossing, ...]:
    """Each split of more than one rank with the slowest link that it crosses; ranks are dealt out in blocks."""
    each = max(1, sizes.ranks // nodes)
    spans = {
        "tensor": (sizes.tensor, 1, TENSOR_COST),
        "pipeline": (sizes.pipeline, sizes.tensor, PIPELINE_COST),
        "data": (sizes.data, sizes.tensor * sizes.pipeline, PIPELINE_COST),
    }
    found = []
    for name, (size, step, costs) in spans.items():
        if size == 1:
            continue
        across = nodes > 1 and (each % (size * step) != 0)
        link = "network" if across else device.link
        cost = costs[link] * (1 + math.log2(size)) / 2 if name == "tensor" else costs[link]
        found.append(Crossing(name, size, link, _crossed(name, size, link, rdma=rdma), cost))
    return tuple(found)


def _crossed(name: str, size: int, link: str, *, rdma: bool | None) -> str:
    what = {
        "tensor": f"{size} ranks exchange every layer's result",
        "pipeline": f"{size} stages hand their result on",
        "data": f"{size} members share requests, and experts if there are any",
    }[name]
    known = {True: " (RDMA)", False: " (no RDMA)", None: " (RDMA not known)"}[rdma] if link == "network" else ""
    return f"{what} over {LINKS[link]}{known}"


def gib(value: float) -> str:
    """Bytes as GiB with one place."""
    return f"{value / GIB:.1f} GiB"


def explain(
    figures: Estimate,
    device: Device,
    crossed: Iterable[Crossing],
    *,
    shortened: bool,
    lowered: bool,
    copies: int,
) -> tuple[str, ...]:
    """Why a layout fits and what to know about it."""
    rank = min(figures.ranks, key=lambda rank: rank.cache.likely)
    said = [
        f"Weights of {gib(rank.weights.likely)} leave {gib(rank.cache.likely)} for the cache on each accelerator; "
        f"one request of {figures.length} tokens takes {gib(figures.needed)}."
    ]
    said += [f"{crossing.words[0].upper()}{crossing.words[1:]}." for crossing in crossed]
    if figures.fits == "perhaps":
        said.append("It fits only if no part is larger than is likely; at their highest they do not.")
    if shortened:
        said.append("The model's own length does not fit; this is the longest that does, rounded down.")
    if lowered:
        said.append(f"The utilization is lowered to what is free now ({(device.free_mib or 0) / 1024:.1f} GiB).")
    beyond = device.usable_mib / 1024 - rank.budget.likely / GIB
    if rank.outside.high / GIB > beyond:
        said.append(
            f"Outside its budget an engine may take {gib(rank.outside.high)}, and {beyond:.1f} GiB are there: "
            "lower the utilization if it runs out while it captures graphs."
        )
    if copies > 1:
        said.append(f"There is room for {copies} such copies.")
    return tuple(said)


def _refuse(code: str, message: str, remedy: str, setting: str, values: tuple[float | int, ...] = ()) -> Problem:
    return Problem(code, message, remedy, "args", None, "error", setting=setting, values=values)


def too_full(device: Device, utilization: float) -> Problem:
    """The engine would refuse to start: what is free is less than its budget."""
    asks, free = device.usable_mib * utilization / 1024, (device.free_mib or 0) / 1024
    own = device.context_mib / 1024
    most = max(0, math.floor((free - own) / (device.usable_mib / 1024) * 100 - 1)) / 100
    cure = f"Lower --gpu-memory-utilization to {most:g}, or end what holds the rest." if most >= 0.1 else ""
    return _refuse(
        "NOT_ENOUGH_MEMORY",
        f"{free:.1f} GiB are free, {own:.1f} of them go to the engine's own context; its budget is {asks:.1f} GiB.",
        cure or "End what holds the memory, or choose another accelerator.",
        "gpu_memory_utilization",
        (most,) if most >= 0.1 else (),
    )


def too_small(rank: Rank, settings: Settings) -> Problem:
    """Nothing is left for the cache."""
    taken = rank.budget.likely - rank.cache.likely
    return _refuse(
        "NOT_ENOUGH_MEMORY",
        f"Each accelerator would hold {gib(rank.weights.likely)} of weights and {gib(taken - rank.weights.likely)} of "
        f"other parts; its budget is {gib(rank.budget.likely)}.",
        "Split it over more accelerators, quantise the weights, or choose larger accelerators.",
        "tensor_parallel_size" if settings.kv_cache_memory_bytes is None else "kv_cache_memory_bytes",
    )


def too_long(figures: Estimate, rank: Rank, settings: Settings, concurrency: float) -> Problem:
    """The cache does not hold what is asked for: the length that does fit, or the utilization that would."""
    needs = int(figures.needed * concurrency)
    whole = rank.budget.likely / settings.gpu_memory_utilization
    utilization = math.ceil((rank.budget.likely - rank.cache.likely + needs) / whole * 100) / 100
    cures = [f"Set --max-model-len {figures.longest[1]} or less"] if figures.longest[1] and concurrency <= 1 else []
    if utilization <= MOST_UTILIZATION:
        cures.append(f"raise --gpu-memory-utilization to {utilization:g}")
    cures.append("split it over more accelerators")
    many = f"{concurrency:g} requests" if concurrency > 1 else "one request"
    said = ", or ".join(cures)
    return _refuse(
        "NOT_ENOUGH_MEMORY",
        f"{many[0].upper()}{many[1:]} of {figures.length} tokens needs {gib(needs)} of cache on each accelerator; "
        f"{gib(rank.cache.likely)} are left. The longest request that fits has {figures.longest[1]} tokens.",
        f"{said[0].upper()}{said[1:]}.",
        "max_model_len",
        (figures.longest[1],),
    )


def overfilled(figures: Estimate, settings: Settings, device: Device) -> Problem | None:
    """A cache of a size that was set: it is not held to the budget, only the device ends it."""
    if settings.kv_cache_memory_bytes is None:
        return None
    rank = max(figures.ranks, key=lambda rank: rank.weights.likely)
    parts = (rank.weights, rank.activation, rank.context, rank.graphs, rank.cache)
    there = (device.usable_mib if device.free_mib is None else device.free_mib) - device.context_mib
    over = sum(part.likely for part in parts) - there * MIB
    if over <= 0:
        return None
    most = max(0, settings.kv_cache_memory_bytes - over) // GIB * GIB
    return _refuse(
        "NOT_ENOUGH_MEMORY",
        f"Weights, other parts and a cache of {gib(settings.kv_cache_memory_bytes)} are {gib(over)} more than the "
        f"{gib(there * MIB)} of the accelerator.",
        f"Set --kv-cache-memory-bytes to {most} or less." if most else "Split it over more accelerators.",
        "kv_cache_memory_bytes",
        (most,) if most else (),
    )


def too_few(asked: int, there: int) -> Problem:
    """More machines are asked for than there are."""
    said = f"{asked} nodes are asked for; there {'is' if there == 1 else 'are'} {there} with such accelerators."
    return Problem("UNPLACEABLE", said, f"Ask for {there} or fewer.", "nodes", setting="nodes", values=(there,))


def no_such_layout(kind: str | None, has_accelerators: bool) -> Problem:
    """Nothing was even tried."""
    if not has_accelerators:
        said = "There is no accelerator that is free and whose size is known."
        return Problem("UNPLACEABLE", said, "Add a node, free an accelerator, or probe the node again.", "nodes")
    said = f"The accelerators that there are make no layout of the kind {kind or 'that was asked for'}."
    return Problem("UNPLACEABLE", said, "Choose another kind, other sizes or more accelerators.", "kind")
