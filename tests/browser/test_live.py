"""Open pages that are told what happens: by their socket, by asking when there is none, and again after a restart."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, expect

from deployments.services import keys, nodes, people
from deployments.services.access import Actor
from tests.browser.conftest import Browser, apart
from tests.integration.panel import person, ready_node
from tests.integration.sockets.client import push, sign_in

pytestmark = pytest.mark.browser
SOON = 20_000


def open_page(browser: Browser, actor: Actor, path: str, sockets: bool = True) -> Page:
    page = browser.page()
    page.context.add_cookies([{"name": "pilothouse_session", "value": sign_in(actor), "url": browser.url}])
    if not sockets:
        page.route_web_socket("**/ws/**", lambda socket: socket.close(code=1013))
    page.goto(path)
    return page


def never_polls(page: Page) -> None:
    """From now on only the socket brings anything."""
    # Not its words: figures that grow old meanwhile make them "blind".
    expect(page.locator("#link-state")).to_have_attribute("data-line", "live", timeout=SOON)
    page.evaluate("document.querySelector('[data-live]').dataset.slow = 3600")


def link(page: Page) -> Locator:
    return page.locator("#link-state [role=status]")


def add_node(admin: Actor, name: str) -> None:
    apart(_add_node, admin, name)


def _add_node(admin: Actor, name: str) -> None:
    keys.generate_key(admin, name=f"key-of-{name}")
    nodes.add_nodes(admin, [{"name": name, "address": "a.example", "user": "p", "key": f"key-of-{name}"}])


def test_what_happens_is_pushed_to_an_open_page(still: Browser, stub: object) -> None:
    admin = person("ada", "admin")
    page = open_page(still, admin, "/nodes/")
    never_polls(page)
    add_node(admin, "one")
    expect(page.get_by_role("link", name="one", exact=True)).to_be_visible(timeout=SOON)
    page.evaluate("document.body.dataset.notReloaded = 1")
    add_node(admin, "two")
    expect(page.get_by_role("link", name="two", exact=True)).to_be_visible(timeout=SOON)
    assert page.evaluate("document.body.dataset.notReloaded") == "1"
    assert still.complaints == []


def test_figures_of_a_node_reach_its_page_as_they_are_heard(still: Browser, stub: object) -> None:
    from tests.browser import live

    admin = person("ada", "admin")
    apart(ready_node, admin, "gpu-1")
    with live.observing():
        page = open_page(still, admin, "/nodes/gpu-1/")
        never_polls(page)
        figures = page.locator("[id^=host-][data-seen], [id^=host-] [data-seen]").first
        seen = set()
        for _ in range(3):
            expect(figures).not_to_have_attribute("data-seen", max(seen, default=""), timeout=SOON)
            seen.add(figures.get_attribute("data-seen") or "")
        assert len(seen) == 3
        expect(page.locator("#link-state .age")).to_have_text(re.compile(r"^[0-4] s$"))
    expect(page.locator(".stale").first).to_be_visible(timeout=SOON)
    assert still.complaints == []


def test_figures_are_written_into_the_page_and_leave_alone_what_people_do_with_it(still: Browser) -> None:
    page = open_page(still, person("vera", "viewer"), "/")
    never_polls(page)
    page.evaluate(
        """document.querySelector("main").insertAdjacentHTML("beforeend",
        '<div id="host-1"><details id="more" open><summary>More</summary></details><b tabindex="0">1 %</b></div>')"""
    )
    page.locator("#host-1 b").focus()
    page.evaluate("window.before = document.activeElement")
    fresh = '<details id="more"><summary>More</summary></details><b tabindex="0" class="hot">2 %</b><i>3 W</i>'
    apart(push, "fleet", "<p id='host-1' hx-swap-oob='true'>别的</p>", "zh-hans")
    apart(
        push,
        "fleet",
        f'<div id="host-1" hx-swap-oob="true">{fresh}</div><div id="host-2" hx-swap-oob="true">none</div>',
    )
    expect(page.locator("#host-1 b.hot")).to_have_text("2 %")
    expect(page.locator("#host-1 i")).to_have_text("3 W")
    assert page.evaluate("document.activeElement === window.before && document.querySelector('#more').open")
    assert page.locator("[hx-swap-oob], #host-2").count() == 0
    assert still.complaints == []


def test_old_figures_are_marked_by_the_servers_clock_until_new_ones_come(still: Browser) -> None:
    vera = person("vera", "viewer")
    page = still.page()
    page.add_init_script("const real = Date.now; Date.now = () => real() - 3600000;")  # an hour slow
    page.context.add_cookies([{"name": "pilothouse_session", "value": sign_in(vera), "url": still.url}])
    page.goto("/nodes/")
    never_polls(page)
    write = """seen => {
        const at = new Date(seen * 1000).toISOString();
        document.querySelector("main").insertAdjacentHTML("beforeend",
            `<p id="figure" data-seen="${seen}"><time data-relative datetime="${at}"></time></p>`);
    }"""
    page.evaluate(write, time.time() - 20)
    expect(page.locator("#figure.stale time")).to_have_text(re.compile(r"^2\d s ago$"))
    expect(page.locator("#link-state .age")).to_have_text(re.compile(r"^2\d s$"))
    expect(link(page)).to_have_text("blind")
    expect(page.locator("#link-state.blind")).to_have_attribute("title", re.compile("^No figures come;"))
    page.evaluate("seen => { document.querySelector('#figure').dataset.seen = seen }", time.time() + 60)
    expect(page.locator("#figure:not(.stale)")).to_be_visible()
    expect(link(page)).to_have_text("live")
    expect(page.locator("#link-state:not(.blind)")).to_have_attribute("title", "")


@pytest.mark.parametrize("width", [390, 360])
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_a_small_window_shows_the_link_and_the_age_of_its_figures(still: Browser, width: int, language: str) -> None:
    page = open_page(still, person("vera", "viewer"), "/nodes/")
    page.set_viewport_size({"width": width, "height": 740})
    if language != "en":
        page.get_by_role("button", name="简体中文").click()
    never_polls(page)
    expect(link(page)).to_be_in_viewport(ratio=1)
    page.evaluate(
        "seen => document.querySelector('main').insertAdjacentHTML('beforeend', `<p data-seen=${seen}></p>`)",
        time.time() - 2999,
    )
    expect(link(page)).to_have_text("blind" if language == "en" else "无数据")
    expect(page.locator("#link-state .age")).to_have_text(re.compile("^50 (min|分)"))
    for part in ("#link-state", "#link-state .age", ".top .menu summary", ".top .crumbs [aria-current]"):
        expect(page.locator(part)).to_be_in_viewport(ratio=1)
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")


def test_without_a_socket_the_page_asks(still: Browser, stub: object) -> None:
    admin = person("ada", "admin")
    page = open_page(still, admin, "/nodes/", sockets=False)
    expect(link(page)).to_have_text("polling", timeout=SOON)
    add_node(admin, "one")
    expect(page.get_by_role("link", name="one", exact=True)).to_be_visible(timeout=SOON)
    expect(link(page)).to_have_text("polling")


def test_a_page_finds_back_after_a_restart(
    servers: None, transactional_db: None, stub: object, chromium: object, settings: Any
) -> None:
    from tests.browser import live

    settings.ALLOWED_HOSTS = ["127.0.0.1"]
    admin = person("ada", "admin")
    with live.served() as url:
        page = open_page(Browser(url, chromium), admin, "/nodes/")
        never_polls(page)
    expect(link(page)).not_to_have_text("live", timeout=SOON)
    add_node(admin, "one")
    with live.served(urlsplit(url).port or 0):
        expect(link(page)).to_have_text("live", timeout=60_000)
        expect(page.get_by_role("link", name="one", exact=True)).to_be_visible(timeout=SOON)
        page.close()


def test_whoever_is_disabled_is_shown_nothing_more(still: Browser) -> None:
    admin, viewer = person("ada", "admin"), person("vera", "viewer")
    page = open_page(still, viewer, "/nodes/")
    never_polls(page)
    apart(people.change_user, admin, viewer.user_id or 0, active=False)
    expect(page.get_by_label("Password")).to_be_visible(timeout=SOON)


def test_another_role_is_seen_at_once(still: Browser) -> None:
    admin, viewer = person("ada", "admin"), person("vera", "viewer")
    page = open_page(still, viewer, "/layouts/")
    expect(link(page)).to_have_text("live", timeout=SOON)
    apart(people.change_user, admin, viewer.user_id or 0, role="operator")
    expect(page.get_by_role("link", name="Add a layout").first).to_be_visible(timeout=SOON)
    expect(link(page)).to_have_text("live", timeout=SOON)
