"""Which GPUs a machine has, so that one that vanishes is missed and the others keep their places."""

import os
import re

from .paths import read_text

_BOUND = "/proc/driver/nvidia/gpus"

_IDENTITY = ("uuid", "index", "name", "bus_id", "parent", "mig", "unified", "memory_total")
_FIGURES = (
    "memory_used", "memory_reserved", "utilization", "memory_utilization", "power_w", "power_limit_w", "temperature_c",
    "memory_temperature_c", "sm_clock_mhz", "sm_clock_max_mhz", "memory_clock_mhz", "throttle", "processes", "lost",
)  # fmt: skip
_NOTHING = dict(dict.fromkeys(_IDENTITY + _FIGURES), mig=False, unified=False)
# A lost one may have question marks there.
_INFORMATION = {"name": r"^Model:\s*(\S.*)", "uuid": r"^GPU UUID:\s*(GPU-[0-9a-fA-F-]+)$"}
_GONE = "The driver does not list it any more."


def device(**known):
    """A GPU or MIG instance with what is known of it; all else is None."""
    return dict(_NOTHING, **known)


def blank(whole, lost=None):
    """Only which GPU it is."""
    return dict(_NOTHING, lost=lost, **{name: whole[name] for name in _IDENTITY})


def bus_id(text):
    """A PCI address as nvidia-smi writes it today: 00000000:BA:00.0."""
    domain, colon, rest = (text or "").strip().upper().partition(":")
    return domain.rjust(8, "0") + colon + rest if colon else None


class Inventory:
    """Remembers every GPU that was seen since it was made.

    Args:
        bound: The folder in which the driver lists what it was bound to at boot, lost or not.
    """

    def __init__(self, bound=_BOUND):
        self._bound = bound
        self._known = {}
        self._last = []

    def blank(self, lost):
        """All of the last reading, without figures.

        Args:
            lost: {bus id: why} of those that are known to be lost.
        """
        self._last = [blank(each, lost.get(each["bus_id"])) for each in self._last]
        have = {each["bus_id"] for each in self._last}
        new = [(_unnamed(device(bus_id=bus, lost=why)), []) for bus, why in lost.items() if bus not in have]
        return self._last + _placed(new, len(have))

    def complete(self, found):
        """What was read, in PCI bus order with places, and the GPUs that are missing.

        Args:
            found: (GPU, its MIG instances) pairs; a GPU that does not even tell its UUID has None for it and is lost.
        """
        self._guess([gpu for gpu, _ in found])
        found = [(self._recognised(gpu) if gpu["lost"] else gpu, instances) for gpu, instances in found]
        named = {gpu["uuid"]: (gpu, instances) for gpu, instances in found if gpu["uuid"] is not None}
        strange = [gpu for gpu, _ in found if gpu["uuid"] is None]
        for uuid, gpu in self._known.items():
            named.setdefault(uuid, (blank(gpu, _GONE), []))
        ordered = sorted(named.values(), key=lambda pair: pair[0]["bus_id"] or "")
        self._last = _placed(ordered + [(_unnamed(gpu, number), []) for number, gpu in enumerate(strange)])
        self._known = {gpu["uuid"]: gpu for gpu, _ in ordered}
        return self._last

    def _recognised(self, gpu):
        """A lost GPU as it was known before, by what it still tells or by its place on the bus."""
        for known in self._known.values():
            if gpu["uuid"] == known["uuid"] or (gpu["bus_id"] is not None and gpu["bus_id"] == known["bus_id"]):
                return blank(known, gpu["lost"])
        return blank(gpu, gpu["lost"])

    def _guess(self, gpus):
        """Lost GPUs that tell nothing must be those of the driver's list that are not among the others."""
        nameless = [gpu for gpu in gpus if gpu["uuid"] is None and gpu["bus_id"] is None]
        try:
            listed = sorted(os.listdir(self._bound)) if nameless else []
        except OSError:
            return
        found = {gpu["bus_id"] for gpu in gpus}
        missing = [place for place in listed if bus_id(place) not in found]
        while len(missing) == len(nameless) > 0:
            gpu, place = nameless.pop(), missing.pop()
            told = read_text(os.path.join(self._bound, place, "information")) or ""
            gpu.update(bus_id=bus_id(place), **{name: _told(pattern, told) for name, pattern in _INFORMATION.items()})


def _told(pattern, text):
    match = re.search(pattern, text, re.MULTILINE)
    return match and match.group(1)


def _unnamed(gpu, number=0):
    return dict(gpu, uuid="lost-%s" % (gpu["bus_id"] or number))


def _placed(pairs, first=0):
    placed = []
    for index, (gpu, instances) in enumerate(pairs, first):
        placed.append(dict(gpu, index=index))
        placed += [dict(each, index=index, parent=gpu["uuid"], bus_id=gpu["bus_id"]) for each in instances]
    return placed
