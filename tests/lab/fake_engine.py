"""The fake engine on a lab host: a folder that looks like an environment with vLLM, for everything but the model."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.lab import needs
from tests.lab.host import Host

PROGRAM = Path(__file__).resolve().parents[1] / "fakes/fake_vllm.py"
STREAM = PROGRAM.with_name("fake_stream.py")
VERSION = "0.32.0"
CONFIG = """{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_attention_heads": 4, "hidden_size": 128,
"num_key_value_heads": 2, "num_hidden_layers": 4, "intermediate_size": 256, "vocab_size": 2048,
"max_position_embeddings": 2048, "torch_dtype": "bfloat16"}
"""


def install(host: Host, root: str = "/home/engine") -> str:
    """Make the environment `root` in one of the host's own folders. Returns `root`."""
    return furnish(host.path(root)) and root


def furnish(folder: Path) -> Path:
    """Make an environment of a folder of the machine."""
    (folder / "bin").mkdir(parents=True)
    shutil.copy(PROGRAM, folder / "bin/vllm")
    shutil.copy(STREAM, folder / "bin")
    (folder / "bin/vllm").chmod(0o755)
    (folder / "bin/python3").symlink_to(needs.HOST_PYTHON)
    info = folder / f"lib/python3.11/site-packages/vllm-{VERSION}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\n")
    return folder


def put_model(host: Host, path: str = "/home/model", weights: bytes = b"\0" * 4096) -> str:
    """A model folder in one of the host's own folders: a real config.json, and weights that nobody reads."""
    folder = host.path(path)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(CONFIG)
    (folder / "model.safetensors").write_bytes(weights)
    return path
