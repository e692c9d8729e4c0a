"""Which tensor parallel sizes a model's shape and its quantisation allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .subject import Subject

# The engine pads the vocabulary to a multiple of this before it splits it.
VOCABULARY_STEP = 64
# Nobody has more accelerators in one tensor parallel group.
MOST = 64

Fits = Callable[[Subject, int], bool]


def heads(subject: Subject) -> int | None:
    """Attention heads of the model."""
    return subject.model.num_attention_heads or subject.whole("num_attention_heads", "n_head")


def kv_heads(subject: Subject) -> int | None:
    """Key/value heads of the model; those of latent attention are not split at all."""
    if "kv_lora_rank" in subject.text:
        return None
    return subject.model.num_key_value_heads or subject.whole("num_key_value_heads")


def widths(subject: Subject) -> dict[str, int]:
    """Widths of feed-forward layers that are split, by their names in the config. Experts may be spread instead."""
    dense = subject.whole("intermediate_size", "ffn_dim", "n_inner")
    expert = subject.whole("moe_intermediate_size")
    if subject.experts is None:
        found = {"intermediate_size": dense}
    elif expert is None:
        found = {} if subject.expert_parallel else {"intermediate_size": dense}
    else:
        found = {} if subject.expert_parallel else {"moe_intermediate_size": expert}
        if _has_dense_layers(subject):
            found["intermediate_size"] = dense
    found["shared_expert_intermediate_size"] = subject.whole("shared_expert_intermediate_size")
    return {name: width for name, width in found.items() if width}


def _has_dense_layers(subject: Subject) -> bool:
    step = subject.whole("decoder_sparse_step") or 1
    return step > 1 or bool(subject.text.get("mlp_only_layers")) or subject.whole("first_k_dense_replace") is not None


def attention_width(subject: Subject) -> int | None:
    """What the output projection of attention takes: heads x their dimension."""
    count = heads(subject)
    if not count:
        return None
    if "kv_lora_rank" in subject.text:
        size = subject.whole("v_head_dim")
    else:
        hidden = subject.model.hidden_size or subject.whole("hidden_size", "n_embd")
        size = subject.whole("head_dim") or (hidden // count if hidden and hidden % count == 0 else None)
    return count * size if size else None


def padded_vocabulary(subject: Subject) -> int:
    """Entries of the vocabulary as the engine splits it; 0 = not known."""
    entries = subject.model.vocab_size or subject.whole("vocab_size") or 0
    return -(-entries // VOCABULARY_STEP) * VOCABULARY_STEP


def quantization(subject: Subject) -> dict[str, Any]:
    """The checkpoint's own quantisation as its config says it; empty = none, or not known."""
    for config in (subject.config, subject.text):
        found = config.get("quantization_config") or config.get("compression_config")
        if isinstance(found, dict):
            return found
    return {}


def group_size(subject: Subject) -> int | None:
    """How many inputs share one scale in a 4- or 8-bit checkpoint; None = whole channels, or none."""
    own = quantization(subject)
    size = own.get("group_size", own.get("q_group_size"))
    groups = own.get("config_groups")
    if size is None and isinstance(groups, dict):
        size = next((found for group in groups.values() if (found := _weights(group).get("group_size"))), None)
    return size if isinstance(size, int) and size > 0 else None


def _weights(group: Any) -> dict[str, Any]:
    weights = group.get("weights") if isinstance(group, dict) else None
    return weights if isinstance(weights, dict) else {}


def block_size(subject: Subject) -> tuple[int, int] | None:
    """Outputs and inputs that share one scale in a block-quantised FP8 checkpoint."""
    found = quantization(subject).get("weight_block_size")
    if isinstance(found, list | tuple) and len(found) == 2 and all(isinstance(n, int) and n > 0 for n in found):
        return found[0], found[1]
    return None


def quantized_inputs(subject: Subject) -> dict[str, int]:
    """Widths that are cut across the scales of a quantised checkpoint, unless it leaves those layers alone."""
    own = quantization(subject)
    left_alone = str(own.get("modules_to_not_convert") or own.get("ignore") or "")
    found = {} if "down_proj" in left_alone else widths(subject)
    attention = attention_width(subject)
    if attention and "o_proj" not in left_alone and "self_attn" not in left_alone:
        found["heads x head size"] = attention
    return found


def heads_fit(subject: Subject, size: int) -> bool:
    count = heads(subject)
    return not count or count % size == 0


def kv_heads_fit(subject: Subject, size: int) -> bool:
    count = kv_heads(subject)
    return not count or count % size == 0 or size % count == 0


def widths_fit(subject: Subject, size: int) -> bool:
    return all(width % size == 0 for width in split_widths(subject).values())


def split_widths(subject: Subject) -> dict[str, int]:
    """Widths that must divide; MXFP4 kernels pad theirs."""
    return {} if "mxfp4" in str(quantization(subject).get("quant_method")) else widths(subject)


def vocabulary_fits(subject: Subject, size: int) -> bool:
    return padded_vocabulary(subject) % size == 0


def groups_fit(subject: Subject, size: int) -> bool:
    group = group_size(subject)
    return size == 1 or not group or all(_whole_parts(w, size, group) for w in quantized_inputs(subject).values())


def blocks_fit(subject: Subject, size: int) -> bool:
    block = block_size(subject)
    if size == 1 or block is None:
        return True
    return all(_whole_parts(width, size, n) for width in quantized_inputs(subject).values() for n in block)


def _whole_parts(width: int, size: int, step: int) -> bool:
    return width % size == 0 and width // size % step == 0


ALL: tuple[Fits, ...] = (heads_fit, kv_heads_fit, widths_fit, vocabulary_fits, groups_fit, blocks_fit)


def good_sizes(subject: Subject, *more: Fits) -> tuple[int, ...]:
    """Tensor parallel sizes that everything allows, those that a machine has room for if any are; at worst 1."""
    most = min(heads(subject) or MOST, MOST)
    every = tuple(n for n in range(2, most + 1) if all(fits(subject, n) for fits in (*ALL, *more)))
    room = min((len(host.accelerators) for host in subject.hosts if host.accelerators is not None), default=MOST)
    return tuple(n for n in every if n <= room) or every or (1,)
