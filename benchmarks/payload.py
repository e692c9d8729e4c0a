"""What every fan-out method starts on a host: a program that leaves a mark and stays.

The mark is a file in the login user's home that holds the program's pid; the time of its last write, on the clock that
host and machine share, is the moment at which the program ran (good to one tick of the kernel, 4 ms at most).
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.report import BUILD
from tests.lab.host import Host

ENVIRONMENT, MODEL = BUILD / "engine", BUILD / "model"
PROGRAM = ENVIRONMENT / "bin/vllm"
MARK = "/root/started"
SCRIPT = f'#!/bin/sh\necho "$$" >{MARK}\nexec sleep 1000\n'
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 16,
    "num_hidden_layers": 4,
    "num_key_value_heads": 16,
    "max_position_embeddings": 1024,
    "vocab_size": 512,
    "torch_dtype": "float32",
}


def make() -> None:
    """An engine environment and a model folder, as far as a panel looks at them before it starts the program."""
    library = ENVIRONMENT / "lib/python3.11/site-packages/vllm-0.33.0.dist-info"
    for folder in (ENVIRONMENT / "bin", library, MODEL):
        folder.mkdir(parents=True, exist_ok=True)
    (library / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n")
    (MODEL / "config.json").write_text(json.dumps(CONFIG))
    (MODEL / "model.safetensors").write_bytes(bytes(1024))
    (ENVIRONMENT / "bin/python3").unlink(missing_ok=True)
    (ENVIRONMENT / "bin/python3").symlink_to(shutil.which("python3") or "/usr/bin/python3")
    PROGRAM.write_text(SCRIPT)
    PROGRAM.chmod(0o755)


def _mark(host: Host) -> Path:
    return host.path(MARK)


def forget(hosts: Sequence[Host]) -> None:
    """Take the marks of an earlier repetition away."""
    for host in hosts:
        _mark(host).unlink(missing_ok=True)


def wait(hosts: Sequence[Host], deadline_s: float = 60.0) -> float:
    """The moment (epoch seconds) at which the last host's program ran. Raises TimeoutError naming those without."""
    end, missing = time.monotonic() + deadline_s, list(hosts)
    while missing := [host for host in missing if not _ran(host)]:
        if time.monotonic() > end:
            raise TimeoutError("nothing was started on " + ", ".join(host.name for host in missing))
        time.sleep(0.03)
    return max(_mark(host).stat().st_mtime_ns for host in hosts) / 1e9


def _ran(host: Host) -> bool:
    try:
        return os.stat(_mark(host)).st_size > 0
    except OSError:
        return False


def end(hosts: Sequence[Host]) -> None:
    """Kill the programs that plain methods have started."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda host: host.kill(int(_mark(host).read_text())), hosts))
