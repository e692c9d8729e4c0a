"""Tags and filters of the panel's templates. A missing value is an en dash, a figure has its unit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from json import dumps
from typing import Any
from urllib.parse import quote as quoted

from django import template
from django.forms import BoundField, CheckboxInput, CheckboxSelectMultiple, RadioSelect
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from deployments.domain.command import quote

from . import words

register = template.Library()
DASH = "–"
BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
DECIMAL = ("B", "kB", "MB", "GB", "TB", "PB")

register.filter("state_word", words.state_word)
register.filter("state_look", words.state_look)
register.filter("reason", words.reason_word)
register.filter("kind", words.kind_word)
register.filter("evidence", words.evidence_words)
register.filter("proof", words.proof_words)
register.filter("phase", words.phase_word)


@register.filter
def dash(value: Any) -> Any:
    """The value, or an en dash for what is missing."""
    return DASH if value is None or value == "" else value


@register.filter
def said(text: Any) -> str:
    """A fixed sentence of a service in the reader's language; one with names in it stays as it is."""
    return _(str(text)) if text else ""


@register.filter
def memory(value: float | None) -> str:
    """Bytes of memory: 137 GiB."""
    return scaled(value, 1024, BINARY)


@register.filter
def mib(value: float | None) -> str:
    """MiB of memory: 140 GiB."""
    return scaled(value * 1024 * 1024 if isinstance(value, int | float) else None, 1024, BINARY)


@register.filter
def size(value: float | None) -> str:
    """Bytes of files and disks: 15.2 GB."""
    return scaled(value, 1000, DECIMAL)


def scaled(value: Any, base: int, units: tuple[str, ...]) -> str:
    """Three significant digits and a unit; templates give '' for what a node has not said."""
    if not isinstance(value, int | float):
        return DASH
    place = 0
    while abs(value) >= base * 0.9995 and place < len(units) - 1:
        value, place = value / base, place + 1
    digits = f"{value:.0f}" if place == 0 or abs(value) >= 99.95 else f"{value:.3g}"
    return f"{digits} {units[place]}"


@register.filter
def subject(event: Any) -> str:
    """What a transition is about: `replica 0` and `engine 0` say it themselves, other names need their kind."""
    if event.subject == "replica":
        return _("replica %(n)s") % {"n": event.name.removeprefix("replica ")}
    if event.subject == "process":
        role, _space, rank = event.name.partition(" ")
        return f"{words.kind_word(role)} {rank}"
    return words.kind_word(event.subject)


@register.filter
def present(copies: Any) -> int:
    """How many nodes have a model's files."""
    return sum(copy.present for copy in copies)


@register.filter
def ready(replicas: Any) -> int:
    """How many replicas are ready."""
    return sum(replica.state == "READY" for replica in replicas)


@register.filter
def rank_colour(rank: int) -> int:
    """One of eight colours; a rank always has the same."""
    return rank % 8


@register.filter
def json(value: Any) -> str:
    """A value for people to read."""
    return dumps(value, indent=2, ensure_ascii=False, default=str)


@register.filter
def copy_size(layout: Any) -> int:
    """Accelerators that one copy takes."""
    return layout.tensor_parallel_size * layout.pipeline_parallel_size * layout.data_parallel_size


@register.filter
def speed(mbps: float | None) -> str:
    """A network's speed: 400 Gbit/s."""
    return (
        DASH
        if not isinstance(mbps, int | float) or mbps <= 0
        else f"{mbps / 1000:.3g} Gbit/s"
        if mbps >= 1000
        else f"{mbps:.3g} Mbit/s"
    )


@register.filter
def grouped(value: int | None) -> str:
    """A count with thin spaces between thousands."""
    return f"{value:,}".replace(",", "\u2009") if isinstance(value, int) else DASH


@register.filter
def limit(value: Any) -> str:
    """The soft limit of a [soft, hard] pair."""
    if not isinstance(value, list) or not value or not isinstance(value[0], int):
        return DASH
    return _("unlimited") if value[0] < 0 else grouped(value[0])


@register.filter
def yes(value: bool | None) -> str:
    return DASH if not isinstance(value, bool) else _("yes") if value else _("no")


@register.filter
def item(values: Mapping[Any, Any] | None, key: Any) -> Any:
    return (values or {}).get(key)


@register.filter
def moment(value: float | str | datetime | None) -> datetime | None:
    """A time from epoch seconds."""
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    return value if isinstance(value, datetime) else None


@register.simple_tag
def ago(value: datetime | None) -> str | SafeString:
    """How long ago (or in how long), the full time on hover; the browser keeps the words fresh."""
    if value is None:
        return DASH
    seconds = (value - timezone.now()).total_seconds()
    full = value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return format_html(
        '<time datetime="{}" title="{}" data-relative tabindex="0">{}</time>',
        value.isoformat(),
        full,
        relative(seconds),
    )


def relative(seconds: float) -> str:
    """`3 min ago`, `in 40 s`."""
    words_ = span(abs(seconds))
    return _("in %(span)s") % {"span": words_} if seconds > 0 else _("%(span)s ago") % {"span": words_}


@register.filter
def span(seconds: float | None) -> str:
    """A duration in its largest unit: 40 s, 3 min, 5 h, 12 d."""
    if seconds is None:
        return DASH
    for unit, length in ((_("d"), 86400), (_("h"), 3600), (_("min"), 60)):
        if seconds >= length * 1.5:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} " + _("s")


@register.simple_tag(takes_context=True)
def api_command(context: template.Context, path: str, body: str) -> str:
    """The same by program, for a shell."""
    where = context["request"].build_absolute_uri(f"/api/v1/{path}")
    kind = '-H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json"'
    return f"curl {kind} -d {quote(body)} {quote(where)}"


@register.simple_tag
@cache
def icon(name: str) -> SafeString:
    """One of the drawings in icons.svg; words beside it say the same."""
    return format_html(
        '<svg class="icon icon-{}" aria-hidden="true" focusable="false"><use href="{}#{}"></use></svg>',
        name,
        static("icons.svg"),
        name,
    )


@register.simple_tag
def badge(state: str, word: str = "") -> SafeString:
    """A state: its colour, its shape and its word."""
    look = words.state_look(state)
    return format_html(
        '<span class="badge {}">{}<span>{}</span></span>', look, icon(f"state-{look}"), word or words.state_word(state)
    )


@register.inclusion_tag("components/field.html")
def field(bound: BoundField, extra: str = "") -> dict[str, Any]:
    """A form field with its label, help and everything that is wrong with it."""
    refused = getattr(bound.form, "refused", {}).get(bound.name, [])
    widget = bound.field.widget
    group = isinstance(widget, RadioSelect | CheckboxSelectMultiple)
    described = [f"{bound.auto_id}_wrong"] if bound.errors or refused else []
    if described:
        widget.attrs |= {"aria-invalid": "true", "aria-errormessage": described[0]}
    return {
        "bound": bound,
        "group": group,
        "check": isinstance(widget, CheckboxInput),
        "refused": refused,
        "extra": extra,
    }


@register.inclusion_tag("components/problem.html")
def problem(error: Mapping[str, Any] | Any) -> dict[str, Any]:
    """What is wrong, where, and what to do about it."""
    get = error.get if isinstance(error, Mapping) else lambda name, default=None: getattr(error, name, default)
    return {
        "code": get("code", ""),
        "message": get("message", ""),
        "remedy": get("remedy", ""),
        "node": get("node", None),
        "severity": get("severity", None) or "error",
    }


@register.simple_tag(takes_context=True)
def live(context: template.Context, name: str, every: str = "2s", slow: str = "15s") -> SafeString:
    """Attributes of an element whose content is the partial `name`, fetched again and again.

    `slow` is the pace while the page's socket is open and tells it what happens.
    """
    request = context["request"]
    return format_html(
        'id="{}" data-live data-slow="{}" hx-get="{}" hx-trigger="every {}, refresh" hx-target="this"'
        ' hx-swap="innerHTML"',
        name,
        slow.removesuffix("s"),
        request.get_full_path(),
        every,
    )


@register.simple_tag
def socket(kind: str, name: Any = "") -> SafeString:
    """Attributes of an element that is told by a socket what concerns the page: its `kind`, and what it is about.

    Kinds: fleet, nodes, deployments, models, jobs, all; with a name node, deployment, job (its id).
    """
    where = "".join(f"{quoted(str(part), safe='')}/" for part in (kind, name) if part)
    return format_html('hx-ext="ws" ws-connect="/ws/live/{}?language={}"', where, get_language() or "en")
