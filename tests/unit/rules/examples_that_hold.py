"""For each rule: subjects that satisfy it."""

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

GOOD: dict[int, list[Subject]] = {
    1: [subject(tp=8), subject({}, tp=7), subject(LLAMA_8B, tp=32)],
    2: [subject(tp=8), subject(tp=16), subject(DEEPSEEK_V3, tp=16)],
    3: [
        subject(tp=8),
        subject(QWEN_MOE, "--enable-expert-parallel", tp=32),
        subject(LLAMA_8B | {"intermediate_size": 2880, "quantization_config": {"quant_method": "mxfp4"}}, tp=128),
    ],
    4: [subject(tp=6), subject(LLAMA_8B | {"vocab_size": 50257}, tp=4)],
    5: [subject(pp=32), subject(pp=5), subject(pp=4, env={PARTITION: "7,9,9,7"})],
    6: [subject(pp=2), subject(LLAMA_8B | {"architectures": ["WhisperForConditionalGeneration"]})],
    7: [
        subject(LLAMA_8B, "", host(count=4), tp=2, pp=2),
        subject(LLAMA_8B, "", *TWO, tp=2, pp=2),
        subject(LLAMA_8B, "", *TWO, tp=4, backend="ray"),
        subject(LLAMA_8B, "", host("a", rank=0), host("b", rank=1), tp=8, pp=2),
        subject(tp=64),
        subject(LLAMA_8B, "", host("a", count=2), host("b", count=2), dp=4, data_parallel_size_local=2),
    ],
    8: [
        subject(LLAMA_8B, "", host("a", rank=0, headless=False), host("b", rank=1, headless=True), tp=2),
        subject(LLAMA_8B, "", *TWO, tp=4, backend="ray"),
        subject(LLAMA_8B, "", *TWO, tp=4, backend=None),
    ],
    9: [
        subject(LLAMA_8B, "", *TWO, tp=2, pp=2),
        subject(LLAMA_8B, "", host("a", rdma=True), host("b", rdma=True), tp=16),
        subject(tp=8),
    ],
    10: [subject(QWEN_72B_AWQ), subject(PADDED_AWQ, tp=8), subject(QWEN_72B, tp=8), subject(QWEN_72B_AWQ, tp=1, pp=8)],
    11: [subject(PADDED_AWQ, tp=8), subject(tp=8), subject(QWEN_72B_AWQ, tp=8)],
    12: [
        subject(DEEPSEEK_V3, tp=16),
        subject(QWEN_MOE | {"quantization_config": FP8_BLOCKS}, tp=2),
        subject(QWEN_MOE | {"quantization_config": FP8_BLOCKS}, "--enable-expert-parallel", tp=8),
    ],
    13: [
        subject(LLAMA_8B | {"quantization_config": AWQ}, "", host(card="T4")),
        subject(LLAMA_8B, "-q fp8_per_tensor", host(card="A100")),
        subject(LLAMA_8B | {"quantization_config": W8A8}, "", host(card="L40S")),
        subject(LLAMA_8B | {"quantization_config": GPTQ}, "", host(card="P100")),
        subject(LLAMA_8B, "-q experts_int8", host(card="an unknown card")),
        subject(LLAMA_8B, "-q fp8", host(card="V100"), platform="cpu"),
    ],
    14: [
        subject(LLAMA_8B | {"quantization_config": AWQ}, "--quantization awq_marlin"),
        subject(LLAMA_8B | {"quantization_config": AWQ}),
        subject(LLAMA_8B, "--quantization fp8"),
        subject({}, "--quantization awq"),
        subject(LLAMA_8B, "-q fbgemm_fp8 --allow-deprecated-quantization", host()),
        subject(LLAMA_8B | {"quantization_config": AWQ}, "--dtype half"),
    ],
    15: [
        subject(LLAMA_8B, "--dtype bfloat16", host(card="A100")),
        subject(LLAMA_8B, "--dtype auto", host(card="T4")),
        subject(GEMMA, "--dtype bfloat16", host()),
        subject(LLAMA_8B, "--dtype half", host(card="T4")),
        subject(LLAMA_8B, "--dtype bfloat16", host(card="an unknown card")),
    ],
    16: [
        subject(LLAMA_8B, "", host(card="T4")),
        subject(LLAMA_8B, "", host(card="V100", version="0.19.1")),
        subject(LLAMA_8B, "", host(card="an unknown card")),
    ],
    17: [
        subject(LLAMA_8B, "--kv-cache-dtype fp8", host(card="L40S")),
        subject(LLAMA_8B, "--kv-cache-dtype auto", host(card="T4")),
        subject(LLAMA_8B, "--kv-cache-dtype fp8_e5m2", host(card="A100")),
    ],
    18: [
        subject(LLAMA_8B, "--max-model-len 131072"),
        subject(LLAMA_8B, "--max-model-len 128K"),
        subject(LLAMA_8B, "--max-model-len -1"),
        subject(LLAMA_8B, "--max-model-len auto"),
        subject(QWEN_72B | {"rope_scaling": YARN}, "--max-model-len 131072"),
        subject(QWEN_72B | {"rope_scaling": {"type": "linear", "factor": 2.0}}, "--max-model-len 65536"),
        subject({}, "--max-model-len 9999999"),
    ],
    19: [
        subject(QWEN_MOE, "--enable-expert-parallel", tp=3),
        subject(QWEN_MOE, "--enable-expert-parallel --enable-eplb", tp=8),
        subject(QWEN_MOE, "-ep --enable-eplb --eplb-config.num_redundant_experts 1", tp=3),
        subject(LLAMA_8B),
    ],
    20: [
        subject(LLAMA_8B, tp=16, dcp=2),
        subject(DEEPSEEK_V3, tp=8, dcp=8),
        subject(LLAMA_8B, tp=8, pcp=2, dcp=1),
        subject(QWEN_MOE, "-ep --enable-eplb", tp=2),
    ],
    21: [
        subject(dp=4, data_parallel_size_local=2, load_balancers=("internal",)),
        subject(QWEN_MOE, dp=4, load_balancers=("external",), data_parallel_size_local=1),
        subject(LLAMA_8B, "", host("a", headless=True), dp=2, load_balancers=("internal",)),
    ],
    22: [
        subject(LLAMA_8B, NIXL + " --kv-transfer-config.kv_role kv_producer", host(packages={"nixl": "1.5.1"})),
        subject(LLAMA_8B, '--kv-transfer-config {"kv_connector":"P2pNcclConnector","kv_role":"kv_producer"}',
                host(version="0.20.0")),
        subject(LLAMA_8B),
        subject(LLAMA_8B, NIXL + " --kv-transfer-config.kv_role kv_producer", pcp=2),
    ],
    23: [subject(), subject(LLAMA_8B, "--enable-sleep-mode=false")],
    24: [
        subject(LLAMA_8B, "", host(shm_mib=16384, open_files=1048576, ram_mib=65536), tp=2, weight_bytes=16 * 10**9),
        subject(LLAMA_8B, "", host(shm_mib=64)),
        subject(LLAMA_8B, "", host(rdma=True, memlock_unlimited=True)),
    ],
    25: [
        subject(LLAMA_8B, "", host("a", model_path="/m/x"), host("b", model_path="/m/x"), tp=2),
        subject(LLAMA_8B, "", host("a", model_path="/m/x"), host("b"), tp=2),
    ],
    26: [
        subject(LLAMA_8B, "", host(count=2), tp=2, backend=None),
        subject(backend="uni"),
        subject(LLAMA_8B, "", host(count=1), tp=2, backend=None, nodes=2),
    ],
}  # fmt: skip


ALL_GOOD = [(number, case) for number, cases in GOOD.items() for case in cases]
