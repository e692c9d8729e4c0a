"""What one report says about hardware and engines, as the node helper sends it: the wire's shapes, nothing derived.

Missing is None, never 0. Memory is in bytes, rates are per second, times are seconds of the node's clock.

What is more or larger than any machine has is no telemetry: a node that goes wrong must not cost everybody's pages
their time, nor leave sums that are infinite from then on.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Number = Annotated[float, Meta(ge=-1e18, le=1e18)]
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Text = Annotated[str, Meta(max_length=4096)]
Few = Meta(max_length=256)
Many = Meta(max_length=1024)
# Of all GPUs of a node together, and of all its engines together.
MOST_GPU_PROCESSES, MOST_SERIES = 4096, 16_384


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who holds memory of a GPU. `process` is the id of one of ours; else user and command tell who it is."""

    pid: Whole
    memory: Whole | None = None
    user: Text | None = None
    command: Text | None = None
    process: Text | None = None


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, or one MIG instance (`parent` is then its GPU's uuid).

    Attributes:
        index: Place in PCI bus order, as the probe counts.
        unified: CPU and GPU share one memory, so the totals are the host's.
        utilization, memory_utilization: Percent of the last sample period.
        throttle: Names of what holds the clocks down now, such as `sw_power_cap`; empty = nothing, None = not said.
        lost: Why this GPU cannot be read; everything else is then None.
    """

    uuid: Text
    index: int
    name: Text | None = None
    bus_id: Text | None = None
    parent: Text | None = None
    mig: bool = False
    unified: bool = False
    memory_total: Whole | None = None
    memory_used: Whole | None = None
    memory_reserved: Whole | None = None
    utilization: Number | None = None
    memory_utilization: Number | None = None
    power_w: Number | None = None
    power_limit_w: Number | None = None
    temperature_c: Number | None = None
    memory_temperature_c: Number | None = None
    sm_clock_mhz: Number | None = None
    sm_clock_max_mhz: Number | None = None
    memory_clock_mhz: Number | None = None
    throttle: Annotated[tuple[Text, ...], Few] | None = None
    processes: Annotated[tuple[GpuProcess, ...], Many] | None = None
    lost: Text | None = None


class Gpus(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of a node that has an NVIDIA driver.

    Attributes:
        source: `nvml` or `nvidia-smi`.
        at: When they were read; older than `Report.at` while a query is outstanding.
        problem: A code, None = all is well: DRIVER_BLOCKED (a query hangs), GPU_LOST, NVML_FAILED, SMI_FAILED.
        message: What was said about it.
        devices: In PCI bus order; identities stay, figures are None, while they cannot be read.
    """

    source: Text
    at: Number | None = None
    problem: Text | None = None
    message: Text | None = None
    devices: Annotated[tuple[Gpu, ...], Few] = ()


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """One block device. `busy` is the percent of the time that it had work."""

    name: Text
    read_bps: Number | None = None
    write_bps: Number | None = None
    busy: Number | None = None


class Filesystem(msgspec.Struct, frozen=True, kw_only=True):
    mount: Text
    size: Whole | None = None
    free: Whole | None = None


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """One interface. Errors are counts since boot, drops with them."""

    name: Text
    rx_bps: Number | None = None
    tx_bps: Number | None = None
    errors: Whole | None = None
    speed_mbps: Number | None = None


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """`cpu` is percent of all cores together; rates are None in the first report of a stream."""

    load: Annotated[tuple[Number, ...], Few] | None = None
    cores: Whole | None = None
    cpu: Number | None = None
    memory_total: Whole | None = None
    memory_available: Whole | None = None
    swap_total: Whole | None = None
    swap_free: Whole | None = None
    swap_in_bps: Number | None = None
    swap_out_bps: Number | None = None
    disks: Annotated[tuple[Disk, ...], Many] | None = None
    filesystems: Annotated[tuple[Filesystem, ...], Many] | None = None
    networks: Annotated[tuple[Network, ...], Many] | None = None
    oom_kills: Whole | None = None


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of an engine's `/metrics`: labels without `le` and `model_name`; a histogram has buckets and sum.

    Attributes:
        value: A gauge's or counter's value, a histogram's count.
        buckets: (upper bound, cumulative count), the last bound None for +Inf; None for what is no histogram.
    """

    labels: Annotated[dict[Text, Text], Few] = {}
    value: Number | None = None
    sum: Number | None = None
    buckets: Annotated[tuple[tuple[Number | None, Number], ...], Few] | None = None


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """The wanted part of one engine's `/metrics`, by exposed name (a histogram's without suffix)."""

    at: Number | None = None
    error: Text | None = None
    series: Annotated[dict[Text, Annotated[tuple[Series, ...], Many]], Few] = {}


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a report's process entry that figures are made of."""

    alive: bool = False
    metrics: Metrics | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a report that figures are made of. `gpu` is None on a machine without an NVIDIA driver."""

    at: Number
    boot_id: Text | None = None
    host: Host | None = None
    gpu: Gpus | None = None
    processes: Annotated[dict[Text, Process], Many] = {}


def read_sample(report: dict[str, Any]) -> Sample:
    """The telemetry of a report.

    Raises:
        msgspec.ValidationError: The node sent something else; the message names where.
    """
    sample = msgspec.convert(report, Sample)
    devices = sample.gpu.devices if sample.gpu is not None else ()
    if sum(len(gpu.processes or ()) for gpu in devices) > MOST_GPU_PROCESSES:
        raise msgspec.ValidationError(f"Expected at most {MOST_GPU_PROCESSES} processes on GPUs - at `$.gpu`")
    metrics = [process.metrics for process in sample.processes.values() if process.metrics is not None]
    if sum(len(series) for one in metrics for series in one.series.values()) > MOST_SERIES:
        raise msgspec.ValidationError(f"Expected at most {MOST_SERIES} series of engines - at `$.processes`")
    return sample
