"""The simulated fleet answers the real launcher as machines do, and a panel sees all of its nodes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec
import pytest
from asgiref.sync import sync_to_async

from deployments.remote.launcher import HelperFailed, HostKeyUnknown, StartRequest, StopRequest, Unreachable
from deployments.remote.stub_telemetry import identities
from monitoring.domain.samples import read_sample
from tests.fleet.server import Fleet

from .conftest import NODES

if TYPE_CHECKING:
    from deployments.models import Node

DEADLINE_S = 60.0
PROBE = {"kind": "openai", "base_url": "http://10.0.0.2:8000", "model": "qwen"}
NAMES = ("vllm:generation_tokens_total", "vllm:time_to_first_token_seconds")


def request(process: str, **changes) -> StartRequest:
    values = {"replica": f"r-{process}", "attempt": 1, "role": "engine", "argv": ("/opt/vllm/bin/vllm", "serve")}
    return StartRequest(process, **{**values, "probe": PROBE, **changes})


async def first(launcher, target, wanted, **figures):
    """The first report of a watch that `wanted` takes."""
    async with asyncio.timeout(DEADLINE_S), contextlib.aclosing(launcher.watch(target, 0.2, **figures)) as reports:
        async for report in reports:
            if wanted(report):
                return report
    raise AssertionError("the watch ended")


def test_a_node_is_probed_and_is_itself(real, target):
    facts = [real.probe(target(place), None, ("/models",)) for place in (3, 17)]
    assert [item["hostname"] for item in facts] == ["node-003", "node-017"]
    assert [len(identities(item["nvidia_smi"]["xml"])) for item in facts] == [8, 8]


async def test_a_started_engine_is_seen_with_its_figures_and_stopped(real, target):
    ask = asyncio.to_thread
    uuids = tuple(gpu["uuid"] for gpu in identities((await ask(real.probe, target(1), None))["nvidia_smi"]["xml"])[:2])
    started = await ask(real.start, target(1), request("p1", accelerators=uuids, ports=(20000,)))
    assert not started.already
    report = await first(
        real, target(1), lambda report: report["processes"]["p1"].get("metrics"), metrics=NAMES, gpu=True
    )
    sample = read_sample(report)
    assert sample.processes["p1"].metrics.series.keys() == set(NAMES)
    assert [bool(gpu.processes) for gpu in sample.gpu.devices] == [True] * 2 + [False] * 6
    assert "starting engine" in (await ask(real.logs, target(1), "p1", 0)).data
    proof = await ask(real.stop, target(1), StopRequest("p1"))
    assert (proof.proven, proof.known) == (True, True)
    assert (await ask(real.collect, target(1), "p1"))["exit"]["code"] == 0
    await ask(real.forget, target(1), "p1")


async def test_an_exit_is_heard_on_the_watch(fleet, real, target):
    await asyncio.to_thread(real.start, target(2), request("p2"))
    await first(real, target(2), lambda report: report["processes"]["p2"]["alive"])
    fleet.tell("node-002", "exit", process="p2", code=None, signal=9)
    report = await first(real, target(2), lambda report: not report["processes"]["p2"]["alive"])
    assert report["processes"]["p2"]["exit"]["signal"] == 9


async def test_an_engine_is_talked_to(real, target):
    await asyncio.to_thread(real.start, target(6), request("p6"))
    async with contextlib.aclosing(real.converse(target(6), "p6", "/v1/completions", {"prompt": "x"})) as events:
        said = [event async for event in events]
    assert said[0] == {"asked": True}
    assert said[-1]["lines"][-1] == "data: [DONE]"
    with pytest.raises(HelperFailed, match="does not run"):
        async with contextlib.aclosing(real.converse(target(6), "none", "/v1/completions", {})) as events:
            await anext(events)


def test_refusals_come_as_they_do_from_machines(fleet, real, target):
    with pytest.raises(HelperFailed) as caught:
        real.read_model(target(4), "/models/none")
    assert (caught.value.code, caught.value.node) == ("PATH_MISSING", "node-004")
    fleet.tell("node-004", "set", values={"stubborn": True})
    real.start(target(4), request("p4"))
    assert not real.stop(target(4), StopRequest("p4")).proven
    with pytest.raises(RuntimeError, match="no switch"):
        fleet.tell("node-004", "set", values={"facts": {}})


async def test_nodes_can_send_garbage(fleet, real, target):
    fleet.tell("node-007", "set", values={"garbage": "telemetry"})
    with pytest.raises(msgspec.ValidationError):
        read_sample(await first(real, target(7), lambda report: True, gpu=True))
    fleet.tell("node-007", "set", values={"garbage": "report"})
    with pytest.raises(HelperFailed) as caught:
        await first(real, target(7), lambda report: True, gpu=True)
    assert caught.value.code == "BAD_REPORT"


def test_a_silent_node_is_unreachable_until_it_is_back(fleet, real, target):
    real.report(target(5))
    fleet.tell("node-005", "silence")
    with pytest.raises(Unreachable):
        real.report(target(5))
    fleet.tell("node-005", "silence", silent=False)
    assert real.report(target(5))["hostname"] == "node-005"


async def test_it_serves_in_the_callers_own_loop_too(real):
    async with Fleet(nodes=2, gpus=0) as fleet:
        report = await first(real, fleet.target("node-001"), lambda report: True, gpu=True)
        assert (report["hostname"], report["gpu"]) == ("node-001", None)
        stranger = fleet.target("node-000").endpoint
        assert stranger.host_keys
        with pytest.raises(HostKeyUnknown):
            await first(real, _without_keys(fleet.target("node-000")), lambda report: True)


def _without_keys(target):
    from dataclasses import replace

    return replace(target, endpoint=replace(target.endpoint, host_keys=()))


@pytest.mark.django_db(transaction=True)
async def test_a_panel_sees_every_node_of_it(fleet, real):
    from django.db import connections

    from deployments.remote import use_launcher
    from monitoring.observer import Observer
    from tests.fleet.register import register

    previous = use_launcher(real)
    rows = await sync_to_async(register)(fleet.told)
    task = asyncio.create_task(Observer(interval_s=0.5).run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not await sync_to_async(_all_known)([row.pk for row in rows]):
                await asyncio.sleep(0.1)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        use_launcher(previous)
    assert len(rows) == NODES
    await sync_to_async(_all_shown)()
    await sync_to_async(connections.close_all)()


def _all_known(ids: list[int]) -> bool:
    """Every node was heard, and its figures are in the cache."""
    from deployments.models import Node
    from monitoring.services.latest import latest

    errors = dict(Node.objects.filter(error__isnull=False).values_list("name", "error"))
    assert not errors
    return latest(ids).keys() == set(ids) and not Node.objects.filter(heard_at__isnull=True).exists()


def _all_shown() -> None:
    from django.contrib.auth import get_user_model
    from django.test import Client

    from deployments.models import Accelerator, Node
    from tests.integration.panel import person

    heard: list[Node] = list(Node.objects.order_by("name"))
    assert [node.report["hostname"] for node in heard] == [node.name for node in heard]
    assert Accelerator.objects.count() == 8 * NODES
    person("vera", "viewer")
    client = Client()
    client.force_login(get_user_model().objects.get(username="vera"))
    page = client.get("/").content.decode()
    assert [node.name for node in heard if node.name not in page] == []
    assert page.count("cell-figures") == 8 * NODES
