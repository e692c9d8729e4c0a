"""Subjects that break rules 1 to 12, with what must be said of them."""

from __future__ import annotations

from deployments.domain.rules import Subject

from .subjects import (
    AWQ,
    DEEPSEEK_V3,
    FP8_BLOCKS,
    GPTQ,
    LLAMA_8B,
    QWEN_72B,
    QWEN_MOE,
    host,
    subject,
)

TP, PP, DP = "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"
DCP, PCP = "decode_context_parallel_size", "prefill_context_parallel_size"
PARTITION, LONGER = "VLLM_PP_LAYER_PARTITION", "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
Broken = tuple[Subject, str, str, str]

QWEN_72B_AWQ = QWEN_72B | {"quantization_config": AWQ}
PADDED_AWQ = QWEN_72B_AWQ | {"intermediate_size": 29696}
W8A8 = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "weights": {"num_bits": 8, "type": "float"},
            "input_activations": {"num_bits": 8, "type": "float"},
        }
    },
}
W4A8 = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "g": {
            "weights": {"num_bits": 4, "type": "int", "group_size": 128},
            "input_activations": {"num_bits": 8, "type": "float"},
        }
    },
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
GEMMA = LLAMA_8B | {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"]}
NIXL = "--kv-transfer-config.kv_connector NixlConnector"
TWO = (host("a", count=2), host("b", count=2))

TO_12: dict[int, list[Broken]] = {
    1: [
        (subject(tp=3), "error", TP, "The model has 32 attention heads; they cannot be split over 3 ranks"),
        (subject(QWEN_72B, "", host(count=4), tp=3), "error", TP, "64 attention heads"),
        (subject({"model_type": "new"}, tp=2), "warning", TP, "2 ranks may not split it evenly"),
    ],
    2: [(subject(LLAMA_8B | {"num_attention_heads": 48}, tp=6), "error", TP, "8 key/value heads; 6 ranks")],
    3: [
        (subject(LLAMA_8B | {"intermediate_size": 14340}, tp=8), "error", TP, "intermediate_size is 14340; it cannot"),
        (subject(QWEN_MOE | {"moe_intermediate_size": 770}, tp=4), "error", TP, "moe_intermediate_size is 770"),
    ],
    4: [(subject(LLAMA_8B | {"num_attention_heads": 48, "vocab_size": 32000}, tp=6), "error", TP, "to 32000 entries")],
    5: [
        (subject(pp=33), "error", PP, "32 layers; 33 stages"),
        (subject(pp=4, env={PARTITION: "8,8,8"}), "error", PARTITION, "is '8,8,8': it needs 4 numbers"),
        (subject(pp=2, env={PARTITION: "16,15"}), "error", PARTITION, "add up to the model's 32 layers"),
    ],
    6: [
        (
            subject(LLAMA_8B | {"architectures": ["WhisperForConditionalGeneration"]}, pp=2),
            "warning",
            PP,
            "cut WhisperForConditionalGeneration into 2 stages",
        )
    ],
    7: [
        (subject(LLAMA_8B, "", host(count=4), tp=8), "error", TP, "tensor 8 asks for 8 accelerators on one machine"),
        (
            subject(LLAMA_8B, "", host(count=4), tp=4, pp=2),
            "error",
            PP,
            "tensor 4 x pipeline 2 asks for 8 accelerators",
        ),
        (subject(LLAMA_8B, "", host(count=2), dp=4), "error", DP, "tensor 1 x data 4 asks for 4 accelerators"),
        (
            subject(LLAMA_8B, "", *TWO, tp=1, pp=3),
            "error",
            "nodes",
            "= 3 ranks cannot be spread evenly over 2 machines",
        ),
        (subject(LLAMA_8B, "", *TWO, tp=8, backend="ray"), "error", TP, "8 accelerators; all machines together have 4"),
        (subject(LLAMA_8B, "", host("a", rank=0), host("b", rank=0), tp=2), "error", "rank", "b is told rank 0, which"),
        (
            subject(LLAMA_8B, "", host("a", rank=0), host("b", rank=2), tp=2),
            "error",
            "rank",
            "b is told rank 2; with 2",
        ),
        (
            subject(LLAMA_8B, "", host("a", version="0.11.0"), host("b", version="0.11.0"), tp=2),
            "error",
            "engine_version",
            "a has vLLM 0.11.0, which cannot spread one engine over machines without Ray; 0.11.1 can",
        ),
        (
            subject(LLAMA_8B, "", host("a", version="0.33.0"), host("b", version="0.32.0"), tp=2),
            "error",
            "engine_version",
            "b has vLLM 0.32.0, a has 0.33.0",
        ),
    ],
    8: [
        (
            subject(LLAMA_8B, "", host("a", rank=0, headless=False), host("b", rank=1, headless=False), tp=2),
            "error",
            "headless",
            "b has rank 1 and is not headless",
        ),
        (
            subject(LLAMA_8B, "", host("a", rank=0, headless=True), host("b", rank=1, headless=True), tp=2),
            "error",
            "headless",
            "a has rank 0 and is headless",
        ),
        (subject(LLAMA_8B, "--nnodes 2", *TWO, tp=2, backend="ray"), "error", "nnodes", "--nnodes 2 is for the mp"),
        (
            subject(LLAMA_8B, "", *TWO, tp=2, backend="sockets"),
            "error",
            "backend",
            "'sockets' does not take ranks on 2",
        ),
    ],
    9: [
        (
            subject(LLAMA_8B, "", *TWO, tp=4),
            "warning",
            PP,
            "tensor parallel group of 4 spans machines that are not known",
        ),
        (
            subject(LLAMA_8B, "", host("a", rdma=True), host("b", rdma=False), tp=16),
            "warning",
            PP,
            "group of 16 spans machines that have no RDMA",
        ),
    ],
    10: [
        (
            subject(QWEN_72B_AWQ, tp=4),
            "error",
            TP,
            "groups of 128; the model's intermediate_size of 29568 over 4 ranks",
        ),
        (subject(QWEN_72B | {"quantization_config": GPTQ}, tp=2), "error", TP, "gives 14784 each"),
    ],
    11: [
        (
            subject(QWEN_72B | {"quantization_config": AWQ | {"group_size": 64}}, tp=2),
            "warning",
            TP,
            "Over 2 ranks a part of the quantised weights is no multiple of 64 outputs and 128 inputs",
        ),
    ],
    12: [
        (
            subject(QWEN_MOE | {"quantization_config": FP8_BLOCKS}, tp=4),
            "error",
            TP,
            "blocks of 128 x 128; the model's moe_intermediate_size of 768 over 4 ranks gives 192 each",
        ),
        (subject(DEEPSEEK_V3, tp=32), "error", TP, "moe_intermediate_size of 2048 over 32 ranks gives 64 each"),
    ],
}
