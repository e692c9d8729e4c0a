"""Tags and filters for figures: they load what is known of nodes, and write and draw it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from django import template
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from deployments.templatetags.panel import icon, relative
from deployments.templatetags.panel import memory as memory_words
from monitoring.domain.engines import total
from monitoring.domain.figures import STALE_S, EngineFigures, NodeFigures, Trend
from monitoring.domain.samples import Gpu, Host
from monitoring.domain.shares import Memory, Together, memory_of, together
from monitoring.services.latest import latest
from monitoring.services.owners import Owner, owners

from . import instruments, throttles, troubles, units

register = template.Library()
FEW, SOME = 4, 64
SWAP = ' hx-swap-oob="true"'
STOP = SafeString(' tabindex="0"')

register.filter("percent", units.percent)
register.filter("share", units.share)
register.filter("watts", units.watts)
register.filter("degrees", units.degrees)
register.filter("mhz", units.megahertz)
register.filter("bytes_rate", units.bytes_rate)
register.filter("token_rate", units.token_rate)
register.filter("request_rate", units.request_rate)
register.filter("count", units.count)
register.filter("load", units.load)
register.filter("latency", units.latency)
register.filter("heat", instruments.heat)
register.filter("throttles", throttles.throttle_words)
register.filter("trouble", troubles.trouble_of)
register.simple_tag(troubles.troubles_of)
register.simple_tag(troubles.trouble_badge)
register.simple_tag(troubles.fault_of)
register.simple_tag(instruments.meter, name="meter")
register.simple_tag(instruments.sparkline, name="sparkline")


@register.simple_tag
def figures_of(things: Any) -> dict[int, NodeFigures]:
    """Figures by node id, in one question to the cache, for nodes or for whatever has a node (rows, processes)."""
    return latest(sorted({_node_id(thing) for thing in _many(things)}))


def _many(things: Any) -> Iterable[Any]:
    return things if isinstance(things, Iterable) else [things]


def _node_id(thing: Any) -> int:
    thing = getattr(thing, "process", thing)
    return getattr(thing, "node_id", None) or getattr(thing, "node", thing).pk


@register.filter
def of_node(found: Mapping[int, NodeFigures], node: int) -> NodeFigures:
    """A node's figures; of a node that nothing is known of, figures that say nothing."""
    return found.get(node) or NodeFigures(node=node, heard_at=0.0)


@register.filter
def engine(figures: NodeFigures, process: Any) -> EngineFigures:
    """The figures of an engine by its process id; empty ones if there are none."""
    return figures.engines.get(str(process)) or EngineFigures()


@register.simple_tag
def gpu_of(figures: NodeFigures, accelerator: Any) -> Gpu:
    """The GPU that an accelerator of the inventory is; with its identity alone if nothing is heard of it."""
    devices = figures.gpu.devices if figures.gpu else ()
    found = next((gpu for gpu in devices if gpu.uuid == accelerator.uuid), None)
    return found or Gpu(uuid=accelerator.uuid, index=accelerator.index, mig=accelerator.mig)


@register.simple_tag
def cell(figures: NodeFigures, gpu: Gpu, oob: bool = False) -> SafeString:
    """One GPU's figures on the map: heat, utilisation, memory, power, temperature; written hundreds of times a page."""
    # Instances of one GPU share its index.
    place = f"{gpu.index}-{escape(gpu.uuid[-8:])}" if gpu.mig else gpu.index
    too, fault = escape(_("held by others too")), escape(troubles.fault_of(figures, gpu))
    alien = f'<i class="alien" title="{too}"></i>' if held_by_others(gpu) else ""
    says = f"{icon('state-bad' if gpu.lost else 'state-unknown')}" if fault else ""
    says += f"<b>{fault or units.percent(gpu.utilization)}</b>"
    look = " is-lost" if gpu.lost else " is-blocked" if fault else ""
    return SafeString(
        f'<span id="cell-{figures.node}-{place}" class="cell-figures {instruments.heat(gpu.utilization)}"'
        f"{SWAP if oob else ''}>"
        f'<span class="band{look}"><i>{gpu.index}</i>{alien}{says}</span>'
        f"{instruments.meter(gpu.memory_used, gpu.memory_total)}"
        f'<span class="m">{memory_words(gpu.memory_used)}</span><span class="w">{units.watts(gpu.power_w)}</span>'
        f'<span class="t">{units.degrees(gpu.temperature_c)}</span></span>'
    )


@register.simple_tag
def owners_of(figures: NodeFigures) -> dict[str, Owner]:
    """Deployment and rank of our processes on a node's GPUs, by process id."""
    devices = figures.gpu.devices if figures.gpu else ()
    held = (process for gpu in devices for process in gpu.processes or ())
    return owners({process.process for process in held if process.process})


@register.filter
def adds_up(figures: NodeFigures) -> Together:
    """All GPUs of a node together."""
    return together(figures.gpu.devices if figures.gpu else ())


@register.simple_tag
def token_rates(rows: Iterable[Any], found: Mapping[int, NodeFigures]) -> dict[int, float]:
    """Generated tokens per second by deployment id, over the engines of the processes that hold a slot of the rows."""
    rates: dict[int, float] = {}
    seats = {owner.pk: owner for row in rows for slot in row.slots if (owner := slot.owner)}
    for owner in seats.values():
        rate = engine(of_node(found, owner.node_id), owner.pk).generation_rate
        if rate is not None:
            rates[owner.deployment_id] = rates.get(owner.deployment_id, 0.0) + rate
    return rates


@register.simple_tag
def totals_of(processes: Iterable[Any], found: Mapping[int, NodeFigures]) -> EngineFigures:
    """The engines of some processes together."""
    return total(engine(of_node(found, process.node_id), process.pk) for process in processes)


@register.filter
def map_size(count: int) -> str:
    """How a fleet of so many accelerators is drawn: `few` large instruments, `some` cells, or `many`: a map."""
    return "few" if count <= FEW else "some" if count <= SOME else "many"


@register.filter
def held_by_others(gpu: Gpu | str | None) -> str:
    """Who of those that are not ours holds memory of it: users, or a word for what has none; '' for nobody."""
    processes = gpu.processes or () if isinstance(gpu, Gpu) else ()
    foreign = [process for process in processes if process.process is None]
    users = sorted({process.user for process in foreign if process.user})
    return ", ".join(users) or (_("others") if foreign else "")


@register.filter
def memory_shares(gpu: Gpu) -> Memory | None:
    return memory_of(gpu)


@register.filter
def used_memory(host: Host | None) -> int | None:
    """Memory that programs cannot have any more, in bytes."""
    return _difference(host.memory_total, host.memory_available) if host else None


@register.filter
def used_swap(host: Host | None) -> int | None:
    return _difference(host.swap_total, host.swap_free) if host else None


@register.filter
def used_space(filesystem: Any) -> int | None:
    return _difference(filesystem.size, filesystem.free)


def _difference(whole: int | None, rest: int | None) -> int | None:
    return None if whole is None or rest is None else max(0, whole - rest)


@register.filter
def trend_of(trends: Mapping[str, Trend], uuid: str) -> Trend | None:
    return trends.get(uuid)


@register.simple_tag
def memory_stack(shares: Memory) -> SafeString:
    """A GPU's memory: ours, others', used by nobody known, reserved, free; always in this order."""
    parts = [
        ("ours", _("ours"), shares.ours),
        ("others", _("other owners"), shares.others),
        ("used", _("used"), shares.used),
        ("reserved", _("reserved"), shares.reserved),
    ]
    words = ", ".join(f"{word} {memory_words(size)}" for _look, word, size in parts if size)
    total = shares.total or 1
    return instruments.stack([(look, size) for look, _word, size in parts], total, words or _("free"))


@register.filter
def is_past(at: float | None) -> bool:
    """Whether figures of this moment (epoch seconds) are not current any more."""
    return bool(at) and time.time() - (at or 0) > STALE_S


@register.simple_tag
def seen(at: float | None) -> SafeString:
    """The attribute by which the page's script tells how old an element's figures are."""
    return format_html(' data-seen="{}"', f"{at:.1f}") if at else SafeString("")


@register.simple_tag
def age(at: float | None, stop: bool = False) -> str | SafeString:
    """How long ago (epoch seconds), the full time on hover.

    Args:
        stop: The keyboard can stop at it. Not where a page has hundreds of them.
    """
    if not at:
        return units.DASH
    moment = datetime.fromtimestamp(at, UTC)
    return format_html(
        '<time datetime="{}" title="{}" data-relative{}>{}</time>',
        moment.isoformat(timespec="milliseconds"),
        moment.strftime("%Y-%m-%d %H:%M:%S UTC"),
        STOP if stop else "",
        relative(at - time.time()),
    )
