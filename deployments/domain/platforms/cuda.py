"""NVIDIA GPUs and MIG instances."""

from __future__ import annotations

from ..plugins import Platform, RenderContext
from ..specs import Assignment


def _args(context: RenderContext, seat: Assignment) -> tuple[str, ...]:
    return ()


def _env(context: RenderContext, seat: Assignment) -> dict[str, str]:
    # Index in PCI bus order is what every vLLM version takes; a MIG instance has no index of its own, only a UUID.
    names = [slot.uuid if slot.mig else str(slot.index) for slot in seat.accelerators]
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(names)}
    interface = context.nodes[seat.node_id].interface
    return {**env, "NCCL_SOCKET_IFNAME": interface} if interface else env


PLATFORM = Platform(
    name="cuda",
    title="NVIDIA GPU",
    slot_word="GPU",
    memory_back="each GPU's used memory is back to what it was before the launch",
    args=_args,
    env=_env,
)
