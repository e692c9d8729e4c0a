"""An engine's command line, read the way its parser reads it, as far as rules look at it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..options import flag_of

# Short flags and second names, by the name that rules use.
ALIASES = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "dpl": "data_parallel_size_local",
    "pcp": "prefill_context_parallel_size",
    "dcp": "decode_context_parallel_size",
    "ep": "enable_expert_parallel",
    "n": "nnodes",
    "r": "node_rank",
    "q": "quantization",
    "device_memory_utilization": "gpu_memory_utilization",
    "kv_cache_memory": "kv_cache_memory_bytes",
}
_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, slots=True)
class Arguments:
    """Settings by name (`max_model_len`); a lone flag is True, its `--no-` form False, a value is its text.

    Settings of a JSON flag written with dots (`--kv-transfer-config.kv_role x`) are under that name, `kv_role` and all.
    """

    values: Mapping[str, str | bool] = field(default_factory=dict)

    @classmethod
    def of(cls, words: Iterable[str]) -> Arguments:
        """The settings of a list of argument words; what comes later wins."""
        found: dict[str, str | bool] = {}
        left = list(words)
        while left:
            word = left.pop(0)
            if flag_of(word) is None:
                continue
            name, given, value = word.partition("=")
            if not given and left and flag_of(left[0]) is None:
                given, value = "=", left.pop(0)
            found.update([_setting(name, value if given else None)])
        return cls(found)

    def changed(self, name: str, value: Any) -> Arguments:
        """The same with one setting changed; None takes it away."""
        kept = {key: old for key, old in self.values.items() if key != name}
        if value is not None:
            kept[name] = value if isinstance(value, bool) else str(value)
        return Arguments(kept)

    def given(self, name: str) -> bool:
        """Whether the setting is there at all."""
        return name in self.values

    def word(self, name: str) -> str | None:
        """A setting's text."""
        value = self.values.get(name)
        return value if isinstance(value, str) else None

    def on(self, name: str) -> bool | None:
        """A switch; None = not given, or neither yes nor no."""
        value = self.values.get(name)
        if isinstance(value, str):
            return {"true": True, "false": False}.get(value.lower())
        return value

    def number(self, name: str) -> int | None:
        """A whole number, with the engine's endings (k = 1000, K = 1024, ...); None = not given or none."""
        match = re.fullmatch(r"(-?\d+(?:\.\d+)?)([kKmMgGtT]?)", self.word(name) or "")
        if match is None or ("." in match.group(1) and not match.group(2)):
            return None
        return int(float(match.group(1)) * _FACTORS.get(match.group(2), 1))

    def json(self, name: str) -> dict[str, Any] | None:
        """A JSON setting with what was set in it by dots; None = not given or not an object."""
        inner = {key.partition(".")[2]: value for key, value in self.values.items() if key.startswith(f"{name}.")}
        if not inner and not self.given(name):
            return None
        try:
            whole = json.loads(self.word(name) or "{}")
        except ValueError:
            return None
        return {**whole, **inner} if isinstance(whole, dict) else None


def _setting(flag: str, value: str | None) -> tuple[str, str | bool]:
    head, *inner = flag.lstrip("-").rstrip("+").split(".")
    name = head.replace("-", "_")
    off = value is None and name.startswith("no_")
    name = ALIASES.get(name, name.removeprefix("no_") if off else name)
    return ".".join([name, *inner]), (not off if value is None else value)
