"""What is wrong with what is known of a node, in the words of badges, lists and cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from deployments.templatetags.panel import icon
from monitoring.domain.figures import NodeFigures
from monitoring.domain.samples import Gpu

from .throttles import problem_words

UNREADABLE = "UNREADABLE"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One fault: `word` for a badge in a `look`, `title` for a sentence, `said` by the node, `remedy` for people."""

    look: str
    word: str
    title: str
    said: str
    remedy: str


def trouble_of(figures: NodeFigures) -> Trouble | None:
    """What somebody should look after; None = all that a node reports can be read."""
    code = code_of(figures)
    if code is None:
        return None
    looks = {
        UNREADABLE: ("warn", _("figures unreadable")),
        "DRIVER_BLOCKED": ("bad", _("GPU driver blocked")),
        "GPU_LOST": ("bad", _("GPU lost")),
    }
    look, word = looks.get(code, ("warn", _("GPU unreadable")))
    title, remedy = problem_words(code)
    return Trouble(look, word, title, _said(figures), remedy)


def code_of(figures: NodeFigures) -> str | None:
    if figures.problem is not None:
        return UNREADABLE
    if figures.gpu is None:
        return None
    return figures.gpu.problem or ("GPU_LOST" if any(gpu.lost for gpu in figures.gpu.devices) else None)


def _said(figures: NodeFigures) -> str:
    if figures.problem is not None or figures.gpu is None:
        return figures.problem or ""
    lost = (f"GPU {gpu.index}: {gpu.lost}" for gpu in figures.gpu.devices if gpu.lost)
    return figures.gpu.message or "; ".join(lost)


def troubles_of(rows: Iterable[Any], found: Mapping[int, NodeFigures]) -> list[tuple[Any, Trouble]]:
    """The nodes of rows that have one, the worst first."""
    known = ((row.node, found[row.node.pk]) for row in rows if row.node.pk in found)
    troubles = [(node, trouble) for node, figures in known if (trouble := trouble_of(figures))]
    return sorted(troubles, key=lambda one: one[1].look)


def trouble_badge(trouble: Trouble | None) -> SafeString:
    """Beside a node's state, which says nothing of its GPUs."""
    if trouble is None:
        return SafeString("")
    drawn = icon(f"state-{trouble.look}")
    return format_html(
        '<span class="badge trouble {}" title="{}">{}<span>{}</span></span>',
        trouble.look, trouble.title, drawn, trouble.word,
    )  # fmt: skip


def fault_of(figures: NodeFigures, gpu: Gpu) -> str:
    """Why nothing is known of a GPU, in a word; '' where something is."""
    if gpu.lost:
        return _("lost")
    code = code_of(figures)
    if code in (None, "GPU_LOST") or gpu.memory_used is not None or gpu.utilization is not None:
        return ""
    return _("blocked") if code == "DRIVER_BLOCKED" else _("no data")
