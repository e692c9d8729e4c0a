"""The figures of a simulated machine: they follow from the clock and from what runs there, and look like real ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .stub_facts import GIB, digits
from .stub_metrics import series
from .stub_process import StubProcess

if TYPE_CHECKING:
    from .stub_node import StubNode

MIB = 1024**2
IDLE_W, LIMIT_W = 76.0, 700.0
IDLE_MHZ, MAX_MHZ, MEMORY_MHZ = 345.0, 1980.0, 3201.0
DRIVER_BYTES = 616 * MIB
FOREIGN_BYTES = 8 * GIB
# An engine holds this share of a GPU once its weights and cache are there, which takes so long (s).
SHARE, LOADING_S = 0.9, 20.0
FOREIGN = {"pid": 3131, "memory": FOREIGN_BYTES, "user": "alice", "command": "python train.py", "process": None}
_GPU = re.compile(
    r"<product_name>(?P<name>.*?)</product_name>.*?<uuid>(?P<uuid>.*?)</uuid>.*?<pci_bus_id>(?P<bus>.*?)</pci_bus_id>"
    r".*?<total>(?P<total>\d+) MiB</total>",
    re.DOTALL,
)


class StubTelemetry:
    """Adds the figures of one node to its reports."""

    def __init__(self, node: StubNode) -> None:
        self._node = node
        self._xml: str | None = None
        self._gpus: list[dict[str, Any]] = []
        self._read_at: float | None = None

    def add(self, report: dict[str, Any], now: float, *, metrics: Sequence[str], gpu: bool, host: bool) -> None:
        """Puts the wanted parts into `report`, or rubbish instead where the node is told to send that."""
        live = [process for process in self._node.processes.values() if process.alive]
        if host:
            report["host"] = self._host(now, live)
        if gpu:
            report["gpu"] = self._gpu(now, live)
        if metrics:
            for name, entry in report["processes"].items():
                entry["metrics"] = self._metrics(self._node.processes.get(name), metrics, now)
        if self._node.garbage == "telemetry":
            report.update(gpu={"source": 7, "devices": "none"}, host={"cpu": "much"})
        elif self._node.garbage == "report":
            report["processes"] = ["what", 7, None]

    # The host.

    def _host(self, now: float, live: list[StubProcess]) -> dict[str, Any]:
        facts, name = self._node.facts, self._node.facts["hostname"]
        cores, total = facts["cpu"]["cores"], facts["memory"]["total"]
        cpu = min(99.0, 1.0 + 2.0 * wave(name, now, 40) + len(live) * (3.0 + 4.0 * wave(name, now, 17)))
        used = min(total // 2, total // 10 + len(live) * 6 * GIB + int(GIB * wave(name, now, 90)))
        traffic = (50e3 + len(live) * 40e6) * (0.5 + wave(name, now, 23))
        return {
            "load": [round(cpu / 100 * cores * share, 2) for share in (1.0, 0.95, 0.9)],
            "cores": cores,
            "cpu": round(cpu, 1),
            "memory_total": total,
            "memory_available": total - used,
            "swap_total": facts["memory"]["swap_total"],
            "swap_free": facts["memory"]["swap_free"],
            "swap_in_bps": 0.0,
            "swap_out_bps": 0.0,
            "disks": [
                {
                    "name": "nvme0n1",
                    "read_bps": round(1e6 * wave(name, now, 31)),
                    "write_bps": round(4e5 * wave(name, now, 13)),
                    "busy": round(3 * wave(name, now, 31), 1),
                }
            ],
            "filesystems": [{key: disk[key] for key in ("mount", "size", "free")} for disk in facts["disks"]],
            "networks": [
                {
                    "name": nic["name"],
                    "rx_bps": round(traffic),
                    "tx_bps": round(traffic * 0.8),
                    "errors": 0,
                    "speed_mbps": nic["speed_mbps"],
                }
                for nic in facts["nics"]
            ],
            "oom_kills": 0,
        }

    # Its GPUs.

    def _gpu(self, now: float, live: list[StubProcess]) -> dict[str, Any] | None:
        xml = self._node.facts["nvidia_smi"]["xml"]
        if xml != self._xml:
            self._xml, self._gpus = xml, identities(xml)
        if not self._gpus:
            return None
        blocked, lost = self._node.driver_blocked, self._node.lost_gpu
        if not blocked:
            self._read_at = now
        return {
            "source": "nvml",
            "at": self._read_at,
            "problem": "DRIVER_BLOCKED" if blocked else None if lost is None else "GPU_LOST",
            "message": "A query of the driver has not come back for 5 s." if blocked else None,
            "devices": [self._device(gpu, now, live) for gpu in self._gpus],
        }

    def _device(self, gpu: dict[str, Any], now: float, live: list[StubProcess]) -> dict[str, Any]:
        if gpu["index"] == self._node.lost_gpu:
            return {**gpu, **_NOTHING, "memory_total": None, "lost": "GPU is lost"}
        if self._node.driver_blocked:
            return {**gpu, **_NOTHING}
        holders = [_holder(process, gpu, now) for process in live if gpu["uuid"] in process.request.accelerators]
        if self._node.foreign and gpu["index"] == 0:
            holders.append(dict(FOREIGN))
        ready = any(p.completed_at is not None and gpu["uuid"] in p.request.accelerators for p in live)
        busy = 0.55 + 0.42 * wave(gpu["uuid"], now, 19) if ready or holders[-1:] == [FOREIGN] else 0.0
        return {
            **gpu,
            "memory_used": sum(holder["memory"] for holder in holders),
            "memory_reserved": DRIVER_BYTES,
            **_activity(gpu["uuid"], now, busy),
            "processes": holders,
        }

    @staticmethod
    def _metrics(process: StubProcess | None, names: Iterable[str], now: float) -> dict[str, Any] | None:
        if process is None or not process.alive or process.completed_at is None or process.health != 200:
            return None
        return {"at": now, "error": None, "series": series(process.request.process, now - process.completed_at, names)}


_NOTHING = dict.fromkeys(
    (
        *("memory_used", "memory_reserved", "utilization", "memory_utilization", "power_w", "power_limit_w"),
        *("temperature_c", "memory_temperature_c", "sm_clock_mhz", "sm_clock_max_mhz", "memory_clock_mhz"),
        *("throttle", "processes"),
    )
)


def identities(xml: str | None) -> list[dict[str, Any]]:
    """The part of each GPU's entry that never changes, from what `nvidia-smi -q -x` says."""
    return [
        {
            "uuid": found["uuid"],
            "index": index,
            "name": found["name"],
            "bus_id": found["bus"],
            "parent": None,
            "mig": False,
            "unified": False,
            "memory_total": int(found["total"]) * MIB,
            "lost": None,
        }
        for index, found in enumerate(_GPU.finditer(xml or ""))
    ]


def wave(seed: str, now: float, period_s: float) -> float:
    """From 0 to 1 and back within about `period_s` seconds; two seeds are never in step."""
    return 0.5 + 0.5 * math.sin(2 * math.pi * (now / period_s + phase(seed)))


_phases: dict[str, float] = {}


def phase(seed: str) -> float:
    """From 0 to 1, always the same for the same text."""
    if seed not in _phases:
        _phases[seed] = int(digits(seed, 8), 16) / 16**8
    return _phases[seed]


def _holder(process: StubProcess, gpu: dict[str, Any], now: float) -> dict[str, Any]:
    loaded = 1.0 if process.completed_at is not None else min(1.0, (now - process.started_at) / LOADING_S)
    memory = GIB // 2 + int((SHARE * gpu["memory_total"] - GIB // 2) * max(0.0, loaded))
    command = " ".join(process.request.argv) or process.request.role
    return {"pid": process.pid, "memory": memory, "user": None, "command": command, "process": process.request.process}


def _activity(seed: str, now: float, busy: float) -> dict[str, Any]:
    """What a GPU shows that computes `busy` (0 to 1) of the time. One that idles moves by a watt and a degree."""
    breath = wave(seed, now, 29)
    return {
        "utilization": round(100 * busy),
        "memory_utilization": round(62 * busy),
        "power_w": round(IDLE_W + 2 * breath + (LIMIT_W - IDLE_W - 8) * busy, 1),
        "power_limit_w": LIMIT_W,
        "temperature_c": round(31 + breath + 38 * busy),
        "memory_temperature_c": round(36 + breath + 44 * busy),
        "sm_clock_mhz": MAX_MHZ - round(90 * breath) if busy else IDLE_MHZ,
        "sm_clock_max_mhz": MAX_MHZ,
        "memory_clock_mhz": MEMORY_MHZ,
        "throttle": ["sw_power_cap"] if busy > 0.95 else [] if busy else ["gpu_idle"],
    }
