"""What the cache of keys and values costs: bytes per token of a layer, groups of layers, blocks of one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .anatomy import Anatomy, UnknownModel
from .parameters import Sizes, Stage, kv_heads_of_rank
from .quantization import BYTES

BLOCK = 16
# Layer kinds whose counts differ by less than this are padded to one group each rather than cut into small groups.
PADDED_BELOW = 1.5
# Bytes of one number, and of what is kept per head beside it.
CACHE_TYPES: dict[str, tuple[float, int]] = {
    **{name: (size, 0) for name, size in BYTES.items() if size <= 2},
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2"), (1.0, 0)),
    "fp8_per_token_head": (1.0, 4),
    "int8_per_token_head": (1.0, 4),
    "int4_per_token_head": (0.5, 4),
    "nvfp4": (0.5625, 0),
}
# The packed latent format of sparse attention; the same for each model that has it.
PACKED_LATENT = 656


@dataclass(frozen=True, slots=True)
class Cache:
    """The cache of one copy on one rank.

    Attributes:
        layer_token_bytes: What one layer keeps of one token.
        groups: Layers that share block numbers, with their window (None = everything is kept).
        in_flight: Tokens that are scheduled and may not be given back yet.
        decode_context: Ranks that share the tokens of a sequence.
    """

    layer_token_bytes: int
    groups: tuple[tuple[int | None, tuple[int, ...]], ...]
    in_flight: int
    decode_context: int = 1

    def block_bytes(self, stage: Stage) -> int:
        """Bytes of one block number on a rank of a stage: one block in each layer of the largest group there."""
        layers = max(sum(stage.first <= layer < stage.last for layer in group) for _, group in self.groups)
        return BLOCK * self.layer_token_bytes * layers

    def blocks(self, length: int) -> int:
        """Block numbers that one request of `length` tokens takes."""
        own = -(-length // self.decode_context)
        return sum(self._blocks(window, own) for window, _ in self.groups)

    def _blocks(self, window: int | None, length: int) -> int:
        if window is None:
            return -(-length // BLOCK)
        kept = min(window - 1 + self.in_flight, length)
        return -(-kept // BLOCK) + 1

    def token_bytes(self, stage: Stage) -> int:
        """What a rank of a stage keeps of one token while no window is full."""
        layers = sum(stage.first <= layer < stage.last for _, group in self.groups for layer in group)
        return self.layer_token_bytes * layers

    def longest(self, blocks: int, most: int) -> int:
        """The longest request that fits into this many blocks, at most `most` tokens."""
        if blocks >= self.blocks(most):
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.blocks(middle) <= blocks else (low, middle)
        return low


def cache_of(
    model: Anatomy, sizes: Sizes, cache_dtype: str, compute_dtype: str, in_flight: int
) -> Cache | UnknownModel:
    """The cache of a model split like this.

    Args:
        cache_dtype: The engine's `--kv-cache-dtype`.
        compute_dtype: What `auto` means.
        in_flight: Tokens that concurrent batches may hold beyond a window.
    """
    word = compute_dtype if cache_dtype == "auto" else cache_dtype
    if word == "fp8_ds_mla" and model.latent:
        size = PACKED_LATENT
    elif word in CACHE_TYPES:
        size = _token_bytes(model, sizes, *CACHE_TYPES[word])
    else:
        return UnknownModel(
            "attention",
            f"There is no rule for what a cache of the type {word} keeps.",
            f"Choose one of auto, {', '.join(sorted(CACHE_TYPES))}.",
        )
    return Cache(size, _groups(model.windows), in_flight, sizes.decode_context)


def _token_bytes(model: Anatomy, sizes: Sizes, size: float, per_head: int) -> int:
    if model.latent:
        return int((model.latent.kv_rank + model.latent.rope) * size) + per_head
    kept = kv_heads_of_rank(model, sizes.tensor)
    return int(2 * kept * model.head_dim * size) + 2 * kept * per_head


def _groups(windows: Sequence[int | None]) -> tuple[tuple[int | None, tuple[int, ...]], ...]:
    """Layers of one kind are cut into groups of one size, every n-th layer together as the engine does."""
    kinds: dict[int | None, list[int]] = {}
    for layer, window in enumerate(windows):
        kinds.setdefault(window, []).append(layer)
    fewest, most = min(map(len, kinds.values())), max(map(len, kinds.values()))
    size = most if most < fewest * PADDED_BELOW else fewest
    found = []
    for window, layers in kinds.items():
        count = -(-len(layers) // size)
        found += [(window, tuple(layers[index::count])) for index in range(count)]
    return tuple(found)
