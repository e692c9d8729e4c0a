from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.domain.command import quote, shell
from deployments.domain.options import CODE_FLAGS, RESERVED_FLAGS, check_args, check_env, flag_of, split_args

RESERVED = [
    ["--host", "0.0.0.0"],
    ["--port=1"],
    ["--tensor_parallel_size", "2"],
    ["--tensor-parallel-size=2"],
    ["--tensor-par", "2"],
    ["-tp", "2"],
    ["-tp=2"],
    ["-t", "2"],
    ["-n2"],
    ["-r", "1"],
    ["-dpl", "1"],
    ["--data_parallel_rank=0"],
    ["--hea"],
    ["--api-key", "x"],
    ["--served-model-name", "x"],
    ["--model", "/other"],
    ["--mod=/other"],
    ["--grpc"],
    ["--max-model-len", "8", "--ssl-keyfile", "k"],
]
RUNS_CODE = [
    ["--trust-remote-code"],
    ["--trust_remote_code"],
    ["--trust-remote-c"],
    ["--trust_remote_c"],
    ["--tr"],
    ["--t"],
    ["--trust-remote-code=true"],
    ["--middleware", "os.system"],
    ["--hf-overrides", "{}"],
    ["--hf-overrides.architectures+", "X"],
    ["--hf_overrides.x=1"],
    ["--kv-transfer-config.kv_connector_module_path=evil"],
    ["-cc.inductor_passes", "{}"],
    ["-cc", "{}"],
    ["-O", '{"x": 1}'],
    ["-O.x=1"],
    ["-O{}"],
    ["--config", "/tmp/x.yaml"],
    ["--conf=/tmp/x.yaml"],
    ["--log-config-file", "x"],
    ["--max-model-len", "8", "--tool-parser-plugin=/tmp/x.py"],
    ["-sc", "{}"],
    ["--chat-template", "/etc/shadow"],
]
FINE = [
    [],
    ["--max-model-len", "8192"],
    ["--max-model-len", "-1"],
    ["--max_num_seqs=64"],
    ["--enable-prefix-caching", "--no-enable-chunked-prefill"],
    ["--gpu-memory-utilization", ".9"],
    ["--no-trust-remote-code"],
    ["-O3"],
    ["-q", "fp8"],
    ["--dtype", "float32"],
    ["--override-generation-config", '{"temperature": 0.2}'],
    ["--kv-cache-dtype", "fp8", "--seed", "0"],
    ["--shutdown-timeout", "30"],
]


@pytest.mark.parametrize("args", RESERVED, ids=" ".join)
@pytest.mark.parametrize("admin", [False, True])
def test_what_the_panel_decides_cannot_be_set_by_anybody(args: list[str], admin: bool) -> None:
    problems = check_args(args, may_run_code=admin)
    assert "INVALID_OPTION" in [problem.code for problem in problems]
    assert all(problem.remedy for problem in problems)


@pytest.mark.parametrize("args", RUNS_CODE, ids=" ".join)
def test_what_runs_code_needs_somebody_who_may(args: list[str]) -> None:
    assert "NOT_PERMITTED" in [problem.code for problem in check_args(args, may_run_code=False)]


@pytest.mark.parametrize("args", [args for args in RUNS_CODE if args != ["--t"]], ids=" ".join)
def test_who_may_run_code_may_set_it(args: list[str]) -> None:
    assert check_args(args, may_run_code=True) == []


@pytest.mark.parametrize("args", FINE, ids=" ".join)
def test_ordinary_options_are_fine(args: list[str]) -> None:
    assert check_args(args, may_run_code=False) == []


@pytest.mark.parametrize("args", [["/other/model"], ["--seed", "1", "--", "x"], ["-"], ["--seed", "a\x00b"]])
def test_words_that_are_no_options_are_refused(args: list[str]) -> None:
    assert {problem.code for problem in check_args(args, may_run_code=True)} == {"INVALID_OPTION"}


@given(st.sampled_from(sorted(CODE_FLAGS | set(RESERVED_FLAGS))), st.data())
def test_no_spelling_of_a_listed_flag_slips_through(flag: str, data: st.DataObject) -> None:
    dashes = 2 if flag.startswith("--") else 1
    end = data.draw(st.integers(dashes + 1, len(flag)))
    body = "".join(data.draw(st.sampled_from("-_")) if letter == "-" else letter for letter in flag[dashes:end])
    if body[0] in "-_":
        return
    word = flag[:dashes] + body + data.draw(st.sampled_from(["", "=x", ".x", ".x.y=1", ".x+", "+"]))
    assert check_args([word], may_run_code=False), word


@pytest.mark.parametrize(
    ("word", "flag"),
    [
        ("8192", None),
        ("-1", None),
        ("-.5", None),
        ("x=--y", None),
        ("--a_b.c_d=1", "--a-b"),
        ("--a.b+", "--a"),
        ("-n2", "-n"),
        ("-O3", "-O"),
        ("-qawq", "-q"),
        ("-tp=2", "-tp"),
        ("--", "--"),
    ],
)
def test_a_flag_is_read_as_the_engine_reads_it(word: str, flag: str | None) -> None:
    assert flag_of(word) == flag


@pytest.mark.parametrize(
    "name", ["VLLM_API_KEY", "PILOTHOUSE_PROCESS", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "1X", "A B", ""]
)
def test_names_that_nobody_may_set(name: str) -> None:
    assert [problem.code for problem in check_env({name: "x"}, may_run_code=True)] == ["INVALID_OPTION"]


@pytest.mark.parametrize(
    "name",
    [
        *(
            "PATH",
            "PYTHONPATH",
            "HOME",
            "LD_AUDIT",
            "HTTP_PROXY",
            "VLLM_PLUGINS",
            "VLLM_NCCL_SO_PATH",
            "VLLM_CACHE_ROOT",
        ),
        *("NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_DEBUG_FILE", "NCCL_CONF_FILE", "OMP_TOOL_LIBRARIES"),
        *(
            "UCX_MODULE_DIR",
            "HF_TOKEN",
            "HF_HOME",
            "HF_ENDPOINT",
            "VLLM_LOGGING_CONFIG_PATH",
            "TORCHINDUCTOR_CACHE_DIR",
        ),
        *("VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_SERVER_DEV_MODE", "VLLM_USE_MODELSCOPE", "vllm_x"),
    ],
)
def test_names_that_only_an_admin_may_set(name: str) -> None:
    assert [problem.code for problem in check_env({name: "x"}, may_run_code=False)] == ["NOT_PERMITTED"]
    assert check_env({name: "x"}, may_run_code=True) == []


@pytest.mark.parametrize(
    "name",
    [
        *("NCCL_DEBUG", "NCCL_IB_HCA", "NCCL_NET_GDR_LEVEL", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "UCX_TLS"),
        *("TP_SOCKET_IFNAME", "OMP_NUM_THREADS", "VLLM_USE_FLASHINFER_SAMPLER", "VLLM_CPU_KVCACHE_SPACE"),
        *("HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM", "VLLM_ENGINE_READY_TIMEOUT_S", "CUDA_LAUNCH_BLOCKING"),
    ],
)
def test_names_that_an_operator_may_set(name: str) -> None:
    assert check_env({name: "x"}, may_run_code=False) == []


def test_values_hold_no_nul() -> None:
    assert check_env({"NCCL_DEBUG": "a\x00"}, may_run_code=True)


# Quoting

WORDS = st.text(
    st.characters(min_codepoint=1, exclude_categories=["Cs"]) | st.sampled_from(list("'\"\\$`!*?~ \n\t;&|<>(){}[]#%^")),
    max_size=40,
)
NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,12}", fullmatch=True).map(lambda name: f"PH_{name}")
# printf ends each word with a NUL, which no word can hold.
PRINT = ("printf", r"%s\0")


def run(line: str) -> bytes:
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True, cwd="/", timeout=20).stdout


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=6))
def test_a_shell_reads_back_the_same_words(words: list[str]) -> None:
    assert run(shell([*PRINT, *words])) == b"".join(os.fsencode(word) + b"\0" for word in words)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NAMES, WORDS, min_size=1, max_size=4))
def test_a_shell_hands_on_the_same_environment(env: dict[str, str]) -> None:
    out = run(shell(["env", "-0"], env)).split(b"\0")
    for name, value in env.items():
        assert os.fsencode(f"{name}={value}") in out


@given(WORDS)
def test_a_quoted_word_is_one_word(word: str) -> None:
    assert split_args(quote(word)) == (word,)


def test_secrets_are_never_shown() -> None:
    line = shell(["vllm", "serve"], {"A": "b c"}, ["VLLM_API_KEY"])
    assert line == "env A='b c' VLLM_API_KEY='***' vllm serve"


def test_argument_text_is_split_but_not_expanded() -> None:
    assert split_args("""--a "b c" --d '$(x)' # e""") == ("--a", "b c", "--d", "$(x)", "#", "e")
    with pytest.raises(ValueError, match="quotation"):
        split_args("--a 'b")
