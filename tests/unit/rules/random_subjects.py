"""Random subjects, broken in all kinds of ways."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from deployments.domain.rules import Host, Subject

from .subjects import AWQ, CARDS, DEEPSEEK_V3, FP8_BLOCKS, LLAMA_8B, QWEN_72B, QWEN_MOE, host, subject

BASES = [LLAMA_8B, QWEN_72B, QWEN_MOE, DEEPSEEK_V3, {}]
WORDS = [
    "",
    "-q awq",
    "-q fp8_per_tensor",
    "-q bitsandbytes",
    "-q fp_quant",
    "--dtype half",
    "--dtype bfloat16",
    "--dtype float32",
    "--kv-cache-dtype fp8",
    "--kv-cache-dtype nonsense",
    "--max-model-len 200000",
    "-ep",
    "-ep --enable-eplb",
    "--enable-eplb",
    "--enable-sleep-mode",
    "--kv-transfer-config.kv_connector P2pNcclConnector",
    "--kv-transfer-config.kv_role kv_both --kv-transfer-config.kv_connector NixlConnector",
]


VERSIONS = st.sampled_from(["0.33.0", "0.32.0+cpu", "0.26.0", "0.11.0", None])
SIZES = st.sampled_from([1, 1, 2, 3, 4, 6, 8, 16])


@st.composite
def configs(draw: Any) -> dict[str, Any]:
    config = dict(draw(st.sampled_from(BASES)))
    if config:
        config["num_attention_heads"] = draw(st.sampled_from([8, 12, 14, 16, 28, 32, 40, 48, 64, 71]))
        config["num_key_value_heads"] = draw(st.sampled_from([1, 2, 4, 7, 8, 16]))
        config["vocab_size"] = draw(st.sampled_from([32000, 50257, 128256, 151936]))
        config["num_hidden_layers"] = draw(st.integers(1, 80))
    if draw(st.booleans()):
        config["quantization_config"] = draw(st.sampled_from([AWQ, FP8_BLOCKS, AWQ | {"group_size": 64}]))
    return config


@st.composite
def hosts(draw: Any, place: int) -> Host:
    return host(
        f"n{place}",
        draw(st.sampled_from([*CARDS, "?"])),
        draw(st.integers(1, 8)),
        draw(VERSIONS),
        rank=draw(st.sampled_from([None, place, 0])),
        headless=draw(st.sampled_from([None, True, False])),
        model_path=draw(st.sampled_from([None, "/a", "/b"])),
        shm_mib=draw(st.sampled_from([None, 64, 65536])),
        packages=draw(st.sampled_from([None, {}, {"nixl": "1.5.1"}])),
        rdma=draw(st.sampled_from([None, True, False])),
    )


@st.composite
def subjects(draw: Any) -> Subject:
    machines = [draw(hosts(place)) for place in range(draw(st.integers(0, 3)))]
    return subject(
        draw(configs()),
        draw(st.sampled_from(WORDS)),
        *machines,
        **{size: draw(SIZES) for size in ("tp", "pp", "dp")},
        dcp=draw(st.sampled_from([1, 1, 2, 3])),
        pcp=draw(st.sampled_from([1, 1, 2])),
        data_parallel_size_local=draw(st.sampled_from([None, None, 1, 2])),
        load_balancers=draw(st.sampled_from([(), ("external",), ("internal", "hybrid")])),
        backend=draw(st.sampled_from(["mp", "ray", "uni", None])),
        platform=draw(st.sampled_from(["cuda", "cpu"])),
    )
