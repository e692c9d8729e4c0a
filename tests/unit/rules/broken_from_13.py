"""Subjects that break rules 13 to 26, with what must be said of them."""

from __future__ import annotations

from deployments.domain.rules import Subject

from .subjects import (
    AWQ,
    DEEPSEEK_V3,
    LLAMA_8B,
    QWEN_72B,
    QWEN_MOE,
    cards,
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

FROM_13: dict[int, list[Broken]] = {
    13: [
        (
            subject(LLAMA_8B | {"quantization_config": AWQ}, "", host(card="V100")),
            "error",
            "compute_capability",
            "needs compute capability 7.5; V100 on n1 has 7.0",
        ),
        (
            subject(LLAMA_8B, "-q experts_int8", host(card="T4")),
            "error",
            "quantization",
            "needs compute capability 8.0",
        ),
        (
            subject(LLAMA_8B | {"quantization_config": W8A8}, "", host(card="A100")),
            "warning",
            "compute_capability",
            "needs compute capability 8.9; A100 on n1 has 8.0, where the engine may use the weights alone",
        ),
        (
            subject(LLAMA_8B | {"quantization_config": W4A8}, "", host(card="L40S")),
            "error",
            "compute_capability",
            "W4A8-FP8 needs compute capability 9.0",
        ),
        (
            subject(LLAMA_8B, "-q fbgemm_fp8", host(card="T4", version="0.26.0")),
            "warning",
            "quantization",
            "needs compute capability 8.0",
        ),
        (
            subject(LLAMA_8B, "-q mxfp8", host(accelerators=cards("A100", 2) + cards("V100", 2)), tp=2),
            "warning",
            "quantization",
            "V100 on n1 has 7.0",
        ),
        (
            subject(LLAMA_8B, "-q bitsandbytes", host(packages={})),
            "error",
            "quantization",
            "From 0.28 on vLLM has no bitsandbytes of its own; it comes with the package vllm-bnb-plugin",
        ),
        (subject(LLAMA_8B, "-q gguf"), "warning", "quantization", "which may not be installed"),
    ],
    14: [
        (
            subject(LLAMA_8B | {"quantization_config": AWQ}, "--quantization gptq"),
            "error",
            "quantization",
            "--quantization gptq does not match the checkpoint, which is quantised with awq",
        ),
        (subject(LLAMA_8B, "--quantization awq"), "error", "quantization", "--quantization awq does not quantise"),
        (
            subject(LLAMA_8B, "-q fp_quant", host(card="H200")),
            "error",
            "allow_deprecated_quantization",
            "drop the quantisation fp_quant",
        ),
        (
            subject(LLAMA_8B | {"quantization_config": AWQ}, "--dtype float32"),
            "error",
            "dtype",
            "awq does not work with the data type float32",
        ),
        (
            subject(LLAMA_8B | {"quantization_config": AWQ}, platform="cpu"),
            "error",
            "dtype",
            "the data type float32 (the CPU platform's default)",
        ),
    ],
    15: [
        (
            subject(LLAMA_8B, "--dtype bfloat16", host(card="T4")),
            "error",
            "dtype",
            "bfloat16 needs compute capability 8.0; T4 on n1 has 7.5",
        ),
        (subject(GEMMA, "--dtype half", host()), "error", "dtype", "unstable in float16"),
        (
            subject(GEMMA, "", host(card="T4")),
            "warning",
            "dtype",
            "T4 on n1 has 7.5, and the model cannot take float16",
        ),
    ],
    16: [
        (
            subject(LLAMA_8B, "", host(card="V100")),
            "error",
            "compute_capability",
            "no code below compute capability 7.5; V100 on n1 has 7.0",
        ),
        (subject(LLAMA_8B, "", host(card="V100", version=None)), "warning", "compute_capability", "has 7.0"),
    ],
    17: [
        (
            subject(LLAMA_8B, "--kv-cache-dtype fp8_e4m3", host(card="A100")),
            "warning",
            "kv_cache_dtype",
            "native from compute capability 8.9 on; A100 on n1 has 8.0",
        ),
        (subject(LLAMA_8B, "--kv-cache-dtype fp4", host()), "error", "kv_cache_dtype", "'fp4' is not a data type"),
        (subject(LLAMA_8B, "--kv-cache-dtype fp4"), "warning", "kv_cache_dtype", "'fp4' is not a data type"),
    ],
    18: [
        (
            subject(LLAMA_8B, "--max-model-len 131073"),
            "error",
            "max_model_len",
            "131073 is more than the 131072 tokens",
        ),
        (subject(LLAMA_8B, "--max-model-len=256k"), "error", "max_model_len", "256000 is more than the 131072 tokens"),
        (
            subject(LLAMA_8B, "--max-model-len 200000", env={LONGER: "1"}),
            "warning",
            "max_model_len",
            "200000 is more than the 131072 tokens",
        ),
        (
            subject(QWEN_72B | {"rope_scaling": YARN}, "--max-model-len 131073"),
            "error",
            "max_model_len",
            "more than the 131072",
        ),
    ],
    19: [
        (
            subject(QWEN_MOE, "-ep --enable-eplb", tp=3),
            "error",
            "eplb_config.num_redundant_experts",
            "128 experts and 0 redundant ones cannot be balanced evenly over 3 ranks",
        ),
        (subject(LLAMA_8B, "-ep"), "error", "enable_expert_parallel", "names no experts"),
        (subject(QWEN_MOE, "-ep --all2all-backend pplx", host()), "warning", "all2all_backend", "pplx' is gone"),
    ],
    20: [
        (subject(LLAMA_8B, tp=8, dcp=3), "error", DCP, "size is 3: it does not divide the tensor parallel size 8"),
        (subject(LLAMA_8B, tp=8, dcp=2), "error", DCP, "size is 2: 8 key/value heads over 8 ranks are held 1 times"),
        (subject(DEEPSEEK_V3, tp=8, pcp=2, dcp=4), "error", DCP, "can only be 1, 2 or 16"),
        (subject(LLAMA_8B, "", host(version="0.10.0"), tp=16, dcp=2), "error", DCP, "it came with 0.10.2"),
        (subject(LLAMA_8B, "", host(version="0.11.1"), pcp=2), "error", PCP, "it came with 0.12"),
        (subject(QWEN_MOE, "--enable-eplb", tp=2), "error", "enable_eplb", "needs expert parallelism"),
        (subject(QWEN_MOE, "-ep --enable-eplb"), "error", "enable_eplb", "needs more than 1 rank"),
        (
            subject(QWEN_MOE, "--eplb-config.num_redundant_experts 8", tp=2),
            "error",
            "eplb_config.num_redundant_experts",
            "8 redundant experts",
        ),
    ],
    21: [
        (subject(dp=2, data_parallel_size_local=4), "error", "data_parallel_size_local", "4 data parallel ranks"),
        (subject(dp=2, load_balancers=("hybrid", "external")), "error", "load_balancers", "2 ways of balancing"),
        (
            subject(dp=2, load_balancers=("external",)),
            "error",
            DP,
            "2 data parallel ranks can be balanced from outside",
        ),
        (
            subject(QWEN_MOE, dp=4, load_balancers=("external",), data_parallel_size_local=2),
            "error",
            "data_parallel_size_local",
            "1 data parallel rank, not 2",
        ),
        (
            subject(LLAMA_8B, "", host("a", headless=True), dp=2, load_balancers=("hybrid",)),
            "error",
            "headless",
            "each of the 2 ranks serves an API",
        ),
    ],
    22: [
        (subject(LLAMA_8B, NIXL), "error", "kv_transfer_config.kv_role", "has no role"),
        (
            subject(LLAMA_8B, NIXL + " --kv-transfer-config.kv_role both"),
            "error",
            "kv_transfer_config.kv_role",
            "'both'",
        ),
        (
            subject(LLAMA_8B, NIXL + " --kv-transfer-config.kv_role kv_both", host()),
            "warning",
            "kv_transfer_config.kv_role",
            "kv_both is on its way out",
        ),
        (
            subject(
                LLAMA_8B,
                '--kv-transfer-config {"kv_connector":"P2pNcclConnector","kv_role":"kv_producer"}',
                host(),
            ),
            "error",
            "kv_transfer_config.kv_connector",
            "P2pNcclConnector is gone from vLLM 0.24 on",
        ),
        (
            subject(LLAMA_8B, NIXL + " --kv-transfer-config.kv_role kv_consumer", host(packages={"nixl": "1.4.0"})),
            "error",
            "packages",
            "n1 has nixl 1.4.0; KV transfer by NIXL needs 1.5.0",
        ),
        (
            subject(LLAMA_8B, NIXL + " --kv-transfer-config.kv_role kv_consumer", pcp=2),
            "error",
            PCP,
            "size of 2 is for prefill only",
        ),
    ],
    23: [
        (subject(LLAMA_8B, "--enable-sleep-mode"), "warning", "enable_sleep_mode", "only with VLLM_SERVER_DEV_MODE=1"),
        (subject(env={"VLLM_SERVER_DEV_MODE": "1"}), "warning", "VLLM_SERVER_DEV_MODE", "VLLM_SERVER_DEV_MODE=1 opens"),
    ],
    24: [
        (subject(LLAMA_8B, "", host(shm_mib=64), tp=2), "warning", "shm_mib", "/dev/shm of n1 has 64 MiB; 2 ranks"),
        (subject(LLAMA_8B, "", host(open_files=1024)), "warning", "open_files", "may open 1024 files"),
        (
            subject(LLAMA_8B, "", host(rdma=True, memlock_unlimited=False)),
            "warning",
            "memlock_unlimited",
            "RDMA needs it",
        ),
        (
            subject(LLAMA_8B, "", host(ram_mib=8192), weight_bytes=16 * 2**30),
            "warning",
            "ram_mib",
            "n1 has 8192 MiB of RAM; its 1 ranks may hold 16384 MiB",
        ),
    ],
    25: [
        (
            subject(LLAMA_8B, "", host("a", model_path="/m/x"), host("b", model_path="/data/x"), tp=2),
            "error",
            "model_path",
            "The model is at /data/x on b and at /m/x on a",
        )
    ],
    26: [
        (
            subject(LLAMA_8B, "", host(count=2), tp=4, backend=None),
            "error",
            "backend",
            "tensor 4 has 4 ranks, the machine has 2 accelerators",
        ),
        (subject(tp=2, backend="uni"), "error", "backend", "The uni executor runs 1 rank; tensor 2 has 2"),
    ],
}
