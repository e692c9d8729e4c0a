"""Pictures of every page, light and dark, wide and narrow, in build/looks; and what a picture cannot show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.browser import crowd, demo, telemetry
from tests.browser.conftest import Browser
from tests.integration.panel import PASSWORD, person

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
SHAPES = {"wide": (1440, 900), "narrow": (390, 844)}
# The narrowest that is promised, for the pages with the most figures.
TINY = (360, 740)
DENSE = ("fleet", "node", "node-silent", "deployment", "starting", "chat")
PAGES = {
    "fleet": "/",
    "nodes": "/nodes/",
    "node": "/nodes/atlas-01/",
    "node-changed": "/nodes/atlas-03/",
    "node-silent": "/nodes/bench/",
    "node-add": "/add/node/",
    "nodes-add": "/add/nodes/",
    "node-change": "/nodes/bench/change/",
    "environment": "/nodes/atlas-01/environment/",
    "fingerprints": "/fingerprints/",
    "models": "/models/",
    "model": "/models/qwen2.5-32b/",
    "model-add": "/add/model/",
    "layouts": "/layouts/",
    "layout-add": "/add/layout/",
    "deployments": "/deployments/",
    "deployment": "/deployments/chat-7b/",
    "chat": "/deployments/chat-7b/chat/",
    "starting": "/deployments/coder-32b/",
    "failed": "/deployments/judge/",
    "stopped": "/deployments/old-chat/",
    "deployment-add": "/add/deployment/?model=qwen2.5-7b&layout=tp2",
    "deployment-change": "/deployments/chat-7b/change/",
    "stop": "/deployments/chat-7b/stop/",
    "jobs": "/jobs/",
    "tokens": "/settings/",
    "keys": "/settings/keys/",
    "users": "/settings/users/",
}
# LOOKS="fleet jobs" takes only these; "readme" also renews docs/screenshot.png.
ONLY = set(os.environ.get("LOOKS", "").split())


# Words and figures of one instrument that touch each other, or reach out of it.
TOUCHING = """() => {
    const found = [];
    for (const box of document.querySelectorAll(".readings, .gauge, .ledger, .figures, .node-line, .legend")) {
        const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
        const texts = [];
        while (walker.nextNode()) {
            const node = walker.currentNode;
            const within = node.parentElement;
            if (!node.data.trim() || within.closest(".unseen, .legend") !== box.closest(".legend")) continue;
            const range = document.createRange();
            range.selectNodeContents(node);
            const [rect] = range.getClientRects();
            const cell = within.closest("dt, dd, li, td, th, .one, .name, .value, .big");
            if (rect) texts.push({ words: node.data.trim(), rect, cell });
        }
        const edge = box.getBoundingClientRect().right + 1;
        for (const { words, rect } of texts) {
            if (rect.right > edge) found.push(`${words} reaches out of ${box.className}`);
        }
        texts.forEach((one, place) => texts.slice(place + 1).forEach((other) => {
            const apart = one.rect.right + 4 <= other.rect.left || other.rect.right + 4 <= one.rect.left;
            const above = one.rect.bottom <= other.rect.top + 2 || other.rect.bottom <= one.rect.top + 2;
            if (one.cell !== other.cell && !apart && !above) found.push(`${one.words} | ${other.words}`);
        }));
    }
    return [...new Set(found)];
}"""


def test_no_two_figures_touch_at_any_width(still: Browser, stub: object) -> None:
    demo.fleet(stub, person("ada", "admin"))  # type: ignore[arg-type]
    page = _sign_in(still)
    wrong = {}
    for path in ("/", "/nodes/atlas-01/", "/nodes/bench/", "/deployments/chat-7b/"):
        telemetry.hear()
        page.goto(path)
        for width in (320, 360, 390, 480, 600, 720, 860, 1024, 1120, 1200, 1280, 1360, 1440, 1600):
            page.set_viewport_size({"width": width, "height": 900})
            if touching := page.evaluate(TOUCHING):
                wrong[f"{path} at {width} px"] = touching
    assert wrong == {}


LONG = "W" * 3000


def test_no_word_of_a_machine_makes_a_page_wider_than_its_window(still: Browser) -> None:
    person("ada", "admin")
    node = _garrulous()
    page = _sign_in(still)
    wide = {}
    for path in ("/", "/nodes/", f"/nodes/{node}/", "/deployments/chat-7b/"):
        _speak(node)
        page.goto(path)
        for width in (360, 390, 860, 1024, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wide[f"{path} at {width} px"] = page.evaluate(REACHING)
    assert wide == {}


# The words that reach out of the window, with what they stand in.
REACHING = """() => {
    const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    const found = [];
    while (walker.nextNode()) {
        const range = document.createRange();
        range.selectNodeContents(walker.currentNode);
        const within = walker.currentNode.parentElement;
        if (range.getBoundingClientRect().right > innerWidth + 1) found.push(`${within.outerHTML.slice(0, 90)}`);
    }
    return found.slice(0, 9);
}"""


def _garrulous() -> str:
    """A machine, its processes and what is to be done about them, all with words that never end."""
    from deployments.models import Node, Process, Replica

    crowd.gather(1, 2)
    node = Node.objects.get()
    facts = {"hostname": LONG, "kernel": LONG, "os": {"pretty": LONG}, "cpu": {"model": LONG}, "user": LONG}
    facts |= {"gpu": {"driver": LONG, "problem": LONG}, "python": {"version": LONG, "executable": LONG}}
    facts |= {"nics": [{"name": LONG, "addresses": [LONG]}], "disks": [{"mount": LONG, "fs": LONG}], "state_dir": LONG}
    facts |= {"environment": {"path": LONG, "packages": {LONG: LONG}, "executables": {"vllm": LONG}}}
    error = {"code": LONG, "message": LONG, "remedy": LONG, "node": LONG}
    Node.objects.update(facts=facts, error=error, state_note=LONG, interface=LONG[:32], state="NOT_READY")
    node.accelerators.update(name=LONG[:100])
    spec = {"argv": [LONG, "--x", LONG], "env": {"X": LONG}, "secrets": [], "accelerators": [LONG], "probe": {}}
    spec["ports"], spec["probe"] = {LONG: 1}, {"base_url": f"http://{LONG}", "model": LONG}
    Process.objects.update(spec=spec, note=LONG, phase=LONG[:32], error=error)
    Replica.objects.update(note=LONG, reason="UNPLACEABLE", state="PENDING")
    return node.name


def _speak(name: str) -> None:
    import time

    from django.core.cache import cache

    from deployments.models import Node, Process
    from monitoring.domain.figures import EngineFigures, NodeFigures, encode
    from monitoring.domain.samples import Disk, Filesystem, Gpu, GpuProcess, Gpus, Host, Network

    node, now = Node.objects.get(name=name), time.time()
    theirs = (GpuProcess(pid=1, memory=1, user=LONG, command=LONG),)
    said = {"name": LONG, "bus_id": LONG, "throttle": (LONG,), "memory_total": 9, "memory_used": 2}
    first, second = (slot.uuid for slot in node.accelerators.all())
    devices = (Gpu(uuid=first, index=0, processes=theirs, **said), Gpu(uuid=second, index=1, name=LONG, lost=LONG))
    figures = NodeFigures(
        node=node.pk,
        heard_at=now,
        gpu=Gpus(source=LONG, at=now, problem=LONG, message=LONG, devices=devices),
        host=Host(disks=(Disk(name=LONG),), filesystems=(Filesystem(mount=LONG),), networks=(Network(name=LONG),)),
        engines={str(pk): EngineFigures(at=now, error=LONG) for pk in Process.objects.values_list("pk", flat=True)},
    )
    cache.set(f"figures:{node.pk}", encode(figures), 60)


def _sign_in(browser: Browser, **options: object):
    page = browser.page(**options)
    page.goto("/login/")
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/")
    return page


def test_every_page_fits_its_window_and_says_nothing_to_the_console(still: Browser, stub: object, looks: Path) -> None:
    admin = person("ada", "admin")
    demo.fleet(stub, admin)  # type: ignore[arg-type]
    person("vera", "viewer")
    extra = {"log": f"/processes/{_process('coder-32b')}/log/", "job": f"/jobs/{_job()}/"}
    pages = {name: path for name, path in {**PAGES, **extra}.items() if not ONLY or name in ONLY}
    too_wide = []
    for shape, (width, height) in {**SHAPES, "tiny": TINY}.items():
        for scheme in ("light", "dark"):
            page = _sign_in(still, viewport={"width": width, "height": height}, color_scheme=scheme)
            for name, path in pages.items():
                if shape == "tiny" and name not in DENSE:
                    continue
                telemetry.hear()
                page.goto(path)
                page.wait_for_load_state("networkidle") if "add/deployment" in path else None
                if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                    too_wide.append(f"{name} at {width} px")
                page.screenshot(path=looks / f"{name}-{shape}-{scheme}.png", full_page=True)
            page.context.close()
    if "readme" in ONLY:
        _readme(still)
    assert too_wide == []
    assert still.complaints == []


@pytest.mark.parametrize(("name", "nodes", "gpus"), [("few", 1, 2), ("many", 100, 8)])
def test_two_gpus_are_instruments_and_eight_hundred_a_map(
    still: Browser, looks: Path, name: str, nodes: int, gpus: int
) -> None:
    person("ada", "admin")
    crowd.gather(nodes, gpus)
    for shape, (width, height) in SHAPES.items():
        for scheme in ("light", "dark"):
            page = _sign_in(still, viewport={"width": width, "height": height}, color_scheme=scheme)
            telemetry.hear()
            page.goto("/")
            assert page.locator(f".map.{name} .slot .cell-figures").count() == nodes * gpus
            assert not page.evaluate("document.documentElement.scrollWidth > innerWidth"), shape
            page.screenshot(path=looks / f"fleet-{name}-{shape}-{scheme}.png", full_page=True)
            page.context.close()
    assert still.complaints == []


def _readme(browser: Browser) -> None:
    """The picture in the README, without the language switch, whose words need a font that not all machines have."""
    page = _sign_in(browser, viewport={"width": 1360, "height": 860}, color_scheme="dark")
    telemetry.hear()
    page.goto("/deployments/chat-7b/")
    page.locator(".languages").evaluate("form => form.hidden = true")
    page.screenshot(path=ROOT / "docs" / "screenshot.png")
    page.context.close()


def _process(name: str) -> str:
    from deployments.models import Process

    return str(Process.objects.filter(deployment__name=name).latest("created_at").pk)


def _job() -> str:
    from deployments.models import Job

    return str(Job.objects.latest("created_at").pk)
