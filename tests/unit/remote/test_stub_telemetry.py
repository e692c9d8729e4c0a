"""The figures of simulated machines: plausible, the same for the same moment, and wrong on demand."""

from __future__ import annotations

import msgspec
import pytest

from deployments.remote.launcher import StartRequest
from deployments.remote.stub_facts import cpu_host, h200_host
from deployments.remote.stub_metrics import COUNTERS, HISTOGRAMS
from deployments.remote.stub_node import StubNode
from deployments.remote.stub_telemetry import identities
from monitoring.domain.samples import Sample, Series, read_sample

NAMES = (*COUNTERS, *HISTOGRAMS, "vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:request_success_total")
PROBE = {"kind": "openai", "base_url": "http://10.0.0.2:8000", "model": "qwen"}


@pytest.fixture
def clock():
    return [1_800_000_000.0]


@pytest.fixture
def node(clock) -> StubNode:
    return StubNode(h200_host("gpu-1"), clock=lambda: clock[0])


def sample(node: StubNode) -> Sample:
    return read_sample(node.report(NAMES, gpu=True))


def start(node: StubNode, gpus: int) -> None:
    uuids = tuple(gpu["uuid"] for gpu in identities(node.facts["nvidia_smi"]["xml"])[:gpus])
    node.start(StartRequest("p1", "r1", 1, "engine", ("/opt/vllm/bin/vllm",), probe=PROBE, accelerators=uuids))


def series(node: StubNode, name: str) -> Series:
    metrics = sample(node).processes["p1"].metrics
    assert metrics is not None
    return metrics.series[name][0]


def test_idle_gpus_are_quiet(node):
    gpu = sample(node).gpu
    assert gpu is not None
    assert [device.index for device in gpu.devices] == list(range(8))
    assert {(device.utilization, device.memory_used, device.processes) for device in gpu.devices} == {(0, 0, ())}


def test_an_engine_is_seen_on_its_gpus_only(node):
    start(node, gpus=2)
    sample(node)
    devices = sample(node).gpu.devices
    assert [[holder.process for holder in device.processes] for device in devices] == [["p1"]] * 2 + [[]] * 6
    assert all(device.utilization > 10 and device.memory_used > device.memory_total / 2 for device in devices[:2])


def test_figures_move_and_are_the_same_for_the_same_moment(node, clock):
    start(node, gpus=8)
    assert node.report(NAMES, gpu=True) == node.report(NAMES, gpu=True)
    before = node.report(gpu=True)["gpu"]
    clock[0] += 5
    assert node.report(gpu=True)["gpu"] != before


@pytest.mark.parametrize("name", [*COUNTERS, *HISTOGRAMS])
def test_what_counts_never_goes_back(node, clock, name):
    start(node, gpus=1)
    last = series(node, name)
    for _ in range(120):
        clock[0] += 1
        now = series(node, name)
        assert now.value >= last.value
        assert all(new[1] >= old[1] for new, old in zip(now.buckets or (), last.buckets or (), strict=True))
        last = now
    assert last.value > 0
    assert all(low[1] <= high[1] for low, high in zip((last.buckets or ())[:-1], (last.buckets or ())[1:], strict=True))


def test_figures_come_only_when_they_are_asked_for(node):
    start(node, gpus=1)
    report = node.report(host=False)
    assert "gpu" not in report
    assert "host" not in report
    assert "metrics" not in report["processes"]["p1"]
    assert "host" in node.report()


def test_a_machine_without_nvidia_has_no_gpus(clock):
    found = sample(StubNode(cpu_host(), clock=lambda: clock[0]))
    assert found.gpu is None
    assert found.host.cores == 16


def test_a_blocked_driver_leaves_the_names(node):
    before = sample(node).gpu
    node.driver_blocked = True
    gpu = sample(node).gpu
    assert (gpu.problem, gpu.at) == ("DRIVER_BLOCKED", before.at)
    assert [(device.uuid, device.memory_total) for device in gpu.devices] == [
        (device.uuid, device.memory_total) for device in before.devices
    ]
    assert {device.utilization for device in gpu.devices} == {None}


def test_a_lost_gpu_leaves_the_others_readable(node):
    node.lost_gpu = 3
    gpu = sample(node).gpu
    assert gpu.problem == "GPU_LOST"
    assert [device.index for device in gpu.devices if device.lost] == [3]
    assert [device.index for device in gpu.devices if device.utilization is None] == [3]


def test_a_stranger_is_named(node):
    node.foreign = True
    (stranger,) = sample(node).gpu.devices[0].processes
    assert (stranger.user, stranger.process) == ("alice", None)


def test_garbage_is_no_sample(node):
    node.garbage = "telemetry"
    with pytest.raises(msgspec.ValidationError):
        sample(node)
