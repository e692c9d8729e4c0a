"""What an architecture's blocks are made of, by the class that `config.json` names. Data; `anatomy` reads it.

A class that is not here is unknown: nothing is guessed about it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Family:
    """How the decoder blocks of one family are built, where the config does not say it itself.

    A `str` where a `bool` could be is the config's key that decides (absent = no).

    Attributes:
        qkv_bias, out_bias, mlp_bias, head_bias: Which projections carry a bias.
        norm_bias: Norms have a bias too (LayerNorm), not only a weight (RMSNorm).
        block_norms, final_norm: Norms of one block; whether one follows the last block.
        qk_norm: `head` = one pair of head size, `whole` = one pair over all heads, `` = none. May be a config's key.
        gated: The feed-forward has a gate beside its up projection.
        experts_bias: Router and experts carry biases. sinks: One learned number per head that takes attention away.
        tied: Whether embedding and output head are one matrix when the config says nothing.
        positions: Learned positions beyond `max_position_embeddings`; None = none are learned.
        windows: How layers slide when no `layer_types` says so: `never`, `always`, `even`, `pattern`, `above`.
        experts: How its experts are declared: `` = dense, `mixtral`, `qwen`, `deepseek`, `oss`.
        correction_bias: The router keeps one more number per expert.
        defaults: What its configs leave out because the family's own default is meant.
        rope: It rotates queries and keys, so tables of positions are kept.
    """

    qkv_bias: bool | str = False
    out_bias: bool | str = False
    mlp_bias: bool | str = False
    head_bias: bool = False
    norm_bias: bool = False
    block_norms: int = 2
    final_norm: bool = True
    qk_norm: str = ""
    gated: bool = True
    tied: bool = False
    positions: int | None = None
    windows: str = "never"
    experts: str = ""
    experts_bias: bool = False
    correction_bias: bool = False
    sinks: bool = False
    rope: bool = True
    defaults: tuple[tuple[str, int], ...] = ()


_LLAMA = Family(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias")
_QWEN2 = Family(qkv_bias=True, windows="above")
_QWEN3 = Family(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head", windows="above")
_GEMMA = Family(
    qkv_bias="attention_bias",
    out_bias="attention_bias",
    tied=True,
    defaults=(("head_dim", 256), ("vocab_size", 256_000), ("max_position_embeddings", 8192)),
)
_GEMMA3 = replace(
    _GEMMA,
    block_norms=4,
    qk_norm="head",
    windows="pattern",
    defaults=(
        *(("head_dim", 256), ("vocab_size", 262_208), ("max_position_embeddings", 131_072)),
        *(("num_attention_heads", 8), ("num_key_value_heads", 4), ("sliding_window", 4096)),
        ("rope_local_base_freq", 10_000),
    ),
)
_OLD = Family(qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True, gated=False, tied=True)
_DEEPSEEK = Family(qkv_bias="attention_bias", out_bias="attention_bias", experts="deepseek")

FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("LlamaForCausalLM", "LLaMAForCausalLM", "AquilaForCausalLM", "GraniteForCausalLM"), _LLAMA),
    "InternLM2ForCausalLM": Family(qkv_bias="bias", out_bias="bias"),
    "InternLM3ForCausalLM": Family(qkv_bias="qkv_bias", out_bias="bias", mlp_bias="bias"),
    "Ernie4_5ForCausalLM": Family(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", tied=True),
    "CohereForCausalLM": Family(block_norms=1, tied=True),
    "Cohere2ForCausalLM": Family(block_norms=1, tied=True, windows="pattern"),
    "NemotronForCausalLM": Family(norm_bias=True, gated=False),
    "SeedOssForCausalLM": replace(_LLAMA, out_bias="attention_out_bias"),
    "MistralForCausalLM": Family(windows="always"),
    "Phi3ForCausalLM": Family(windows="always"),
    "Qwen2ForCausalLM": _QWEN2,
    "Qwen3ForCausalLM": _QWEN3,
    "GemmaForCausalLM": _GEMMA,
    "Gemma2ForCausalLM": replace(_GEMMA, block_norms=4, windows="even"),
    **dict.fromkeys(("Gemma3ForCausalLM", "Gemma3TextModel"), _GEMMA3),
    "GlmForCausalLM": Family(qkv_bias="attention_bias"),
    "Glm4ForCausalLM": Family(qkv_bias="attention_bias", block_norms=4),
    "OlmoForCausalLM": Family(qkv_bias="attention_bias", out_bias="attention_bias", block_norms=0, final_norm=False),
    "Olmo2ForCausalLM": Family(qk_norm="whole"),
    "StableLmForCausalLM": Family(qkv_bias="use_qkv_bias", norm_bias=True),
    "Starcoder2ForCausalLM": replace(
        _OLD, qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias", windows="always"
    ),
    "PhiForCausalLM": replace(_OLD, block_norms=1, head_bias=True, tied=False),
    "OPTForCausalLM": replace(_OLD, positions=2, rope=False),
    "GPT2LMHeadModel": replace(_OLD, positions=0, rope=False),
    "GPTNeoXForCausalLM": replace(_OLD, tied=False),
    "MixtralForCausalLM": Family(windows="always", experts="mixtral"),
    "GraniteMoeForCausalLM": Family(qkv_bias="attention_bias", experts="mixtral"),
    "PhiMoEForCausalLM": Family(
        qkv_bias="attention_bias", out_bias="attention_bias", head_bias=True, norm_bias=True, experts="mixtral"
    ),
    "Qwen2MoeForCausalLM": replace(_QWEN2, experts="qwen"),
    "Qwen3MoeForCausalLM": replace(_QWEN3, experts="qwen"),
    "OlmoeForCausalLM": Family(qk_norm="whole", experts="qwen"),
    "GptOssForCausalLM": Family(
        qkv_bias=True, out_bias=True, windows="even", experts="oss", experts_bias=True, sinks=True
    ),
    "DeepseekForCausalLM": _DEEPSEEK,
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": replace(_DEEPSEEK, correction_bias=True),
    "Glm4MoeForCausalLM": Family(
        qkv_bias="attention_bias", qk_norm="use_qk_norm", experts="deepseek", correction_bias=True
    ),
}

# A text model inside a multimodal one is named by its `model_type`.
TEXT_TYPES: dict[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen2_vl_text": "Qwen2ForCausalLM",
    "qwen2_5_vl_text": "Qwen2ForCausalLM",
    "qwen3_vl_text": "Qwen3ForCausalLM",
    "qwen3_vl_moe_text": "Qwen3MoeForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}

# Multimodal classes whose text part stands beside `vision_config`, without a section of its own.
FLAT_CLASSES: dict[str, str] = {
    "Qwen2VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2ForCausalLM",
}

# Keys of a config that change what a layer keeps per token or per sequence in ways that no rule here covers.
STRANGE_ATTENTION: dict[str, str] = {
    "attention_chunk_size": "chunked local attention",
    "index_topk": "sparse attention with an index of its own",
    "full_attention_interval": "linear attention in most layers",
    "linear_num_value_heads": "linear attention",
    "layers_block_type": "layers of several kinds",
    "hybrid_override_pattern": "layers of several kinds",
    "attn_type_list": "layers of several kinds",
    "ssm_state_size": "state space layers",
    "mamba_d_state": "state space layers",
    "num_kv_shared_layers": "layers that share their cache",
    "cross_attention_layers": "cross attention",
    "is_encoder_decoder": "an encoder beside the decoder",
}
