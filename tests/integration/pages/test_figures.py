"""Figures on pages: what is missing, old, lost, foreign or hostile, said plainly; and the fragments they consist of."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.template.loader import render_to_string
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation

from deployments import reports
from deployments.models import Accelerator, Deployment, Node, Process
from deployments.remote import launcher
from deployments.remote.stub import StubLauncher
from deployments.remote.stub_facts import h200_host
from deployments.services import deployments
from deployments.services.access import Actor
from deployments.services.deployments import DeploymentInput
from deployments.targets import target_of
from monitoring.domain.figures import EngineFigures, NodeFigures, Quantiles, Trend, encode
from monitoring.domain.samples import Gpu, GpuProcess, Gpus, Host, Network
from monitoring.domain.shares import memory_of, together
from tests.browser import crowd, telemetry

from ..panel import found_model, ready_node, settle, single_layout
from .reading import Page, read

pytestmark = pytest.mark.django_db(transaction=True)
GIB = 1024**3
HOSTILE = "'\"><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(autouse=True)
def _forgotten() -> Any:
    yield
    cache.clear()


@pytest.fixture
def node(stub: StubLauncher, admin: Actor) -> Node:
    """A machine with two H200."""
    row = ready_node(admin, platform="cuda")
    stub.node(row.pk, h200_host("node-1", gpus=2))
    reports.record_facts(row, launcher().probe(target_of(row), None))
    row.refresh_from_db()
    return row


def _gpu(slot: Accelerator, **said: Any) -> Gpu:
    known = {"name": slot.name, "memory_total": 140 * GIB, "memory_used": 0, "memory_reserved": GIB, "processes": ()}
    return Gpu(uuid=slot.uuid, index=slot.index, **{**known, **said})


def _hear(node: Node, at: float | None = None, **said: Any) -> None:
    """The panel has figures of a node, heard at `at` (now)."""
    figures = NodeFigures(node=node.pk, heard_at=at or time.time(), **said)
    cache.set(f"figures:{node.pk}", encode(figures), 60)


def _gpus(node: Node, *first: dict[str, Any], at: float | None = None, **said: Any) -> Gpus:
    """The node's GPUs, what is said of the first ones given."""
    slots = list(node.accelerators.exclude(platform="cpu"))
    described = [*first, *({} for _ in slots[len(first) :])]
    devices = tuple(_gpu(slot, **words) for slot, words in zip(slots, described, strict=True))
    return Gpus(source="nvml", at=at or time.time(), devices=devices, **said)


def _classes(page: Page, tag: str, word: str) -> int:
    values = (value for name, attribute, value in page.attributes if (name, attribute) == (tag, "class"))
    return sum(word in value.split() for value in values)


def test_what_nobody_has_said_is_a_dash_and_never_a_zero(node: Node, as_viewer: Client) -> None:
    for address in ("/", "/nodes/node-1/"):
        text = read(as_viewer.get(address)).text
        assert "0 %" not in text.replace("0 % 100 %", ""), address
        assert "CPU –" in text, address
    assert "No figures have come yet." in text


def test_figures_stand_in_the_cells_and_lines_of_the_fleet(node: Node, as_viewer: Client) -> None:
    busy = {"utilization": 63.0, "memory_used": 70 * GIB, "power_w": 512.3, "temperature_c": 61.0}
    _hear(node, gpu=_gpus(node, busy), host=Host(cpu=12.4, memory_total=64 * GIB, memory_available=60 * GIB))
    page = read(as_viewer.get("/"))
    assert "63 % 70 GiB 512 W 61 °C" in page.text
    assert "GPU 63 %" in page.text
    assert "CPU 12 %" in page.text
    assert ("span", "id", f"cell-{node.pk}-0") in page.attributes
    assert ("span", "class", "cell-figures heat-6") in page.attributes
    assert ("span", "class", "cell-figures heat-none") in page.attributes


def test_figures_of_the_past_are_marked_with_their_age(node: Node, as_viewer: Client) -> None:
    _hear(node, time.time() - 170, gpu=_gpus(node, {"utilization": 63.0}, at=time.time() - 170))
    for address in ("/", "/nodes/node-1/"):
        page = read(as_viewer.get(address))
        assert _classes(page, "span" if address == "/" else "div", "stale"), address
        assert "last seen 3 min ago" in page.text, address
        assert any(attribute == "data-seen" for _, attribute, _ in page.attributes), address


def test_fresh_figures_are_not_marked(node: Node, as_viewer: Client) -> None:
    _hear(node, gpu=_gpus(node))
    page = read(as_viewer.get("/nodes/node-1/"))
    assert not _classes(page, "div", "stale")


def test_a_process_of_somebody_else_is_shown_with_its_user_and_command(node: Node, as_viewer: Client) -> None:
    theirs = GpuProcess(pid=4711, memory=9 * GIB, user="eve", command="python3 train.py")
    _hear(node, gpu=_gpus(node, {"memory_used": 9 * GIB, "processes": (theirs,)}))
    page = read(as_viewer.get("/nodes/node-1/"))
    assert "eve not ours python3 train.py pid 4711 9 GiB" in page.text
    assert "others 9 GiB" in page.text
    assert "eve" in read(as_viewer.get("/")).text


def test_hostile_words_of_a_node_stay_words(node: Node, as_viewer: Client) -> None:
    theirs = GpuProcess(pid=1, memory=GIB, user=HOSTILE, command=HOSTILE)
    first = {"name": HOSTILE, "bus_id": HOSTILE, "throttle": (HOSTILE,), "memory_used": GIB, "processes": (theirs,)}
    gpus = _gpus(node, first, {"lost": HOSTILE}, problem=HOSTILE, message=HOSTILE)
    _hear(node, gpu=gpus, problem=HOSTILE, host=Host(networks=(Network(name=HOSTILE),)))
    for address in ("/", "/nodes/node-1/"):
        page = read(as_viewer.get(address))
        assert "alert(1)" not in " ".join(page.scripts), address
        assert not [a for a in page.attributes if a[1].startswith("on")], address
    assert page.text.count(HOSTILE) >= 6


def test_a_lost_gpu_is_called_lost_and_the_other_goes_on(node: Node, as_viewer: Client) -> None:
    _hear(node, gpu=_gpus(node, {"lost": "Xid 79", "memory_used": None}, {"utilization": 5.0}, problem="GPU_LOST"))
    text = read(as_viewer.get("/nodes/node-1/")).text
    assert "This GPU is lost; nothing can be read of it. Xid 79" in text
    assert "5 %" in text
    assert "lost" in read(as_viewer.get("/")).text


def test_a_blocked_driver_is_said_in_words_and_leaves_dashes(node: Node, as_viewer: Client) -> None:
    unread = {"memory_used": None, "processes": None, "memory_reserved": None}
    gpus = _gpus(
        node, unread, unread, problem="DRIVER_BLOCKED", message="nvmlDeviceGetUtilizationRates", at=time.time() - 30
    )
    _hear(node, gpu=gpus, host=Host(cpu=3.0))
    page = read(as_viewer.get("/nodes/node-1/"))
    assert "The GPU driver does not answer." in page.text
    assert "nvmlDeviceGetUtilizationRates" in page.text
    assert "CPU 3 %" in page.text
    assert _classes(page, "div", "stale") == 1
    assert "The GPU driver does not answer." in read(as_viewer.get("/")).text


BLIND = {"memory_used": None, "processes": None, "memory_reserved": None}


@pytest.mark.parametrize(
    ("said", "badge", "title", "cell"),
    [
        ({"first": (BLIND, BLIND), "problem": "DRIVER_BLOCKED"}, "GPU driver blocked", "does not answer", "blocked"),
        ({"first": ({**BLIND, "lost": "Xid 79"},), "problem": "GPU_LOST"}, "GPU lost", "has been lost", "lost"),
        ({"first": ({**BLIND, "lost": "Xid 79"},)}, "GPU lost", "has been lost", "lost"),
        ({"first": (BLIND, BLIND), "problem": "SMI_FAILED"}, "GPU unreadable", "nvidia-smi", "no data"),
    ],
)
def test_trouble_of_gpus_needs_attention_and_stands_beside_ready(
    node: Node, as_viewer: Client, said: dict[str, Any], badge: str, title: str, cell: str
) -> None:
    first = said["first"]
    _hear(node, gpu=_gpus(node, *first, problem=said.get("problem")))
    fleet = read(as_viewer.get("/")).text
    assert "Need attention 1" in fleet
    assert f"{badge} node-1" in fleet
    for address in ("/", "/nodes/", "/nodes/node-1/"):
        page = read(as_viewer.get(address))
        assert f"ready {badge}" in page.text or address == "/", address
        assert title in page.text, address
        assert _classes(page, "span", "trouble") == (2 if address == "/" else 1), address
    assert fleet.count(f" {cell} ") >= len(first)
    free = 2 - len(first)
    assert fleet.count(" free ") == free
    there = read(as_viewer.get("/nodes/node-1/"))
    assert there.text.count("free GPU-") == 0
    assert there.text.partition("Held by")[2].partition("Processes on it")[0].count(" free ") == free


def test_a_node_whose_figures_cannot_be_read_says_why_everywhere(node: Node, as_viewer: Client) -> None:
    _hear(node, problem="Expected `int`, got `str` - at `$.gpu.devices[0].index`")
    fleet = read(as_viewer.get("/")).text
    assert "Need attention 1" in fleet
    assert "figures unreadable node-1 A part of its report cannot be understood. Expected `int`" in fleet
    there = read(as_viewer.get("/nodes/node-1/")).text
    assert "ready figures unreadable" in there
    card = there.partition(" GPU ")[2].partition("Machine now")[0]
    assert "got `str` - at `$.gpu.devices[0].index`" in card
    assert "No figures have come yet." not in there
    assert "ready figures unreadable" in read(as_viewer.get("/nodes/")).text


def test_old_figures_of_gpus_are_old_on_the_map_while_their_node_is_heard(node: Node, as_viewer: Client) -> None:
    _hear(node, gpu=_gpus(node, {"utilization": 63.0}, at=time.time() - 170))
    page = read(as_viewer.get("/"))
    assert "GPU last seen 3 min ago" in page.text
    assert ("span", "class", "one gpu-age stale") in page.attributes
    _hear(node, gpu=_gpus(node, {"utilization": 63.0}))
    assert ("span", "class", "one gpu-age stale") not in read(as_viewer.get("/")).attributes


def test_a_silent_node_is_told_on_the_fleet_without_a_number_that_stands_still(
    node: Node, admin: Actor, as_viewer: Client
) -> None:
    found_model(admin)
    single_layout(admin)
    settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one")))
    note = "no report for 23 s; the process is left as it is"
    Process.objects.update(state="UNKNOWN", reason="NODE_SILENT", note=note)
    Deployment.objects.update(state="UNKNOWN")
    needs = read(as_viewer.get("/")).text.partition("Needs attention")[2].partition("Accelerators")[0]
    assert "A node that it runs on is silent; nothing is stopped because of this." in needs
    assert "23 s" not in needs


def test_a_driver_that_tells_no_owners_gives_one_sum(node: Node, as_viewer: Client) -> None:
    _hear(node, gpu=_gpus(node, {"memory_used": 20 * GIB, "processes": None, "unified": True}))
    text = read(as_viewer.get("/nodes/node-1/")).text
    assert "used, by whom is not told 20 GiB" in text
    assert "memory shared with the CPU" in text
    assert "The driver does not say who holds its memory." in text


def test_an_instance_is_told_apart_from_its_gpu(node: Node, as_viewer: Client) -> None:
    slot = node.accelerators.exclude(platform="cpu")[0]
    whole = _gpu(slot, memory_used=10 * GIB, utilization=None)
    part = Gpu(uuid="MIG-0000-00001234", index=slot.index, parent=slot.uuid, mig=True, memory_total=20 * GIB)
    _hear(node, gpu=Gpus(source="nvml", at=time.time(), devices=(whole, part)))
    assert f"MIG instance of GPU {slot.index}" in read(as_viewer.get("/nodes/node-1/")).text
    context = {"figures": NodeFigures(node=node.pk, heard_at=1.0), "gpu": part, "oob": True}
    assert f'id="cell-{node.pk}-{slot.index}-00001234"' in render_to_string("live/cell.html", context)
    assert together((whole, part)).memory_used == 10 * GIB


def test_a_machine_without_gpus_shows_its_own_figures_and_no_empty_gpu_section(
    stub: StubLauncher, admin: Actor, as_viewer: Client
) -> None:
    node = ready_node(admin)
    _hear(node, host=Host(cpu=41.0, load=(3.0, 2.5, 2.0), cores=16, memory_total=64 * GIB, memory_available=16 * GIB))
    page = read(as_viewer.get("/nodes/node-1/"))
    assert "CPU 41 %" in page.text
    assert "3.00 · 2.50 · 2.00" in page.text
    assert "48 GiB of 64 GiB" in page.text
    assert not any(value == f"gpus-{node.pk}" for _, attribute, value in page.attributes if attribute == "id")
    fleet = read(as_viewer.get("/")).text
    assert "CPU 41 % load 3.00 RAM 48 GiB of 64 GiB" in fleet


def test_a_silent_node_keeps_what_was_last_seen_and_says_so(node: Node, as_viewer: Client) -> None:
    _hear(node, time.time() - 90, gpu=_gpus(node, {"utilization": 63.0}, at=time.time() - 90))
    Node.objects.update(state="UNREACHABLE", heard_at=timezone.now() - timezone.timedelta(seconds=90))
    page = read(as_viewer.get("/"))
    assert _classes(page, "article", "blind")
    assert "63 %" in page.text
    text = read(as_viewer.get("/nodes/node-1/")).text
    assert "What you see is what was last seen; nothing is stopped because of this." in text


def test_an_engine_shows_its_figures_and_its_deployment_their_sum(node: Node, admin: Actor, as_viewer: Client) -> None:
    found_model(admin)
    single_layout(admin)
    settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one")))
    process = Process.objects.get()
    engine = EngineFigures(
        at=time.time(), running=3, waiting=0, kv_usage=0.634, generation_rate=1240.0, ttft=Quantiles(0.184, 1.5)
    )
    mine = GpuProcess(pid=1, memory=60 * GIB, process=str(process.pk))
    gpus = _gpus(node, {"memory_used": 60 * GIB, "processes": (mine,)})
    _hear(node, engines={str(process.pk): engine}, gpu=gpus)
    page = read(as_viewer.get("/deployments/chat/"))
    assert ("div", "id", f"engine-{process.pk}") in page.attributes
    assert ("div", "id", f"totals-{process.deployment_id}") in page.attributes
    assert page.text.count("1.24k tok/s") == 2
    assert "first token 184 ms 1.50 s" in page.text
    assert "between tokens – –" in page.text
    assert "rates and percentiles over the last 60 s" in page.text
    assert "1.24k tok/s" in read(as_viewer.get("/")).text
    there = read(as_viewer.get("/nodes/node-1/"))
    assert "chat replica 0 · engine 0" in there.text
    assert "ours 60 GiB" in there.text


def test_a_blind_deployment_names_its_silent_node_once_and_marks_its_figures(
    node: Node, admin: Actor, as_viewer: Client
) -> None:
    found_model(admin)
    single_layout(admin)
    settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one", replicas=2)))
    long_ago = time.time() - 170
    engines = {str(pk): EngineFigures(at=long_ago, running=3) for pk in Process.objects.values_list("pk", flat=True)}
    _hear(node, long_ago, engines=engines)
    Node.objects.update(state="UNREACHABLE", heard_at=timezone.now() - timezone.timedelta(seconds=170))
    silence = "no report for 23 s; the process is left as it is"
    Process.objects.update(state="UNKNOWN", reason="NODE_SILENT", note=silence)
    page = read(as_viewer.get("/deployments/chat/"))
    assert page.text.count("Last report of node-1: 3 min ago") == 1
    assert "nothing is stopped because of this" in page.text
    assert page.text.count("Figures of the past, last seen 3 min ago") == 3
    assert _classes(page, "div", "stale") == 3
    assert not _classes(page, "div", "problem")
    assert "23 s" not in page.text


def test_an_engine_never_heard_shows_no_empty_figures(node: Node, admin: Actor, as_viewer: Client) -> None:
    found_model(admin)
    single_layout(admin)
    settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one")))
    page = read(as_viewer.get("/deployments/chat/"))
    assert ("div", "id", f"engine-{Process.objects.get().pk}") in page.attributes
    assert "tok/s" not in page.text


def test_pages_have_no_style_attributes_that_the_policy_would_drop(node: Node, as_viewer: Client) -> None:
    _hear(
        node,
        gpu=_gpus(node, {"utilization": 63.0, "memory_used": GIB}),
        host=Host(cpu=1.0),
        cpu_trend=Trend((1.0, 2.0)),
    )
    for address in ("/", "/nodes/node-1/"):
        assert "style" not in {attribute for _, attribute, _ in read(as_viewer.get(address)).attributes}, address


def test_fragments_speak_the_readers_language_and_carry_no_forms(node: Node) -> None:
    figures = NodeFigures(
        node=node.pk, heard_at=time.time(), gpu=_gpus(node, {"throttle": ("sw_power_cap",)}), host=Host()
    )
    for name in ("host", "gpus", "node_line"):
        with translation.override("zh-hans"):
            html = render_to_string(f"live/{name}.html", {"figures": figures, "oob": True})
        page = Page(html)
        assert page.attributes.count(("div" if name != "node_line" else "span", "hx-swap-oob", "true")) == 1
        assert {a for _, a, _ in page.attributes if a.startswith("hx-")} == {"hx-swap-oob"}
        assert not page.actions


def test_a_pushed_cell_is_the_one_that_the_page_wrote(node: Node, as_viewer: Client) -> None:
    gpus = _gpus(node, {"utilization": 63.0, "memory_used": GIB})
    _hear(node, gpu=gpus)
    context = {"figures": NodeFigures(node=node.pk, heard_at=1.0), "gpu": gpus.devices[0]}
    assert render_to_string("live/cell.html", context) in as_viewer.get("/").content.decode()
    pushed = render_to_string("live/cell.html", {**context, "oob": True})
    assert pushed.replace(' hx-swap-oob="true"', "") == render_to_string("live/cell.html", context)


def test_the_map_of_a_large_fleet_stays_light(as_viewer: Client) -> None:
    crowd.gather(nodes=2, gpus=8)
    telemetry.hear()
    with CaptureQueriesContext(connection) as few:
        as_viewer.get("/")
    Deployment.objects.all().update(removed_at=timezone.now())
    crowd.gather(nodes=30, gpus=8, named="more-")
    telemetry.hear()
    with CaptureQueriesContext(connection) as many:
        answer = as_viewer.get("/")
    assert len(many) == len(few)
    assert answer.content.count(b'class="cell-figures') == 32 * 8
    assert len(answer.content) < 40_000 + 32 * 8 * 700


def test_gaps_of_a_trend_stay_gaps(node: Node, as_viewer: Client) -> None:
    _hear(node, host=Host(cpu=2.0), cpu_trend=Trend((1.0, 2.0, None, None, 3.0, 2.0)))
    answer = as_viewer.get("/nodes/node-1/").content.decode()
    spark = answer.partition('aria-label="CPU, last 5 min: 1 % to 3 %, now 2 %"')[2].partition("</svg>")[0]
    assert spark.count("<polyline") == 2


def test_shares_never_add_up_to_more_than_there_is() -> None:
    holders = (GpuProcess(pid=1, memory=9, process="p"), GpuProcess(pid=2, memory=9))
    shares = memory_of(Gpu(uuid="g", index=0, memory_total=16, memory_used=12, memory_reserved=2, processes=holders))
    assert shares is not None
    assert (shares.ours, shares.others, shares.used, shares.reserved, shares.free) == (9, 3, 0, 2, 2)
    assert memory_of(Gpu(uuid="g", index=0)) is None
