"""Python environments that hold an engine, told from their files: nothing in them is imported or run."""

import glob
import os
import re

from . import programs
from .paths import read_text, user

_EXECUTABLES = ("vllm", "ray", "vllm-router")
_PACKAGES = re.compile(
    r"(vllm.*|ray|torch|torchvision|triton|transformers|tokenizers|safetensors|huggingface-hub|setproctitle|nvidia-nccl-.*"
    r"|nvidia-ml-py|nvidia-cuda-runtime.*|nvidia-cudnn-.*|flashinfer-.*|flash-attn|xformers|nixl.*|lmcache|deep-.*"
    r"|mooncake.*|compressed-tensors|numpy|ml-dtypes|intel-extension-for-pytorch)"
)
_PLACES = ("~/venv", "~/.venv", "~/vllm", "~/vllm/.venv", "~/env", "~/venvs/*", "~/envs/*", "~/.virtualenvs/*")
_TOOLS = ("~/.local/share/uv/tools/vllm", "~/.local/share/pipx/venvs/vllm", "~/.local/pipx/venvs/vllm", "~/.local")
_CONDA = (
    "~/miniconda3",
    "~/anaconda3",
    "~/miniforge3",
    "~/mambaforge",
    "~/micromamba",
    "/opt/conda",
    "/opt/miniconda3",
)
_SYSTEM = ("/opt/*", "/opt/*/venv", "/opt/*/.venv", "/srv/*", "/usr/local", "/usr")
_MOST = 50


def describe(path):
    """An environment's facts: `path` may be its root or a program in its bin; None takes the first candidate."""
    if not path:
        found = candidates()
        return _describe(found[0]) if found else None
    path = os.path.expanduser(path)
    if os.path.isfile(path):
        # Not realpath: a venv's python is a link that leads out of it.
        path = os.path.dirname(os.path.dirname(path))
    return _describe(os.path.normpath(path))


def _describe(root):
    found = _packages(root)
    python = _program(root, "python3") or _program(root, "python")
    return {
        "path": root,
        "python": python,
        "python_version": _version(root),
        "executables": {name: _program(root, name) for name in _EXECUTABLES},
        "packages": {name: version for name, version in sorted(found.items()) if _PACKAGES.fullmatch(name)},
    }


def _program(root, name):
    path = os.path.join(root, "bin", name)
    return path if os.path.isfile(path) and os.access(path, os.X_OK) else None


def _libraries(root):
    patterns = ("lib/python3*/site-packages", "lib64/python3*/site-packages", "lib/python3*/dist-packages")
    return [folder for pattern in patterns for folder in glob.glob(os.path.join(root, pattern))]


def _version(root):
    """The Python version that pyvenv.cfg or the library folder's name tells, or None."""
    said = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+(?:\.\d+)?)", read_text(root + "/pyvenv.cfg") or "", re.M)
    if said:
        return said.group(1)
    named = [re.search(r"python(3\.\d+)", folder) for folder in _libraries(root)]
    return next((match.group(1) for match in named if match), None)


def _packages(root):
    """{normalised name: version} from the names of the dist-info folders."""
    found = {}
    for folder in _libraries(root):
        for name in os.listdir(folder):
            match = re.fullmatch(r"(.+?)-([^-]+)\.dist-info", name)
            if match:
                found.setdefault(re.sub(r"[-_.]+", "-", match.group(1)).lower(), match.group(2))
    return found


def candidates():
    """Roots of environments that hold vLLM, the likeliest first."""
    places = [os.environ.get("VIRTUAL_ENV") or "", *_PLACES, *_TOOLS]
    for conda in (*_CONDA, "~/.conda"):
        places += [conda, conda + "/envs/*"]
    vllm = programs.which("vllm")
    places += [*_SYSTEM, os.path.dirname(os.path.dirname(vllm)) if vllm else ""]
    roots = []
    for place in places:
        for root in sorted(glob.glob(_expanded(place))) if place else []:
            if root not in roots and _holds_vllm(root):
                roots.append(root)
    return roots[:_MOST]


def _expanded(place):
    return user()[1] + place[1:] if place.startswith("~") else place


def _holds_vllm(root):
    return any(glob.glob(os.path.join(folder, "vllm-*.dist-info")) for folder in _libraries(root))
