"""Every matrix that one rank holds, by the rules of its architecture: names, sizes, how a split cuts them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .anatomy import Anatomy, Experts

# Vocabulary rows are padded to a multiple of this before they are split.
VOCAB_PADDING = 64


@dataclass(frozen=True, slots=True)
class Sizes:
    """How one copy is split: tensor, pipeline and data parallel sizes, and whether experts are spread whole.

    `decode_context` of the tensor parallel ranks share the tokens of a sequence; it takes no accelerators of its own.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert_parallel: bool = False
    decode_context: int = 1

    @property
    def ranks(self) -> int:
        return self.tensor * self.pipeline * self.data

    @property
    def expert_ranks(self) -> int:
        """Ranks that share the routed experts, whole ones or slices: data parallel members share theirs too."""
        return self.tensor * self.data


@dataclass(frozen=True, slots=True)
class Tensor:
    """One kind of matrix on a rank: `copies` of `out` rows x `into` columns; `linear` ones can be quantised."""

    name: str
    out: int
    into: int = 1
    copies: int = 1
    linear: bool = False

    @property
    def elements(self) -> int:
        return self.out * self.into * self.copies


@dataclass(frozen=True, slots=True)
class Stage:
    """The layers first..last-1 of a pipeline, with the embedding if it is the first stage, the head if the last."""

    first: int
    last: int
    is_first: bool = True
    is_last: bool = True


def stages(layers: int, pipeline: int) -> tuple[Stage, ...]:
    """How the engine spreads layers over stages: what does not divide goes to the stages before the last one."""
    counts = [layers // pipeline] * pipeline
    for extra in range(layers % pipeline):
        counts[-(extra + 2)] += 1
    edges = [sum(counts[:index]) for index in range(pipeline + 1)]
    return tuple(Stage(edges[i], edges[i + 1], i == 0, i == pipeline - 1) for i in range(pipeline))


def parameter_count(model: Anatomy) -> int:
    """All parameters of the text model."""
    return sum(tensor.elements for tensor in stage_tensors(model, Stage(0, model.layers), Sizes()))


def stage_tensors(model: Anatomy, stage: Stage, sizes: Sizes) -> tuple[Tensor, ...]:
    """What one rank of a stage holds; equal layers are counted once with their number of copies."""
    kinds: dict[Experts | None, int] = {}
    for experts in model.experts[stage.first : stage.last]:
        kinds[experts] = kinds.get(experts, 0) + 1
    found = [*_ends(model, stage, sizes)]
    for experts, count in kinds.items():
        for tensor in _layer(model, experts, sizes):
            found.append(Tensor(tensor.name, tensor.out, tensor.into, tensor.copies * count, tensor.linear))
    return tuple(found)


def split(size: int, parts: int) -> int:
    """The largest part of an even split."""
    return -(-size // parts)


def vocab_rows(model: Anatomy, tensor: int) -> int:
    """Rows of the embedding on one rank. Unsplit ones are counted as the files have them."""
    if tensor == 1:
        return model.vocab
    return split(split(model.vocab, VOCAB_PADDING) * VOCAB_PADDING, tensor)


def _ends(model: Anatomy, stage: Stage, sizes: Sizes) -> Iterator[Tensor]:
    rows, width = vocab_rows(model, sizes.tensor), model.embedding_width or model.hidden
    norm = 2 if model.family.norm_bias else 1
    if stage.is_first or (stage.is_last and model.tied):
        yield Tensor("embed_tokens", rows, width)
    if stage.is_first and model.family.positions is not None:
        yield Tensor("embed_positions", model.max_length + model.family.positions, model.hidden)
    if stage.is_last and not model.tied:
        yield Tensor("lm_head", rows, width, linear=True)
    if stage.is_last and model.family.head_bias:
        yield Tensor("lm_head.bias", rows)
    if stage.is_last and model.family.final_norm:
        yield Tensor("norm", model.hidden, norm)
    if width != model.hidden:
        yield from (Tensor("project", width, model.hidden) for here in (stage.is_first, stage.is_last) if here)


def _layer(model: Anatomy, experts: Experts | None, sizes: Sizes) -> Iterator[Tensor]:
    norm = 2 if model.family.norm_bias else 1
    if model.family.block_norms:
        yield Tensor("norms", model.hidden, norm, model.family.block_norms)
    yield from _latent(model, sizes) if model.latent else _attention(model, sizes)
    if experts is None:
        yield from _feed_forward(model, "mlp", model.width, sizes.tensor)
    else:
        yield from _mixture(model, experts, sizes)


def kv_heads_of_rank(model: Anatomy, tensor: int) -> int:
    """Heads of keys and values on one rank; with more ranks than heads each rank still has one."""
    return max(1, model.kv_heads // tensor)


def _attention(model: Anatomy, sizes: Sizes) -> Iterator[Tensor]:
    own = split(model.heads, sizes.tensor)
    kept = kv_heads_of_rank(model, sizes.tensor)
    rows = (own + 2 * kept) * model.head_dim
    yield Tensor("self_attn.qkv_proj", rows, model.hidden, linear=True)
    yield Tensor("self_attn.o_proj", model.hidden, own * model.head_dim, linear=True)
    if model.qkv_bias:
        yield Tensor("self_attn.qkv_bias", rows)
    if model.out_bias:
        yield Tensor("self_attn.o_bias", model.hidden)
    if model.qk_norm == "head":
        yield Tensor("self_attn.qk_norm", model.head_dim, 1, 2)
    elif model.qk_norm == "whole":
        yield Tensor("self_attn.qk_norm", (own + kept) * model.head_dim)
    if model.family.sinks:
        yield Tensor("self_attn.sinks", own)


def _latent(model: Anatomy, sizes: Sizes) -> Iterator[Tensor]:
    """Compressions are on every rank; what unfolds them is split by heads."""
    latent = model.latent
    assert latent is not None
    own, query = split(model.heads, sizes.tensor), latent.nope + latent.rope
    if latent.query_rank is None:
        yield Tensor("self_attn.q_proj", own * query, model.hidden, linear=True)
    else:
        yield Tensor("self_attn.q_a_proj", latent.query_rank, model.hidden, linear=True)
        yield Tensor("self_attn.q_b_proj", own * query, latent.query_rank, linear=True)
        yield Tensor("self_attn.q_a_norm", latent.query_rank)
    yield Tensor("self_attn.kv_a_proj", latent.kv_rank + latent.rope, model.hidden, linear=True)
    yield Tensor("self_attn.kv_a_norm", latent.kv_rank)
    yield Tensor("self_attn.kv_b_proj", own * (latent.nope + latent.value), latent.kv_rank, linear=True)
    yield Tensor("self_attn.o_proj", model.hidden, own * latent.value, linear=True)


def _feed_forward(model: Anatomy, name: str, width: int, parts: int) -> Iterator[Tensor]:
    own, ups = split(width, parts), 2 if model.family.gated else 1
    yield Tensor(f"{name}.gate_up_proj", ups * own, model.hidden, linear=True)
    yield Tensor(f"{name}.down_proj", model.hidden, own, linear=True)
    if model.mlp_bias:
        yield Tensor(f"{name}.up_bias", ups * own)
        yield Tensor(f"{name}.down_bias", model.hidden)


def _mixture(model: Anatomy, experts: Experts, sizes: Sizes) -> Iterator[Tensor]:
    ranks = sizes.expert_ranks
    count = split(experts.count, ranks) if sizes.expert_parallel else experts.count
    width = experts.width if sizes.expert_parallel else split(experts.width, ranks)
    yield Tensor("mlp.gate", experts.count, model.hidden)
    if model.family.correction_bias:
        yield Tensor("mlp.gate_correction", experts.count)
    # All experts of a layer are one tensor; it is the columns that a group of quantised weights runs along.
    yield Tensor("mlp.experts.w13", count * 2 * width, model.hidden, linear=True)
    yield Tensor("mlp.experts.w2", count * model.hidden, width, linear=True)
    if model.family.experts_bias:
        yield Tensor("mlp.experts.bias", count * (2 * width + model.hidden))
        yield Tensor("mlp.gate_bias", experts.count)
    if experts.shared_width:
        yield from _feed_forward(model, "mlp.shared_expert", experts.shared_width, sizes.tensor)
    if experts.shared_gate:
        yield Tensor("mlp.shared_expert_gate", model.hidden)
