"""Long work on real machines: environments from wheels, many probes at once, fingerprints of model files."""

from __future__ import annotations

import io
import tarfile
import textwrap
import zipfile
from pathlib import Path

import pytest

from tests.lab import fake_engine
from tests.lab.host import Host
from tests.lab.panel import until
from tests.lab.spec import HostSpec

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


def put_wheel(folder: Path, name: str, version: str, files: dict[str, str], *, requires: str = "") -> None:
    """A wheel of plain files and scripts."""
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            wheel.writestr(entry, text)


def put_vllm(folder: Path, version: str = "0.32.0") -> None:
    program = fake_engine.PROGRAM.read_text().replace("#!/usr/bin/env python3", "#!python", 1)
    put_wheel(folder, "vllm", version, {f"vllm-{version}.data/scripts/vllm": program})


def put_slow_source(folder: Path, version: str = "0.32.0") -> None:
    """A source package of the same name whose build does not end by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    backend = textwrap.dedent(
        """
        import subprocess
        def get_requires_for_build_wheel(config_settings=None): return []
        def prepare_metadata_for_build_wheel(*args, **kwargs): subprocess.run(["sleep", "31337"])
        def build_wheel(*args, **kwargs): subprocess.run(["sleep", "31337"])
        """
    )
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "slow"\nbackend-path = ["."]\n',
        "slow.py": backend,
    }
    with tarfile.open(folder / f"vllm-{version}.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"vllm-{version}/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))


def install(panel, host: Host, path: str, links: str) -> str:
    """Start an install job; its id."""
    job = panel.start_job("install_environment", [host.name], path=path, packages=["vllm==0.32.0"], find_links=links)
    return job["id"]


def log_of(panel, job: str) -> str:
    return "".join(row["data"] for row in panel.api("GET", f"/jobs/{job}/log"))


@pytest.fixture(scope="module")
def host(module_lab, panel) -> Host:
    [host] = module_lab(1).hosts
    panel.add_hosts([host])
    panel.add_layout("single", "single")
    return host


def test_an_environment_is_installed_from_wheels_and_then_serves(panel, host):
    put_vllm(host.path("/home/wheels"))
    fake_engine.put_model(host)
    panel.add_model("toy", "/home/model", nodes=[host.name])
    wish = {"model": "toy", "layout": "single", "nodes": [host.name]}
    problems = panel.api("POST", "/deployments/preview", {"name": "early", **wish})["problems"]
    assert [(p["code"], p["node"]) for p in problems if p["severity"] == "error"] == [("ENGINE_MISSING", host.name)]

    job = panel.wait_job(install(panel, host, "/home/installed", "/home/wheels"), timeout=180)
    assert job["state"] == "SUCCEEDED", (job["steps"], log_of(panel, job["id"]))
    [step] = job["steps"]
    assert step["progress"] == job["progress"] == 100
    assert "vllm 0.32.0" in step["note"]
    assert "Successfully installed vllm-0.32.0" in log_of(panel, job["id"])
    assert panel.node(host.name)["environment"] == "/home/installed"

    panel.deploy("toy", **wish)
    panel.wait_deployment("toy", "READY")
    panel.stop_deployment("toy")


def test_an_install_that_is_cancelled_leaves_nothing_running_and_can_be_retried(panel, host):
    put_slow_source(host.path("/home/links"))
    job = install(panel, host, "/home/again", "/home/links")
    until(lambda: sleepers(host), 120, lambda: f"the slow step does not come: {log_of(panel, job)}")
    running = panel.wait(f"/jobs/{job}", lambda row: row["steps"][0]["progress"] > 0)
    assert (running["state"], running["progress"] < 100) == ("RUNNING", True)
    panel.api("POST", f"/jobs/{job}/cancel")
    over = panel.wait_job(job)
    assert over["state"] == over["steps"][0]["state"] == "CANCELLED"
    assert over["cancel_requested_by"]
    assert sleepers(host) == []

    put_vllm(host.path("/home/links"))
    again = panel.api("POST", f"/jobs/{job}/retry")
    assert again["retry_of"] == job
    done = panel.wait_job(again["id"], timeout=180)
    assert done["state"] == "SUCCEEDED", log_of(panel, again["id"])


def sleepers(host: Host) -> list[int]:
    """The slow step and whatever is around it."""
    return [p.pid for p in host.processes() if "31337" in p.command or "/home/again/" in p.command]


def test_an_install_that_fails_says_why_in_pips_words(panel, host):
    host.path("/home/empty").mkdir()
    job = panel.wait_job(install(panel, host, "/home/never", "/home/empty"), timeout=180)
    assert job["state"] == "FAILED"
    error = job["steps"][0]["error"]
    assert (error["code"], error["node"]) == ("JOB_FAILED", host.name)
    assert "No matching distribution found for vllm==0.32.0" in error["message"]
    assert error["remedy"]


def test_many_machines_are_probed_at_once_and_their_model_files_are_compared(panel, module_lab):
    names = [f"m{number}" for number in range(8)]
    lab = module_lab(len(names), specs=[HostSpec(name=name) for name in names])
    for number, host in enumerate(lab.hosts):
        fake_engine.install(host)
        fake_engine.put_model(host, weights=(b"other" if number == 5 else b"same") * 1000)
    panel.add_hosts(lab.hosts, "/home/engine")
    job = panel.wait_job(panel.api("POST", "/nodes/probe", {"nodes": names})["id"], timeout=120)
    assert {step["node"]: step["state"] for step in job["steps"]} == dict.fromkeys(names, "SUCCEEDED")
    for name in names:
        assert panel.node(name)["facts"]["environment"]["packages"]["vllm"] == fake_engine.VERSION

    panel.add_model("copies", "/home/model", nodes=names)
    job = panel.wait_job(panel.api("POST", "/models/copies/fingerprint", {"nodes": []})["id"], timeout=120)
    assert job["state"] == "SUCCEEDED", job
    prints = {copy["node"]: copy["fingerprint"] for copy in panel.api("GET", "/models/copies")["copies"]}
    assert all(prints.values())
    assert {name for name, value in prints.items() if value != prints["m0"]} == {"m5"}
