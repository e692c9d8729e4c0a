"""A model's anatomy: what its `config.json` says about each layer, as far as memory depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .families import FAMILIES, FLAT_CLASSES, STRANGE_ATTENTION, TEXT_TYPES, Family

# Beyond these a config is broken or hostile; no model is near them.
MOST_NUMBER, MOST_LAYERS = 10**9, 2000


@dataclass(frozen=True, slots=True)
class UnknownModel:
    """Why nothing is said about a model. `what` is `architecture`, `attention`, `config` or `quantization`."""

    what: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: what is kept per token is one compressed vector, not heads."""

    kv_rank: int
    query_rank: int | None
    nope: int
    rope: int
    value: int


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture-of-experts feed-forward: `count` experts of `width`, `active` per token, and what all tokens take."""

    count: int
    active: int
    width: int
    shared_width: int = 0
    shared_gate: bool = False


@dataclass(frozen=True, slots=True)
class Anatomy:
    """One model. `windows[i]` is layer i's sliding window (None = it sees everything); `experts[i]` None = dense.

    `rope_rows` are the rows of each table of positions that a rank keeps; `rotary` is their width.
    """

    architecture: str
    family: Family
    hidden: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    max_length: int
    dtype: str
    tied: bool
    windows: tuple[int | None, ...]
    experts: tuple[Experts | None, ...]
    latent: Latent | None = None
    embedding_width: int | None = None
    rope_rows: tuple[int, ...] = ()
    rotary: int = 0
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: str = ""
    has_more: str | None = None

    @property
    def layers(self) -> int:
        return len(self.windows)

    @property
    def is_mixture(self) -> bool:
        return any(self.experts)


class _Missing(Exception):
    """A number without which nothing can be said."""


def read_anatomy(config: Mapping[str, Any]) -> Anatomy | UnknownModel:
    """The anatomy of a model from its parsed `config.json`; a multimodal one by its text part (`has_more` says so)."""
    nested = config.get("text_config")
    text = {**nested} if isinstance(nested, Mapping) else dict(config)
    name = _class_of(config, text, is_part=isinstance(nested, Mapping))
    family = FAMILIES.get(name or "")
    if name is None or family is None:
        return UnknownModel(
            "architecture",
            f"There is no rule for the architecture {name or 'that this config names (it names none)'}.",
            "Start it on an accelerator that is surely large enough; what its log reports is used from then on.",
        )
    text = {**dict(family.defaults), **{key: value for key, value in text.items() if value is not None}}
    strange = next((word for key, word in STRANGE_ATTENTION.items() if text.get(key)), None)
    try:
        windows = _windows(text, family)
        if strange is None and isinstance(windows, tuple):
            return _anatomy(config, text, name, family, windows)
    except _Missing as missing:
        return UnknownModel(
            "config",
            f"The config does not say {missing} as a number that can be.",
            "Check that config.json is complete.",
        )
    return UnknownModel(
        "attention",
        f"{name} has {strange or windows}; there is no rule for what it keeps per token.",
        "Read the cache's size from the engine's log; what it reports is used from then on.",
    )


def _class_of(config: Mapping[str, Any], text: Mapping[str, Any], *, is_part: bool) -> str | None:
    """The class whose rules hold; of a multimodal model that of its text part."""
    named = text.get("architectures") or (None if is_part else config.get("architectures"))
    if isinstance(named, list) and named and isinstance(named[0], str):
        return FLAT_CLASSES.get(named[0], named[0])
    if is_part:
        return TEXT_TYPES.get(str(text.get("model_type")), str(text.get("model_type")))
    return None


def _anatomy(
    config: Mapping[str, Any], text: Mapping[str, Any], name: str, family: Family, windows: tuple[int | None, ...]
) -> Anatomy:
    heads = need(text, "num_attention_heads", "n_head")
    hidden = need(text, "hidden_size", "n_embd")
    latent = _latent(text)
    head_dim = whole(text, "head_dim") or hidden // heads
    if head_dim < 1:
        raise _Missing("head_dim")
    longest = need(text, "max_position_embeddings", "n_positions")
    rotary = latent.rope if latent else int(head_dim * _partial(text))
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", family.tied))
    return Anatomy(
        architecture=name,
        family=family,
        hidden=hidden,
        vocab=need(text, "vocab_size"),
        heads=heads,
        kv_heads=whole(text, "num_key_value_heads") or heads,
        head_dim=head_dim,
        width=whole(text, "intermediate_size", "ffn_dim", "n_inner") or 4 * hidden,
        max_length=_longest(text, longest),
        dtype=_dtype(config, text),
        tied=bool(tied),
        windows=windows,
        experts=tuple(_experts(text, family, layer) for layer in range(len(windows))),
        latent=latent,
        embedding_width=whole(text, "word_embed_proj_dim"),
        rope_rows=_rope_rows(text, longest) if family.rope else (),
        rotary=rotary,
        qkv_bias=_decided(text, family.qkv_bias),
        out_bias=_decided(text, family.out_bias),
        mlp_bias=_decided(text, family.mlp_bias),
        qk_norm=_qk_norm(text, family),
        has_more="vision or audio parts" if _has_more(config) else None,
    )


def _has_more(config: Mapping[str, Any]) -> bool:
    return any(isinstance(config.get(part), Mapping) for part in ("text_config", "vision_config", "audio_config"))


def whole(config: Mapping[str, Any], *names: str) -> int | None:
    """The first of these that is a positive whole number."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST_NUMBER:
            return value
    return None


def need(config: Mapping[str, Any], *names: str) -> int:
    """As `whole`, for what must be there."""
    value = whole(config, *names)
    if value is None:
        raise _Missing(names[0])
    return value


def _decided(text: Mapping[str, Any], rule: bool | str) -> bool:
    return bool(text.get(rule)) if isinstance(rule, str) else rule


def _qk_norm(text: Mapping[str, Any], family: Family) -> str:
    if family.qk_norm in ("", "head", "whole"):
        return family.qk_norm
    return "head" if text.get(family.qk_norm) else ""


def _dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    for place in (text, config):
        word = place.get("dtype") or place.get("torch_dtype")
        if isinstance(word, str) and word:
            return word.removeprefix("torch.")
    return "float32"


def _partial(text: Mapping[str, Any]) -> float:
    """The share of a head that is rotated."""
    said = (
        _positive(place, name) for place in (text, _scaling(text)) for name in ("partial_rotary_factor", "rotary_pct")
    )
    return min(1.0, next((share for share in said if share), 1.0))


def _positive(config: Mapping[str, Any], name: str) -> float | None:
    """A positive number that is neither infinite nor beyond all sense."""
    value = config.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < MOST_NUMBER:
        return float(value)
    return None


def _scaling(text: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in ("rope_scaling", "rope_parameters"):
        value = text.get(name)
        if isinstance(value, Mapping):
            nested = value.get("full_attention")
            return nested if isinstance(nested, Mapping) else value
    return {}


def _scale(text: Mapping[str, Any]) -> tuple[str, float, int | None]:
    """Kind, factor and original length of the position scaling."""
    rope = _scaling(text)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    return str(kind), _positive(rope, "factor") or 1.0, whole(rope, "original_max_position_embeddings")


def _longest(text: Mapping[str, Any], longest: int) -> int:
    """The longest sequence that the engine derives: kinds whose config already counts the scaling are not scaled."""
    kind, factor, original = _scale(text)
    if kind in ("default", "llama3", "longrope", "su", "mrope"):
        return longest
    if kind == "yarn":
        return int((original or longest) * factor)
    # The family with two tables counts the scaling of the global one in its length already.
    return longest if text.get("rope_local_base_freq") else int(longest * factor)


def _rope_rows(text: Mapping[str, Any], longest: int) -> tuple[int, ...]:
    kind, factor, original = _scale(text)
    rows = longest
    if kind in ("linear", "dynamic"):
        rows = int(longest * factor)
    elif kind in ("yarn", "deepseek_yarn"):
        rows = int((original or longest) * factor)
    elif kind in ("longrope", "su"):
        rows = longest + (original or 0)
    parameters = text.get("rope_parameters")
    has_local = text.get("rope_local_base_freq") or (
        isinstance(parameters, Mapping) and "sliding_attention" in parameters
    )
    return (rows, longest) if has_local else (rows,)


def _windows(text: Mapping[str, Any], family: Family) -> tuple[int | None, ...] | str:
    """Each layer's window, or the name of an attention type without a rule."""
    layers = need(text, "num_hidden_layers", "n_layer")
    if layers > MOST_LAYERS:
        raise _Missing("num_hidden_layers")
    window = whole(text, "sliding_window")
    kinds = text.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        strange = next((kind for kind in kinds if kind not in ("full_attention", "sliding_attention")), None)
        if strange is not None:
            return f"attention of the type {strange!r}"
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    if window is None or text.get("use_sliding_window") is False:
        return (None,) * layers
    return tuple(window if _slides(text, family, layer) else None for layer in range(layers))


def _slides(text: Mapping[str, Any], family: Family, layer: int) -> bool:
    if family.windows == "pattern":
        return (layer + 1) % (whole(text, "sliding_window_pattern", "_sliding_window_pattern") or 6) != 0
    if family.windows == "above":
        return bool(text.get("use_sliding_window")) and layer >= (whole(text, "max_window_layers") or 0)
    return family.windows == "always" or (family.windows == "even" and layer % 2 == 0)


def _latent(text: Mapping[str, Any]) -> Latent | None:
    rank = whole(text, "kv_lora_rank")
    if rank is None:
        return None
    return Latent(
        kv_rank=rank,
        query_rank=whole(text, "q_lora_rank"),
        nope=need(text, "qk_nope_head_dim"),
        rope=need(text, "qk_rope_head_dim"),
        value=need(text, "v_head_dim"),
    )


def _experts(text: Mapping[str, Any], family: Family, layer: int) -> Experts | None:
    count = whole(text, "num_local_experts", "num_experts", "n_routed_experts")
    if not family.experts or count is None:
        return None
    active = need(text, "num_experts_per_tok", "experts_per_token")
    if family.experts == "qwen":
        step = whole(text, "decoder_sparse_step") or 1
        dense = text.get("mlp_only_layers")
        if (isinstance(dense, list) and layer in dense) or (layer + 1) % step:
            return None
        shared = whole(text, "shared_expert_intermediate_size") or 0
        width = need(text, "moe_intermediate_size", "intermediate_size")
        return Experts(count, active, width, shared, shared_gate=bool(shared))
    if family.experts == "deepseek":
        first, step = whole(text, "first_k_dense_replace") or 0, whole(text, "moe_layer_freq") or 1
        if layer < first or layer % step:
            return None
        width = need(text, "moe_intermediate_size")
        return Experts(count, active, width, (whole(text, "n_shared_experts") or 0) * width)
    return Experts(count, active, need(text, "intermediate_size"))
