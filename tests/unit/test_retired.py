"""What the articles name and today's versions lack is recognised and answered with what to use instead."""

from __future__ import annotations

import pytest
from packaging.version import Version

from deployments.domain.retired import FLAGS, ROWS, TEXTS, VARIABLES, check_args, check_env, recognise

# As articles write it, and the name of the row that knows it.
WRITTEN = [
    ("vllm serve M --enable-prefill", "--enable-prefill"),
    ("vllm serve M --engine-use-persistent-cache", "--engine-use-persistent-cache"),
    ("vllm serve M --max-batch-size 32", "--max-batch-size"),
    ("ray start --object_store_memory=1", "--object-store-memory"),
    ("vllm serve M --swap-space 4", "--swap-space"),
    ("vllm serve M --disable-log-requests", "--disable-log-requests"),
    ("vllm serve M --worker-use-ray", "--worker-use-ray"),
    ("vllm serve M --engine-use-ray", "--engine-use-ray"),
    ("vllm serve M --use-v2-block-manager", "--use-v2-block-manager"),
    ("vllm serve M --num-scheduler-steps 8", "--num-scheduler-steps"),
    ("vllm serve M --guided-decoding-backend outlines", "--guided-decoding-backend"),
    ("vllm serve M --speculative-model N", "--speculative-model"),
    ("vllm serve M --rope-scaling '{}'", "--rope-scaling"),
    ("vllm serve M --task generate", "--task"),
    ("vllm serve M --max-seq-len-to-capture 8192", "--max-seq-len-to-capture"),
    ("vllm serve M --block-size 32", "--block-size"),
    ("vllm serve M --disable-custom-all-reduce", "--disable-custom-all-reduce"),
    ("export VLLM_CACHE_DIR=/data/model_cache", "VLLM_CACHE_DIR"),
    ("export VLLM_ALL2ALL_BACKEND=pplx", "VLLM_ALL2ALL_BACKEND"),
    ("VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve M", "VLLM_ATTENTION_BACKEND"),
    ("VLLM_USE_V1=1 vllm serve M", "VLLM_USE_V1"),
    ("export NCCL_ALGO=Tree", "NCCL_ALGO"),
    ("engine:\n  max_model_len: 4096", "vllm serve --config with an engine: section"),
    ("  max_batch_size: 16", "max_batch_size"),
    ("engine = AsyncLLMEngine.from_pretrained('m')", "AsyncLLMEngine.from_pretrained"),
    ("from optimum.intel import OpenVINOModel", "OpenVINOModel"),
    ("image: vllm/vllm-openai:latest", "image: ...:latest with replicas and the ray backend"),
    ("INFO Initializing tensor parallel with size 4", "Initializing tensor parallel"),
    ("ray.init(_redis_max_memory=10**9)", "_redis_max_memory"),
    ("ray.init(object_store_memory=10**9)", "object_store_memory"),
    ("ray attach --address=10.0.0.1:6379", "ray attach --address"),
    ("  available_nodes: [a, b]", "available_nodes"),
    ('len(ray.available_resources()["GPU"])', 'len(ray.available_resources()["GPU"])'),
    ("open port 6379 (Redis)", "Redis on port 6379"),
    ("pip install ray[cgraph]", "ray[cgraph]"),
    ("nvprof python serve.py", "nvprof"),
    ("windowsFeatures=true", "windowsFeatures in wsl.conf"),
    ("sudo setenforce 0", "setenforce 0"),
    ('{"kv_connector":"P2pNcclConnector"}', "P2pNcclConnector"),
    ('{"kv_rank":0,"kv_parallel_size":2}', "kv_rank, kv_parallel_size, kv_buffer_size, kv_ip"),
    ("driver 535.154.02+, CUDA 12.8.1", "driver 535 with CUDA 12"),
    ("Python 3.10.12", "Python 3.10"),
    ("needs vLLM 0.3+ and Ray 2.9+", "vLLM 0.3 or 0.4, Ray 2.0 to 2.9"),
]
TODAY = [Version("0.33.0")]


@pytest.mark.parametrize(("text", "name"), WRITTEN, ids=[name for _, name in WRITTEN])
def test_each_row_is_recognised_in_a_text(text: str, name: str) -> None:
    (row,) = [row for row in recognise(text) if row.name == name]
    assert row.instead.endswith(".")


def test_every_row_has_an_example_and_a_name_of_its_own() -> None:
    assert sorted(row.name for row in ROWS) == sorted(name for _, name in WRITTEN)
    assert len(ROWS) == len(FLAGS) + len(VARIABLES) + len(TEXTS)


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve M --enable-prefix-caching --enable-chunked-prefill --max-num-seqs 8 --block-sizes",
        "VLLM_CACHE_ROOT=/cache CUDA_VISIBLE_DEVICES=0 NCCL_DEBUG=INFO vllm serve M",
        "ray start --head --port=6379 --include-dashboard=true",
        "image: vllm/vllm-openai:v0.33.0",
    ],
)
def test_what_is_valid_today_is_left_alone(text: str) -> None:
    assert recognise(text) == []


@pytest.mark.parametrize("row", [row for row in FLAGS if not row.works], ids=lambda row: row.name)
def test_a_flag_that_the_engine_lacks_is_refused_with_what_to_use_instead(row) -> None:
    for words in (
        [row.name, "1"],
        [f"{row.name}=1"],
        ["--seed", "0", row.name.replace("-", "_").replace("__", "--", 1)],
    ):
        (problem,) = check_args(words, TODAY)
        assert (problem.code, problem.severity, problem.field) == ("UNKNOWN_FLAG", "error", "args")
        assert row.name in problem.message
        assert problem.remedy == row.instead


@pytest.mark.parametrize("row", [row for row in VARIABLES if not row.works], ids=lambda row: row.name)
def test_a_variable_that_nothing_reads_is_a_warning(row) -> None:
    (problem,) = check_env({row.name: "x"}, TODAY)
    assert (problem.severity, problem.field, problem.remedy) == ("warning", "env", row.instead)
    assert row.name in problem.message


def test_what_works_but_not_to_that_end_is_a_warning() -> None:
    assert [problem.severity for problem in check_args(["--block-size", "32"], TODAY)] == ["warning"]
    assert [problem.severity for problem in check_env({"NCCL_ALGO": "Tree"}, TODAY)] == ["warning"]


@pytest.mark.parametrize(
    ("versions", "severities"),
    [
        (["0.17.1"], []),
        (["0.18.0"], ["error"]),
        (["0.33.0", "0.26.0"], ["error"]),
        (["0.33.0", "0.17.1"], ["warning"]),
        ([], ["warning"]),
    ],
)
def test_a_flag_that_went_is_judged_by_the_nodes_versions(versions: list[str], severities: list[str]) -> None:
    found = check_args(["--swap-space", "4"], [Version(text) for text in versions])
    assert [problem.severity for problem in found] == severities


def test_each_flag_is_told_once() -> None:
    assert len(check_args(["--enable-prefill", "--enable-prefill"], TODAY)) == 1
    assert check_args(["--enable-chunked-prefill"], TODAY) == check_env({"VLLM_CACHE_ROOT": "/x"}, TODAY) == []
