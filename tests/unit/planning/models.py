"""Models and fleets that the planner's tests speak of."""

from __future__ import annotations

from typing import Any

from deployments.domain.accelerators import parse_gpus
from deployments.domain.fleet import Fleet, offered
from deployments.domain.model_facts import read_config
from deployments.domain.plan_subject import KnownModel
from deployments.domain.specs import ModelFacts

SMALL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LARGE = {
    **SMALL,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
MIXTURE = {
    **SMALL,
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
}
LATENT = {
    **SMALL,
    "architectures": ["DeepseekV2ForCausalLM"],
    "num_key_value_heads": 32,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


def known(config: dict[str, Any], file_bytes: int | None = None) -> KnownModel:
    return KnownModel(ModelFacts(path="/models/m", **read_config("/models/m", config, file_bytes)), config)


def fleet(gpus: str, nodes: int = 1) -> Fleet:
    return offered(parse_gpus(gpus), nodes)
