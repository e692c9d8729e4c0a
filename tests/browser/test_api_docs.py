"""The API's own page in a real browser, under the policy that browsers enforce."""

from __future__ import annotations

import pytest

from tests.integration.panel import PASSWORD, person


def sign_in(page, url: str) -> None:
    page.goto(url)
    page.fill("input[name=username]", "ada")
    page.fill("input[name=password]", PASSWORD)
    page.press("input[name=password]", "Enter")


@pytest.mark.browser
def test_the_api_can_be_tried_out_on_its_page(still) -> None:
    person("ada", "admin")
    page = still.page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    sign_in(page, "/api/v1/docs")
    page.wait_for_selector('[data-path="/api/v1/deployments/preview"]')
    for path, button in (("/access/me", "GET"), ("/keys/generate", "POST")):
        row = page.locator(".opblock", has=page.locator(f'[data-path="/api/v1{path}"]')).first
        row.locator(".opblock-summary").click()
        row.locator("button:has-text('Try it out')").click()
        if button == "POST":
            row.locator("textarea").fill('{"name": "tried"}')
        row.locator("button:has-text('Execute')").click()
        row.locator(".responses-table.live-responses-table .response-col_status").first.wait_for()
        status = row.locator("tr.response .response-col_status").first.inner_text()
        assert status.strip().startswith("20"), (path, status)
    assert still.complaints == []
    assert all(url.startswith((still.url, "data:")) for url in asked)
