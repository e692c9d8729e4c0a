"""GPU figures from `nvidia-smi -q -x`, for machines where NVML itself cannot be used."""

import contextlib
import os
import re
import signal

from . import inventory, meminfo, programs
from .inventory import device
from .later import Later

subprocess, etree = Later("subprocess"), Later("xml.etree.ElementTree")

# One call costs the driver many times what NVML costs.
PACE_S = 2.0
TIMEOUT_S = 5.0
_MIB = 1 << 20
_LOST_GPU = re.compile(r"Unable to determine the device handle for GPU\s*([0-9A-Fa-f:.]+?):?\s+(.*)")
_SAYS_NOTHING = {
    "", "n/a", "none", "err!", "not supported", "not available", "unknown error", "insufficient permissions",
    "gpu is lost", "gpu requires reset", "requested functionality has been deprecated",
}  # fmt: skip
_NOT_ITS_OWN = {"n/a", "not supported"}
_IDLE = "gpu_idle"


class SmiMissing(Exception):
    """There is no nvidia-smi."""


class SmiFailed(Exception):
    """It gave no figures. `code` is the problem; `lost` tells of GPUs that it named: {bus id: why}."""

    def __init__(self, code, message, lost=None):
        super().__init__(message)
        self.code = code
        self.lost = lost or {}


class Smi:
    """Asks nvidia-smi, one at a time: a second one would hang where the first one does."""

    def __init__(self):
        self._left = None

    def stuck(self):
        """Whether an earlier one still sits in the driver, where no signal reaches it."""
        return self._left is not None and self._left.poll() is None

    def read(self):
        """(GPU, its MIG instances) pairs; a figure that is not said is None.

        Raises:
            SmiMissing, SmiFailed: SMI_FAILED, GPU_LOST or DRIVER_BLOCKED.
        """
        path = programs.which("nvidia-smi")
        if path is None:
            raise SmiMissing
        if self.stuck():
            raise SmiFailed("DRIVER_BLOCKED", "An nvidia-smi (pid %d) hangs in the driver." % self._left.pid)
        code, out, err = self._run([path, "-q", "-x"])
        found = read_xml(out)
        if found:
            return found
        lost = {inventory.bus_id(match[1]): match[2].strip() for match in _LOST_GPU.finditer("%s\n%s" % (out, err))}
        said = (err.strip() or out.strip())[:500] or "ended with code %s and said nothing" % code
        if lost:
            raise SmiFailed("GPU_LOST", said, lost)
        raise SmiFailed("SMI_FAILED", "nvidia-smi: %s" % ("its answer cannot be read" if said[0] == "<" else said))

    def _run(self, argv):
        env = dict(os.environ, LC_ALL="C")
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=env, cwd="/", start_new_session=True
            )
        except OSError as error:
            raise SmiFailed("SMI_FAILED", "nvidia-smi cannot be run: %s" % error) from error
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self._kill(process)
            raise SmiFailed("DRIVER_BLOCKED", "nvidia-smi did not answer within %g s." % TIMEOUT_S) from error
        return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def _kill(self, process):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        for pipe in (process.stdout, process.stderr):
            pipe.close()
        self._left = process


def read_xml(text):
    """(GPU, its MIG instances) pairs of an `nvidia-smi -q -x` answer; [] when it is none."""
    # Without what is before it: warnings, and a document type that could only name entities.
    log = re.search(r"<nvidia_smi_log>.*</nvidia_smi_log>", text, re.DOTALL)
    if log is None:
        return []
    try:
        root = etree.fromstring(log.group(0))
    except etree.ParseError:
        return []
    return [_gpu(gpu) for gpu in root.findall("gpu")]


def _gpu(gpu):
    bus = inventory.bus_id(gpu.get("id"))
    if _text(gpu, "uuid") is None:
        return device(bus_id=bus, lost="%s." % (_said(gpu, "uuid").strip("[]") or "It does not tell its UUID")), []
    mig = _text(gpu, "mig_mode/current_mig") == "Enabled"
    holders = _processes(gpu)
    parts = _instances(gpu, holders) if mig else []
    known = {"uuid": _text(gpu, "uuid"), "name": _text(gpu, "product_name"), "bus_id": bus, "mig": mig}
    own = None if mig else _plain(holders)
    return device(processes=own, **known, **_memory(gpu, own, mig), **_figures(gpu)), parts


def _figures(gpu):
    power = "gpu_power_readings", "power_readings"
    return {
        "utilization": _number(gpu, "utilization/gpu_util"),
        "memory_utilization": _number(gpu, "utilization/memory_util"),
        "power_w": _first(gpu, power, ("average_power_draw", "power_draw", "instant_power_draw")),
        "power_limit_w": _first(gpu, power, ("current_power_limit", "enforced_power_limit", "power_limit")),
        "temperature_c": _number(gpu, "temperature/gpu_temp"),
        "memory_temperature_c": _number(gpu, "temperature/memory_temp"),
        "sm_clock_mhz": _number(gpu, "clocks/sm_clock"),
        "sm_clock_max_mhz": _number(gpu, "max_clocks/sm_clock"),
        "memory_clock_mhz": _number(gpu, "clocks/mem_clock"),
        "throttle": _throttle(gpu),
    }


def _instances(gpu, holders):
    found = []
    for part in gpu.findall("mig_devices/mig_device"):
        place = (_text(part, "gpu_instance_id"), _text(part, "compute_instance_id"))
        # Old drivers name an instance by its place only, as CUDA takes it too.
        uuid = _text(part, "uuid") or "/".join(["MIG-%s" % _text(gpu, "uuid"), place[0] or "0", place[1] or "0"])
        own = None if holders is None else [each for each in holders if each["place"] == place]
        name = "%s MIG" % (_text(gpu, "product_name") or "NVIDIA GPU")
        memory = _memory(part, None, True)
        found.append(device(uuid=uuid, name=name, mig=True, processes=_plain(own), **memory))
    return found


def _memory(element, holders, mig):
    if not mig and _said(element, "fb_memory_usage/total").strip("[]").lower() in _NOT_ITS_OWN:
        return meminfo.unified(holders)
    names = ("total", "used", "reserved")
    return {"memory_" + name: _mib(_text(element, "fb_memory_usage/" + name)) for name in names}


def _processes(gpu):
    if gpu.find("processes") is None or _said(gpu, "processes").strip("[]").lower() in _SAYS_NOTHING - {"", "none"}:
        return None
    found = {}
    for each in gpu.findall("processes/process_info"):
        pid, memory = _text(each, "pid"), _mib(_text(each, "used_memory"))
        if pid is not None and pid.isdigit():
            place = (_text(each, "gpu_instance_id"), _text(each, "compute_instance_id"))
            found[int(pid), place] = {"pid": int(pid), "memory": memory, "place": place}
    return [found[key] for key in sorted(found, key=str)]


def _plain(holders):
    return holders and [{"pid": each["pid"], "memory": each["memory"]} for each in holders]


def _throttle(gpu):
    for old in ("event", "throttle"):
        reasons = gpu.find("clocks_%s_reasons" % old)
        if reasons is not None and len(reasons):
            start = len("clocks_%s_reason_" % old)
            names = [each.tag[start:] for each in reasons if (each.text or "").strip() == "Active"]
            return [name for name in names if name != _IDLE]
    return None


def _first(gpu, groups, names):
    values = (_number(gpu, "%s/%s" % (group, name)) for group in groups for name in names)
    return next((value for value in values if value is not None), None)


def _said(element, path):
    return (element.findtext(path) or "").strip()


def _text(element, path):
    text = _said(element, path)
    return None if text.strip("[]").strip().lower() in _SAYS_NOTHING else text


def _number(element, path):
    match = re.match(r"-?\d+(\.\d+)?", _text(element, path) or "")
    return float(match.group(0)) if match else None


def _mib(text):
    match = re.match(r"(\d+) MiB", text or "")
    return int(match.group(1)) * _MIB if match else None
