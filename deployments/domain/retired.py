"""What articles about vLLM and Ray name and today's versions do not have, and what to use instead.

`check_args` and `check_env` answer for a launch; `recognise` finds the same in any pasted text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.version import Version

from .options import flags_of
from .plugins import Problem


@dataclass(frozen=True, slots=True)
class Retired:
    """One name that does not do (any more) what was written of it.

    Attributes:
        name: As it was written: a flag, a variable, a setting, a command, a line of code.
        kind: `flag`, `variable`, or `text` for what is no option of an engine.
        instead: What to use instead, as a sentence.
        gone: The first version without it; None = no version ever had it.
        works: It exists, but not to the end that was written.
        pattern: What finds it in a text; empty = its name.
    """

    name: str
    kind: str
    instead: str
    gone: str | None = None
    works: bool = False
    pattern: str = ""

    def found_in(self, text: str) -> bool:
        """Whether a text names it."""
        edge = r"(?![\w-])"
        return re.search(self.pattern or rf"(?<![\w-]){re.escape(self.name)}{edge}", text) is not None


def _flag(name: str, instead: str, gone: str | None = None, *, works: bool = False) -> Retired:
    words = name.removeprefix("--").replace("-", "[-_]")
    return Retired(name, "flag", instead, gone, works, rf"(?<![\w-])--{words}(?![\w-])")


def _variable(name: str, instead: str, gone: str | None = None, *, works: bool = False) -> Retired:
    return Retired(name, "variable", instead, gone, works)


def _text(name: str, instead: str, pattern: str = "") -> Retired:
    return Retired(name, "text", instead, None, False, pattern)


FLAGS = (
    _flag(
        "--enable-prefill",
        "Remove it: prefill needs no switch; in chunks it is --enable-chunked-prefill, on by default.",
    ),
    _flag(
        "--engine-use-persistent-cache",
        "Remove it. Restarts are shorter with a kept VLLM_CACHE_ROOT or --safetensors-load-strategy prefetch.",
    ),
    _flag("--max-batch-size", "Use --max-num-seqs (requests at once) or --max-num-batched-tokens (tokens a step)."),
    _flag("--object-store-memory", "Remove it: weights and activations do not go through Ray's object store."),
    _flag(
        "--swap-space",
        "Remove it: preempted requests are computed again. For a larger cache use --kv-offloading-size.",
        "0.18",
    ),
    _flag("--disable-log-requests", "Remove it: requests are not logged unless --enable-log-requests is set.", "0.26"),
    _flag("--worker-use-ray", "Choose the ray backend in the layout.", "0.26"),
    _flag("--engine-use-ray", "Choose the ray backend in the layout.", "0.26"),
    _flag("--use-v2-block-manager", "Remove it: there is only one block manager.", "0.26"),
    _flag("--num-scheduler-steps", "Remove it: scheduling overlaps with computing by itself.", "0.26"),
    _flag("--guided-decoding-backend", "Use --structured-outputs-config.backend.", "0.26"),
    _flag("--speculative-model", "Use --speculative-config.", "0.26"),
    _flag("--rope-scaling", "Use --hf-overrides with rope_parameters.", "0.26"),
    _flag("--task", "Use --runner or --convert.", "0.26"),
    _flag("--max-seq-len-to-capture", "Use --max-cudagraph-capture-size.", "0.26"),
    _flag(
        "--block-size",
        "Leave it out: the attention kernel chooses, and a size of your own can rule out faster ones.",
        works=True,
    ),
    _flag(
        "--disable-custom-all-reduce",
        "Keep it for finding faults: the engine turns that kernel off by itself where it cannot be used.",
        works=True,
    ),
)
VARIABLES = (
    _variable(
        "VLLM_CACHE_DIR", "Set HF_HOME (weights) or VLLM_CACHE_ROOT (compiled code), or the node's cache folder."
    ),
    _variable("VLLM_ALL2ALL_BACKEND", "Use the flag --all2all-backend.", "0.26"),
    _variable("VLLM_ATTENTION_BACKEND", "Use the flag --attention-backend.", "0.32"),
    _variable("VLLM_USE_V1", "Remove it: there is only one engine.", "0.32"),
    _variable(
        "NCCL_ALGO",
        "Leave it unset: it forces one algorithm on collectives that may lack it, and all ranks must agree.",
        works=True,
    ),
)
TEXTS = (
    _text(
        "vllm serve --config with an engine: section",
        "Write the flags' own names as keys, without a section: max-num-seqs, max-model-len.",
        r"(?m)^\s*engine:\s*$",
    ),
    _text("max_batch_size", "Use max-num-seqs or max-num-batched-tokens.", r"\bmax_batch_size\b"),
    _text(
        "AsyncLLMEngine.from_pretrained",
        "Start `vllm serve`: it is the HTTP server.",
        r"AsyncLLMEngine\s*\.\s*from_pretrained",
    ),
    _text(
        "OpenVINOModel",
        "Serve an AWQ, GPTQ or compressed-tensors checkpoint; optimum is another engine.",
        r"\bOpenVINOModel\b|optimum\.intel",
    ),
    _text(
        "image: ...:latest with replicas and the ray backend",
        "Start one engine a pod without Ray, and pin the image's version.",
        r"image:\s*\S*vllm\S*:latest",
    ),
    _text(
        "Initializing tensor parallel",
        "Look for 'rank N in world size M is assigned as' in the log.",
        r"(?i)initializing tensor parallel",
    ),
    _text(
        "_redis_max_memory", "Remove it: Ray has no Redis any more, and this compresses nothing.", r"_redis_max_memory"
    ),
    _text("object_store_memory", "Remove it: the object store is not on the data's way.", r"\bobject_store_memory\b"),
    _text(
        "ray attach --address",
        "Run `ray start --address=HEAD:6379` on the new machine before the engine starts.",
        r"ray\s+attach\b.*--address",
    ),
    _text(
        "available_nodes",
        "Run `ray start` on each machine; the launcher's file has head_ip and worker_ips.",
        r"\bavailable_nodes\b",
    ),
    _text(
        'len(ray.available_resources()["GPU"])',
        "It is a number already; do not ask for its length.",
        r"len\(\s*ray\.available_resources\(\)",
    ),
    _text(
        "Redis on port 6379", "It is Ray's GCS; nothing speaks Redis there.", r"(?i)6379\D{0,20}redis|redis\D{0,20}6379"
    ),
    _text("ray[cgraph]", "Install ray[default], the same version on all machines.", r"ray\[cgraph\]"),
    _text("nvprof", "Use nsys or ncu, or the engine's --profiler-config.", r"\bnvprof\b"),
    _text("windowsFeatures in wsl.conf", "Remove it: WSL has no such setting.", r"\bwindowsFeatures\b"),
    _text("setenforce 0", "Leave SELinux on and open the ports in the firewall.", r"\bsetenforce\s+0\b"),
    _text(
        "P2pNcclConnector",
        "Use NixlConnector with kv_producer and kv_consumer.",
        r"\bP2pNcclConnector\b|\bPyNcclConnector\b",
    ),
    _text(
        "kv_rank, kv_parallel_size, kv_buffer_size, kv_ip",
        "Remove them: kv_connector and kv_role are enough, NIXL's address is a variable.",
        r"\bkv_(rank|parallel_size|buffer_size|ip)\b",
    ),
    _text(
        "driver 535 with CUDA 12",
        "Install driver 580 or newer; CUDA comes with the engine's packages.",
        r"\b535\.\d+\.\d+\b",
    ),
    _text("Python 3.10", "Use Python 3.12.", r"\bPython\s+3\.10\b"),
    _text(
        "vLLM 0.3 or 0.4, Ray 2.0 to 2.9",
        "Use vLLM 0.33 and Ray 2.56 or newer, the same on all machines.",
        r"vLLM\s*0\.[34]\+|Ray\s*2\.[09]\+",
    ),
)
ROWS: tuple[Retired, ...] = (*FLAGS, *VARIABLES, *TEXTS)
_BY_NAME = {row.name: row for row in (*FLAGS, *VARIABLES)}


def recognise(text: str) -> list[Retired]:
    """Everything in a text that has a row here."""
    return [row for row in ROWS if row.found_in(text)]


def check_args(args: Iterable[str], versions: Iterable[Version] = ()) -> list[Problem]:
    """Problems of an argument list that names retired flags.

    Args:
        versions: Engine versions of the nodes to choose among; none = not known.
    """
    known = list(versions)
    rows = [_BY_NAME[flag] for flag in dict.fromkeys(flags_of(args)) if flag in _BY_NAME]
    return [problem for row in rows if (problem := _problem(row, known, "args"))]


def check_env(env: Mapping[str, str], versions: Iterable[Version] = ()) -> list[Problem]:
    """Problems of environment overrides that nothing reads; the engine starts all the same."""
    known = list(versions)
    rows = [_BY_NAME[name] for name in env if name in _BY_NAME]
    return [problem for row in rows if (problem := _problem(row, known, "env"))]


def _problem(row: Retired, versions: list[Version], field: str) -> Problem | None:
    if row.works:
        said = f"{row.name} rarely does what it is set for."
        return Problem("INVALID_OPTION", said, row.instead, field, severity="warning", setting=row.name)
    without = [row.gone is None or version.release >= Version(row.gone).release for version in versions]
    if versions and not any(without):
        return None
    said = f"vLLM has no {row.name}." if row.gone is None else f"{row.name} is gone from vLLM {row.gone} on."
    sure = field == "args" and (row.gone is None or (bool(without) and all(without)))
    code = "UNKNOWN_FLAG" if field == "args" else "INVALID_OPTION"
    return Problem(code, said, row.instead, field, severity="error" if sure else "warning", setting=row.name)
