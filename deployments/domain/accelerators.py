"""Known accelerators: what their driver reports, what is left of it for an engine, what joins them inside a node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .errors import InvalidInput
from .facts import MIB, capability_of
from .specs import Accelerator

GIB = 1024 * MIB
MIB_OF_GIB = 1024


@dataclass(frozen=True, slots=True)
class Device:
    """One kind of accelerator.

    Attributes:
        memory_mib: What the driver reports in all.
        reserved_mib: What the driver keeps of it, (low, likely, high); an engine sees the rest as the device's size.
        context_mib: What an engine's own context takes before it looks at what is free.
        link: What joins the accelerators of one node: `nvlink`, `pcie` or `memory`.
        free_mib: What is free now; None = all but what the driver keeps.
    """

    name: str
    memory_mib: int
    reserved_mib: tuple[int, int, int] = (0, 0, 0)
    context_mib: int = 0
    capability: str | None = None
    link: str = "pcie"
    platform: str = "cuda"
    free_mib: int | None = None

    @property
    def usable_mib(self) -> int:
        """The device's size as the engine sees it, likely."""
        return self.memory_mib - self.reserved_mib[1]


# Name as the driver writes it (a part of it is enough), reported MiB, link. Longer names come first.
KNOWN: tuple[tuple[str, int, str], ...] = (
    ("NVIDIA GB200", 189_471, "nvlink"),
    ("NVIDIA B200", 183_359, "nvlink"),
    ("NVIDIA H200 NVL", 143_771, "nvlink"),
    ("NVIDIA H200", 143_771, "nvlink"),
    ("NVIDIA GH200 480GB", 97_871, "nvlink"),
    ("NVIDIA H100 NVL", 95_830, "pcie"),
    ("NVIDIA H100 PCIe", 81_559, "pcie"),
    ("NVIDIA H100 80GB HBM3", 81_559, "nvlink"),
    ("NVIDIA H100", 81_559, "nvlink"),
    ("NVIDIA H800", 81_559, "nvlink"),
    ("NVIDIA H20", 97_871, "nvlink"),
    ("NVIDIA A100-SXM4-80GB", 81_920, "nvlink"),
    ("NVIDIA A100 80GB PCIe", 81_920, "pcie"),
    ("NVIDIA A100-SXM4-40GB", 40_960, "nvlink"),
    ("NVIDIA A100-PCIE-40GB", 40_960, "pcie"),
    ("NVIDIA A800-SXM4-80GB", 81_920, "nvlink"),
    ("NVIDIA A30", 24_576, "pcie"),
    ("NVIDIA A40", 46_068, "pcie"),
    ("NVIDIA A10G", 23_028, "pcie"),
    ("NVIDIA A10", 23_028, "pcie"),
    ("NVIDIA L40S", 46_068, "pcie"),
    ("NVIDIA L40", 46_068, "pcie"),
    ("NVIDIA L4", 23_034, "pcie"),
    ("NVIDIA RTX PRO 6000 Blackwell", 97_887, "pcie"),
    ("NVIDIA RTX 6000 Ada Generation", 49_140, "pcie"),
    ("NVIDIA RTX A6000", 49_140, "pcie"),
    ("NVIDIA GeForce RTX 5090", 32_607, "pcie"),
    ("NVIDIA GeForce RTX 4090", 24_564, "pcie"),
    ("NVIDIA GeForce RTX 3090", 24_576, "pcie"),
    ("NVIDIA GeForce RTX 3060", 12_288, "pcie"),
    ("Tesla V100-SXM2-32GB", 32_768, "nvlink"),
    ("Tesla V100-SXM2-16GB", 16_384, "nvlink"),
    ("Tesla T4", 15_360, "pcie"),
)
# What was read on real machines: MiB that the driver keeps, and that a context takes.
MEASURED: dict[str, tuple[int, int]] = {"NVIDIA H200": (615, 522)}
CONTEXT_MIB = 520


@dataclass(frozen=True, slots=True)
class Offer:
    """`count` accelerators of one kind on each node."""

    device: Device
    count: int


def parse_gpus(text: str) -> Offer:
    """`NVIDIA H200:8`, `H200`, `My GPU=48:2`: the accelerators of one node.

    Raises:
        InvalidInput: The text cannot be read, or names a GPU whose size is not known.
    """
    match = re.fullmatch(r"\s*([^=:]+?)\s*(?:=\s*(\d+(?:\.\d+)?)\s*(?:GiB)?\s*)?(?::\s*(\d+)\s*)?", text)
    if match is None:
        raise _wrong(f"{text!r} does not say which accelerators there are.")
    name, gib, count = match.group(1), match.group(2), int(match.group(3) or 1)
    if not 1 <= count <= 64:
        raise _wrong(f"{count} is not a number of accelerators that one node can have.")
    if gib is not None:
        if not 1 <= float(gib) <= 1024:
            raise _wrong(f"{gib} GiB is not a size that an accelerator can have.")
        return Offer(device_of(name, round(float(gib) * MIB_OF_GIB)), count)
    known = _known(name)
    if known is None:
        raise _wrong(f"The memory of {name!r} is not known.", f"Write {name}=GiB:{count}, with its size.")
    return Offer(device_of(known[0], known[1]), count)


def _wrong(message: str, remedy: str = 'Write NAME:COUNT or NAME=GiB:COUNT, such as "NVIDIA H200:8".') -> InvalidInput:
    return InvalidInput(message, remedy=remedy, field="gpus")


def _known(name: str) -> tuple[str, int, str] | None:
    """The known accelerator whose name this is, or is the plain part of."""
    wanted = _plain(name)
    exact = next((entry for entry in KNOWN if _plain(entry[0]) == wanted), None)
    words = wanted.split()
    found = [entry for entry in KNOWN if all(word in _plain(entry[0]).split() for word in words)]
    return exact or (found[-1] if found else None)


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]+", " ", name.lower().replace("nvidia", "").replace("geforce", "")).strip()


def device_of(name: str, memory_mib: int, platform: str = "cuda", capability: str | None = None) -> Device:
    """A device of this name and size; what is not known about it is taken wide."""
    if platform != "cuda":
        return Device(name, memory_mib, link="memory", platform=platform)
    known = next((entry for entry in KNOWN if _plain(entry[0]) in _plain(name)), None)
    kept, context = MEASURED.get(known[0] if known else "", (None, CONTEXT_MIB))
    # What is read from cards of 16 to 180 GiB lies around a third of a GiB and a little of the size.
    likely = 340 + memory_mib // 450
    reserved = (kept, kept, kept) if kept is not None else (likely // 2, likely, 2 * likely)
    return Device(
        name, memory_mib, reserved, context, capability or capability_of(name), known[2] if known else "pcie", platform
    )


def device_of_accelerator(slot: Accelerator, free_mib: int | None = None) -> Device | None:
    """The device that a node's slot is; None = its size is not known."""
    if slot.memory_mib is None:
        return None
    device = device_of(slot.name, slot.memory_mib, slot.platform, slot.compute_capability)
    return replace(device, free_mib=free_mib, link="pcie" if slot.mig else device.link)


def weakest(devices: Sequence[Device]) -> Device:
    """The device by which a group of ranks is measured: the smallest, or the one with the least free."""
    return min(devices, key=lambda device: (device.free_mib or device.usable_mib, device.usable_mib))
