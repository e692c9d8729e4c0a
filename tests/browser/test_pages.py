"""The main way through the panel in a real browser: sign in, add a node, deploy, watch, stop."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Browser, apart
from tests.integration.panel import PASSWORD, person

pytestmark = pytest.mark.browser
SOON = 20_000


def _sign_in(browser: Browser, name: str = "ada", **options: object) -> Page:
    page = browser.page(**options)
    page.goto("/")
    page.get_by_label("User name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Fleet", level=1)).to_be_visible()
    return page


def _add_node(page: Page) -> None:
    page.goto("/")
    page.get_by_role("link", name="Add a node").first.click()
    page.get_by_label("Name", exact=True).fill("gpu-1")
    page.get_by_label("Address", exact=True).fill("gpu-1.example")
    page.get_by_role("button", name="Add the node").click()
    page.get_by_role("link", name="Compare and accept").click(timeout=SOON)
    page.get_by_role("checkbox", name="Accept gpu-1").check()
    page.get_by_role("button", name="Accept the chosen").click()
    page.goto("/nodes/gpu-1/")
    expect(page.locator(".head .badge")).to_have_text("ready", timeout=SOON)


def _prepare(page: Page) -> None:
    page.goto("/add/model/")
    page.get_by_label("Name", exact=True).fill("qwen")
    page.get_by_label("Folder or hub id").fill("/models/Qwen2.5-7B-Instruct")
    page.get_by_role("button", name="Add the model").click()
    expect(page.get_by_text("Qwen2ForCausalLM")).to_be_visible(timeout=SOON)
    page.goto("/add/layout/")
    page.get_by_label("Name", exact=True).fill("one")
    page.get_by_role("button", name="Add the layout").click()


def test_from_an_empty_panel_to_a_ready_deployment_and_its_proven_stop(panel: Browser) -> None:
    person("ada", "admin")
    page = _sign_in(panel)
    _add_node(page)
    _prepare(page)
    page.goto("/add/deployment/")
    page.get_by_label("Name", exact=True).fill("chat")
    page.get_by_label("Engine arguments").fill("--max-model-len 4096")
    expect(page.locator("#preview code").first).to_contain_text("--max-model-len 4096", timeout=SOON)
    page.get_by_role("button", name="Deploy", exact=True).click()
    expect(page.locator(".head .badge")).to_have_text("ready", timeout=SOON)
    expect(page.get_by_text("completion came back")).to_be_visible()
    expect(page.locator("#announce")).to_have_text("ready")
    page.get_by_role("link", name="Stop chat").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("engine 0 on gpu-1, pid")
    dialog.get_by_role("button", name="Stop chat").click()
    expect(page.locator(".head .badge")).to_have_text("stopped", timeout=SOON)
    expect(page.get_by_text("Stopped, and proven")).to_be_visible()
    assert panel.complaints == []


def test_the_log_runs_along_and_waits_while_somebody_reads(still: Browser, stub) -> None:  # type: ignore[no-untyped-def]
    from deployments.models import Process

    admin = person("ada", "admin")
    process = _deployed(admin, stub)
    on_node = stub.node(process.node_id).processes[str(process.pk)]
    for number in range(200):
        on_node.say(f"line {number}")
    page = _sign_in(still)
    page.goto(f"/processes/{Process.objects.get().pk}/log/")
    log = page.locator("#log")
    on_node.say("ERROR the newest")
    expect(page.get_by_text("ERROR the newest")).to_be_in_viewport(timeout=SOON)
    log.evaluate("box => box.scrollTop = 0")
    expect(page.get_by_role("button", name="Paused: follow again")).to_be_visible()
    on_node.say("while reading")
    expect(page.get_by_text("while reading")).to_be_attached(timeout=SOON)
    assert log.evaluate("box => box.scrollTop") == 0
    page.get_by_role("button", name="First fault").click()
    expect(page.get_by_text("ERROR the newest")).to_be_in_viewport()
    assert still.complaints == []


def _deployed(admin, stub):  # type: ignore[no-untyped-def]
    from deployments.models import Process
    from deployments.services import deployments
    from deployments.services.deployments import DeploymentInput
    from tests.integration.panel import found_model, ready_node, settle, single_layout

    ready_node(admin)
    found_model(admin)
    single_layout(admin)
    settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one")))
    return Process.objects.get()


def test_what_was_opened_and_ticked_stays_when_a_live_part_changes(still: Browser, stub) -> None:  # type: ignore[no-untyped-def]
    from deployments.models import Deployment
    from deployments.transitions import ring_pages

    admin = person("ada", "admin")
    _deployed(admin, stub)
    page = _sign_in(still)
    page.goto("/deployments/chat/")
    page.get_by_text("Command").click()
    Deployment.objects.update(state="DEGRADED")
    apart(ring_pages, deployment=Deployment.objects.get().pk)
    expect(page.locator(".head .badge")).to_have_text("degraded", timeout=SOON)
    expect(page.locator("details[open] code").first).to_be_visible()
    assert still.complaints == []


def test_keys_lead_to_places_and_the_theme_and_language_are_kept(still: Browser) -> None:
    person("vera", "viewer")
    page = _sign_in(still, "vera", color_scheme="light")
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page.get_by_role("heading", name="Nodes", level=1)).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Escape")
    switch = page.get_by_role("button", name=re.compile("Theme"))
    switch.click()
    switch.click()
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.get_by_role("button", name="简体中文").click()
    expect(page.get_by_role("heading", name="节点", level=1)).to_be_visible()
    assert still.complaints == []


def test_a_panel_that_is_gone_is_said_to_be_gone_and_what_was_seen_stays(still: Browser) -> None:
    person("vera", "viewer")
    page = _sign_in(still, "vera")
    expect(page.locator("#link-state [role=status]")).to_have_text("live")
    page.evaluate("document.querySelector('[data-live]').dataset.slow = 1")
    page.route("**/*", lambda route: route.abort())
    expect(page.get_by_text("The panel does not answer.")).to_be_visible(timeout=SOON)
    expect(page.get_by_role("heading", name="Fleet", level=1)).to_be_visible()
    page.unroute("**/*")
    expect(page.locator("#link-state [role=status]")).to_have_text("live", timeout=SOON)


def test_without_scripts_people_sign_in_preview_deploy_and_stop(still: Browser, stub) -> None:  # type: ignore[no-untyped-def]
    admin = person("ada", "admin")
    _deployed(admin, stub)
    page = _sign_in(still, java_script_enabled=False)
    page.goto("/add/deployment/")
    page.get_by_label("Name", exact=True).fill("second")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview code").first).to_contain_text("vllm serve")
    page.get_by_role("button", name="Deploy", exact=True).click()
    expect(page.get_by_role("heading", name="second", level=1)).to_be_visible()
    page.goto("/deployments/chat/")
    page.get_by_role("link", name="Stop chat").click()
    page.get_by_role("button", name="Stop chat").click()
    expect(page.get_by_text("chat is being stopped.")).to_be_visible()
