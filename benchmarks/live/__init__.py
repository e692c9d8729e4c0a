"""The live panel: what watching costs, how old figures are when a browser has them, and what the fleet page weighs.

`python -m benchmarks live [--parts observing,delivery,death,weighing] [--quick]`
"""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.report import Options, machine

PARTS = ("observing", "delivery", "death", "weighing")


def run(options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in options.parts or PARTS:
        print(f"-- {part}", flush=True)
        found[part] = importlib.import_module(f"benchmarks.live.{part}").run(options)
        found[part]["load_after"] = machine()["load"]
    return found
