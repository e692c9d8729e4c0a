"""GPU figures for reports, taken by one thread that reports never wait for.

The driver may hang, and a thread inside it cannot be freed. Then reports go on and say so, without the last figures:
those would pass for current ones. When the driver answers again, so does this.
"""

import threading
import time

from . import inventory
from .later import Later
from .owners import Owners

traceback = Later("traceback")

# An answer that takes longer than this is none.
BLOCKED_S = 5.0
# A reading is taken so long before the report that carries it.
_LEAD_S = 0.03
# What NVML refused once it may allow later: a driver can be loaded again.
_RETRY_S = 60.0


class Sampler:
    """The newest figures of this machine's GPUs, one reading for each report that carries them.

    Args:
        provided: {"pynvml": source} once the panel has sent it.
    """

    def __init__(self, provided):
        self._reading = Reading(provided)
        self._newest = None
        self._since = None
        self._due = 0.0
        self._asked = threading.Event()
        self._thread = None

    def newest(self, processes, interval_s):
        """The `gpu` part of a report, and an order for the next reading.

        Args:
            processes: The `processes` part of the same report: its members are told as ours.
            interval_s: When the next report is due.
        """
        self._due = time.monotonic() + interval_s - _LEAD_S
        self._asked.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpu", daemon=True)
            self._thread.start()
        return _marked(self._current(), processes)

    def _current(self):
        since, sample = self._since, self._newest or self._reading.nothing()
        if since is None or time.monotonic() - since <= BLOCKED_S:
            return sample
        message = "The GPU driver has not answered for %d s." % (time.monotonic() - since)
        return blocked(sample, message)

    def _run(self):
        self._take()
        while True:
            self._asked.wait()
            self._asked.clear()
            pause = max(self._due, self._reading.not_before) - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            self._take()

    def _take(self):
        self._since = time.monotonic()
        self._newest = self._reading.take()
        self._since = None


def blocked(sample, message):
    """A sample without figures: only which GPUs there are stays true while nothing can be read."""
    devices = [inventory.blank(device, device["lost"]) for device in sample["devices"]]
    return dict(sample, problem="DRIVER_BLOCKED", message=message, devices=devices)


def _marked(sample, processes):
    ours = {member["pid"]: name for name, entry in processes.items() for member in entry["members"]}
    for device in sample["devices"]:
        for holder in device["processes"] or ():
            holder["process"] = ours.get(holder["pid"])
    return sample


class Reading:
    """Reads from NVML, and where that cannot be used, from nvidia-smi."""

    def __init__(self, provided):
        self.not_before = 0.0
        self._provided = provided
        self._nvml = None
        self._retry_at = 0.0
        # Why NVML is not used.
        self._words = None
        self._smi = None
        self._inventory = inventory.Inventory()
        self._owners = Owners()

    @staticmethod
    def nothing():
        """What there is before the first reading."""
        return dict(_sample("nvml", None, []), at=None)

    def take(self):
        """One sample, without who is ours; whatever goes wrong is in it."""
        try:
            return self._from_nvml() or self._from_smi()
        except Exception:
            return self._failed("nvml", "NVML_FAILED", "Reading the GPUs failed: " + traceback.format_exc()[-1000:])

    def _from_nvml(self):
        stuck = self._smi is not None and self._smi.stuck()
        if stuck or (self._nvml is None and time.monotonic() < self._retry_at):
            return None
        from . import nvml

        try:
            if self._nvml is None:
                self._nvml = nvml.opened(self._provided)
            sample = self._complete("nvml", self._nvml.read())
            self.not_before = 0.0
            return sample
        except nvml.NvmlFailed as error:
            self._words = str(error)
            self._nvml = self._nvml and self._nvml.close()
            self._retry_at = time.monotonic() + _RETRY_S
            return None

    def _from_smi(self):
        from . import smi

        if self._smi is None:
            self._smi = smi.Smi()
        self.not_before = time.monotonic() + smi.PACE_S
        try:
            return self._complete("nvidia-smi", self._smi.read(), self._words)
        except smi.SmiMissing:
            return self._failed("nvml", "NVML_FAILED", self._words)
        except smi.SmiFailed as error:
            words = str(error) if error.code == "GPU_LOST" else " ".join(filter(None, (str(error), self._words)))
            return self._failed("nvidia-smi", error.code, words, error.lost)

    def _complete(self, source, found, message=None):
        devices = self._inventory.complete(found)
        self._owners.describe([holder for device in devices for holder in device["processes"] or ()])
        lost = [device for device in devices if device["lost"]]
        if lost:
            return _sample(source, "GPU_LOST", devices, " ".join(map(_lost_words, lost)))
        return _sample(source, None, devices, message)

    def _failed(self, source, problem, message, lost=None):
        return _sample(source, problem, self._inventory.blank(lost or {}), message)


def _lost_words(device):
    where = "at %s" % device["bus_id"] if device["bus_id"] else device["uuid"]
    return "GPU %s cannot be read: %s" % (where, device["lost"])


def _sample(source, problem, devices, message=None):
    return {"source": source, "at": time.time(), "problem": problem, "message": message, "devices": devices}
