"""What one report says about hardware and engines, as the node helper sends it: the wire's shapes, nothing derived.

Missing is None, never 0. Memory is in bytes, rates are per second, times are seconds of the node's clock.
"""

from __future__ import annotations

from typing import Any

import msgspec


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who holds memory of a GPU. `process` is the id of one of ours; else user and command tell who it is."""

    pid: int
    memory: int | None = None
    user: str | None = None
    command: str | None = None
    process: str | None = None


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, or one MIG instance (`parent` is then its GPU's uuid).

    Attributes:
        index: Place in PCI bus order, as the probe counts.
        unified: CPU and GPU share one memory, so the totals are the host's.
        utilization, memory_utilization: Percent of the last sample period.
        throttle: Names of what holds the clocks down now, such as `sw_power_cap`; empty = nothing, None = not said.
        lost: Why this GPU cannot be read; everything else is then None.
    """

    uuid: str
    index: int
    name: str | None = None
    bus_id: str | None = None
    parent: str | None = None
    mig: bool = False
    unified: bool = False
    memory_total: int | None = None
    memory_used: int | None = None
    memory_reserved: int | None = None
    utilization: float | None = None
    memory_utilization: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle: tuple[str, ...] | None = None
    processes: tuple[GpuProcess, ...] | None = None
    lost: str | None = None


class Gpus(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of a node that has an NVIDIA driver.

    Attributes:
        source: `nvml` or `nvidia-smi`.
        at: When they were read; older than `Report.at` while a query is outstanding.
        problem: A code, None = all is well: DRIVER_BLOCKED (a query hangs), GPU_LOST, NVML_FAILED, SMI_FAILED.
        message: What was said about it.
        devices: In PCI bus order; identities stay, figures are None, while they cannot be read.
    """

    source: str
    at: float | None = None
    problem: str | None = None
    message: str | None = None
    devices: tuple[Gpu, ...] = ()


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """One block device. `busy` is the percent of the time that it had work."""

    name: str
    read_bps: float | None = None
    write_bps: float | None = None
    busy: float | None = None


class Filesystem(msgspec.Struct, frozen=True, kw_only=True):
    mount: str
    size: int | None = None
    free: int | None = None


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """One interface. Errors are counts since boot, drops with them."""

    name: str
    rx_bps: float | None = None
    tx_bps: float | None = None
    errors: int | None = None
    speed_mbps: float | None = None


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """`cpu` is percent of all cores together; rates are None in the first report of a stream."""

    load: tuple[float, ...] | None = None
    cores: int | None = None
    cpu: float | None = None
    memory_total: int | None = None
    memory_available: int | None = None
    swap_total: int | None = None
    swap_free: int | None = None
    swap_in_bps: float | None = None
    swap_out_bps: float | None = None
    disks: tuple[Disk, ...] | None = None
    filesystems: tuple[Filesystem, ...] | None = None
    networks: tuple[Network, ...] | None = None
    oom_kills: int | None = None


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of an engine's `/metrics`: labels without `le` and `model_name`; a histogram has buckets and sum.

    Attributes:
        value: A gauge's or counter's value, a histogram's count.
        buckets: (upper bound, cumulative count), the last bound None for +Inf; None for what is no histogram.
    """

    labels: dict[str, str] = {}
    value: float | None = None
    sum: float | None = None
    buckets: tuple[tuple[float | None, float], ...] | None = None


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """The wanted part of one engine's `/metrics`, by exposed name (a histogram's without suffix)."""

    at: float | None = None
    error: str | None = None
    series: dict[str, tuple[Series, ...]] = {}


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a report's process entry that figures are made of."""

    alive: bool = False
    metrics: Metrics | None = None


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a report that figures are made of. `gpu` is None on a machine without an NVIDIA driver."""

    at: float
    boot_id: str | None = None
    host: Host | None = None
    gpu: Gpus | None = None
    processes: dict[str, Process] = {}


def read_sample(report: dict[str, Any]) -> Sample:
    """The telemetry of a report.

    Raises:
        msgspec.ValidationError: The node sent something else; the message names where.
    """
    return msgspec.convert(report, Sample)
