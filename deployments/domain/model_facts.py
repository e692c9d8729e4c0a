"""Reading a model's `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def read_config(path: str, config: Mapping[str, Any], weight_bytes: int | None = None) -> dict[str, Any]:
    """Facts of a config (shape: `specs.ModelFacts` without `path`); a multimodal one is read by its text part.

    Args:
        path: Where the model is; only kept.
        config: The parsed `config.json`.
        weight_bytes: Size of the weight files, if known.
    """
    nested = config.get("text_config")
    text: Mapping[str, Any] = nested if isinstance(nested, Mapping) else config
    architectures = config.get("architectures")
    quantization = config.get("quantization_config") or text.get("quantization_config")
    heads = _number(text, "num_attention_heads", "n_head")
    return {
        "architecture": _word(architectures[0] if isinstance(architectures, list) and architectures else None),
        "num_attention_heads": heads,
        "num_key_value_heads": _number(text, "num_key_value_heads") or heads,
        "num_hidden_layers": _number(text, "num_hidden_layers", "n_layer"),
        "hidden_size": _number(text, "hidden_size", "n_embd"),
        "vocab_size": _number(text, "vocab_size"),
        "max_position_embeddings": _number(text, "max_position_embeddings", "n_positions"),
        "torch_dtype": _word(text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype")),
        "quantization": _word(quantization.get("quant_method")) if isinstance(quantization, Mapping) else None,
        "weight_bytes": weight_bytes,
    }


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(config: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
