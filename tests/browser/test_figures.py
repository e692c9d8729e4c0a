"""Figures in open pages: what is pushed stays, is faded in, and makes the words around it as fresh as it is."""

from __future__ import annotations

import re
import time

import pytest
from django.template.loader import render_to_string
from playwright.sync_api import Page, expect

from deployments.models import AcceleratorClaim, Node
from monitoring.domain.figures import NodeFigures
from monitoring.domain.samples import Gpu, Gpus
from tests.browser import crowd, telemetry
from tests.browser.conftest import Browser, apart
from tests.browser.test_live import SOON, never_polls, open_page
from tests.integration.panel import person
from tests.integration.sockets.client import push

pytestmark = pytest.mark.browser
COUNT_FADES = """() => {
    window.fades = [];
    const real = Element.prototype.animate;
    Element.prototype.animate = function (...how) {
        window.fades.push([this.textContent, how[1]]);
        return real.apply(this, how);
    };
}"""


def fetched_again(page: Page) -> None:
    """The live part is fetched and put in."""
    page.evaluate("document.querySelector('[data-live]').removeAttribute('data-digest')")
    page.evaluate(
        "new Promise(put => { document.body.addEventListener('htmx:afterSettle', put, { once: true });"
        " htmx.trigger('[data-live]', 'refresh'); })"
    )


def a_node(gpus: int = 2) -> Node:
    crowd.gather(1, gpus)
    telemetry.hear()
    return Node.objects.get()


def cell(node: Node, use: str) -> str:
    band = f'<span class="band"><i>0</i><b>{use}</b></span>'
    return f'<span id="cell-{node.pk}-0" class="cell-figures" hx-swap-oob="true">{band}</span>'


def line(node: Node, seen: float) -> str:
    return f'<span id="line-{node.pk}" class="node-line" data-seen="{seen}" hx-swap-oob="true"></span>'


def test_a_poll_that_is_late_puts_no_old_cell_back(still: Browser) -> None:
    node = a_node()
    page = open_page(still, person("vera", "viewer"), "/")
    never_polls(page)
    apart(push, "fleet", cell(node, "99 %") + line(node, time.time() + 5))
    use = page.locator(f"#cell-{node.pk}-0 .band b")
    expect(use).to_have_text("99 %", timeout=SOON)
    fetched_again(page)
    expect(use).to_have_text("99 %")
    apart(push, "fleet", line(node, time.time() - 60))
    expect(page.locator(".node-line.stale")).to_be_visible(timeout=SOON)
    fetched_again(page)
    expect(use).not_to_have_text("99 %")
    assert still.complaints == []


def test_a_driver_that_blocks_is_seen_on_the_map_while_its_node_is_heard(still: Browser) -> None:
    node = a_node()
    AcceleratorClaim.objects.all().delete()
    page = open_page(still, person("vera", "viewer"), "/")
    never_polls(page)
    free = page.locator(".slot .owner", has_text="free")
    expect(free).to_have_count(2)
    expect(free.first).to_be_visible()
    devices = tuple(Gpu(uuid=slot.uuid, index=slot.index) for slot in node.accelerators.all())
    now = time.time()
    stuck = Gpus(source="nvml", at=now - 40, problem="DRIVER_BLOCKED", devices=devices)
    figures = NodeFigures(node=node.pk, heard_at=now, gpu=stuck)
    cells = [("cell", {"gpu": gpu}) for gpu in devices]
    said = [render_to_string(f"live/{name}.html", {"figures": figures, "oob": True, **more}) for name, more in cells]
    said.append(render_to_string("live/node_line.html", {"figures": figures, "oob": True}))
    apart(push, "fleet", "".join(said))
    expect(page.locator(f"#cell-{node.pk}-0 .band b")).to_have_text("blocked", timeout=SOON)
    expect(page.locator(".host .badge.trouble")).to_have_text("GPU driver blocked")
    expect(page.locator(".gpu-age.stale")).to_have_text(re.compile(r"^GPU last seen 4\d s ago$"))
    expect(page.locator(".gpu-age.stale")).to_be_visible()
    expect(free.first).not_to_be_visible()
    expect(page.locator(".slot").first).to_have_css("border-top-style", "dashed")
    assert still.complaints == []


def test_the_head_of_a_node_is_as_fresh_as_its_figures(still: Browser) -> None:
    node = a_node()
    Node.objects.update(heard_at="2026-01-01T00:00:00Z")
    page = open_page(still, person("vera", "viewer"), f"/nodes/{node.name}/")
    never_polls(page)
    head = page.locator(".head time")
    expect(head).to_have_text(re.compile(r"^\d s ago$"))
    apart(push, f"node-{node.pk}", f'<div id="host-{node.pk}" data-seen="{time.time() + 3600}"></div>')
    expect(head).to_have_text(re.compile("^in (1 h|60 min)$"), timeout=SOON)
    assert str(head.get_attribute("title")).endswith(" UTC")
    fetched_again(page)
    expect(head).to_have_text(re.compile("^in (1 h|60 min)$"))


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_changed_figures_fade_unless_motion_is_not_wanted(still: Browser, motion: str) -> None:
    node = a_node()
    page = open_page(still, person("vera", "viewer"), "/")
    page.emulate_media(reduced_motion=motion)  # type: ignore[arg-type]
    never_polls(page)
    page.evaluate(COUNT_FADES)
    apart(push, "fleet", cell(node, "98 %") + line(node, time.time() + 5))
    expect(page.locator(f"#cell-{node.pk}-0 b")).to_have_text("98 %", timeout=SOON)
    assert page.evaluate("window.fades") == ([["98 %", 150]] if motion == "no-preference" else [])


def test_a_map_of_hundreds_does_not_fade(still: Browser) -> None:
    crowd.gather(9, 8)
    telemetry.hear()
    node = Node.objects.order_by("pk")[0]
    page = open_page(still, person("vera", "viewer"), "/")
    never_polls(page)
    page.evaluate(COUNT_FADES)
    apart(push, "fleet", cell(node, "98 %") + line(node, time.time() + 5))
    expect(page.locator(f"#cell-{node.pk}-0 b")).to_have_text("98 %", timeout=SOON)
    assert page.evaluate("window.fades") == []


def test_the_keyboard_stays_where_it_was_when_a_part_is_fetched_again(still: Browser) -> None:
    node = a_node()
    page = open_page(still, person("vera", "viewer"), "/")
    never_polls(page)
    page.locator(".host h3 a").focus()
    page.evaluate("window.before = document.activeElement")
    fetched_again(page)
    expect(page.locator(".host h3 a")).to_be_focused()
    assert page.evaluate("document.activeElement !== window.before && document.activeElement.textContent") == node.name


def test_a_time_is_told_in_full_to_whoever_stops_at_it(still: Browser) -> None:
    node = a_node()
    page = open_page(still, person("vera", "viewer"), f"/nodes/{node.name}/")
    ages = page.locator("time[tabindex]")
    assert ages.count() > 2
    page.locator(".head h1").click()
    page.keyboard.press("Tab")
    head = page.locator(".head time")
    expect(head).to_be_focused()
    shown = head.evaluate("time => getComputedStyle(time, '::after').content")
    assert shown == f'"{head.get_attribute("title")}"'
