"""The first deployment as a person does it: in a browser, on machines with a real sshd, with the real engine."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, expect

from tests.acceptance.by_browser import SOON, Person, sign_in
from tests.acceptance.serving import SMALL, START_S, Talker, api_servers
from tests.browser.conftest import Browser
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.lab.panel import Panel
from tests.lab.remains import engine_remains
from tests.lab.spec import HostSpec

pytestmark = [pytest.mark.lab, pytest.mark.vllm, pytest.mark.browser, pytest.mark.timeout(600)]
ARGS = " ".join(SMALL)
PASSWORD = "the viewer's own long word"


@pytest.fixture(scope="module")
def lab(module_lab, panel) -> Lab:
    """A machine that the first test adds by hand, and one for the others."""
    return module_lab(2, specs=[HostSpec(name="harbour"), HostSpec(name="lighthouse")])


@pytest.fixture(scope="module")
def known(lab, panel, engine) -> Host:
    """The second machine, ready, with a model and a layout."""
    host = lab.hosts[1]
    panel.add_hosts([host], engine)
    panel.add_model("small", engine.model, nodes=[host.name])
    panel.add_layout("one", "single")
    return host


@pytest.fixture
def browser(panel: Panel, chromium: object) -> Iterator[Browser]:
    """A browser for one test; its pages are closed with it."""
    opened = Browser(panel.url, chromium)
    yield opened
    for context in chromium.contexts:  # type: ignore[attr-defined]
        context.close()


def test_from_an_empty_panel_to_an_engine_that_chats_and_its_proven_stop(lab, panel, engine, browser):
    host = lab.hosts[0]
    person = sign_in(browser, panel)
    public = person.generate_key("fleet")
    with (host.folder / "ssh/authorized_keys").open("a") as authorized:
        authorized.write(f"{public}\n")
    person.add_node(host, "fleet", engine.root, cluster_address="127.0.0.1")
    person.accept_fingerprint(host)
    person.go(f"/nodes/{host.name}/", host.name)
    person.awaits_state("ready")
    expect(person.page.get_by_role("row", name="vllm", exact=False).first).to_be_visible(timeout=SOON)
    person.add_model("tiny", engine.model, host)
    person.add_layout("single")
    person.wish("first", "tiny", host, ARGS)
    person.deploy("first")
    follow_until_ready(person)
    chat(person, panel, host)
    see_figures_move(person, panel, host)
    person.go("/deployments/first/", "first")
    person.stop("first")
    expect(person.page.get_by_text("Stopped, and proven")).to_be_visible()
    assert engine_remains(host) == []
    assert browser.complaints == []


def follow_until_ready(person: Person) -> None:
    """State, phases and log move along by themselves; no page is loaded again."""
    person.record(state=".head .badge", phase=".progress label")
    log = person.page.context.new_page()
    log.goto(person.page.url)
    log.get_by_role("link", name="Log").first.click(timeout=SOON)
    expect(log.get_by_role("log")).to_contain_text("Application startup complete", timeout=START_S * 1000)
    person.awaits_state("ready", 60)
    seen = person.recorded()
    assert seen["state"][-2:] == ["starting", "ready"]
    assert len({phase.partition(" ·")[0] for phase in seen["phase"]}) >= 2, seen["phase"]
    log.close()


def chat(person: Person, panel: Panel, host: Host) -> None:
    """Words come through the panel while the engine makes them, though only its own node reaches it."""
    [endpoint] = panel.deployment("first")["endpoints"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host.address, urlsplit(endpoint["url"]).port), timeout=10)
    page = person.page
    page.get_by_role("link", name="Chat", exact=True).click()
    expect(page.get_by_role("heading", name="Chat with first", level=1)).to_be_visible()
    page.get_by_label("Tokens at most").fill("200")
    person.record(answer="[data-answer]")
    page.get_by_label("Message", exact=True).fill("What do you see from the harbour?")
    page.keyboard.press("Enter")
    answer = page.get_by_role("log").get_by_role("listitem").filter(has_text="Tokens in").last
    expect(answer).to_contain_text(host.name, timeout=2 * SOON)
    lengths = [len(words) for words in person.recorded()["answer"]]
    assert len(lengths) > 3, "the words came all at once"
    assert lengths == sorted(lengths)


def see_figures_move(person: Person, panel: Panel, host: Host) -> None:
    """The deployment's page shows tokens per second and the node's its CPU, and both move while one looks on."""
    with Talker(panel, "first"):
        page = person.go("/deployments/first/", "first")
        moves(person, page.locator(".engine-figures .gauge", has_text="generated").locator(".big"))
    person.go(f"/nodes/{host.name}/", host.name)
    host_moves(person)


def host_moves(person: Person) -> None:
    """Its CPU is known, and what it sends and receives changes (a busy CPU may stay at 100 %)."""
    figures = person.page.locator(".host-figures")
    expect(figures.locator(".gauge", has_text="CPU").locator(".big")).to_have_text(re.compile(r"\d %"), timeout=SOON)
    moves(person, figures.get_by_role("table", name="Networks"))


def moves(person: Person, figure: Locator) -> None:
    """A figure changes twice without the page being loaded, and the frames of the socket carry its element."""
    element = figure.locator("xpath=ancestor::*[contains(@class, '-figures')]").get_attribute("id")
    person.frames.clear()
    person.record()
    for _ in range(2):
        before = figure.inner_text()
        expect(figure).not_to_have_text(before, timeout=SOON, use_inner_text=True)
    expect(figure).to_contain_text(re.compile(r"\d"))
    person.recorded()
    assert any(f'id="{element}"' in frame for frame in person.frames)


def test_an_engine_that_cannot_start_says_why_and_what_to_do(known, panel, browser):
    person = sign_in(browser, panel)
    person.wish("typo", "small", known, "--no-such-flag 1")
    person.deploy("typo")
    person.record(state=".head .badge")
    person.awaits_state("failed", 120)
    [error] = [problem for problem in panel.deployment("typo")["problems"] if problem["node"]]
    alert = person.page.get_by_role("alert").filter(has_text="--no-such-flag")
    expect(alert.first).to_contain_text(known.name)
    assert error["code"] == "UNKNOWN_FLAG"
    expect(alert.first).to_contain_text(error["remedy"])
    assert person.recorded()["state"][-1] == "failed"
    person.stop("typo")
    assert api_servers(known) == []


def test_a_page_becomes_current_by_itself_after_the_web_process_died(known, panel, browser):
    person = sign_in(browser, panel)
    page = person.go(f"/nodes/{known.name}/", known.name)
    link, head = page.locator("#link-state"), page.locator(".head")
    expect(link).to_contain_text("live", timeout=SOON)
    person.record(link="#link-state")
    killed = panel.kill("web")
    panel.wait_for_part("web", instead_of=killed)
    panel.wait_until_ready()
    panel.api("POST", f"/nodes/{known.name}/intent", {"intent": "CORDONED"})
    expect(head).to_contain_text("cordoned", timeout=SOON)
    expect(link).to_contain_text("live", timeout=SOON)
    assert any(not words.startswith("live") for words in person.recorded()["link"])
    host_moves(person)
    panel.api("POST", f"/nodes/{known.name}/intent", {"intent": "ACTIVE"})
    expect(head).not_to_contain_text("cordoned", timeout=SOON)


def test_a_viewer_sees_everything_and_can_do_nothing(known, panel, browser):
    panel.api("POST", "/access/users", {"username": "vera", "password": PASSWORD, "role": "viewer"})
    panel.deploy("watched", model="small", layout="one", nodes=[known.name], args=SMALL, replicas=0)
    person = Person(browser, "vera", PASSWORD)
    for path, heading in (("/deployments/watched/", "watched"), (f"/nodes/{known.name}/", known.name)):
        page = person.go(path, heading)
        expect(page.locator(".head").get_by_role("button")).to_have_count(0)
        expect(page.locator(".head").get_by_role("link")).to_have_count(0)
    posts = {
        "/deployments/watched/stop/": {},
        "/deployments/watched/scale/": {"replicas": "1"},
        "/deployments/watched/chat/": {"said": "Hello", "mode": "plain", "max_tokens": "1", "temperature": "0"},
        f"/nodes/{known.name}/intent/": {"intent": "CORDONED"},
        "/add/deployment/": {"name": "hers", "model": "small", "layout": "one", "replicas": "1"},
        "/settings/keys/": {"name": "hers", "source": "generate"},
    }
    assert {path: person.asks_by_hand(path, **form) for path, form in posts.items()} == dict.fromkeys(posts, 403)
    assert panel.deployment("watched")["wish"] == "RUNNING"
    panel.stop_deployment("watched")
