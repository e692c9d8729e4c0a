"""A person in front of a running panel: what they click and type, and what they saw meanwhile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, WebSocket, expect

from tests.browser.conftest import Browser
from tests.lab.client import fingerprint
from tests.lab.host import Host
from tests.lab.panel import Panel

SOON = 30_000
RECORD = """selectors => {
  const seen = window.seen = Object.fromEntries(Object.keys(selectors).map(name => [name, []]));
  const look = () => {
    for (const [name, selector] of Object.entries(selectors)) {
      const text = document.querySelector(selector)?.textContent.trim().replace(/\\s+/g, " ");
      if (text && text !== seen[name].at(-1)) seen[name].push(text);
    }
  };
  look();
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""


class Person:
    """One page of a browser, signed in as `user`. `frames` is what its sockets brought."""

    def __init__(self, browser: Browser, user: str, password: str):
        self.page: Page = browser.page()
        self.frames: list[str] = []
        self.page.on("websocket", self._listen)
        self.page.goto("/")
        self.page.get_by_label("User name").fill(user)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.get_by_role("heading", name="Fleet", level=1)).to_be_visible()

    def _listen(self, socket: WebSocket) -> None:
        socket.on("framereceived", lambda data: self.frames.append(data if isinstance(data, str) else ""))

    def go(self, path: str, heading: str) -> Page:
        self.page.goto(path)
        expect(self.page.get_by_role("heading", name=heading, level=1)).to_be_visible()
        return self.page

    # What the page says by itself, without being loaded again

    def record(self, **selectors: str) -> None:
        """From now on keep every text that the first element of each selector shows."""
        self.page.evaluate(RECORD, selectors)

    def recorded(self) -> dict[str, list[str]]:
        """The texts since `record`, each once per change. Fails when the page has been loaded again since."""
        seen = self.page.evaluate("window.seen ?? null")
        assert seen is not None, "the page was loaded again"
        return seen

    def awaits_state(self, word: str, timeout_s: float = 30.0) -> None:
        """Until the head of the page says that what it shows is in this state."""
        badge = self.page.locator(".head .badge").first
        try:
            expect(badge).to_have_text(word, timeout=timeout_s * 1000)
        except AssertionError:
            raise AssertionError(f"not {word}: {self.page.get_by_role('main').inner_text()}") from None

    # What a first deployment takes

    def generate_key(self, name: str) -> str:
        """Returns the public line to put on the machines."""
        page = self.go("/settings/keys/", "Settings")
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_label("Generate one").check()
        page.get_by_role("button", name="Add the key").click()
        return page.locator("article", has_text=name).locator("code").inner_text()

    def add_node(self, host: Host, key: str, environment: Path, cluster_address: str) -> None:
        page = self.go("/add/node/", "Add a node")
        for label, value in (("Name", host.name), ("Address", host.address), ("User", host.user)):
            page.get_by_label(label, exact=True).fill(str(value))
        page.get_by_label("SSH port").fill(str(host.port))
        page.get_by_label("An existing key").check()
        page.get_by_label("Key", exact=True).select_option(key)
        page.get_by_text("How it is used").click()
        page.get_by_label("Engine environment").fill(str(environment))
        page.get_by_label("Cluster address").fill(cluster_address)
        page.get_by_role("button", name="Add the node").click()
        expect(page).to_have_url(re.compile("/nodes/|/fingerprints/"))

    def accept_fingerprint(self, host: Host) -> None:
        """Compared with the key on the machine's own disk, as a person would."""
        page = self.go(f"/nodes/{host.name}/", host.name)
        page.get_by_role("link", name="Compare and accept").click(timeout=SOON)
        expect(page.get_by_role("row", name=host.name)).to_contain_text(fingerprint(host.host_key))
        page.get_by_role("checkbox", name=f"Accept {host.name}").check()
        page.get_by_role("button", name="Accept the chosen").click()
        expect(page.get_by_role("row", name=host.name)).to_contain_text("accepted")

    def add_model(self, name: str, folder: Path, host: Host) -> None:
        page = self.go("/add/model/", "Add a model")
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_label("Folder or hub id").fill(str(folder))
        page.get_by_role("group", name="Look on").get_by_label(host.name, exact=True).check()
        page.get_by_role("button", name="Add the model").click()
        expect(page.get_by_role("row", name=host.name)).to_contain_text(re.compile(r"\d+ files"), timeout=SOON)

    def add_layout(self, name: str) -> None:
        page = self.go("/add/layout/", "Add a layout")
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_role("button", name="Add the layout").click()
        expect(page.get_by_role("heading", name="Layouts", level=1)).to_be_visible()

    def wish(self, name: str, model: str, host: Host, args: str) -> None:
        """Fill in a new deployment, up to its preview."""
        page = self.go("/add/deployment/", "New deployment")
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_label("Model").select_option(model)
        page.get_by_role("group", name="Nodes to choose among").get_by_label(host.name, exact=True).check()
        page.get_by_label("Engine arguments").fill(args)
        commands = page.get_by_role("region", name="What will run").locator("code").first
        expect(commands).to_contain_text(f"serve {args}" if args.startswith("/") else args, timeout=SOON)
        expect(page.get_by_role("region", name="What will run")).to_contain_text("This exact command is run")

    def deploy(self, name: str) -> None:
        self.page.get_by_role("button", name="Deploy", exact=True).click()
        expect(self.page.get_by_role("heading", name=name, level=1)).to_be_visible()

    def stop(self, name: str) -> None:
        """Ask, confirm, and wait until it is stopped."""
        self.page.get_by_role("link", name=f"Stop {name}").click()
        self.page.get_by_role("dialog").get_by_role("button", name=f"Stop {name}").click()
        self.awaits_state("stopped", 60)

    def asks_by_hand(self, path: str, **form: Any) -> int:
        """The status of a POST with this session and its CSRF token, whatever buttons there are."""
        cookies = {cookie["name"]: cookie["value"] for cookie in self.page.context.cookies()}
        base = "{0.scheme}://{0.netloc}".format(urlsplit(self.page.url))
        data = {"csrfmiddlewaretoken": cookies["pilothouse_csrf"], **form}
        return self.page.request.post(base + path, form=data, headers={"Referer": base + path}, max_redirects=0).status


def sign_in(browser: Browser, panel: Panel) -> Person:
    """The first admin, as the panel's first start has printed it."""
    return Person(browser, *panel.first_login())
