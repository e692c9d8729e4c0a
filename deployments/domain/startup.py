"""Reading how far an engine's start is from the tail of its log.

The table knows the wording of vLLM 0.10 to 0.33. Phases that a start leaves out (compiling and capturing in eager mode,
downloading with local files) are simply not seen. Percentages order the milestones; they are not measured time.
"""

from __future__ import annotations

import re

LAUNCHING, CONFIGURING, RENDEZVOUS = "launching", "configuring", "rendezvous"
DOWNLOADING, LOADING, COMPILING = "downloading", "loading", "compiling"
PROFILING, CAPTURING, READY = "profiling", "capturing", "ready"

# (phase, percent, texts of which one is in the line). Where two percentages are given, the line is a progress bar whose
# own percentage fills the span between them. In order: the last one that is seen is how far it is.
MILESTONES: tuple[tuple[str, int | tuple[int, int], tuple[str, ...]], ...] = (
    (LAUNCHING, 1, ("version 0.", "version 1.", "vLLM API server version")),
    (LAUNCHING, 2, ("non-default args:",)),
    (CONFIGURING, 3, ("Resolved architecture:",)),
    (CONFIGURING, 4, ("Using max model len", "Chunked prefill is enabled")),
    (CONFIGURING, 5, (") headless multiproc executor", "Started DP Coordinator process")),
    (CONFIGURING, 8, ("Initializing a V1 LLM engine (v", "Initializing an LLM engine (v")),
    (
        CONFIGURING,
        10,
        ("DP group leader: node_rank=", "Connecting to existing Ray cluster", "Connected to Ray cluster"),
    ),
    (RENDEZVOUS, 11, ("Creating a new placement group", "Waiting for creating a placement group")),
    (RENDEZVOUS, 12, ("distributed_init_method=",)),
    (RENDEZVOUS, 15, ("vLLM is using nccl==",)),
    (RENDEZVOUS, 17, (" is assigned as DP rank",)),
    (DOWNLOADING, (18, 20), ("Fetching ", ".safetensors: ", ".bin: ")),
    (DOWNLOADING, 20, ("Time spent downloading weights",)),
    (LOADING, 20, ("Starting to load model", "Loading model from scratch")),
    (LOADING, (20, 60), ("checkpoint shards:", "loading shards:", "Runai Model Streamer", "Prefetching checkpoint")),
    (LOADING, 60, ("Loading weights took",)),
    (LOADING, 62, ("Model loading took",)),
    (COMPILING, 64, ("vLLM's torch.compile", "Starting torch.compile", "Warming up model for the compilation")),
    (COMPILING, 66, ("Dynamo bytecode transform time:",)),
    (COMPILING, 69, ("Compiling a graph for", "Directly load the compiled graph", "Directly load AOT")),
    (COMPILING, 72, ("torch.compile took", "torch.compile takes", "Warming up done.")),
    (PROFILING, 74, ("Initial profiling/warmup run took",)),
    (PROFILING, 76, ("Profiling CUDA graph memory:", "Estimated CUDA graph memory:")),
    (PROFILING, 78, ("Available KV cache memory:", "GiB for KV cache on node")),
    (PROFILING, 80, ("KV cache size:", "Maximum concurrency for")),
    (CAPTURING, (82, 94), ("Capturing CUDA graph shapes",)),
    (CAPTURING, (82, 88), ("PIECEWISE): ",)),
    (CAPTURING, (88, 94), ("FULL): ",)),
    (CAPTURING, 94, ("Graph capturing finished",)),
    (READY, 96, ("init engine (profile",)),
    (READY, 97, ("Supported tasks:", "Starting vLLM server", "Starting vLLM API server")),
    (READY, 98, ("Started server process", "Waiting for application startup")),
    (READY, 100, ("Application startup complete",)),
)

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
# What people typed is repeated in these lines; a model's name must not read as a milestone.
_TYPED = re.compile(r"(non-default args:|Initializing an? (?:V1 )?LLM engine \(v).*")
_PERCENT = re.compile(r":\s+(\d+)%")


def read_phase(log_tail: str) -> tuple[str, int] | None:
    """(phase, percent from 1 to 100) of the furthest milestone, or None.

    The furthest and not the last: ranks write side by side, and the slower one does not undo what is done.
    """
    text = _TYPED.sub(r"\1", _ESCAPES.sub("", log_tail))
    for phase, percent, texts in reversed(MILESTONES):
        if isinstance(percent, int):
            if any(words in text for words in texts):
                return phase, percent
            continue
        shares = [share for words in texts if words in text for share in _shares(text, words)]
        if shares:
            first, last = percent
            return phase, first + (last - first) * max(shares) // 100
    return None


def _shares(text: str, words: str) -> list[int]:
    """The percentages of all progress bars called `words`; a bar writes over itself with carriage returns."""
    lines = (line for line in re.split(r"[\r\n]", text) if words in line)
    return [min(100, int(match[1])) for line in lines if (match := _PERCENT.search(line))]
