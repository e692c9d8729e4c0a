"""What starts report about their memory, and its use for the next plan.

`read_report(log)` reads a start's log; a `Record` keeps what was read with what was started; `recall_of(records)`
answers the planner for one model; `beside(estimate, reported)` puts predicted beside measured.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .accelerators import Device
from .activation import GIB, Range
from .log_lines import clean
from .memory import Estimate, Learned, Settings
from .parameters import Sizes

_GIB = r"(-?\d+(?:\.\d+)?) GiB"
_WEIGHTS = re.compile(rf"Model loading took {_GIB}")
_CACHE = re.compile(rf"Available KV cache memory: {_GIB}")
_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
_ACTIVATION = re.compile(rf"{_GIB} for peak activation")
_CONTEXT = re.compile(rf"{_GIB} for non-torch memory")
_CONSUMED = re.compile(rf"{_GIB} for consumed memory")
_GRAPHS = re.compile(rf"Graph capturing finished in .{{1,40}}?took {_GIB}")
_ESTIMATED = re.compile(rf"Estimated CUDA graph memory: {_GIB}")


@dataclass(frozen=True, slots=True)
class Reported:
    """Bytes that the ranks of a start reported, the fullest rank's. None = not said.

    `graphs` is what the profiler took for them where it says so, else what capturing them took.
    """

    weights: int | None = None
    activation: int | None = None
    context: int | None = None
    graphs: int | None = None
    cache: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One start: which model (`digest`), where, split and set how, and what it reported."""

    model: str
    device: str
    sizes: Sizes
    settings: Settings
    reported: Reported


def digest(config: Mapping[str, Any]) -> str:
    """A name for a model by what its `config.json` says, not by what it or its folder is called."""
    kept = {key: value for key, value in config.items() if not key.startswith("_") and key != "transformers_version"}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:32]


def read_report(log: str) -> Reported:
    """What a log says about memory; of several ranks the one that has most of a part and least of the cache."""
    text = "\n".join(clean(line) for line in log.split("\n"))
    weights, activation = _most(_WEIGHTS, text), _most(_ACTIVATION, text)
    context, consumed = _most(_CONTEXT, text), _most(_CONSUMED, text)
    estimated = _most(_ESTIMATED, text)
    if context is None and consumed is not None and weights is not None:
        # Newer engines say weights and the rest in one figure, and the graphs within the activation.
        context = max(0, consumed - weights)
        activation = activation if activation is None else max(0, activation - (estimated or 0))
    tokens = [int(match.replace(",", "")) for match in _TOKENS.findall(text)]
    cache = [_bytes(match) for match in _CACHE.findall(text)]
    return Reported(
        weights=weights,
        activation=activation,
        context=context,
        graphs=estimated if estimated is not None else _most(_GRAPHS, text),
        cache=min(cache, default=None),
        tokens=min(tokens, default=None),
    )


def _most(pattern: re.Pattern[str], text: str) -> int | None:
    return max((_bytes(match) for match in pattern.findall(text)), default=None)


def _bytes(gib: str) -> int:
    return round(float(gib) * GIB)


def recall_of(records: Iterable[Record], model: str) -> Callable[[Device, Sizes, Settings], Learned | None]:
    """What the planner asks of earlier starts of the model with this digest.

    A part is used only where what it depends on was the same: weights and context by the split, the activation also by
    the batch, graphs also by whether they are captured. The newest record comes last and wins.
    """
    own = [record for record in records if record.model == model]

    def recall(device: Device, sizes: Sizes, settings: Settings) -> Learned | None:
        like = [record for record in own if _is_like(record, device, sizes, settings)]
        batch = [record for record in like if _batch(record.settings) == _batch(settings)]
        eager = [record for record in like if record.settings.enforce_eager == settings.enforce_eager]
        found = Learned(
            weights=_newest(like, "weights"),
            activation=_newest(batch, "activation"),
            context=_newest(like, "context"),
            graphs=_newest(eager, "graphs"),
        )
        return None if found == Learned() else found

    return recall


def _is_like(record: Record, device: Device, sizes: Sizes, settings: Settings) -> bool:
    then = record.settings
    same_engine = settings.version is None or then.version == settings.version
    same_numbers = (then.dtype, then.quantization) == (settings.dtype, settings.quantization)
    return record.device == device.name and record.sizes == sizes and same_engine and same_numbers


def _batch(settings: Settings) -> tuple[int | None, int | None]:
    return settings.max_num_batched_tokens, settings.max_num_seqs


def _newest(records: Iterable[Record], part: str) -> int | None:
    said = [getattr(record.reported, part) for record in records]
    return next((value for value in reversed(said) if value is not None), None)


@dataclass(frozen=True, slots=True)
class Compared:
    """One part predicted and measured, in bytes; `tokens` in tokens. `inside` = the range held it."""

    part: str
    predicted: Range
    measured: int

    @property
    def inside(self) -> bool:
        return self.predicted.low <= self.measured <= self.predicted.high

    @property
    def error(self) -> float:
        """How far the likely value was off, as a share of the measured one."""
        return self.predicted.likely / self.measured - 1 if self.measured else 0.0


def beside(estimate: Estimate, reported: Reported) -> tuple[Compared, ...]:
    """Predicted beside measured for each part that the start reported; parts of the fullest rank."""
    fullest = min(estimate.ranks, key=lambda rank: rank.cache.likely)
    parts = {name: getattr(fullest, name) for name in ("weights", "activation", "context", "graphs", "cache")}
    parts["tokens"] = Range(
        *estimate.tokens, reason=f"requests of {estimate.length} tokens that fit, times their length"
    )
    said = {name: getattr(reported, name) for name in parts}
    return tuple(Compared(name, part, said[name]) for name, part in parts.items() if said[name] is not None)
