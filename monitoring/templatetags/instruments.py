"""Small drawings of figures: meters, stacked bars and trends as inline SVG, which needs no style attributes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby

from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from monitoring.domain.figures import TREND_LENGTH, TREND_STEP_S, Trend

from .units import percent

HEAT_STEPS = 10
_HEIGHT = 20


def heat(value: float | None) -> str:
    """The class of a percentage on the heat scale: `heat-0` to `heat-9`, `heat-none` for what is missing."""
    if not isinstance(value, int | float):
        return "heat-none"
    return f"heat-{min(HEAT_STEPS - 1, max(0, int(value // HEAT_STEPS)))}"


def meter(value: float | None, most: float | None, look: str = "", words: str = "") -> SafeString:
    """A bar of `value` of `most`; without one of them an empty, dashed track."""
    if not isinstance(value, int | float) or not most:  # templates give '' for what has no value
        return SafeString('<svg class="meter none" aria-hidden="true"></svg>')
    width = round(max(0.0, min(100.0, 100 * value / most)), 1)
    # Written hundreds of times a page, so by hand: the words alone can hold something to escape.
    alone = f'role="img" aria-label="{escape(words)}"' if words else 'aria-hidden="true"'
    return SafeString(
        f'<svg class="{f"meter {look}".rstrip()}" viewBox="0 0 100 1" preserveAspectRatio="none" {alone}>'
        f'<rect width="{width:g}" height="1"/></svg>'
    )


def stack(parts: Iterable[tuple[str, float]], total: float, words: str) -> SafeString:
    """Parts of a total side by side: (look, size). Each look has a colour and a texture of its own."""
    lines, at = [], 0.0
    for look, size in parts:
        width = 100 * size / total
        if width > 0:
            lines.append((look, f"{at:.2f}", f"{min(100.0, at + width):.2f}"))
        at += width
    drawn = format_html_join("", '<line class="{}" x1="{}" x2="{}" y1="5" y2="5"/>', lines)
    return format_html(
        '<svg class="stack" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>',
        words,
        drawn,
    )


def sparkline(trend: Trend | None, most: float | None = None, label: str = "") -> SafeString:
    """The last minutes as a line over a filled ground, gaps left open; without values an empty frame.

    Args:
        most: The value of the upper edge; None = the largest that is there.
    """
    return _sparkline(trend.values[-TREND_LENGTH:] if trend else (), most, label, get_language())


# A trend changes once in TREND_STEP_S seconds and is drawn every second, on many pages.
@lru_cache(2048)
def _sparkline(values: tuple[float | None, ...], most: float | None, label: str, _language: str | None) -> SafeString:
    known = [value for value in values if value is not None]
    top = most or max(known, default=0) or 1
    runs = [_run(points, top) for points in _runs(values)]
    drawn = format_html_join(
        "", '<path class="ground" d="M{} {}L{}L{} {}z"/><polyline points="{}"/>', (run for run in runs if run)
    )
    return format_html(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>',
        TREND_LENGTH - 1,
        _HEIGHT,
        _trend_words(label, known, most),
        drawn,
    )


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Neighbours without a gap between them, each as (place, value); the newest value stands at the right edge."""
    placed = list(enumerate(values, TREND_LENGTH - len(values)))
    return [
        [(x, value) for x, value in run if value is not None]
        for there, run in groupby(placed, lambda pair: pair[1] is not None)
        if there
    ]


def _run(points: list[tuple[int, float]], top: float) -> tuple[int, int, str, int, int, str]:
    # A lone value is drawn as a short line; a single point would not show.
    first, last = points[0][0], points[-1][0]
    if first == last:
        points = [(first, points[0][1]), (first, points[0][1])]
    line = " ".join(f"{x},{_y(value, top):g}" for x, value in points)
    return first, _HEIGHT, line, last, _HEIGHT, line


def _y(value: float, top: float) -> float:
    return round(_HEIGHT - 1 - (_HEIGHT - 2) * max(0.0, min(1.0, value / top)), 1)


def _trend_words(label: str, known: list[float], most: float | None) -> str:
    minutes = TREND_LENGTH * TREND_STEP_S // 60
    if not known:
        return _("%(label)s: nothing known of the last %(n)d min") % {"label": label, "n": minutes}
    write = percent if most == 100 else lambda value: f"{value:.3g}"
    words = {"label": label, "n": minutes, "low": write(min(known)), "high": write(max(known)), "now": write(known[-1])}
    return _("%(label)s, last %(n)d min: %(low)s to %(high)s, now %(now)s") % words
