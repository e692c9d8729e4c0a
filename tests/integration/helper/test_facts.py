"""What a node says about itself: state folders, environments, model folders, tools that hang."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .client import Client, Refused

Connect = Callable[..., Client]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it becomes another user or machine")


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that another user may enter, which pytest's own folders do not allow."""
    folder = Path(tempfile.mkdtemp(prefix="pilothouse-home-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def nobody(home: Path, before: str = "") -> dict:
    """Options of a client that runs as an ordinary user with this home."""
    drop = "setpriv --reuid 65534 --regid 65534 --clear-groups"
    shell = f"{before} exec {drop} env -u PILOTHOUSE_STATE_ROOT HOME={home} /bin/sh"
    machine = ("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
    return {"command": (*machine, "/bin/sh", "-c", shell), "root": None}


@needs_root
def test_an_ordinary_user_keeps_its_state_at_home(connect: Connect, home: Path) -> None:
    client = connect(**nobody(home))
    state = Path(client.hello["state_dir"])
    assert state.is_relative_to(home / ".local" / "state" / "pilothouse")
    assert (state.stat().st_mode & 0o777, state.stat().st_uid) == (0o700, 65534)
    process, _ = client.start(argv=["sleep", "600"])
    assert client.stop(process)["proven"]


@needs_root
def test_two_machines_that_share_a_home_do_not_share_state(connect: Connect, home: Path) -> None:
    one, other = (connect(**nobody(home, f"hostname {name} &&")) for name in ("node-a", "node-b"))
    assert one.hello["machine_id"] == other.hello["machine_id"]
    assert one.hello["state_dir"] != other.hello["state_dir"]
    one.start("p1", argv=["sleep", "600"])
    other.start("p1", argv=["sleep", "600"])
    assert one.stop("p1")["proven"]
    assert other.process("p1")["alive"]
    assert other.stop("p1")["proven"]


@needs_root
def test_a_home_that_cannot_be_written_is_passed_over(connect: Connect, home: Path) -> None:
    home.chmod(0o555)
    state = connect(installation=f"test-{os.getpid()}", **nobody(home)).hello["state_dir"]
    assert state.startswith("/var/tmp/pilothouse-65534/")
    shutil.rmtree(state)


def environment(root: Path) -> Path:
    """A virtual environment with vLLM, as far as its files tell."""
    library = root / "lib" / "python3.12" / "site-packages"
    for name in ("vllm-0.32.0+cpu", "ray-2.60.0", "nvidia_nccl_cu12-2.27.5", "unrelated-1.0"):
        (library / f"{name}.dist-info").mkdir(parents=True)
    (root / "bin").mkdir()
    for name in ("python", "vllm"):
        (root / "bin" / name).write_text("#!/bin/sh\nexit 1\n")
        (root / "bin" / name).chmod(0o755)
    (root / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.7\n")
    return root


@pytest.mark.parametrize("named", ["", "bin/python"])
def test_an_environment_is_read_from_its_files(client: Client, tmp_path: Path, named: str) -> None:
    root = environment(tmp_path / "venv")
    found = client.call("probe", environment=str(root / named), paths=[])["environment"]
    assert found["path"] == str(root)
    assert found["python"] == str(root / "bin" / "python")
    assert found["python_version"] == "3.12.7"
    assert found["executables"] == {"vllm": str(root / "bin" / "vllm"), "ray": None, "vllm-router": None}
    assert found["packages"] == {"vllm": "0.32.0+cpu", "ray": "2.60.0", "nvidia-nccl-cu12": "2.27.5"}


def test_an_environment_is_looked_for_when_none_is_named(connect: Connect, tmp_path: Path) -> None:
    root = environment(tmp_path / "venv")
    facts = connect(env={"HOME": str(tmp_path)}).call("probe", environment=None, paths=[])
    assert str(root) in facts["candidates"]
    assert facts["environment"]["path"] == facts["candidates"][0]


def test_a_missing_environment_has_null_facts(client: Client) -> None:
    found = client.call("probe", environment="/nowhere/venv", paths=[])["environment"]
    assert (found["path"], found["python"], found["packages"]) == ("/nowhere/venv", None, {})


def tool(folder: Path, script: str) -> dict[str, str]:
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_a_driver_error_on_stdout_is_kept(connect: Connect, tmp_path: Path) -> None:
    said = "Failed to initialize NVML: Driver/library version mismatch"
    facts = connect(env=tool(tmp_path, f"echo '{said}'; exit 18")).call("probe", environment=None, paths=[])
    assert facts["nvidia_smi"]["rc"] == 18
    assert said in facts["nvidia_smi"]["xml"]


def test_a_hanging_nvidia_smi_does_not_hang_the_probe(connect: Connect, tmp_path: Path) -> None:
    facts = connect(env=tool(tmp_path, "sleep 600")).call("probe", environment=None, paths=[])
    assert facts["nvidia_smi"]["timed_out"]
    assert facts["nvidia_smi"]["xml"] is None
    assert facts["cpu"]["threads"] >= 1


def test_a_model_folder_is_described(client: Client, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 2, "scale": Infinity}')
    (tmp_path / "model.safetensors").write_bytes(b"x" * 10)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 10}}))
    (tmp_path / "gone.bin").symlink_to("/nowhere")
    found = client.call("read_model", path=str(tmp_path))
    assert found["config"] == {"num_hidden_layers": 2, "scale": "Infinity"}
    assert (found["index_total_size"], found["generation_config"], found["config_error"]) == (10, False, None)
    sizes = {file["name"]: file["size"] for file in found["files"]}
    assert (sizes["model.safetensors"], sizes["gone.bin"]) == (10, None)
    assert "state" not in sizes


def test_a_broken_config_is_reported_beside_the_files(client: Client, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    found = client.call("read_model", path=str(tmp_path))
    assert found["config"] is None
    assert found["config_error"]


def test_a_missing_model_names_the_deepest_folder_there_is(client: Client, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="PATH_MISSING") as caught:
        client.call("read_model", path=str(tmp_path / "models" / "qwen"))
    assert caught.value.detail == {"parent": str(tmp_path)}


def test_a_file_is_no_model_folder(client: Client, tmp_path: Path) -> None:
    (tmp_path / "model").write_text("")
    with pytest.raises(Refused, match="NOT_A_FOLDER"):
        client.call("read_model", path=str(tmp_path / "model"))


@needs_root
def test_a_model_that_may_not_be_read_says_so(connect: Connect, home: Path) -> None:
    (home / "model").mkdir(mode=0o700)
    with pytest.raises(Refused, match="PERMISSION"):
        connect(**nobody(home)).call("read_model", path=str(home / "model"))
