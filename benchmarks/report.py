"""Medians, spreads, tables and the JSON that a run leaves behind."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BASE = Path(__file__).resolve().parents[1]
BUILD = BASE / "build/bench"


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for on the command line. One more repetition than `reps` is made; the first is dropped."""

    names: tuple[str, ...]
    quick: bool = False
    hosts: tuple[int, ...] = (1, 4, 16, 32)
    reps: int = 7
    fresh_clone: bool = False
    ansible: bool = True
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Summary:
    """Several measurements of one thing; `median`, `low` and `high` in the unit of the values."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        return cls(statistics.median(values), min(values), max(values), len(values))

    def text(self, digits: int = 3) -> str:
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}-{self.high:.{digits}f})"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows as aligned text, the first column to the left, the others to the right."""
    lines = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in (lines[0], rule, *lines[1:])
    )


def machine() -> dict[str, Any]:
    """What the figures depend on, as it is now."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
        "commit": _commit(),
    }


def _commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=BASE, capture_output=True, text=True)
    return done.stdout.strip()


def save(name: str, result: dict[str, Any], options: Options) -> Path:
    """Keep one benchmark's result; the path of its file, relative to the checkout."""
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / f"{name}.json"
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    document = {"benchmark": name, "at": at, "machine": machine(), "options": asdict(options), **result}
    path.write_text(json.dumps(document, indent=1, default=_plain) + "\n")
    return path.relative_to(BASE)


def _plain(value: Any) -> Any:
    return asdict(value) if isinstance(value, Summary) else str(value)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of the values do not exceed; raises ValueError when there are none."""
    if not values:
        raise ValueError("nothing was measured")
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]
