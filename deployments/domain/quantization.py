"""What one parameter weighs: number formats, quantised checkpoints, weights that are quantised while loading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .anatomy import UnknownModel, whole

BYTES = {"float32": 4.0, "float": 4.0, "float16": 2.0, "half": 2.0, "bfloat16": 2.0}


@dataclass(frozen=True, slots=True)
class Scheme:
    """How the linear layers are kept.

    Attributes:
        name: The method, in the config's word.
        bits: Bits of one weight.
        group: Weights along the input that share one scale; None = one scale per output row; block x block if `block`.
        scale_bits, zero_bits: Bits of a scale and of a zero point.
        skipped: Words in the names of parts that stay as they were.
        head: Whether the output head is quantised too.
        only_experts: Nothing but routed experts is quantised.
        online: The files are not quantised; it happens while they are loaded.
        padded: Inputs of a matrix are filled up to a multiple of this by its kernels.
        repacked: The loader holds a second copy of the largest matrix for a moment.
    """

    name: str
    bits: float
    group: int | None = None
    scale_bits: int = 16
    zero_bits: float = 0
    block: int | None = None
    skipped: tuple[str, ...] = ()
    head: bool = False
    only_experts: bool = False
    online: bool = False
    repacked: bool = False
    index_bits: int = 0
    padded: int = 1

    def held(self, out: int, into: int) -> float:
        """Bytes of one quantised matrix as the engine holds it."""
        return self.size(out, -(-into // self.padded) * self.padded)

    def size(self, out: int, into: int) -> float:
        """Bytes of one quantised matrix with its scales, as it is stored."""
        total = out * into * self.bits
        if self.block:
            total += -(-out // self.block) * -(-into // self.block) * self.scale_bits
        elif self.group:
            total += out * -(-into // self.group) * (self.scale_bits + self.zero_bits)
        else:
            total += out * self.scale_bits
        return (total + into * self.index_bits) / 8

    def takes(self, name: str) -> bool:
        """Whether the part of this name is quantised."""
        if name == "lm_head":
            return self.head
        if self.only_experts:
            return name.startswith("mlp.experts")
        return not any(word in name or name in word for word in self.skipped)


# Asked for on the command line, made while the weights are loaded.
ONLINE: dict[str, Scheme] = {
    "fp8": Scheme("fp8", 8, scale_bits=0, online=True),
    "fp8_per_tensor": Scheme("fp8_per_tensor", 8, scale_bits=0, online=True),
    "fp8_per_block": Scheme("fp8_per_block", 8, scale_bits=32, block=128, online=True),
    "int8_per_channel_weight_only": Scheme("int8_per_channel_weight_only", 8, scale_bits=32, online=True),
    "mxfp8": Scheme("mxfp8", 8, group=32, scale_bits=8, online=True),
    "experts_int8": Scheme("experts_int8", 8, scale_bits=32, only_experts=True, online=True),
    "bitsandbytes": Scheme("bitsandbytes", 4, group=64, scale_bits=32, online=True),
}


def scheme_of(config: Mapping[str, Any], wanted: str | None) -> Scheme | UnknownModel | None:
    """How the linear layers are kept; None = as the files have them.

    Args:
        config: The parsed `config.json`.
        wanted: The engine's `--quantization`, if it is set.
    """
    text = config.get("text_config")
    said = config.get("quantization_config") or (text.get("quantization_config") if isinstance(text, Mapping) else None)
    if not isinstance(said, Mapping):
        if wanted is None:
            return None
        return ONLINE.get(wanted) or _unknown(
            f"{wanted} does not quantise a checkpoint that is not quantised itself.",
            f"Leave --quantization away, choose one of {', '.join(sorted(ONLINE))}, or another checkpoint.",
        )
    method = str(said.get("quant_method") or "").lower()
    reader = _CHECKPOINTS.get(method)
    scheme = reader(said) if reader else None
    return scheme or _unknown(
        f"There is no rule for a checkpoint quantised by {method or 'a method that it does not name'}.",
        "Start it where it surely fits; what its log reports is used from then on.",
    )


def _unknown(message: str, remedy: str) -> UnknownModel:
    return UnknownModel("quantization", message, remedy)


def _number(said: Mapping[str, Any], *names: str) -> int | None:
    return whole(said, *names)


def _skipped(said: Mapping[str, Any]) -> tuple[str, ...]:
    """Parts that stay as they were, as the last words of their names; a whole list of layers becomes one word."""
    lists = (said.get(name) for name in ("modules_to_not_convert", "ignore", "ignored_layers"))
    words = next((words for words in lists if isinstance(words, list) and words), [])
    parts = {str(word).lower().replace("re:", "").strip(".*^$") for word in words}
    return tuple(sorted({_part(part) for part in parts if part and "lm_head" not in part} - {""}))


def _part(name: str) -> str:
    """`model.layers.3.self_attn.q_proj` and `.*self_attn.*` both mean `self_attn`; routers are never quantised."""
    known = ("self_attn", "shared_expert", "mlp.experts", "experts")
    return next((word for word in known if word in name), "")


def _awq(said: Mapping[str, Any]) -> Scheme | None:
    bits = _number(said, "bits", "w_bit")
    if bits is None:
        return None
    group = _number(said, "group_size", "q_group_size")
    return Scheme("awq", bits, group, zero_bits=bits, skipped=_skipped(said), repacked=True)


def _gptq(said: Mapping[str, Any]) -> Scheme | None:
    bits = _number(said, "bits")
    if bits is None:
        return None
    # The files carry an index per input column; the kernels keep it only for reordered checkpoints.
    index = 32 if said.get("desc_act") else 0
    zero = 0 if said.get("sym", True) else bits
    group = _number(said, "group_size")
    return Scheme(
        "gptq",
        bits,
        group,
        zero_bits=zero,
        skipped=_skipped(said),
        head=bool(said.get("lm_head")),
        repacked=True,
        index_bits=index,
    )


def _fp8(said: Mapping[str, Any]) -> Scheme:
    block = said.get("weight_block_size")
    size = whole({"rows": block[0]}, "rows") if isinstance(block, list) and block else None
    return Scheme("fp8", 8, scale_bits=32, block=size, skipped=_skipped(said))


def _compressed(said: Mapping[str, Any]) -> Scheme | None:
    groups = said.get("config_groups")
    group = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = group.get("weights") if isinstance(group, Mapping) else None
    bits = _number(weights, "num_bits") if isinstance(weights, Mapping) else None
    if not isinstance(weights, Mapping) or bits is None:
        return None
    if weights.get("strategy") == "block":
        return Scheme("compressed-tensors", bits, scale_bits=32, block=128, skipped=_skipped(said))
    size = _number(weights, "group_size") if weights.get("strategy") in ("group", "tensor_group") else None
    scale = 8 if bits == 4 and weights.get("type") == "float" else 16
    zero = 0 if weights.get("symmetric", True) else bits
    return Scheme(
        "compressed-tensors", bits, size, scale_bits=scale, zero_bits=zero, skipped=_skipped(said), repacked=bits < 8
    )


def _mxfp4(said: Mapping[str, Any]) -> Scheme:
    return Scheme("mxfp4", 4, 32, scale_bits=8, only_experts=True, padded=256)


def _bnb(said: Mapping[str, Any]) -> Scheme:
    if said.get("load_in_8bit"):
        return Scheme("bitsandbytes", 8, scale_bits=32, skipped=_skipped(said))
    # Scales of scales: with double quantisation an absmax is 8 bits.
    return Scheme(
        "bitsandbytes", 4, 64, scale_bits=8 if said.get("bnb_4bit_use_double_quant") else 32, skipped=_skipped(said)
    )


_CHECKPOINTS = {
    "awq": _awq,
    "awq_marlin": _awq,
    "gptq": _gptq,
    "gptq_marlin": _gptq,
    "fp8": _fp8,
    "compressed-tensors": _compressed,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bnb,
}
