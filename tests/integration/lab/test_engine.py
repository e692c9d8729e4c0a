"""The engine environment: pinned, never a GPU build by accident, and usable by everybody on a lab host."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.lab import engine as engines
from tests.lab import needs
from tests.lab.spec import HostSpec, Login


def offer_torch(folder: Path, requires: str) -> None:
    """A wheel of the pinned torch with nothing in it but its metadata."""
    [version] = re.findall(r"^torch==(\S+)$", engines.PINS.read_text(), re.MULTILINE)
    info = f"torch-{version}.dist-info"
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n{requires}")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def pip(tmp_path, monkeypatch) -> list[str]:
    """An installer that knows no index, only the wheels in tmp_path."""
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    subprocess.run([needs.HOST_PYTHON, "-m", "venv", str(tmp_path / "venv")], check=True)
    return [str(tmp_path / "venv/bin/python"), "-m", "pip", "install", "--quiet"]


def test_every_package_of_the_engine_is_pinned_and_no_address_is_named():
    lines = [line for line in engines.PINS.read_text().splitlines() if not line.startswith("#")]
    assert not [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)]


def test_a_gpu_build_of_torch_is_refused_by_name_before_it_is_installed(tmp_path, pip):
    offer_torch(tmp_path, "Requires-Dist: nvidia-cublas==13.1.0.3; platform_system == 'Linux'\nRequires-Dist: sympy\n")
    with pytest.raises(engines.EngineUnavailable, match=r"GPU build of torch .* nvidia-cublas.*PIP_FIND_LINKS"):
        engines._refuse_gpu_build(pip)


def test_a_cpu_build_of_torch_is_taken(tmp_path, pip):
    offer_torch(tmp_path, "Requires-Dist: sympy\n")
    engines._refuse_gpu_build(pip)


def test_a_folder_that_is_something_else_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTHOUSE_LAB_ENGINE", str(tmp_path / "precious"))
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    with pytest.raises(engines.EngineUnavailable, match="no engine environment"):
        engines.build(report=lambda text: None)
    assert (tmp_path / "precious/file").exists()


@pytest.mark.lab
@pytest.mark.vllm
def test_an_ordinary_user_of_a_host_can_use_engine_and_model(engine, lab_hosts):
    [host] = lab_hosts(1, spec=HostSpec(logins=(Login("worker"),))).hosts
    asked = "import importlib.metadata as m, torch; print(m.version('vllm'), torch.version.cuda)"
    assert host.ssh(f'{engine.python} -c "{asked}"', user="worker").stdout.strip() == f"{engines.VLLM_VERSION} None"
    weights = host.ssh(f"wc -c < {engine.model}/model.safetensors", user="worker").stdout
    assert int(weights) > 1_000_000
