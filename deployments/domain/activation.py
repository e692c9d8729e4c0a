"""What an engine takes beside weights and cache: the peak of a forward pass, graphs, contexts, use above its budget.

Each figure is a range with its reason. Structure comes from how the layers compute; the few fitted numbers come from
measured starts and are named `FITTED`; the golden test fits each of them again without the model it is tried on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

from .anatomy import Anatomy
from .facts import MIB
from .parameters import Sizes, split, vocab_rows

GIB = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes: at least, likely, at most, and why. `measured` = it was read on such a start, not estimated."""

    low: int
    likely: int
    high: int
    reason: str
    measured: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "low": self.low,
            "likely": self.likely,
            "high": self.high,
            "reason": self.reason,
            "measured": self.measured,
        }


def exactly(value: int, reason: str, *, measured: bool = False) -> Range:
    """A range without width."""
    return Range(value, value, value, reason, measured)


# Vectors of the hidden size that are alive together with the feed-forward's own three at the peak of a dense layer.
FITTED_HIDDEN = 4.0
# The same for a mixture of experts: fitted on one start only, so its range is wide.
FITTED_HIDDEN_MIXTURE = 8.0
# Graphs of one layer in all batch sizes and both modes, measured on two models.
FITTED_GRAPH_LAYER = int(0.0254 * GIB)
# The workspace that matrix products take once, on Hopper and newer; smaller before.
WORKSPACE = 32 * MIB
# Outside torch's allocator: one rank alone, and with the communicators of several ranks (read in public logs only).
ALONE = int(0.22 * GIB)
TOGETHER = int(1.1 * GIB)
# Bytes per word of the vocabulary and sequence while the first token is drawn, likely and at most. The first model
# runner sorts and sums in wide numbers: public logs show 38 with one of its samplers, the other was not seen.
SAMPLED_BYTES, SAMPLED_BYTES_OLD = (2, 8), (24, 45)
CAPTURED_TOKENS = 512
# From the first of these on the second model runner takes dense models, from the second on (about) all of them. The
# memory profiler counts graphs from the first one on, but with the second runner only from the second one on.
NEW_RUNNER, NEW_RUNNER_FOR_ALL = Version("0.20"), Version("0.30")


@dataclass(frozen=True, slots=True)
class Batch:
    """Tokens and sequences of the largest batch."""

    tokens: int
    sequences: int


def activation_peak(model: Anatomy, sizes: Sizes, batch: Batch, version: str | None, *, is_last: bool) -> Range:
    """The peak of the forward pass that the engine measures itself by, of one rank."""
    bytes_each = 2
    dense = batch.tokens * bytes_each * (3 * split(model.width, sizes.tensor) + FITTED_HIDDEN * model.hidden)
    forward = max(dense, *(_mixture(model, sizes, batch.tokens, bytes_each)))
    sampled = min(batch.tokens, batch.sequences)
    vocabulary = vocab_rows(model, 1) if is_last else 0
    carried = batch.tokens * model.hidden * bytes_each
    wide = runs_old_runner(version, mixture=model.is_mixture)
    each, at_most = SAMPLED_BYTES_OLD if wide else SAMPLED_BYTES
    logits = sampled * vocabulary * each + carried
    most = sampled * vocabulary * at_most + carried
    likely = int(max(forward, logits)) + WORKSPACE
    margin = 1.5 if model.is_mixture or sizes.ranks > 1 or model.has_more else 1.25
    high = int(max(forward * margin, most)) + 8 * WORKSPACE + (2 * GIB if model.has_more else 0)
    larger = "the output head over all sequences" if logits > forward else "the feed-forward of one layer"
    reason = (
        f"{batch.tokens} tokens in one batch, {batch.sequences} sequences; the peak is {larger}"
        + (", the parts for pictures or sound are not counted" if model.has_more else "")
        + (", with experts the least certain part" if model.is_mixture else "")
    )
    return Range(int(min(forward, likely) * 0.7), likely, high, reason)


def _mixture(model: Anatomy, sizes: Sizes, tokens: int, bytes_each: int) -> tuple[float, ...]:
    """The two work spaces of the experts' products, each token once per active expert."""
    found = [0.0]
    for experts in set(model.experts) - {None}:
        assert experts is not None
        width = experts.width if sizes.expert_parallel else split(experts.width, sizes.expert_ranks)
        spaces = max(width, model.hidden) + max(2 * width, model.hidden)
        per_token = experts.active * spaces + FITTED_HIDDEN_MIXTURE * model.hidden
        found.append(tokens * bytes_each * (per_token + 3 * split(experts.shared_width, sizes.tensor)))
    return tuple(found)


def graphs(model: Anatomy, layers: int, sizes: Sizes, *, eager: bool) -> Range:
    """Captured graphs of one rank."""
    if eager:
        return exactly(0, "no graphs are captured with --enforce-eager")
    pool = CAPTURED_TOKENS * 2 * (3 * split(model.width, sizes.tensor) + int(FITTED_HIDDEN * model.hidden))
    likely = layers * FITTED_GRAPH_LAYER + pool
    reason = f"graphs of {layers} layers for all batch sizes; measured on two models only, so taken wide"
    return Range(likely // 2, likely, int(likely * 1.8) + GIB // 4, reason)


def context(sizes: Sizes, platform: str) -> Range:
    """What lies outside torch's allocator but inside the budget."""
    if platform != "cuda":
        return Range(GIB // 4, GIB // 2, 3 * GIB // 2, "the process itself and its libraries; not measured")
    if sizes.ranks == 1:
        return Range(GIB // 50, ALONE, ALONE + GIB // 5, "libraries of one rank alone, as measured on one GPU")
    reason = f"libraries and the communicators of {sizes.ranks} ranks; public logs show 0.9 to 1.6 GiB, none of our own"
    return Range(ALONE // 2, TOGETHER, int(2.5 * GIB), reason)


def outside(platform: str) -> Range:
    """What a running engine takes beyond the budget it was given."""
    if platform != "cuda":
        return exactly(0, "an engine on the CPU has no second budget")
    reason = "real use exceeds the budget: 0.6 to 2.3 GiB at the start, 3.1 GiB under load, as measured on one GPU"
    return Range(0, int(1.5 * GIB), int(3.5 * GIB), reason)


def counts_graphs(version: str | None, *, mixture: bool) -> bool:
    """Whether the profiler takes the graphs out of the cache; an unknown version is taken as today's."""
    read = read_version(version)
    if read is None or read >= NEW_RUNNER_FOR_ALL:
        return True
    return mixture and read >= NEW_RUNNER


def runs_old_runner(version: str | None, *, mixture: bool) -> bool:
    """Whether the first model runner is used, which samples in wider numbers."""
    read = read_version(version)
    return read is not None and (read < NEW_RUNNER or (mixture and read < NEW_RUNNER_FOR_ALL))


def read_version(text: str | None) -> Version | None:
    """A version, without what a build adds to it; None = not known."""
    try:
        return Version(Version(text or "").base_version)
    except InvalidVersion:
        return None
