"""What people may add to an engine's command line and environment, and who may."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from .plugins import Problem

# Flags that the layout, the node or the deployment decides. Value: where to set it instead.
RESERVED_FLAGS: dict[str, str] = {
    "--host": "the node's cluster address",
    "--port": "the node's port range",
    "--model": "the deployment's model",
    "--served-model-name": "the deployment's served name",
    "--tensor-parallel-size": "the layout",
    "-tp": "the layout",
    "--pipeline-parallel-size": "the layout",
    "-pp": "the layout",
    "--data-parallel-size": "the layout",
    "-dp": "the layout",
    "--nnodes": "the layout",
    "--node-rank": "the layout",
    "--master-addr": "the layout",
    "--master-port": "the layout",
    "--headless": "the layout",
    "--distributed-executor-backend": "the layout's backend",
    "--device-ids": "the layout",
    "--api-key": "nothing: a key is generated for each deployment",
    "--uds": "nothing: the panel needs the engine's TCP address",
    "--ssl-keyfile": "a proxy in front of the engine",
    "--ssl-certfile": "a proxy in front of the engine",
    "--root-path": "a proxy in front of the engine",
}
# Flags by which an engine loads and runs somebody's code, or reads files of the caller's choice.
CODE_FLAGS = frozenset(
    {
        "--trust-remote-code",
        "--config",
        "--middleware",
        "--worker-cls",
        "--worker-extension-cls",
        "--tool-parser-plugin",
        "--reasoning-parser-plugin",
        "--logits-processors",
        "--kv-transfer-config",
        "--kv-events-config",
        "--ec-transfer-config",
        "--hf-config-path",
        "--hf-overrides",
        "--tokenizer",
        "--chat-template",
        "--model-loader-extra-config",
        "--load-format",
        "--download-dir",
        "--allowed-local-media-path",
        "--scheduler-cls",
        "--compilation-config",
        "--additional-config",
        "--profiler-config",
        "--hf-token",
    }
)
ENV_ALLOWED = re.compile(
    r"^(VLLM|NCCL|GLOO|HF|OMP|MKL|UCX|TORCH_NCCL|TORCHINDUCTOR|CUDA_LAUNCH|CUDA_DEVICE|RAY_DEDUP|TOKENIZERS)_[A-Z0-9_]+$"
    r"|^TP_SOCKET_IFNAME$"
)
# Names within the allowed prefixes that still load code, or that the launcher decides.
ENV_ADMIN = frozenset(
    {
        "VLLM_PLUGINS",
        "VLLM_USE_MODELSCOPE",
        "VLLM_RPC_BASE_PATH",
        "VLLM_CONFIG_ROOT",
        "HF_ENDPOINT",
        "HF_TOKEN",
        "HF_HOME",
    }
)
ENV_RESERVED = frozenset(
    {"VLLM_API_KEY", "VLLM_HOST_IP", "VLLM_PORT", "CUDA_VISIBLE_DEVICES", "SPT_NOENV", "LD_PRELOAD", "LD_LIBRARY_PATH"}
)
_ENV_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def split_args(text: str) -> tuple[str, ...]:
    """Words of an argument text as a shell would see them (quotes honoured, nothing expanded).

    Raises:
        ValueError: An unclosed quote.
    """
    return tuple(shlex.split(text, comments=False, posix=True))


def flag_of(word: str) -> str | None:
    """The flag that an argument word sets, in its dashed form; None for a value."""
    if not word.startswith("-") or re.match(r"^-\d", word):
        return None
    name = word.split("=", 1)[0]
    if name.startswith("--"):
        name = "--" + name[2:].split(".", 1)[0].replace("_", "-")
    return name


def flags_of(args: Iterable[str]) -> tuple[str, ...]:
    """All flags in an argument list."""
    return tuple(flag for word in args if (flag := flag_of(word)) is not None)


def check_args(args: Iterable[str], *, may_run_code: bool) -> list[Problem]:
    """Problems of an argument list: reserved flags, flags that run code, a word that looks like a second model."""
    words = list(args)
    problems = [_reserved(flag) for flag in flags_of(words) if _match(flag, RESERVED_FLAGS)]
    if not may_run_code:
        problems += [_runs_code(flag) for flag in flags_of(words) if _match(flag, CODE_FLAGS)]
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
    return problems


def _match(flag: str, table: Iterable[str]) -> bool:
    # argparse takes any unambiguous prefix of a long flag, so a prefix of a reserved one is refused as well.
    if flag in table:
        return True
    return len(flag) > 4 and any(name.startswith(flag) for name in table)


def _reserved(flag: str) -> Problem:
    where = RESERVED_FLAGS.get(flag, "the deployment")
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
        elif name in ENV_RESERVED or name.startswith("PILOTHOUSE_"):
            problems.append(Problem("INVALID_OPTION", f"{name} is set by Pilothouse.", "Remove it.", field="env"))
        elif not may_run_code and (name in ENV_ADMIN or not ENV_ALLOWED.fullmatch(name)):
            problems.append(
                Problem(
                    "NOT_PERMITTED",
                    f"{name} is not among the variables an operator may set.",
                    "Ask an admin.",
                    field="env",
                )
            )
    return problems
