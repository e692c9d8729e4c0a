"""The machine's memory where it is a GPU's too."""

import re

from .paths import read_text


def unified(holders):
    """Memory figures of a GPU without memory of its own.

    Args:
        holders: Its processes, or None when they are not told: then how much it uses is not known either.
    """
    match = re.search(r"^MemTotal:\s+(\d+) kB", read_text("/proc/meminfo") or "", re.MULTILINE)
    told = [holder["memory"] for holder in holders or () if holder["memory"] is not None]
    used = sum(told) if told or holders == [] else None
    return {"unified": True, "memory_total": int(match.group(1)) * 1024 if match else None, "memory_used": used}
