"""What people may add to an engine's command line and environment, and who may."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from .plugins import Problem

_LAYOUT = "the layout"
_PROXY = "a proxy in front of the engine"
# Flags that the layout, the node or the deployment decides. Value: where to set it instead.
RESERVED_FLAGS: dict[str, str] = {
    "--host": "the node's cluster address",
    "--port": "the node's port range",
    "--model": "the deployment's model",
    "--served-model-name": "the deployment's served name",
    "--distributed-executor-backend": "the layout's backend",
    "--api-key": "nothing: a key is generated for each deployment",
    "--hf-token": "the environment variable HF_TOKEN, which is not shown",
    "--uds": "nothing: the panel needs the engine's TCP address",
    "--grpc": "nothing: the panel needs the engine's HTTP API",
    **dict.fromkeys(
        (
            *("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp"),
            *("--prefill-context-parallel-size", "-pcp", "--decode-context-parallel-size", "-dcp"),
            *("--data-parallel-size", "-dp", "--data-parallel-size-local", "-dpl", "--data-parallel-rank", "-dpn"),
            *("--data-parallel-start-rank", "-dpr", "--data-parallel-address", "-dpa", "--data-parallel-rpc-port"),
            *("-dpp", "--data-parallel-backend", "-dpb", "--data-parallel-external-lb", "-dpe", "-dpm"),
            *("--data-parallel-hybrid-lb", "-dph", "--data-parallel-multi-port-external-lb"),
            *("--data-parallel-supervisor-port", "--nnodes", "-n", "--node-rank", "-r", "--master-addr"),
            *("--master-port", "--headless", "--device-ids"),
        ),
        _LAYOUT,
    ),
    **dict.fromkeys(
        (
            *("--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-cert-reqs", "--ssl-ciphers"),
            *("--enable-ssl-refresh", "--root-path"),
        ),
        _PROXY,
    ),
}
# Flags by which an engine loads and runs somebody's code, or reads, writes or calls what the caller chooses.
CODE_FLAGS = frozenset(
    (
        *("--trust-remote-code", "--config", "--middleware", "--worker-cls", "--worker-extension-cls"),
        *("--tool-parser-plugin", "--reasoning-parser-plugin", "--io-processor-plugin", "--logits-processors"),
        *("--scheduler-cls", "--model-class-overrides", "--log-config-file", "--tool-server"),
        *("--kv-transfer-config", "--kv-events-config", "--ec-transfer-config", "--weight-transfer-config"),
        *("--compilation-config", "-cc", "-O", "--additional-config", "--profiler-config", "--otlp-traces-endpoint"),
        *("--structured-outputs-config", "--reasoning-config", "--speculative-config", "-sc"),
        *("--spec-model", "--spec-method", "--lora-modules", "--default-mm-loras"),
        *("--hf-config-path", "--hf-overrides", "--revision", "--code-revision"),
        *("--tokenizer", "--tokenizer-revision", "--generation-config", "--chat-template"),
        *("--trust-request-chat-template", "--enable-prompt-embeds", "--enable-mm-embeds"),
        *("--model-loader-extra-config", "--load-format", "--download-dir", "--allowed-local-media-path"),
        *("--mm-encoder-fp8-scale-path", "--mm-encoder-fp8-scale-save-path"),
    )
)
ENV_ALLOWED = re.compile(
    r"^(VLLM|NCCL|GLOO|HF|OMP|MKL|UCX|TORCH_NCCL|TORCHINDUCTOR|CUDA_LAUNCH|CUDA_DEVICE|RAY_DEDUP|TOKENIZERS)_[A-Z0-9_]+$"
    r"|^TP_SOCKET_IFNAME$"
)
# Names within the allowed prefixes by which code is loaded, files are read or written, or somebody is called.
ENV_ADMIN = re.compile(
    r"(^|_)(PATH|FILE|DIR|FOLDER|ROOT|CACHE|HOME|PLUGINS?|SO|LIBRARIES|TOOL|MODULES?|TOKEN|ENDPOINT|SERVER|URL|CONF|CONFIG"
    r"|RESOLVER|INSECURE|DUMP)(_|$)|^VLLM_USE_MODELSCOPE$|^VLLM_ALLOW_RUNTIME_LORA_UPDATING$"
)
ENV_RESERVED = re.compile(r"VLLM_(API_KEY|HOST_IP|PORT|DP_\w+)|CUDA_VISIBLE_DEVICES|SPT_NOENV|PILOTHOUSE_\w*")
ENV_FORBIDDEN = frozenset({"LD_PRELOAD", "LD_LIBRARY_PATH"})
_ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def split_args(text: str) -> tuple[str, ...]:
    """Words of an argument text as a shell would see them (quotes honoured, nothing expanded).

    Raises:
        ValueError: An unclosed quote.
    """
    return tuple(shlex.split(text, comments=False, posix=True))


def flag_of(word: str) -> str | None:
    """The flag that an argument word sets, as the engine's parser reads it; None for a value.

    Long flags come with dashes for underscores and without `=value`, `.key` and `+`; `--` and `-` stay as they are.
    Of the short ones, those of one letter may have their value right behind them (`-n2`).
    """
    if not word.startswith("-") or re.match(r"^-\.?\d", word):
        return None
    name = re.split(r"[=.]", word, maxsplit=1)[0].rstrip("+")
    if name.startswith("--"):
        return "--" + name[2:].replace("_", "-")
    return name[:2] if name[:2] in ("-n", "-r", "-q", "-O") else name


def flags_of(args: Iterable[str]) -> tuple[str, ...]:
    """All flags in an argument list."""
    return tuple(flag for word in args if (flag := flag_of(word)) is not None)


def check_args(args: Iterable[str], *, may_run_code: bool) -> list[Problem]:
    """Problems of an argument list: reserved flags, flags that run code, a word that looks like a second model."""
    words = list(args)
    flags = [flag for word in words if (flag := flag_of(word)) is not None and not _LEVEL.fullmatch(word)]
    problems = [_reserved(flag) for flag in flags if _match(flag, RESERVED_FLAGS)]
    if not may_run_code:
        problems += [_runs_code(flag) for flag in flags if _match(flag, CODE_FLAGS)]
    if words and flag_of(words[0]) is None:
        problems.append(
            Problem(
                "INVALID_OPTION",
                f"The engine arguments start with {words[0]!r}, which is not a flag.",
                "Begin with a flag such as --max-model-len; the model is set by the deployment.",
                field="args",
            )
        )
    if any("\x00" in word for word in words):
        problems.append(Problem("INVALID_OPTION", "An engine argument holds a NUL byte.", "Remove it.", field="args"))
    if any(flag in ("--", "-") for flag in flags):
        problems.append(
            Problem("INVALID_OPTION", "A lone dash ends the flags.", "Remove it; write flags only.", field="args")
        )
    return problems


# -O0 to -O3 choose a level of optimisation and nothing else.
_LEVEL = re.compile(r"-O[0-3]")


def _match(flag: str, table: Iterable[str]) -> bool:
    # argparse takes any unambiguous prefix of a flag, long or short, so a prefix of a listed one is refused as well.
    return flag in table or (flag.strip("-") != "" and any(name.startswith(flag) for name in table))


def _reserved(flag: str) -> Problem:
    where = RESERVED_FLAGS.get(flag) or next(where for name, where in RESERVED_FLAGS.items() if name.startswith(flag))
    return Problem(
        "INVALID_OPTION", f"{flag} is set by Pilothouse.", f"Remove it; it is decided by {where}.", field="args"
    )


def _runs_code(flag: str) -> Problem:
    return Problem(
        "NOT_PERMITTED",
        f"{flag} can make the engine run or read what its caller chooses.",
        "Ask an admin to set it.",
        field="args",
    )


def check_env(env: Mapping[str, str], *, may_run_code: bool) -> list[Problem]:
    """Problems of environment overrides: names that are not names, reserved ones, ones that only an admin may set."""
    problems = []
    for name, value in env.items():
        if not _ENV_NAME.fullmatch(name):
            problems.append(
                Problem("INVALID_OPTION", f"{name!r} is not the name of an environment variable.", field="env")
            )
        elif "\x00" in value:
            problems.append(Problem("INVALID_OPTION", f"The value of {name} holds a NUL byte.", field="env"))
        elif name in ENV_FORBIDDEN:
            said = f"{name} makes every process of the engine load other code; it cannot be set here."
            problems.append(Problem("INVALID_OPTION", said, "Remove it.", field="env"))
        elif ENV_RESERVED.fullmatch(name):
            problems.append(Problem("INVALID_OPTION", f"{name} is set by Pilothouse.", "Remove it.", field="env"))
        elif not may_run_code and (ENV_ADMIN.search(name) or not ENV_ALLOWED.fullmatch(name)):
            problems.append(
                Problem(
                    "NOT_PERMITTED",
                    f"{name} is not among the variables an operator may set.",
                    "Ask an admin.",
                    field="env",
                )
            )
    return problems
