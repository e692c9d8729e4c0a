"""Figures as people read them: three significant digits, a unit, an en dash for what is missing."""

from __future__ import annotations

from typing import Any

DASH = "–"
_STEPS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def three(value: float) -> str:
    """Three significant digits, never an exponent: 0.042, 1.20, 12.4, 124, 1240."""
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    if abs(value) >= 0.9995:
        return f"{value:.2f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.0f}"


def with_unit(value: Any, unit: str) -> str:
    return f"{three(value)} {unit}" if _is_number(value) else DASH


def scaled(value: Any, unit: str = "") -> str:
    """With k, M or G before the unit: 1.24 kW, 12.3 MB/s."""
    if not _is_number(value):
        return DASH
    for size, prefix in _STEPS:
        if abs(value) >= size * 0.9995:
            return f"{three(value / size)} {prefix}{unit}"
    return f"{three(value)} {unit}".rstrip()


def percent(value: Any) -> str:
    """Whole percents, tenths below ten: 63 %, 4.2 %."""
    if not _is_number(value):
        return DASH
    text = f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}".removesuffix(".0")
    return f"{text} %"


def share(value: Any) -> str:
    """Percent of a part of one: 0.42 is 42 %."""
    return percent(value * 100) if _is_number(value) else DASH


def watts(value: Any) -> str:
    if not _is_number(value):
        return DASH
    return scaled(value, "W") if value >= 999.5 else f"{value:.0f} W"


def degrees(value: Any) -> str:
    return f"{value:.0f} °C" if _is_number(value) else DASH


def megahertz(value: Any) -> str:
    return f"{value:.0f} MHz" if _is_number(value) else DASH


def bytes_rate(value: Any) -> str:
    """Bytes per second: 12.3 MB/s."""
    if not _is_number(value):
        return DASH
    return scaled(value, "B/s") if value >= 999.5 else f"{value:.0f} B/s"


def token_rate(value: Any) -> str:
    """Tokens per second: 84.2 tok/s, 1.24k tok/s."""
    if not _is_number(value) or value < 999.5:
        return with_unit(value, "tok/s")
    return f"{scaled(value).replace(' ', '')} tok/s"


def request_rate(value: Any) -> str:
    return scaled(value, "req/s")


def count(value: Any) -> str:
    """A count of things: 12, 1.24 k."""
    return f"{value:.0f}" if _is_number(value) and abs(value) < 999.5 else scaled(value)


def load(value: Any) -> str:
    """A load average, with two decimals as everywhere."""
    return f"{value:.2f}" if _is_number(value) else DASH


def latency(value: Any) -> str:
    """Seconds: 0.42 ms, 843 ms, 1.24 s."""
    if not _is_number(value):
        return DASH
    return f"{three(value * 1000)} ms" if abs(value) < 0.9995 else f"{three(value)} s"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
