"""What one copy of a model takes of each accelerator, and how much context is left: ranges, each with its reason.

model = read_model(config, file_bytes, settings)        # Model, or UnknownModel that says why not
estimate(model, Sizes(tensor=2), settings, device)      # Estimate, or UnknownModel
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .accelerators import Device
from .activation import GIB, Batch, Range, activation_peak, context, counts_graphs, exactly, graphs, outside
from .anatomy import Anatomy, UnknownModel, read_anatomy
from .attention import Cache, cache_of
from .facts import MIB
from .parameters import Sizes, Stage, stage_tensors, stages
from .quantization import BYTES, Scheme, scheme_of

# Blocks that torch asks the driver for are whole multiples of this, from this size on; what is left over is not used.
ALLOCATION, ROUNDED_FROM = 2 * MIB, 10 * MIB
# The engine's defaults by the device's size: memory it must have, tokens of a batch, sequences.
DEFAULT_BATCHES = ((160 * GIB, 16384, 1024), (70 * GIB, 8192, 1024), (0, 2048, 256))


@dataclass(frozen=True, slots=True)
class Settings:
    """The engine's settings that memory depends on, by its own names. None = the engine's default."""

    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float = 0.92
    kv_cache_memory_bytes: int | None = None
    enforce_eager: bool = False
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """What a start of this model on this accelerator with this engine reported, per rank. None = not read."""

    weights: int | None = None
    activation: int | None = None
    context: int | None = None
    graphs: int | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model that can be estimated. `file_bytes` is the size of its weights as stored; None = not known."""

    anatomy: Anatomy
    scheme: Scheme | None
    dtype: str
    file_bytes: int | None = None

    @property
    def element_bytes(self) -> int:
        return int(BYTES[self.dtype])


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of one pipeline stage. `cache` is what is left for keys and values; below zero it does not start.

    `outside` and, where `graphs_counted` is false, `graphs` come on top of the budget.
    """

    stage: Stage
    budget: Range
    weights: Range
    activation: Range
    context: Range
    graphs: Range
    outside: Range
    cache: Range
    graphs_counted: bool
    token_bytes: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """One copy. Tokens, concurrency and lengths are (low, likely, high); low holds when each part is at its highest.

    Attributes:
        ranks: One per kind of stage, in order; all tensor parallel ranks of a stage are equal.
        length: Tokens of one request that `concurrency` is about.
        tokens: What the cache holds, counted as the engine's log counts it (concurrency x length).
        longest: The longest request that fits alone, at most what the model allows.
        needed: Bytes that one request of `length` takes on the fullest rank.
    """

    ranks: tuple[Rank, ...]
    length: int
    tokens: tuple[int, int, int]
    concurrency: tuple[float, float, float]
    longest: tuple[int, int, int]
    needed: int

    @property
    def fits(self) -> str:
        """`yes`, `perhaps` (only if no part is larger than likely) or `no`."""
        return "yes" if self.concurrency[0] >= 1 else "perhaps" if self.concurrency[1] >= 1 else "no"


def read_model(config: Mapping[str, Any], file_bytes: int | None, settings: Settings) -> Model | UnknownModel:
    """The model behind a `config.json`.

    Args:
        config: The parsed file.
        file_bytes: `metadata.total_size` of its safetensors index, or the size of its weight files.
    """
    anatomy = read_anatomy(config)
    if isinstance(anatomy, UnknownModel):
        return anatomy
    if anatomy.has_more and file_bytes is None:
        return UnknownModel(
            "architecture",
            f"The model has {anatomy.has_more} beside its text part, and the size of its files is not known.",
            "Give the folder with its model.safetensors.index.json.",
        )
    scheme = scheme_of(config, settings.quantization)
    if isinstance(scheme, UnknownModel):
        return scheme
    dtype = anatomy.dtype if settings.dtype == "auto" else settings.dtype
    if settings.dtype == "auto" and dtype in ("float32", "float"):
        dtype = "bfloat16"
    if dtype not in BYTES:
        return UnknownModel("config", f"{dtype!r} is not a number format with a rule.", "Set --dtype bfloat16.")
    return Model(anatomy, scheme, dtype, file_bytes)


def estimate(
    model: Model, sizes: Sizes, settings: Settings, device: Device, learned: Learned | None = None
) -> Estimate | UnknownModel:
    """What each rank of one copy takes on devices of this kind, and what is left.

    The sizes are believed: rules that they must satisfy are the business of `rules`.
    """
    anatomy = model.anatomy
    length = settings.max_model_len or anatomy.max_length
    batch = batch_of(settings, device, length)
    in_flight = batch.tokens * (sizes.pipeline + 1)
    cache = cache_of(anatomy, sizes, settings.kv_cache_dtype, model.dtype, in_flight)
    if isinstance(cache, UnknownModel):
        return cache
    known = learned or Learned()
    ranks: dict[tuple[Any, ...], Rank] = {}
    for stage in stages(anatomy.layers, sizes.pipeline):
        size = (stage.last - stage.first, _mixtures(anatomy, stage), cache.block_bytes(stage))
        key = (stage.is_first, stage.is_last, *size)
        if key not in ranks:
            ranks[key] = _rank(model, stage, sizes, settings, device, batch, cache, known)
    return _estimate(tuple(ranks.values()), cache, length, anatomy.max_length)


def batch_of(settings: Settings, device: Device, length: int) -> Batch:
    """The largest batch: as set, or the engine's default on a device of this size."""
    size = device.usable_mib * MIB
    large = device.platform == "cuda" and "a100" not in device.name.lower()
    tokens, sequences = next(
        (tokens, sequences) for least, tokens, sequences in DEFAULT_BATCHES if size >= least and (large or not least)
    )
    sequences = settings.max_num_seqs or sequences
    tokens = settings.max_num_batched_tokens or min(tokens, sequences * length)
    return Batch(tokens, min(sequences, tokens))


def _mixtures(anatomy: Anatomy, stage: Stage) -> int:
    return sum(1 for experts in anatomy.experts[stage.first : stage.last] if experts)


def _rank(
    model: Model,
    stage: Stage,
    sizes: Sizes,
    settings: Settings,
    device: Device,
    batch: Batch,
    cache: Cache,
    known: Learned,
) -> Rank:
    anatomy, cuda = model.anatomy, device.platform == "cuda"
    parts = {
        "weights": _read(known.weights) or weights_of(model, stage, sizes),
        "activation": _read(known.activation)
        or activation_peak(anatomy, sizes, batch, settings.version, is_last=stage.is_last),
        "context": _read(known.context) or context(sizes, device.platform),
        "graphs": _read(known.graphs)
        or graphs(anatomy, stage.last - stage.first, sizes, eager=settings.enforce_eager or not cuda),
    }
    counted = counts_graphs(settings.version, mixture=anatomy.is_mixture)
    taken = [part for name, part in parts.items() if counted or name != "graphs"]
    budget = budget_of(device, settings.gpu_memory_utilization)
    return Rank(
        stage=stage,
        budget=budget,
        **parts,
        outside=outside(device.platform),
        cache=_left(budget, taken, settings.kv_cache_memory_bytes),
        graphs_counted=counted,
        token_bytes=cache.token_bytes(stage),
        block_bytes=cache.block_bytes(stage),
    )


def _read(value: int | None) -> Range | None:
    if value is None:
        return None
    margin = value // 50 + 16 * MIB
    reason = "read from the log of an earlier start of this model on such an accelerator"
    return Range(max(0, value - margin), value, value + margin, reason, measured=True)


def _left(budget: Range, taken: list[Range], fixed: int | None) -> Range:
    if fixed is not None:
        return exactly(fixed, "set by --kv-cache-memory-bytes")
    return Range(
        budget.low - sum(part.high for part in taken),
        budget.likely - sum(part.likely for part in taken),
        budget.high - sum(part.low for part in taken),
        "what the budget leaves after the other parts",
    )


def budget_of(device: Device, utilization: float) -> Range:
    """What the engine may take of a device: a share of all that it can see, whatever others hold."""
    low, likely, high = (
        math.ceil((device.memory_mib - kept) * MIB * utilization) for kept in reversed(device.reserved_mib)
    )
    reason = f"{utilization:g} of the {device.usable_mib / 1024:.2f} GiB that an engine sees"
    return Range(low, likely, high, reason)


@lru_cache(maxsize=4096)
def weights_of(model: Model, stage: Stage, sizes: Sizes) -> Range:
    """Weights of one rank of a stage as the allocator counts them, with its tables of positions."""
    exact, held, largest = _weight_bytes(model, stage, sizes)
    tables = sum(model.anatomy.rope_rows) * model.anatomy.rotary * model.element_bytes
    likely = held + tables
    low, high = exact, likely + 48 * MIB + likely // 400
    reason = f"{exact / GIB:.2f} GiB of parameters, {(likely - exact) / GIB:.2f} GiB of position tables and rounding"
    if model.scheme is not None:
        high += (largest if model.scheme.repacked else 0) + likely // 100
        reason += f", linear layers as {model.scheme.name}"
    return _matched(model, sizes, Range(low, likely, high, reason), stage)


def _weight_bytes(model: Model, stage: Stage, sizes: Sizes) -> tuple[int, int, int]:
    """Bytes of all parameters, what the allocator holds for them, and the largest single one."""
    exact = held = largest = 0
    for tensor in stage_tensors(model.anatomy, stage, sizes):
        if tensor.linear and model.scheme and model.scheme.takes(tensor.name):
            size = math.ceil(model.scheme.held(tensor.out, tensor.into))
        else:
            size = tensor.out * tensor.into * model.element_bytes
        exact += size * tensor.copies
        held += _rounded(size) * tensor.copies
        largest = max(largest, size)
        if tensor.name == "self_attn.kv_b_proj" and model.scheme:
            # The kernels of latent attention multiply by this matrix unquantised, so they keep a copy of it.
            held += _rounded(tensor.out * tensor.into * model.element_bytes) * tensor.copies
    return exact, held, largest


def _rounded(size: int) -> int:
    return size if size < ROUNDED_FROM else -(-size // ALLOCATION) * ALLOCATION


def _matched(model: Model, sizes: Sizes, counted: Range, stage: Stage) -> Range:
    """The range held against the size of the files, where that is known and says something else."""
    if model.file_bytes is None:
        return counted
    ratio = model.file_bytes / stored_bytes(model)
    if model.anatomy.has_more:
        more = int(max(0.0, model.file_bytes - stored_bytes(model))) if stage.is_first else 0
        reason = f"{counted.reason}; {more / GIB:.2f} GiB for {model.anatomy.has_more}, on each rank"
        return Range(counted.low, counted.likely + more, counted.high + more + more // 10, reason)
    if 0.98 <= ratio <= 1.02 or any(abs(ratio / other - 1) < 0.02 for other in (0.5, 2.0)):
        return counted
    scaled = int(counted.likely * ratio)
    reason = f"{counted.reason}; the files are {(ratio - 1) * 100:+.0f} % of what the config's sizes make"
    # A little more in the files is often a part that is not loaded; a lot of difference is believed.
    likely = counted.likely if 1 < ratio < 1.05 else scaled
    return Range(min(counted.low, scaled), likely, max(counted.high, scaled + scaled // 50), reason)


@lru_cache(maxsize=256)
def stored_bytes(model: Model) -> float:
    """What the files should weigh by the config: quantised where the checkpoint is, else in its own number format."""
    scheme = model.scheme if model.scheme and not model.scheme.online else None
    each, total = BYTES.get(model.anatomy.dtype, 2.0), 0.0
    for tensor in stage_tensors(model.anatomy, Stage(0, model.anatomy.layers), Sizes()):
        if tensor.linear and scheme and scheme.takes(tensor.name):
            total += scheme.size(tensor.out, tensor.into) * tensor.copies
        else:
            total += tensor.elements * (min(each, 2.0) if scheme else each)
    return total


def _estimate(ranks: tuple[Rank, ...], cache: Cache, length: int, most: int) -> Estimate:
    asked = cache.blocks(length)
    blocks = [
        min(max(0, value) // rank.block_bytes for rank, value in zip(ranks, column, strict=True))
        for column in zip(*((rank.cache.low, rank.cache.likely, rank.cache.high) for rank in ranks), strict=True)
    ]
    low, likely, high = blocks
    return Estimate(
        ranks=ranks,
        length=length,
        tokens=(low * length // asked, likely * length // asked, high * length // asked),
        concurrency=(low / asked, likely / asked, high / asked),
        longest=(cache.longest(low, most), cache.longest(likely, most), cache.longest(high, most)),
        needed=max(rank.block_bytes for rank in ranks) * asked,
    )
