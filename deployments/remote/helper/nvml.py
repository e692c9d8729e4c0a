"""GPU figures from NVML, through a `pynvml` whose source came over the connection: nothing is installed on the node."""

import contextlib
import ctypes
import sys
import time
import types

from . import inventory, meminfo
from .inventory import device

# Where distributions and containers keep the library without telling the loader.
_LIBRARY = "libnvidia-ml.so.1"
_FOLDERS = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/lib64-nvidia", "/run/opengl-driver/lib")
# Instances come and go when somebody changes the partition.
_LIST_EVERY_S = 10.0
_UNINITIALIZED, _NOT_SUPPORTED, _NO_PERMISSION = 1, 3, 4
_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _OTHER_DRIVER = 9, 12, 18
_LOST = (15, 16, 28)  # it is lost, it needs a reset, it is not found
_WHOLE = (_UNINITIALIZED, _DRIVER_NOT_LOADED, _OTHER_DRIVER)
_CORE, _SM, _MEMORY_CLOCK, _MEMORY_TEMPERATURE = 0, 1, 2, 82
# Being idle is no obstacle, so its bit, the first, is left out.
_REASONS = {
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}
_HOLDERS = ("Compute", "Graphics", "MPSCompute")


class NvmlFailed(Exception):
    """NVML as a whole cannot be used now; the text says why."""


class _Lost(Exception):
    """This one GPU cannot be read."""


def opened(provided):
    """A ready Nvml.

    Args:
        provided: {"pynvml": source} from the panel; emptied when it was run.

    Raises:
        NvmlFailed: The panel sent no source, this Python cannot run it, or there is no driver behind it.
    """
    module = sys.modules.get("pynvml") or _load(provided)
    try:
        _start(module)
    except module.NVMLError as error:
        raise NvmlFailed("NVML cannot be used: %s." % error) from error
    return Nvml(module)


def _load(provided):
    source = provided.get("pynvml")
    if not source:
        raise NvmlFailed("The panel has no pynvml to send, so NVML cannot be used.")
    module = types.ModuleType("pynvml")
    # It looks itself up there while it runs.
    sys.modules["pynvml"] = module
    try:
        exec(compile(source, "pynvml.py", "exec"), module.__dict__)
    except Exception as error:
        del sys.modules["pynvml"]
        raise NvmlFailed("pynvml cannot be run here: %s: %s." % (type(error).__name__, error)) from error
    # It is a third of a megabyte.
    provided.clear()
    return module


def _start(module):
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        if error.value != _LIBRARY_NOT_FOUND or not _library_loaded():
            raise
        module.nvmlInit()


def _library_loaded():
    """Loads the library from where the loader does not look: then it is found by its name."""
    for folder in _FOLDERS:
        try:
            ctypes.CDLL("%s/%s" % (folder, _LIBRARY))
            return True
        except OSError:
            continue
    return False


class _Place:
    """One GPU as NVML counts them: its handle, what does not change, its MIG instances, or why it is lost."""

    def __init__(self, handle, known, instances=(), lost=None):
        self.handle = handle
        self.known = known
        self.instances = instances
        self.lost = lost


class Nvml:
    """Reads all GPUs through an initialised pynvml."""

    def __init__(self, module):
        self._nvml = module
        # By NVML's own numbers, which are not bus order.
        self._places = {}
        self._list_at = 0.0

    def close(self):
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def read(self):
        """(GPU, its MIG instances) pairs; a figure that the driver does not give is None.

        Raises:
            NvmlFailed: None can be read.
        """
        if time.monotonic() >= self._list_at or any(place.lost for place in self._places.values()):
            self._places = self._listed()
            self._list_at = time.monotonic() + _LIST_EVERY_S
        return [self._read(place) for place in self._places.values()]

    def _listed(self):
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            raise NvmlFailed("NVML does not count its GPUs: %s." % error) from error
        found = {number: self._place(number) for number in range(count)}
        return {number: place for number, place in found.items() if place is not None}

    def _place(self, number):
        """None for a GPU that is not given to us, which a container's driver counts all the same."""
        try:
            handle = self._handle(number)
            if handle is None:
                return None
            known = self._known(handle)
            return _Place(handle, known, self._instances(handle, known["name"]) if known["mig"] else ())
        except _Lost as error:
            before = self._places.get(number)
            return _Place(None, before.known if before else {"uuid": None}, lost=str(error))

    def _handle(self, number):
        try:
            return self._nvml.nvmlDeviceGetHandleByIndex(number)
        except self._nvml.NVMLError as error:
            self._fail_if_all(error)
            if error.value == _NO_PERMISSION:
                return None
            raise _Lost("%s." % error) from error

    def _known(self, handle):
        pci = self._call("nvmlDeviceGetPciInfo", handle)
        mode = self._call("nvmlDeviceGetMigMode", handle)
        uuid = _text(self._call("nvmlDeviceGetUUID", handle))
        if uuid is None:
            raise _Lost("It does not tell its UUID.")
        return {
            "uuid": uuid,
            "name": _text(self._call("nvmlDeviceGetName", handle)),
            "bus_id": inventory.bus_id(_text(pci and pci.busId)),
            "mig": bool(mode and mode[0]),
            "sm_clock_max_mhz": self._call("nvmlDeviceGetMaxClockInfo", handle, _SM),
        }

    def _instances(self, handle, name):
        found = []
        for number in range(self._call("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            # Places without an instance are the rule.
            instance = self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            uuid = _text(instance and self._call("nvmlDeviceGetUUID", instance))
            if uuid:
                name = _text(self._call("nvmlDeviceGetName", instance)) or name
                found.append(_Place(instance, {"uuid": uuid, "name": name, "mig": True}))
        return found

    def _read(self, place):
        try:
            if place.lost:
                raise _Lost(place.lost)
            found = device(**place.known, **self._figures(place.handle, place.known["mig"]))
            return found, [device(**each.known, **self._instance(each.handle)) for each in place.instances]
        except _Lost as error:
            place.lost = str(error)
            return device(**dict(place.known, lost=place.lost)), []

    def _figures(self, handle, mig):
        call = self._call
        rates = call("nvmlDeviceGetUtilizationRates", handle)
        # A partitioned GPU's processes are its instances'.
        holders = None if mig else self._processes(handle)
        return {
            **self._memory(handle, holders, mig),
            "utilization": rates and rates.gpu,
            "memory_utilization": rates and rates.memory,
            "power_w": _thousandth(call("nvmlDeviceGetPowerUsage", handle)),
            "power_limit_w": _thousandth(call("nvmlDeviceGetEnforcedPowerLimit", handle)),
            "temperature_c": call("nvmlDeviceGetTemperature", handle, _CORE),
            "memory_temperature_c": self._memory_temperature(handle),
            "sm_clock_mhz": call("nvmlDeviceGetClockInfo", handle, _SM),
            "memory_clock_mhz": call("nvmlDeviceGetClockInfo", handle, _MEMORY_CLOCK),
            "throttle": self._throttle(handle),
            "processes": holders,
        }

    def _instance(self, handle):
        """The whole GPU has clocks, power and temperature; an instance has memory and processes of its own."""
        holders = self._processes(handle)
        rates = self._call("nvmlDeviceGetUtilizationRates", handle)
        return {
            **self._memory(handle, holders, True),
            "utilization": rates and rates.gpu,
            "memory_utilization": rates and rates.memory,
            "processes": holders,
        }

    def _memory(self, handle, holders, mig):
        version = getattr(self._nvml, "nvmlMemory_v2", None)
        # The second version tells what the driver keeps for itself apart from what is used.
        info = version and self._call("nvmlDeviceGetMemoryInfo", handle, version)
        if info:
            return {"memory_total": info.total, "memory_used": info.used, "memory_reserved": info.reserved}
        try:
            info = self._nvml.nvmlDeviceGetMemoryInfo(handle)
            return {"memory_total": info.total, "memory_used": info.used}
        except self._nvml.NVMLError as error:
            self._raise_if_lost(error)
            shared = error.value == _NOT_SUPPORTED and not mig
            return meminfo.unified(holders) if shared else {}

    def _memory_temperature(self, handle):
        values = self._call("nvmlDeviceGetFieldValues", handle, [_MEMORY_TEMPERATURE])
        return values[0].value.uiVal if values and values[0].nvmlReturn == 0 else None

    def _throttle(self, handle):
        bits = self._call("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:
            bits = self._call("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return None if bits is None else [name for bit, name in _REASONS.items() if bits & bit]

    def _processes(self, handle):
        """Everybody with memory on it, once each; None when no kind of them is told."""
        found = {}
        told = [self._holders(kind, handle) for kind in _HOLDERS]
        for holder in (each for some in told for each in some or ()):
            memory = holder.usedGpuMemory
            known = found.setdefault(holder.pid, {"pid": holder.pid, "memory": memory})
            if memory is not None and (known["memory"] or 0) < memory:
                known["memory"] = memory
        return None if all(some is None for some in told) else [found[pid] for pid in sorted(found)]

    def _holders(self, kind, handle):
        name = "nvmlDeviceGet%sRunningProcesses" % kind
        found = self._call(name, handle)
        # Drivers older than the third version of this call have the second.
        return self._call(name + "_v2", handle) if found is None else found

    def _call(self, name, *args):
        """What NVML says, None for whatever it does not say about this GPU."""
        try:
            return getattr(self._nvml, name)(*args)
        except self._nvml.NVMLError as error:
            self._raise_if_lost(error)
        except (AttributeError, UnicodeDecodeError, getattr(self._nvml, "NVMLLibraryMismatchError", AttributeError)):
            pass
        return None

    def _raise_if_lost(self, error):
        self._fail_if_all(error)
        if error.value in _LOST:
            raise _Lost("%s." % error) from error

    def _fail_if_all(self, error):
        if error.value in _WHOLE:
            raise NvmlFailed("NVML cannot be used: %s." % error) from error


def _text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _thousandth(value):
    return None if value is None else value / 1000.0
