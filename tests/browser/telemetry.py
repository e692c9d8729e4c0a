"""What the demo's machines are doing: figures of every node, as the observer would keep them, the same at each run."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable

from django.core.cache import cache

from deployments.models import Accelerator, AcceleratorClaim, Node, Process
from monitoring.domain.figures import TREND_LENGTH, EngineFigures, NodeFigures, Quantiles, Trend, encode
from monitoring.domain.samples import Disk, Filesystem, Gpu, GpuProcess, Gpus, Host, Network

GIB = 1024**3
MIB = 1024**2


def hear() -> None:
    """Store fresh figures of all nodes; of one that is silent, those of when it was last heard."""
    held: dict[int, dict[str, Process]] = defaultdict(dict)
    for claim in AcceleratorClaim.objects.filter(released_at=None).select_related("process"):
        held[claim.node_id][claim.uuid] = claim.process
    nodes = list(Node.objects.exclude(facts={}).prefetch_related("accelerators"))
    now = time.time()
    known = {node.pk: figures(node, held[node.pk], _heard(node, now)) for node in nodes}
    cache.set_many({f"figures:{pk}": encode(known) for pk, known in known.items()}, 600)


def _heard(node: Node, now: float) -> float:
    return node.heard_at.timestamp() if node.state == "UNREACHABLE" and node.heard_at else now


def figures(node: Node, held: dict[str, Process], at: float) -> NodeFigures:
    slots = [slot for slot in node.accelerators.all() if slot.platform == "cuda"]
    devices = tuple(_gpu(node, slot, held.get(slot.uuid)) for slot in slots)
    cpu = wave(node.pk, 14, 9)
    return NodeFigures(
        node=node.pk,
        heard_at=at,
        host=_host(node, cpu(0)),
        gpu=Gpus(source="nvml", at=at, devices=devices) if devices else None,
        engines={str(process.pk): _engine(process, at) for process in set(held.values()) if process.state == "READY"},
        cpu_trend=trend(cpu),
        utilization_trends={gpu.uuid: trend(_use(gpu.index, held.get(gpu.uuid))) for gpu in devices},
        memory_trends={gpu.uuid: trend(lambda _x, gpu=gpu: _percent(gpu)) for gpu in devices},
    )


def wave(seed: float, middle: float, swing: float) -> Callable[[float], float]:
    """Something that goes up and down around a middle, another way for each seed."""
    return lambda x: max(
        0.0, middle + swing * (math.sin(x / 5 + seed) + 0.6 * math.sin(x / 1.7 + 3 * seed) + 0.3 * math.sin(7 * x))
    )


def trend(value: Callable[[float], float], gap: tuple[int, int] = (17, 21)) -> Trend:
    places = range(TREND_LENGTH - 1, -1, -1)
    return Trend(tuple(None if gap[0] <= place < gap[1] else round(value(place), 1) for place in places))


def _use(index: int, owner: Process | None) -> Callable[[float], float]:
    if owner is None:
        return lambda _x: 0.0
    middle = {"READY": 72.0, "STARTING": 24.0}.get(owner.state, 3.0)
    return lambda x: min(100.0, wave(index * 1.3, middle, middle / 4)(x))


def _gpu(node: Node, slot: Accelerator, owner: Process | None) -> Gpu:
    total = (slot.memory_mib or 0) * MIB
    if node.name == "atlas-03" and slot.index == 6:
        return Gpu(uuid=slot.uuid, index=6, name=slot.name, bus_id=_bus(slot), lost="GPU is lost (Xid 79)")
    foreign = node.name == "atlas-01" and slot.index in (4, 5)
    use = 97.0 if foreign else round(_use(slot.index, owner)(0))
    ours = {"READY": 0.89, "STARTING": 0.31}.get(owner.state, 0.0) if owner else 0.0
    processes = []
    if ours and owner:
        processes.append(GpuProcess(pid=4000 + slot.index, memory=int(total * ours), command="VLLM::Worker_TP0"))
        processes[0] = GpuProcess(**{**_plain(processes[0]), "process": str(owner.pk)})
    if foreign:
        command = "python3 train.py --config /home/eve/experiments/long-context/ablation-17.yaml --seed 4"
        processes.append(GpuProcess(pid=91_234, memory=61 * GIB, user="eve", command=command))
    busy = use / 100
    return Gpu(
        uuid=slot.uuid,
        index=slot.index,
        name=slot.name,
        bus_id=_bus(slot),
        memory_total=total,
        memory_used=sum(process.memory or 0 for process in processes),
        memory_reserved=616 * MIB,
        utilization=use,
        memory_utilization=round(use * 0.6),
        power_w=round(78 + 600 * busy, 1),
        power_limit_w=700.0,
        temperature_c=round(33 + 35 * busy),
        memory_temperature_c=round(38 + 42 * busy),
        sm_clock_mhz=1980.0 if use else 345.0,
        sm_clock_max_mhz=1980.0,
        memory_clock_mhz=3201.0,
        throttle=("sw_power_cap",) if use > 90 else ("gpu_idle",) if not use else (),
        processes=tuple(processes),
    )


def _plain(process: GpuProcess) -> dict[str, object]:
    return {name: getattr(process, name) for name in process.__struct_fields__}


def _bus(slot: Accelerator) -> str:
    return f"00000000:{0x18 + slot.index * 0x11:02X}:00.0"


def _percent(gpu: Gpu) -> float:
    return 100 * (gpu.memory_used or 0) / (gpu.memory_total or 1)


def _host(node: Node, cpu: float) -> Host:
    memory = (node.facts.get("memory") or {}).get("total") or 64 * GIB
    cores = (node.facts.get("cpu") or {}).get("cores") or 8
    return Host(
        load=(cores * cpu / 100, cores * cpu / 110, cores * cpu / 120),
        cores=cores,
        cpu=round(cpu, 1),
        memory_total=memory,
        memory_available=int(memory * 0.83),
        swap_total=8 * GIB,
        swap_free=8 * GIB - 350 * MIB,
        swap_in_bps=0.0,
        swap_out_bps=12_288.0,
        disks=(Disk(name="nvme0n1", read_bps=1.4e9, write_bps=2.2e6, busy=64.0), Disk(name="sda", read_bps=0.0)),
        filesystems=(
            Filesystem(mount="/", size=966 * 10**9, free=644 * 10**9),
            Filesystem(mount="/models", size=7_516 * 10**9, free=410 * 10**9),
        ),
        networks=(
            Network(name="eth0", rx_bps=1.2e6, tx_bps=3.4e6, errors=0, speed_mbps=25_000.0),
            Network(name="ib0", rx_bps=8.1e9, tx_bps=8.0e9, errors=2, speed_mbps=400_000.0),
        ),
        oom_kills=0,
    )


def _engine(process: Process, at: float) -> EngineFigures:
    seed = process.pk.int % 7
    generated = wave(seed, 1850, 320)
    return EngineFigures(
        at=at,
        running=31.0 + seed,
        waiting=4.0,
        kv_usage=0.634,
        prompt_rate=5230.0,
        generation_rate=generated(0),
        requests_rate=7.3,
        preemptions=0.0,
        prefix_hit_rate=0.48,
        ttft=Quantiles(0.184, 0.912),
        inter_token=Quantiles(0.0162, 0.0413),
        e2e=Quantiles(4.71, 18.3),
        generation_trend=trend(generated),
    )
