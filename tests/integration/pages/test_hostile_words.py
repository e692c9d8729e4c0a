"""Words of nodes, logs and people reach a page as words, never as its parts."""

from __future__ import annotations

import pytest
from django.test import Client

from deployments.models import Node, Process, Transition
from deployments.remote.stub import StubLauncher
from deployments.services import deployments
from deployments.services.access import Actor
from deployments.services.deployments import DeploymentInput

from ..panel import advance_all, found_model, ready_node, settle, single_layout
from .reading import read

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7|add:7 }}{% now %}"

ADDRESSES = (
    "/",
    "/nodes/",
    "/nodes/node-1/",
    "/nodes/node-1/change/",
    "/nodes/node-1/environment/",
    "/models/qwen/",
    "/deployments/",
    "/deployments/chat/",
    "/deployments/chat/change/",
    "/deployments/chat/stop/",
)


@pytest.fixture
def running(stub: StubLauncher, admin: Actor) -> Process:
    """A process whose node, log and arguments say hostile things."""
    node = ready_node(admin)
    found_model(admin)
    single_layout(admin)
    wish = DeploymentInput(
        "chat", "qwen", "one", served_name=HOSTILE[:120], args=("--seed", HOSTILE), env={"HF_X": HOSTILE}
    )
    settle(deployments.apply(admin, wish))
    process = Process.objects.get()
    stub.node(node.pk).processes[str(process.pk)].say(f"ERROR \x1b[31m{HOSTILE}\x1b[0m")
    facts = {**nodes_facts(node), "hostname": HOSTILE, "os": {"pretty": HOSTILE}, "cpu": {"model": HOSTILE}}
    facts |= {"clock": HOSTILE, "detach": HOSTILE, "limits": {"nofile": HOSTILE}, "disks": HOSTILE, "memory": [HOSTILE]}
    Node.objects.update(facts=facts, error={"code": HOSTILE, "message": HOSTILE, "remedy": HOSTILE, "node": HOSTILE})
    Node.objects.update(state_note=HOSTILE, state="NOT_READY")
    Process.objects.update(note=HOSTILE, phase=HOSTILE[:32], error={"code": "X", "message": HOSTILE, "remedy": HOSTILE})
    Transition.objects.update(note=HOSTILE, actor=HOSTILE)
    return process


def nodes_facts(node: Node) -> dict:
    return Node.objects.get(pk=node.pk).facts


def test_hostile_words_stay_words_on_every_page(running: Process, as_admin: Client) -> None:
    job = str(running.node.job_steps.first().job_id)  # type: ignore[union-attr]
    for address in [*ADDRESSES, f"/processes/{running.pk}/log/", f"/jobs/{job}/"]:
        page = read(as_admin.get(address))
        assert "alert(1)" not in " ".join(page.scripts), address
        assert not [a for a in page.attributes if a[1].startswith("on")], address
        assert "14" not in page.text.partition("{{ 7|add:7 }}")[0][-3:], address
    assert HOSTILE[:20] in read(as_admin.get("/deployments/chat/")).text


def test_a_typed_script_comes_back_as_text(as_admin: Client) -> None:
    answer = as_admin.post("/add/node/", {"name": HOSTILE, "address": HOSTILE, "port": HOSTILE, "user": HOSTILE})
    page = read(answer)
    assert answer.status_code == 422
    assert not [text for text in page.scripts if text]
    assert not [a for a in page.attributes if a[1].startswith("on")]


@pytest.mark.parametrize("name", ["none", "..", "a%2Fb", "%00", "'; drop table x; --", "<b>", "名"])
def test_an_address_of_nothing_is_not_found(as_admin: Client, name: str) -> None:
    for place in ("nodes", "models", "deployments", "jobs"):
        assert as_admin.get(f"/{place}/{name}/").status_code == 404, place
    assert as_admin.get(f"/processes/{name}/log/").status_code == 404


def test_a_path_with_every_kind_of_letter_is_shown_as_it_is(
    stub: StubLauncher, admin: Actor, as_operator: Client
) -> None:
    ready_node(admin)
    path = "/models/a b'c\"d$(e)`f`;&|<g>\\n"
    as_operator.post("/add/model/", {"name": "odd", "path": path})
    advance_all()
    assert path in read(as_operator.get("/models/odd/")).text


def test_the_log_is_shown_without_colours_its_faults_marked_and_followed_by_offset(
    stub: StubLauncher, admin: Actor, as_viewer: Client
) -> None:
    node = ready_node(admin)
    found_model(admin)
    single_layout(admin)
    settle(deployments.apply(admin, DeploymentInput("chat", "qwen", "one")))
    process = Process.objects.get()
    on_node = stub.node(node.pk).processes[str(process.pk)]
    on_node.say("\x1b[32mINFO\x1b[0m fine\nloading: 10%\rloading: 100%\nTraceback (most recent call last):")
    address = f"/processes/{process.pk}/log/"
    answer = as_viewer.get(address)
    page = read(answer)
    assert "INFO fine" in page.text
    assert "loading: 100%" in page.text
    assert "loading: 10%" not in page.text.replace("loading: 100%", "")
    assert ("li", "class", "fault") in page.attributes
    size = len(on_node.log)
    assert ("li", "hx-get", f"{address}?from={size}") in page.attributes
    on_node.say("one more")
    more = read(as_viewer.get(f"{address}?from={size}", headers={"HX-Request": "true", "HX-Target": "more"}))
    assert "one more" in more.text
    assert "INFO fine" not in more.text
    assert ("li", "id", f"b{size}") in more.attributes
    stub.node(node.pk).silent = True
    assert "node-1 does not answer." in read(as_viewer.get(address)).text
