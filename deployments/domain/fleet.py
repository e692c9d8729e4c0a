"""The fleet as planning sees it: machines with devices, equal ones together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .accelerators import Device, Offer, device_of_accelerator
from .specs import Accelerator, NodeView

# Free memory is looked at in steps, so that machines that differ by a few MiB are planned as one kind.
STEP_MIB = 256


@dataclass(frozen=True, slots=True)
class Machine:
    """A node that may be used: its free devices, most memory first.

    `held` says in words what is not free there and why. None = not known.
    """

    name: str
    devices: tuple[Device, ...]
    engine_version: str | None = None
    rdma: bool | None = None
    held: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pool:
    """Machines that are alike: the same free devices, of one kind, and the same engine."""

    devices: tuple[Device, ...]
    machines: tuple[str, ...]
    engine_version: str | None = None
    rdma: bool | None = None

    @property
    def name(self) -> str:
        return self.devices[0].name


@dataclass(frozen=True, slots=True)
class Fleet:
    """All machines, as pools of like ones, and what is known about memory that others hold."""

    pools: tuple[Pool, ...]
    held: tuple[str, ...] = ()


def fleet_of(machines: Iterable[Machine]) -> Fleet:
    """The fleet of these machines. A machine with several kinds of devices is in several pools."""
    groups: dict[tuple[tuple[Device, ...], str | None, bool | None], list[str]] = {}
    held: list[str] = []
    for machine in machines:
        held += machine.held
        for devices in _kinds(machine.devices):
            groups.setdefault((devices, machine.engine_version, machine.rdma), []).append(machine.name)
    return Fleet(tuple(Pool(key[0], tuple(names), *key[1:]) for key, names in groups.items()), tuple(held))


def _kinds(devices: Iterable[Device]) -> list[tuple[Device, ...]]:
    kinds: dict[tuple[str, int, str], list[Device]] = {}
    for device in devices:
        kinds.setdefault((device.name, device.memory_mib, device.platform), []).append(device)
    return [tuple(sorted(found, key=_left, reverse=True)) for found in kinds.values()]


def _left(device: Device) -> int:
    return device.usable_mib if device.free_mib is None else device.free_mib


def offered(offer: Offer, nodes: int) -> Fleet:
    """The fleet of `nodes` equal machines, as the command line names them."""
    names = tuple(f"node {number}" for number in range(1, nodes + 1))
    return Fleet((Pool((offer.device,) * offer.count, names),))


def machine_of(
    node: NodeView,
    free_mib: Mapping[str, int] | None = None,
    holders: Mapping[str, str] | None = None,
    rdma: bool | None = None,
) -> Machine:
    """A node of the panel.

    Args:
        node: Its view; accelerators with a claim are not in `free_accelerators` and so not planned with.
        free_mib: MiB that are free now, by UUID, from the newest sample; what is missing counts as free.
        holders: Who holds memory, in words, by UUID.
    """
    now, who = free_mib or {}, holders or {}
    found = [_device(slot, now.get(slot.uuid)) for slot in node.free_accelerators]
    held = tuple(f"{node.name}, accelerator {slot.index}: {who[slot.uuid]}" for slot in _known(node, who))
    return Machine(node.name, tuple(device for device in found if device is not None), node.engine_version, rdma, held)


def _known(node: NodeView, who: Mapping[str, str]) -> Iterable[Accelerator]:
    return (slot for slot in node.accelerators if slot.uuid in who)


def _device(slot: Accelerator, free_mib: int | None) -> Device | None:
    return device_of_accelerator(slot, None if free_mib is None else free_mib // STEP_MIB * STEP_MIB)
