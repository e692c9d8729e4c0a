"""Reading what a probe brought: raw facts of the helper into what pages show and placing needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from .specs import Accelerator

MIB = 1024 * 1024
# A CPU node is for trying things out; more ranks than this on one machine only get in each other's way.
MAX_CPU_SLOTS = 8
KEPT = (
    "at", "hostname", "os", "kernel", "arch", "python", "cpu", "memory", "disks", "nics", "default_interface",
    "ip_local_port_range", "listening", "shm", "limits", "clock", "login_shell", "home", "home_fs", "state_dir", "user",
    "uid", "boot_id", "machine_id", "environment", "candidates", "detach", "tools",
)  # fmt: skip
# What nvidia-smi prints where it has nothing to say, bare or in brackets.
SAYS_NOTHING = frozenset(
    {"", "n/a", "none", "err!", "not supported", "not available", "unknown error", "insufficient permissions"}
    | {"gpu is lost", "requested functionality has been deprecated", "gpu requires reset"}
)


def read_facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The facts to keep of a probe's answer; `nvidia_smi` is reduced to driver, CUDA version and what went wrong."""
    facts = {name: raw.get(name) for name in KEPT}
    facts["gpu"] = gpu_facts(raw.get("nvidia_smi") or {})
    return facts


def gpu_facts(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Driver and CUDA version of an `nvidia-smi -q -x` answer, or why there are none."""
    root = _parse(answer.get("xml"))
    if root is None:
        found = bool(answer.get("found"))
        return {"found": found, "driver": None, "cuda": None, "problem": _problem(answer) if found else None}
    lost = [gpu.get("id") or "?" for gpu in root.findall("gpu") if _text(gpu, "uuid") is None]
    return {
        "found": True,
        "driver": _text(root, "driver_version"),
        "cuda": _text(root, "cuda_version"),
        "problem": f"GPU {', '.join(lost)} cannot be read" if lost else None,
    }


def _problem(answer: Mapping[str, Any]) -> str:
    """Why nvidia-smi's answer is no answer, in its own words where it has some (they may be on stdout)."""
    if answer.get("timed_out"):
        return "nvidia-smi did not answer in time"
    said = (answer.get("stderr") or answer.get("xml") or "").strip()
    if said.startswith("<"):
        return "nvidia-smi's answer cannot be read"
    return said[:500] or f"nvidia-smi ended with code {answer.get('rc')} and said nothing"


def accelerators_of(raw: Mapping[str, Any], platform: str | None = None) -> tuple[Accelerator, ...]:
    """The accelerators of a probe's answer, in PCI bus order; CPU slots where there is no GPU or `platform` says so.

    A machine that has nvidia-smi but shows no GPU now is a GPU machine with a problem: it has none, not CPU slots.
    """
    answer = raw.get("nvidia_smi") or {}
    gpus = () if platform == "cpu" else read_gpus(answer.get("xml"))
    said = {uuid: text for uuid, text in (answer.get("compute_capabilities") or {}).items() if _is_version(text)}
    gpus = tuple(replace(gpu, compute_capability=said.get(gpu.uuid, gpu.compute_capability)) for gpu in gpus)
    has_gpus = platform == "cuda" or (platform != "cpu" and bool(answer.get("found")))
    return gpus or (() if has_gpus else cpu_slots(raw))


def _is_version(text: str) -> bool:
    return re.fullmatch(r"\d+\.\d+", text) is not None


def read_gpus(xml: str | None) -> tuple[Accelerator, ...]:
    """GPUs (or their MIG instances) in the output of `nvidia-smi -q -x`; a broken output has none.

    A GPU that does not say its UUID is lost: it is left out, and the driver does not count it either.
    """
    root = _parse(xml)
    if root is None:
        return ()
    gpus = [gpu for gpu in root.findall("gpu") if _text(gpu, "uuid")]
    slots: list[Accelerator] = []
    for index, gpu in enumerate(sorted(gpus, key=lambda gpu: gpu.get("id") or "")):
        # A GPU in MIG mode takes no work itself, not even while it has no instance.
        slots += _migs(gpu, index) if _text(gpu, "mig_mode/current_mig") == "Enabled" else (_gpu(gpu, index),)
    return tuple(slots)


def _gpu(gpu: ElementTree.Element, index: int) -> Accelerator:
    name = _text(gpu, "product_name") or "NVIDIA GPU"
    memory = _mib(_text(gpu, "fb_memory_usage/total"))
    return Accelerator(_text(gpu, "uuid") or "", index, name, memory, "cuda", capability_of(name))


def _migs(gpu: ElementTree.Element, index: int) -> tuple[Accelerator, ...]:
    name = _text(gpu, "product_name") or "NVIDIA GPU"
    found = []
    for device in gpu.findall("mig_devices/mig_device"):
        memory = _mib(_text(device, "fb_memory_usage/total"))
        found.append(
            Accelerator(_mig_id(gpu, device), index, f"{name} MIG", memory, "cuda", capability_of(name), mig=True)
        )
    return tuple(found)


def _mig_id(gpu: ElementTree.Element, device: ElementTree.Element) -> str:
    """An instance's UUID, else its place as CUDA takes it too: MIG-GPU-.../GPU instance/compute instance."""
    place = (_text(device, "gpu_instance_id") or "0", _text(device, "compute_instance_id") or "0")
    return _text(device, "uuid") or "/".join((f"MIG-{_text(gpu, 'uuid')}", *place))


# Old drivers do not say the compute capability, and never for a MIG instance; the names do. Unknown stays unknown.
CAPABILITIES = (
    (r"\b(B200|B100|GB200)\b", "10.0"),
    (r"\b(H200|H100|H800|H20|GH200)\b", "9.0"),
    (r"\b(L40S?|L4|L20|RTX (40\d\d|[456]000 Ada))\b", "8.9"),
    (r"\b(RTX 50\d\d|RTX PRO)", "12.0"),
    (r"\b(RTX 30\d\d|A40|A10G?|A16|A2|RTX A\d000)\b", "8.6"),
    (r"\b(A100|A800|A30)\b", "8.0"),
    (r"\b(T4|RTX 20\d\d|TITAN RTX|GTX 16\d\d)\b", "7.5"),
    (r"\b(V100|TITAN V)\b", "7.0"),
)


def capability_of(name: str) -> str | None:
    """The compute capability of a GPU of this name; None = not known."""
    return next((value for pattern, value in CAPABILITIES if re.search(pattern, name)), None)


def cpu_slots(raw: Mapping[str, Any]) -> tuple[Accelerator, ...]:
    """A CPU machine's slots: one per core up to eight, memory shared evenly."""
    cores = int((raw.get("cpu") or {}).get("cores") or 1)
    count = max(1, min(MAX_CPU_SLOTS, cores))
    total = (raw.get("memory") or {}).get("total")
    share = total // MIB // count if total else None
    name = (raw.get("cpu") or {}).get("model") or "CPU"
    return tuple(Accelerator(f"cpu-{i}", i, name[:100], share, "cpu") for i in range(count))


def _parse(xml: str | None) -> ElementTree.Element | None:
    # Entities have no place in nvidia-smi's output; a node that sends them wants to blow the parser up.
    if not xml or "<nvidia_smi_log" not in xml or "<!ENTITY" in xml:
        return None
    # The document type names a file that is nowhere; nothing in it is needed.
    text = re.sub(r"<!DOCTYPE[^>]*>", "", xml[xml.index("<") :])
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return None


def _text(element: ElementTree.Element, path: str) -> str | None:
    text = (element.findtext(path) or "").strip()
    return None if text.strip("[]").lower() in SAYS_NOTHING else text


def _mib(text: str | None) -> int | None:
    match = re.match(r"(\d+) MiB", text or "")
    return int(match.group(1)) if match else None
