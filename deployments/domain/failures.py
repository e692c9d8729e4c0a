"""Reading why an engine ended from the tail of its log: the root cause, never the errors that follow from it.

Known causes are a table; of those seen, the first in the log counts. What is not known is told by the first exception
that is not a mere consequence. Messages of level INFO and WARNING are never causes. An engine that has served was well
configured, so its log is only searched for what can hit a serving one: requests cause errors of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .states import Reason

R = Reason
LONGEST = 600


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause that is recognised by `pattern` in one log line. `serving`: it can hit an engine that serves."""

    reason: Reason
    pattern: str
    remedy: str
    serving: bool = False


CAUSES = (
    Cause(
        R.UNKNOWN_FLAG,
        r"error: unrecognized arguments:",
        "Correct or remove the flag; this engine version does not know it.",
    ),
    # The model and its files
    Cause(
        R.MODEL_MISSING, r"HFValidationError: Repo id must be", "Check the model's path: this node has no such folder."
    ),
    Cause(
        R.MODEL_MISSING,
        r"LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled|couldn't connect to '?https?://huggingface",
        "Copy the model to the node and use its path, or let the node reach the hub.",
    ),
    Cause(
        R.MODEL_MISSING,
        r"GatedRepoError|Cannot access gated repo|Access to model .* is restricted|(?:401|403) Client Error",
        "Accept the model's licence on the hub and set HF_TOKEN.",
    ),
    Cause(R.MODEL_MISSING, r"RepositoryNotFoundError|404 Client Error", "Correct the model's name on the hub."),
    Cause(
        R.MODEL_MISSING,
        r"does not appear to have a file named config\.json|Cannot find any model weights",
        "The folder is not a complete model: copy it again and compare the file lists.",
    ),
    Cause(
        R.MODEL_MISSING,
        r"SafetensorError|Error while deserializing header|incomplete metadata",
        "A weight file is cut off: copy the model again.",
    ),
    Cause(
        R.MODEL_UNSUPPORTED,
        r"Model architectures \[.*\] are not supported|does not recognize this architecture"
        r"|was supported in vLLM until v",
        "Upgrade the node's engine environment, or choose a model that it supports.",
    ),
    Cause(
        R.INVALID_OPTION,
        r"contains custom code which must be executed|requires you to execute the (?:configuration|tokenizer) file",
        "The model brings its own code; an admin may allow it with --trust-remote-code after a review.",
    ),
    # Addresses
    Cause(
        R.PORT_IN_USE,
        r"\[Errno 98\]|Address already in use|EADDRINUSE|error while attempting to bind on address",
        "Free the port on the node, or change the node's port range.",
    ),
    # Sizes
    Cause(
        R.INVALID_LAYOUT,
        r"attention heads \(\d+\) must be divisible by tensor parallel size",
        "Choose a tensor parallel size that divides the model's attention heads.",
    ),
    Cause(
        R.INVALID_LAYOUT,
        r"is not divisible by (?:group_size|weight quantization)|input size is not aligned with the quantized weight|"
        r"AssertionError: \d+ is not divisible by \d+",
        "Choose a smaller tensor parallel size: the model's weights cannot be split like this.",
    ),
    Cause(
        R.INVALID_LAYOUT,
        r"World size \(\d+\) is larger than the number of available GPUs",
        "Choose a layout with fewer ranks, or a node with more accelerators.",
    ),
    Cause(
        R.INVALID_LAYOUT,
        r"Pipeline parallelism is not supported for this model|Not enough allowed NUMA nodes to bind threads",
        "Choose a layout without this split.",
    ),
    # Memory
    Cause(
        R.MEMORY_HELD,
        r"Free memory on device .* on startup is less than desired",
        "Something else holds the accelerator's memory: see which process it is, or lower --gpu-memory-utilization.",
    ),
    Cause(
        R.OUT_OF_MEMORY,
        r"larger than the available KV cache memory|maximum number of tokens that can be stored in KV cache",
        "Lower --max-model-len to the estimate in the message, or use more accelerators.",
    ),
    Cause(
        R.OUT_OF_MEMORY,
        r"No available memory for the cache blocks",
        "Raise --gpu-memory-utilization, lower --max-num-batched-tokens, or use more accelerators.",
    ),
    Cause(
        R.OUT_OF_MEMORY,
        r"OutOfMemoryError|CUDA out of memory|not enough GPU memory|DefaultCPUAllocator: can't allocate|^MemoryError\b",
        "Use more or larger accelerators, a quantised model, or a smaller --max-model-len and --max-num-seqs.",
        serving=True,
    ),
    # The environment
    Cause(
        R.ENGINE_MISSING,
        r"No package metadata was found for vllm|No module named 'vllm'|bad interpreter|vllm: (?:command )?not found",
        "Run the install job for this node, or set its engine environment.",
    ),
    Cause(
        R.ENGINE_MISSING,
        r"ModuleNotFoundError: No module named|ImportError: .*cannot open shared object|undefined symbol",
        "The engine environment is incomplete: install what the message names, or install the environment again.",
    ),
    Cause(
        R.ENGINE_MISSING,
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient|no kernel image is available",
        "The engine build does not fit this machine: upgrade the driver, or install another build.",
    ),
    Cause(
        R.ENGINE_MISSING,
        r"Failed to infer device type",
        "The engine sees no accelerator: check nvidia-smi on the node.",
    ),
    # Several processes
    Cause(
        R.EXITED,
        r"Gloo connectFullMesh failed",
        "Set the node's cluster interface: the ranks talk over the wrong one.",
    ),
    Cause(
        R.EXITED,
        r"DistStoreError|DistNetworkError|client socket has timed out",
        "A rank of the group did not come: look at the logs of the others and at the network between them.",
        serving=True,
    ),
    Cause(
        R.EXITED,
        r"NCCL error|ncclSystemError|ncclUnhandled|Watchdog caught collective operation timeout",
        "Set NCCL_DEBUG=INFO and read what NCCL says before this line.",
        serving=True,
    ),
    Cause(R.EXITED, r"Cannot provide a placement group", "The Ray cluster has too few free accelerators."),
    Cause(
        R.EXITED,
        r"No space left on device",
        "Free disk space on the node (or /dev/shm, as the message says).",
        serving=True,
    ),
    Cause(R.EXITED, r"Too many open files", "Raise the node's limit of open files.", serving=True),
    # Ends without an exception
    Cause(
        R.INVALID_OPTION,
        r"Fatal Python error: Illegal instruction",
        "This CPU cannot run a kernel of the engine: choose --dtype float32.",
        serving=True,
    ),
    Cause(
        R.EXITED,
        r"Fatal Python error: |^Segmentation fault",
        "The engine crashed in native code; upgrade it or its driver.",
        serving=True,
    ),
    Cause(
        R.EXITED,
        r"CUDA error: |NVRM: Xid",
        "The accelerator or its driver failed: look at the node's kernel messages.",
        serving=True,
    ),
    Cause(
        R.EXITED,
        r"died unexpectedly",
        "Something ended a rank; exit code -9 is mostly the kernel, out of host memory (see dmesg on the node).",
        serving=True,
    ),
)
# Only where no cause of the table is found: the option is named by the message itself.
OPTIONS = (
    Cause(R.INVALID_OPTION, r"^\s*Value error, ", "Correct the option that the message names."),
    Cause(R.INVALID_OPTION, r"error: argument -", "Correct the option's value."),
)
_CONSEQUENCES = re.compile(
    r"Engine core initialization failed|EngineDeadError|EngineCore (?:failed|encountered)|See root cause above"
    r"|WorkerProc initialization failed|KeyboardInterrupt|CancelledError|SystemExit|ChildFailedError"
)
_HARMLESS = re.compile(r"fd limit errors like|resource_tracker|hostname of the client socket")
_SERVED = re.compile(r"Application startup complete|Avg prompt throughput|HTTP/1\.[01]\" \d{3}")
_PROCESS = re.compile(r"^(?:\([^()]*\bpid=\d+[^()]*\)\s?)+")
_LEVEL = re.compile(r"^(DEBUG|INFO|WARNING|ERROR|CRITICAL):? (?:\d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?")
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b: \S")
_KNOWN = [(re.compile(cause.pattern), cause) for cause in CAUSES]
_GENERIC = [(re.compile(cause.pattern), cause) for cause in OPTIONS]
_GLANCE = re.compile("|".join(f"(?:{cause.pattern})" for cause in CAUSES))
UNKNOWN_REMEDY = "Read the log above this line."
# From this size on a tail is taken for a piece of a longer log, whose first line is not whole.
_PIECE = 8000


def read_failure(log_tail: str) -> tuple[Reason, str, str] | None:
    """(reason, the line that says so, remedy) of an ended engine; None when its log names no cause.

    The line comes without process, level, time and file, at most 600 characters long.
    """
    raw = re.split(r"[\r\n]+", log_tail)
    lines = [line for text in raw[len(log_tail) > _PIECE :] if (line := _message(text)) is not None]
    served = _SERVED.search(log_tail) is not None
    return _known(lines, served) or (None if served else _option(lines)) or _exception(lines)


def _known(lines: list[str], served: bool) -> tuple[Reason, str, str] | None:
    for line in lines:
        if not _GLANCE.search(line):
            continue
        for pattern, cause in _KNOWN:
            if pattern.search(line) and (cause.serving or not served):
                # What it ran out of while serving it had when it started, so another start helps.
                again = served and cause.reason is R.OUT_OF_MEMORY
                return R.EXITED if again else cause.reason, _evidence(line), cause.remedy
    return None


def _option(lines: list[str]) -> tuple[Reason, str, str] | None:
    for pattern, cause in _GENERIC:
        for line in lines:
            if pattern.search(line):
                return cause.reason, _evidence(line), cause.remedy
    return None


def _exception(lines: list[str]) -> tuple[Reason, str, str] | None:
    line = next((line for line in lines if _EXCEPTION.match(line)), None)
    return (R.EXITED, _evidence(line), UNKNOWN_REMEDY) if line else None


def _message(raw: str) -> str | None:
    """What a line says by itself; None if it is not about something that went wrong."""
    line = _PROCESS.sub("", _ESCAPES.sub("", raw))
    level = _LEVEL.match(line)
    if level:
        if level[1] in ("DEBUG", "INFO", "WARNING"):
            return None
        line = line[level.end() :]
    return None if not line or _CONSEQUENCES.search(line) or _HARMLESS.search(line) else line


def _evidence(line: str) -> str:
    text = re.sub(r"^Value error, | \[type=\w+, input_value=.*$", "", line.strip())
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
