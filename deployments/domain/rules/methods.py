"""Quantisation methods: their names, what they need, and which one a launch would use."""

from __future__ import annotations

from typing import Any

from . import split
from .subject import Subject

# From this version on the capabilities below are those of the engine; before, some were higher and some lower.
TABLE_SINCE = "0.32"
# Names that mean the same to the engine.
FAMILIES = {
    "auto_awq": "awq",
    "awq_marlin": "awq",
    "auto_gptq": "gptq",
    "gptq_marlin": "gptq",
    "gpt_oss_mxfp4": "mxfp4",
    "auto-round": "inc",
    "auto_round": "inc",
    **dict.fromkeys(("modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed"), "modelopt"),
    **dict.fromkeys(("fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "deepseek_v4_fp8"), "fp8"),
}
# Methods that take another method's checkpoint.
TAKES = {"moe_wna16": ("awq", "gptq"), "humming": ("awq", "gptq", "fp8", "compressed-tensors", "mxfp4", "modelopt")}
# Methods that only read what somebody has quantised before.
CHECKPOINT_ONLY = frozenset({"awq", "gptq", "compressed-tensors", "quark", "modelopt", "moe_wna16", "mxfp4"})
# Methods that quantise while loading, and the compute capability each needs.
ONLINE = ("fp8_per_tensor", "fp8_per_block", "int8_per_channel_weight_only", "mxfp8")
DEPRECATED = frozenset({"fbgemm_fp8", "fp_quant"})
# Methods that left the engine, and the packages that bring them back.
PLUGINS = {"bitsandbytes": "vllm-bnb-plugin", "gguf": "vllm-gguf-plugin"}
CAPABILITY = {
    "gptq": "6.0",
    "inc": "6.0",
    "moe_wna16": "7.0",
    "compressed-tensors": "7.0",
    "quark": "7.0",
    "awq": "7.5",
    "fp8": "7.5",
    "modelopt": "7.5",
    "humming": "7.5",
    "torchao": "7.5",
    "int8_per_channel_weight_only": "7.5",
    "mxfp8": "7.5",
    "mxfp4": "8.0",
    "experts_int8": "8.0",
    "fbgemm_fp8": "8.0",
    "fp_quant": "10.0",
}
_HALVES = ("bfloat16", "float16")
DATA_TYPES = {
    "awq": _HALVES,
    "gptq": _HALVES,
    "fp8": _HALVES,
    "fbgemm_fp8": _HALVES,
    "experts_int8": _HALVES,
    "moe_wna16": _HALVES,
    "quark": _HALVES,
    "inc": _HALVES,
    "humming": _HALVES,
    "int8_per_channel_weight_only": _HALVES,
    "mxfp8": _HALVES,
    "fp_quant": ("bfloat16",),
    "mxfp4": ("bfloat16",),
}


def family(name: str | None) -> str | None:
    """A method's first name."""
    return FAMILIES.get(name, name) if name else None


def checkpoint(subject: Subject) -> str | None:
    """The method of the checkpoint itself."""
    found = split.quantization(subject).get("quant_method") or subject.model.quantization
    return found if isinstance(found, str) and found else None


def effective(subject: Subject) -> str | None:
    """The method that the launch would use: what was asked for, else the checkpoint's; first names only."""
    return family(subject.args.word("quantization") or checkpoint(subject))


def agree(asked: str, own: str) -> bool:
    """Whether a checkpoint of method `own` may be served with --quantization `asked`."""
    return family(asked) == family(own) or family(own) in TAKES.get(asked, ())


def needed(subject: Subject) -> tuple[str, str, bool] | None:
    """The compute capability that the method needs, its name in words, and whether less may do, more slowly."""
    method = effective(subject)
    if method == "compressed-tensors":
        return _scheme(split.quantization(subject))
    minimum = CAPABILITY.get(method or "")
    return (minimum, f"The quantisation {method}", False) if minimum else None


def _scheme(config: dict[str, Any]) -> tuple[str, str, bool]:
    groups = config.get("config_groups")
    found = [_group(group) for group in groups.values()] if isinstance(groups, dict) else []
    highest = max((item for item in found if item), key=lambda item: version(item[0]), default=None)
    return highest or (CAPABILITY["compressed-tensors"], "The quantisation compressed-tensors", False)


def _group(group: Any) -> tuple[str, str, bool] | None:
    """What one group of layers needs, by the kinds of its weights and activations."""
    weights, inputs = (
        group.get(name) if isinstance(group, dict) else None for name in ("weights", "input_activations")
    )
    if not isinstance(weights, dict):
        return None
    kind = (weights.get("num_bits"), weights.get("type"))
    taken = (inputs.get("num_bits"), inputs.get("type")) if isinstance(inputs, dict) else None
    if taken == (8, "float"):
        # Without it the engine falls back to computing with unquantised activations.
        return ("9.0", "W4A8-FP8", False) if kind == (4, "int") else ("8.9", "FP8 with FP8 activations", True)
    return "7.5", f"{'W8A8-INT8' if taken == (8, 'int') else 'A compressed-tensors checkpoint'}", False


def version(capability: str) -> tuple[int, ...]:
    """A compute capability as numbers that compare."""
    return tuple(int(part) for part in capability.split("."))


def online_for(capability: str) -> tuple[str, ...]:
    """Methods that quantise while loading and that such an accelerator can compute."""
    return tuple(m for m in ONLINE if version(CAPABILITY[family(m) or m]) <= version(capability))


def dtype(subject: Subject) -> str | None:
    """The data type that is asked for by its full name (on CPU float32 by default); None = the engine chooses."""
    asked = subject.args.word("dtype") or ("float32" if subject.platform == "cpu" else "auto")
    return {"auto": None, "half": "float16", "float": "float32"}.get(asked, asked)


def data_types(method: str | None) -> tuple[str, ...] | None:
    """The data types that a method computes with; None = not known, or any."""
    return DATA_TYPES.get(method or "")
