"""Chatting in a real browser: words while the engine still works, stopping, hostile words, and what goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from deployments.remote.stub import StubLauncher
from tests.browser.conftest import Browser
from tests.integration.panel import PASSWORD, person

pytestmark = pytest.mark.browser
SOON = 20_000
HOSTILE = "<img src=x onerror=\"document.title='taken'\"><b>bold</b>"
LOREM = (
    "Set the main", " sail", " and", " bring", " her", " two", " points", " to", " starboard", ".\n\n",
    "1. The wind holds from the south-west.\n2. The current sets us half a knot to leeward.\n\n", "We", " will",
    " raise", " the", " light", " before", " dawn", ".",
)  # fmt: skip


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"it never came: {what}"
        time.sleep(0.02)


@pytest.fixture
def chat(still: Browser, stub: StubLauncher) -> Page:
    return opened(still, stub)


def opened(browser: Browser, stub: StubLauncher, **options: object) -> Page:
    """The chat page of a ready deployment, as an operator sees it."""
    from deployments.models import Deployment
    from deployments.services import deployments
    from deployments.services.deployments import DeploymentInput
    from tests.integration.panel import found_model, ready_node, settle, single_layout

    if not Deployment.objects.exists():
        admin = person("ada", "admin")
        person("otto", "operator")
        ready_node(admin)
        found_model(admin)
        single_layout(admin)
        settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one", served_name="Qwen2.5-7B")))
    page = browser.page(**options)
    page.goto("/login/?next=/deployments/chat/")
    page.get_by_label("User name").fill("otto")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Chat", exact=True).click()
    expect(page.get_by_role("heading", name="Chat with chat", level=1)).to_be_visible()
    return page


def say(page: Page, words: str) -> None:
    page.get_by_label("Message", exact=True).fill(words)
    page.get_by_role("button", name="Send").click()


def answer(page: Page):  # type: ignore[no-untyped-def]
    return page.locator(".turn.assistant").last


def test_words_are_on_the_page_before_the_engine_has_finished(chat: Page, still: Browser, stub: StubLauncher) -> None:
    stub.chat.gate.clear()
    chat.get_by_label("Message", exact=True).fill("Hello")
    chat.keyboard.press("Enter")
    expect(answer(chat).locator("[data-answer]")).to_have_text("Good")
    assert stub.chat.open == 1
    stub.chat.gate.set()
    expect(answer(chat).locator("[data-answer]")).to_have_text("Good day, captain.")
    strip = answer(chat).locator(".strip")
    expect(strip).to_contain_text("7 · 5")
    expect(strip).to_contain_text("complete")
    expect(strip).to_contain_text("node-1")
    expect(chat.get_by_label("Message", exact=True)).to_be_focused()
    say(chat, "And now?")
    expect(chat.locator(".turn")).to_have_count(4)
    expect(answer(chat).locator(".strip")).to_be_visible()
    assert [message["content"] for message in stub.chat.heard[-1][1]["messages"]] == [
        "Hello",
        "Good day, captain.",
        "And now?",
    ]
    chat.get_by_role("button", name="New conversation").click()
    expect(chat.locator(".turn")).to_have_count(0)
    assert still.complaints == []


def test_a_stop_ends_the_request_on_the_engine_and_keeps_what_came(
    chat: Page, still: Browser, stub: StubLauncher
) -> None:
    stub.chat.gate.clear()
    say(chat, "Hello")
    expect(answer(chat).locator("[data-answer]")).to_have_text("Good")
    chat.get_by_role("button", name="Stop the answer").click()
    expect(answer(chat).locator(".strip")).to_contain_text("stopped by you")
    until(lambda: (stub.chat.open, stub.chat.aborted) == (0, 1), "the engine saw the stop")
    expect(chat.get_by_role("button", name="Send")).to_be_visible()
    assert still.complaints == []


def test_leaving_the_page_ends_the_request_on_the_engine(chat: Page, stub: StubLauncher) -> None:
    stub.chat.gate.clear()
    say(chat, "Hello")
    expect(answer(chat).locator("[data-answer]")).to_have_text("Good")
    chat.goto("/")
    until(lambda: (stub.chat.open, stub.chat.aborted) == (0, 1), "the engine saw the end")


def test_hostile_words_of_engine_and_error_are_words(chat: Page, still: Browser, stub: StubLauncher) -> None:
    stub.chat.words = (HOSTILE,)
    stub.chat.thoughts = (HOSTILE,)
    say(chat, HOSTILE)
    expect(answer(chat).locator("[data-answer]")).to_have_text(HOSTILE)
    expect(chat.locator(".turn.user .words")).to_have_text(HOSTILE)
    stub.chat.refusal = (500, HOSTILE)
    say(chat, "again")
    expect(chat.locator("#trouble")).to_contain_text(HOSTILE)
    assert chat.locator(".turns img, .turns b, #trouble img").count() == 0
    assert "taken" not in chat.title()
    assert still.complaints == []


def test_an_error_says_what_to_do_and_gives_the_message_back(chat: Page, still: Browser, stub: StubLauncher) -> None:
    stub.chat.refusal = (400, '{"error": {"message": "default chat template is no longer allowed"}}')
    say(chat, "Hello")
    expect(chat.locator("#trouble")).to_contain_text("The model has no chat template")
    expect(chat.locator("#trouble .remedy")).to_contain_text("Use plain completion")
    expect(chat.get_by_label("Message", exact=True)).to_have_value("Hello")
    expect(chat.locator(".turn")).to_have_count(0)
    stub.chat.refusal = None
    chat.get_by_label("Plain completion").check()
    chat.get_by_role("button", name="Send").click()
    expect(answer(chat).locator("[data-answer]")).to_have_text("Good day, captain.")
    expect(chat.locator("#trouble .problem")).to_have_count(0)
    assert stub.chat.heard[-1][0] == "/v1/completions"
    assert still.complaints == []


def test_an_answer_that_breaks_off_stays_and_says_so(chat: Page, stub: StubLauncher) -> None:
    stub.chat.breaks_after = 2
    say(chat, "Hello")
    expect(chat.locator("#trouble")).to_contain_text("ended the answer in the middle")
    expect(answer(chat).locator("[data-answer]")).to_have_text("Good day")
    expect(answer(chat).locator(".strip")).to_contain_text("broken off")
    chat.route("**/chat/", lambda route: route.abort())
    say(chat, "again")
    expect(chat.locator("#trouble")).to_contain_text("The panel does not answer.")


def test_without_scripts_the_answer_comes_as_a_page(still: Browser, stub: StubLauncher) -> None:
    page = opened(still, stub, java_script_enabled=False)
    say(page, "Hello")
    expect(page.locator(".turn.assistant")).to_contain_text("Good day, captain.")
    say(page, "And now?")
    expect(page.locator(".turn")).to_have_count(4)


def test_the_page_fits_every_window_and_scheme(still: Browser, stub: StubLauncher, looks: Path) -> None:
    stub.chat.words = LOREM
    too_wide = []
    for shape, (width, height) in {"wide": (1440, 900), "narrow": (390, 844), "tiny": (360, 640)}.items():
        for scheme in ("light", "dark"):
            page = opened(still, stub, viewport={"width": width, "height": height}, color_scheme=scheme)
            page.screenshot(path=looks / f"chat-empty-{shape}-{scheme}.png")
            stub.chat.thoughts = ("The helmsman asks for a course; ", "I look at the chart first.")
            say(page, "What is our course, and when do we see the light?")
            expect(answer(page).locator(".strip")).to_be_visible()
            stub.chat.thoughts = ()
            stub.chat.gate.clear()
            say(page, "And then? " + "w" * 90)
            expect(answer(page).locator("[data-answer]")).not_to_be_empty()
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                too_wide.append(f"{shape} {scheme}")
            page.screenshot(path=looks / f"chat-{shape}-{scheme}.png")
            stub.chat.gate.set()
            stub.chat.refusal = (400, '{"error": {"message": "default chat template is no longer allowed"}}')
            say(page, "Again")
            expect(page.locator("#trouble .problem")).to_be_visible()
            page.screenshot(path=looks / f"chat-error-{shape}-{scheme}.png", full_page=True)
            stub.chat.refusal = None
            page.context.close()
    assert too_wide == []
    assert still.complaints == []
