"""Modules that travel to nodes: pynvml reaches a helper that wants it, and nothing else reaches anybody."""

from __future__ import annotations

import sys

import pytest

from deployments.remote import local
from deployments.remote.launcher import NodeTarget
from deployments.remote.node_launcher import NodeLauncher
from deployments.remote.provisions import provisions
from tests.integration.remote.sshd import INSTALLATION

TARGET = NodeTarget(1, "here", INSTALLATION)


@pytest.fixture
def launcher(tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTHOUSE_STATE_ROOT", str(tmp_path / "state"))
    launcher = NodeLauncher()
    yield launcher
    launcher.close()


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A machine that shows signs of an NVIDIA driver."""
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'; exit 6\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setattr(local, "_PATH", f"{tmp_path}:{local._PATH}")


async def first_gpu(launcher: NodeLauncher, **wanted) -> dict | None:
    stream = launcher.watch(TARGET, 0.2, **wanted)
    try:
        async for report in stream:
            gpu = report.get("gpu")
            if gpu is None or gpu["at"] is not None:
                return gpu
    finally:
        await stream.aclose()


async def test_a_watched_node_with_a_driver_runs_the_panels_pynvml(launcher, nvidia_smi):
    gpu = await first_gpu(launcher, gpu=True)
    if gpu["source"] == "nvml" and gpu["problem"] is None:
        return
    # The words are pynvml's own: it arrived, and was run.
    assert "NVML cannot be used: NVML Shared Library Not Found." in gpu["message"]
    assert "pynvml" not in sys.modules, "and was not run here"


async def test_figures_that_nobody_asked_for_cost_nothing(launcher, nvidia_smi):
    assert await first_gpu(launcher) is None


def test_only_what_is_offered_is_sent():
    assert set(provisions({"wants": ["pynvml", "settings", "os"]})) == {"pynvml"}


@pytest.mark.parametrize("wants", [None, 7, "pynvml", [7, None, {}], {"pynvml": 1}, []])
def test_what_is_no_list_of_names_gets_nothing(wants):
    assert provisions({"wants": wants}) == {}
