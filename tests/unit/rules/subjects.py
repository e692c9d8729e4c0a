"""Short ways to write subjects down."""

from __future__ import annotations

from typing import Any

from deployments.domain.model_facts import read_config
from deployments.domain.rules import Arguments, Host, Subject
from deployments.domain.rules.subject import oldest
from deployments.domain.specs import Accelerator, ModelFacts

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
QWEN_72B: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "intermediate_size": 29568,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "torch_dtype": "float16",
}
QWEN_MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
FP8_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
CARDS = {"H200": "9.0", "L40S": "8.9", "RTX 3060": "8.6", "A100": "8.0", "T4": "7.5", "V100": "7.0", "P100": "6.0"}


def cards(name: str, count: int) -> tuple[Accelerator, ...]:
    return tuple(
        Accelerator(f"GPU-{name}-{i}", i, name, 81920, compute_capability=CARDS.get(name)) for i in range(count)
    )


def host(name: str = "n1", card: str = "H200", count: int = 8, version: str | None = "0.33.0", **facts: Any) -> Host:
    slots = facts.pop("accelerators", None) or cards(card, count)
    return Host(name, slots, version, **facts)


def subject(config: dict[str, Any] = LLAMA_8B, words: str = "", *hosts: Host, **values: Any) -> Subject:
    """A subject of a config, an argument text and hosts; `tp`, `pp`, `dp`, `pcp`, `dcp` are the sizes."""
    names = {"tp": "tensor", "pp": "pipeline", "dp": "data", "pcp": "prefill_context", "dcp": "decode_context"}
    sizes = {f"{long}_parallel_size": values.pop(short) for short, long in names.items() if short in values}
    weights = values.pop("weight_bytes", None)
    defaults: dict[str, Any] = {
        "nodes": max(1, len(hosts)),
        "backend": "mp",
        "version": oldest(item.engine_version for item in hosts),
    }
    facts = ModelFacts(path="/models/m", **read_config("/models/m", config, weights))
    args = Arguments.of(words.split())
    return Subject(model=facts, config=config, hosts=hosts, args=args, **{**defaults, **sizes, **values})
