"""What holds a GPU's clocks down, and what is wrong with reading GPUs, in words."""

from __future__ import annotations

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

# name -> (words, is it a reason to worry?)
THROTTLES: dict[str, tuple[Promise, bool]] = {
    "gpu_idle": (gettext_lazy("idle"), False),
    "applications_clocks_setting": (gettext_lazy("clocks set by a program"), False),
    "sw_power_cap": (gettext_lazy("at its power limit"), True),
    "hw_slowdown": (gettext_lazy("slowed down by its hardware"), True),
    "sync_boost": (gettext_lazy("in step with a slower GPU"), False),
    "sw_thermal_slowdown": (gettext_lazy("too warm, slowed down by the driver"), True),
    "hw_thermal_slowdown": (gettext_lazy("too hot, slowed down by its hardware"), True),
    "hw_power_brake_slowdown": (gettext_lazy("braked by the power supply"), True),
    "display_clock_setting": (gettext_lazy("clocks set by a display"), False),
}

PROBLEMS: dict[str, tuple[Promise, Promise]] = {
    "DRIVER_BLOCKED": (
        gettext_lazy("The GPU driver does not answer."),
        gettext_lazy(
            "A question to it has been hanging for more than 5 s; no other is asked until it returns. "
            "Look at the machine's kernel log; if it stays so, only a restart of the machine helps."
        ),
    ),
    "GPU_LOST": (
        gettext_lazy("A GPU has been lost."),
        gettext_lazy(
            "Look for Xid in the machine's kernel log; a reset or a restart of the machine may bring it back."
        ),
    ),
    "NVML_FAILED": (
        gettext_lazy("The driver's library cannot be used."),
        gettext_lazy("Compare the versions of driver and library; after a driver update the machine needs a restart."),
    ),
    "SMI_FAILED": (
        gettext_lazy("nvidia-smi does not work there."),
        gettext_lazy("Run nvidia-smi on the machine and mend what it says."),
    ),
    "UNREADABLE": (
        gettext_lazy("A part of its report cannot be understood."),
        gettext_lazy(
            "Its figures are left out; what runs there goes on. Mend on the machine what the quoted words name; "
            "figures come again with the first good report."
        ),
    ),
}


def throttle_words(names: tuple[str, ...]) -> list[tuple[str, bool]]:
    """Each reason in words, and whether somebody should worry; unknown names stay as they are."""
    found = [THROTTLES.get(name, (name.replace("_", " "), True)) for name in names]
    return [(str(words), worry) for words, worry in found]


def problem_words(code: str) -> tuple[str, str]:
    """What is wrong, and what to do about it."""
    title, remedy = PROBLEMS.get(code, (code, ""))
    return str(title), str(remedy)
