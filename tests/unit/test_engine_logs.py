"""Single lines, where no whole log is at hand, and what may not be taken for a cause or a milestone."""

from __future__ import annotations

import pytest

from deployments.domain.failures import UNKNOWN_REMEDY, read_failure
from deployments.domain.startup import read_phase
from deployments.domain.states import Reason

R = Reason
CORE = "(EngineCore pid=7) ERROR 12-01 13:45:06 [core.py:1330] "
CAUSES = [
    (
        R.MODEL_MISSING,
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder",
    ),
    (R.MODEL_MISSING, "OSError: We couldn't connect to 'https://huggingface.co' to load the files"),
    (R.MODEL_MISSING, "huggingface_hub.errors.GatedRepoError: 403 Client Error."),
    (R.MODEL_MISSING, "OSError: /models/x does not appear to have a file named config.json."),
    (R.MODEL_MISSING, "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata"),
    (R.MODEL_UNSUPPORTED, "  Value error, Model architectures ['NewForCausalLM'] are not supported for now."),
    (R.INVALID_OPTION, "ValueError: The repository /m contains custom code which must be executed to load the model"),
    (
        R.PORT_IN_USE,
        "torch.distributed.DistNetworkError: The server socket has failed to listen. port: 29501, EADDRINUSE",
    ),
    (R.INVALID_LAYOUT, "AssertionError: 14 is not divisible by 4"),
    (R.INVALID_LAYOUT, "AssertionError: Not enough allowed NUMA nodes to bind threads of 2 local CPUWorkers."),
    (R.INVALID_LAYOUT, "ValueError: Weight input_size_per_partition=924 is not divisible by group_size=128."),
    (R.OUT_OF_MEMORY, "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests."),
    (R.OUT_OF_MEMORY, "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
    (R.ENGINE_MISSING, "importlib.metadata.PackageNotFoundError: No package metadata was found for vllm"),
    (R.ENGINE_MISSING, "sh: 1: /venv/bin/vllm: not found"),
    (R.ENGINE_MISSING, "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory"),
    (R.ENGINE_MISSING, "RuntimeError: Failed to infer device type, please set the environment variable"),
    (R.EXITED, "RuntimeError: Gloo connectFullMesh failed with [/pytorch/gloo.cc:1] timed out"),
    (R.EXITED, "torch.distributed.DistStoreError: Timed out after 21 seconds waiting for clients. 1/2 clients joined."),
    (R.EXITED, "RuntimeError: NCCL error: unhandled system error"),
    (R.EXITED, "OSError: [Errno 28] No space left on device"),
    (R.EXITED, "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor."),
    (R.INVALID_OPTION, "Fatal Python error: Illegal instruction"),
]
HARMLESS = [
    "",
    "(Worker pid=7) WARNING 12-01 14:53:37 [cpu_worker.py:114] libtcmalloc is not found in LD_PRELOAD.",
    "(APIServer pid=7) WARNING 12-01 13:44:43 [system_utils.py:299] Found ulimit of 20000 and failed to automatically "
    "increase with error current limit exceeds maximum limit. This can cause fd limit errors like `OSError: [Errno 24] "
    "Too many open files`. Consider increasing with ulimit -n",
    "[W1201 13:24:42.166009589 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved. err=-3",
    "W1201 14:53:36.578000 32 torch/_library/triton.py:53] Triton not available, find_triton_kernels = []",
    "resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked shared_memory objects",
    CORE + "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}",
    "INFO:     Application shutdown complete.",
]


@pytest.mark.parametrize(("reason", "line"), CAUSES)
@pytest.mark.parametrize("before", ["", CORE, "\x1b[36m(RayWorkerProc pid=9, ip=10.77.0.2)\x1b[0m (Worker_TP0 pid=3) "])
def test_a_known_cause_is_typed(reason: Reason, line: str, before: str) -> None:
    found = read_failure(
        f"usage\n{before}{line}\nRuntimeError: Engine core initialization failed. See root cause above."
    )
    assert found is not None
    assert found[0] is reason
    assert found[1] == line.strip().removeprefix("Value error, ")
    assert found[2].endswith(".")


@pytest.mark.parametrize("line", HARMLESS)
def test_what_is_always_there_is_no_cause(line: str) -> None:
    assert read_failure(line) is None


def test_the_first_cause_counts_and_not_what_follows_from_it() -> None:
    log = f"{CORE}ValueError: No available memory for the cache blocks.\n(APIServer pid=1) OSError: [Errno 98] in use"
    assert read_failure(log) is not None
    assert read_failure(log)[0] is R.OUT_OF_MEMORY  # type: ignore[index]


def test_an_unknown_exception_is_shown_as_it_is() -> None:
    log = f"{CORE}Traceback (most recent call last):\n{CORE}    raise KeyError(x)\n{CORE}KeyError: 'model.layers.0'"
    assert read_failure(log) == (R.EXITED, "KeyError: 'model.layers.0'", UNKNOWN_REMEDY)


def test_an_engine_that_has_served_was_well_configured() -> None:
    served = 'INFO:     10.0.0.9:1 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    request = served + CORE + "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: http://img"
    assert read_failure(request) is not None
    assert read_failure(request)[0] is R.EXITED  # type: ignore[index]
    memory = served + CORE + "torch.OutOfMemoryError: CUDA out of memory."
    assert read_failure(memory)[0] is R.EXITED  # type: ignore[index]


def test_the_first_line_of_a_piece_of_a_log_is_not_read() -> None:
    piece = "core.py:1] OSError: [Errno 98] Address already in use\n" + "x" * 9000 + "\nValueError: real"
    assert read_failure(piece) == (R.EXITED, "ValueError: real", UNKNOWN_REMEDY)


def test_a_line_without_end_is_cut() -> None:
    found = read_failure("ValueError: " + "y" * 5000)
    assert found is not None
    assert len(found[1]) == 600


@pytest.mark.parametrize(
    ("log", "phase"),
    [
        ("", None),
        ("Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.0s/it]", ("loading", 30)),
        ("Multi-thread loading shards:  50% Completed | 2/4", ("loading", 40)),
        ("Loading pt checkpoint shards: 100% Completed | 2/2", ("loading", 60)),
        ("model-00001-of-00004.safetensors:  50%|█████     | 2.3G/4.6G", ("downloading", 19)),
        ("Fetching 11 files:   0%|          | 0/11", ("downloading", 18)),
        ("Capturing CUDA graph shapes:  50%|█████     | 33/67", ("capturing", 88)),
        (
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%| | 0/51\rCapturing CUDA graphs "
            "(mixed prefill-decode, PIECEWISE):  50%| | 25/51",
            ("capturing", 85),
        ),
        ("Capturing CUDA graphs (decode, FULL): 100%|██████████| 35/35", ("capturing", 94)),
        ("\x1b[36m(RayWorkerProc pid=1)\x1b[0m Starting to \x1b[1mload model /m...", ("loading", 20)),
        (
            "(Worker_PP1 pid=1) INFO 12-01 [cpu_model_runner.py:87] Warming up model for the compilation...",
            ("compiling", 64),
        ),
        (
            "INFO [serve.py:224] Launching vLLM (v0.32.0) headless multiproc executor, with head node",
            ("configuring", 5),
        ),
        (
            "INFO [ray_utils.py:607] No current placement group found. Creating a new placement group.",
            ("rendezvous", 11),
        ),
    ],
)
def test_a_milestone_is_read(log: str, phase: tuple[str, int] | None) -> None:
    assert read_phase(log) == phase


def test_a_name_that_reads_like_a_milestone_is_none() -> None:
    log = "non-default args: {'served_model_name': ['Application startup complete']}\n"
    log += "Initializing a V1 LLM engine (v0.32.0) with config: model='/models/Started server process'"
    assert read_phase(log) == ("configuring", 8)


def test_a_slower_rank_does_not_undo_what_is_done() -> None:
    log = "(Worker_TP0) Loading weights took 3 seconds\n(Worker_TP1) Starting to load model /models/x..."
    assert read_phase(log) == ("loading", 60)
