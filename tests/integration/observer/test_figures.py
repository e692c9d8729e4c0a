"""Figures on their way from reports to the cache and to the browsers' groups."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import timedelta

import pytest
from django.utils import timezone

from deployments.models import Node
from deployments.remote.stub_facts import h200_host
from monitoring.services.latest import latest
from monitoring.sinks import watchers

from ..scene import machine, only_process, run, wish
from .conftest import becomes, in_thread

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
async def _nobody_watches(stub):
    from django.core.cache import cache

    await in_thread(cache.clear)()
    yield
    await watchers.close()


def gpu_machine(stub, name: str = "gpu-1") -> Node:
    node = machine(stub, name)
    stub.node(node.pk, h200_host(name, gpus=2))
    return node


async def test_figures_are_in_the_cache_and_the_database_keeps_none(stub, observe):
    node = await in_thread(gpu_machine)(stub)
    observe()
    await becomes("figures", lambda: latest([node.pk]))
    figures = (await in_thread(latest)([node.pk]))[node.pk]
    assert figures.host.cpu is not None
    assert [gpu.index for gpu in figures.gpu.devices] == [0, 1]
    await in_thread(lambda: Node.objects.update(heard_at=None, report={}))()
    await becomes("a report", lambda: Node.objects.filter(heard_at__isnull=False).exists())
    report = await in_thread(lambda: Node.objects.get().report)()
    assert "gpu" not in report
    assert report["host"]["load"]


async def test_engines_have_figures_and_kept_reports_have_none_of_their_metrics(stub, observe):
    node = await in_thread(machine)(stub)
    process = await in_thread(lambda: str(only_process(run(wish())).pk))()
    observe()

    def with_rates():
        figures = latest([node.pk]).get(node.pk)
        engine = figures and figures.engines.get(process)
        return engine and engine.generation_rate is not None and engine

    engine = await becomes("rates", with_rates)
    assert engine.running is not None
    report = await in_thread(lambda: Node.objects.get().report)()
    assert "metrics" not in report["processes"][process]


async def test_a_report_without_news_is_still_kept_every_few_seconds(stub, observe):
    await in_thread(machine)(stub)
    observe()
    await becomes("it is heard", lambda: Node.objects.exclude(observer="").exists())
    for _ in range(2):
        await in_thread(lambda: Node.objects.update(heard_at=timezone.now() - timedelta(hours=1)))()
        await becomes(
            "it is heard again",
            lambda: Node.objects.filter(heard_at__gte=timezone.now() - timedelta(minutes=1)).exists(),
        )


async def test_wrong_telemetry_costs_the_figures_and_not_the_report(stub, observe, listener, caplog):
    node = await in_thread(machine)(stub)
    other = await in_thread(machine)(stub, "other")
    await listener.join("events")
    stub.node(node.pk).garbage = "telemetry"
    observe()
    await listener.hears(lambda message: message == {"type": "changed", "node": node.pk})
    # Whoever is told looks at once, so what is told must be there already.
    problem = (await in_thread(latest)([node.pk]))[node.pk].problem
    assert "$.host" in problem or "$.gpu" in problem
    await becomes("figures of the other", lambda: latest([other.pk]))
    assert (await in_thread(latest)([other.pk]))[other.pk].problem is None
    await in_thread(lambda: Node.objects.update(heard_at=None))()
    await becomes("both are heard", lambda: Node.objects.filter(heard_at__isnull=False).count() == 2)
    assert [record for record in caplog.messages if "telemetry cannot be read" in record][1:] == []
    stub.node(node.pk).garbage = None
    await listener.hears(lambda message: message == {"type": "changed", "node": node.pk})
    await becomes("figures again", lambda: latest([node.pk])[node.pk].problem is None)


async def test_a_driver_that_hangs_is_told_when_it_begins_and_when_it_ends(stub, observe, listener):
    node = await in_thread(gpu_machine)(stub)
    await listener.join("events")
    observe()
    await becomes("figures", lambda: latest([node.pk]))
    for blocked in (True, False):
        stub.node(node.pk).driver_blocked = blocked
        await listener.hears(lambda message: message == {"type": "changed", "node": node.pk})


async def test_a_report_with_characters_that_the_database_refuses_costs_nobody_anything(stub, observe):
    node = await in_thread(machine)(stub)
    deployment = await in_thread(lambda: run(wish()))()
    process = await in_thread(lambda: str(only_process(deployment).pk))()
    observe()
    await in_thread(lambda: stub.node(node.pk).exit(process, log="bad\0words"))()
    await becomes("the end is kept", lambda: ended(process))
    tail = (await in_thread(lambda: Node.objects.get().report)())["processes"][process]["log_tail"]
    assert "bad�words" in tail


def ended(process: str) -> bool:
    return Node.objects.get().report["processes"][process]["exit"] is not None


async def test_what_is_watched_is_sent_and_nothing_else(stub, observe, listener):
    node = await in_thread(gpu_machine)(stub)
    await listener.join("live.fleet.en", f"live.node-{node.pk}.en", "live.fleet.zh-hans")
    await watchers.watch("fleet.en")
    observe()
    message = await listener.hears(lambda message: f'id="cell-{node.pk}-0"' in message["html"])
    assert f'id="line-{node.pk}"' in message["html"]
    assert 'hx-swap-oob="true"' in message["html"]
    await listener.hears(no_host(node))
    await watchers.watch(f"node-{node.pk}.en")
    message = await listener.hears(lambda message: f'id="host-{node.pk}"' in message["html"])
    assert f'id="gpus-{node.pk}"' in message["html"]


def no_host(node):
    def look(message):
        assert f'id="host-{node.pk}"' not in message["html"]
        return True

    return look


async def test_figures_keep_moving_on_an_open_page(stub, observe, listener):
    node = await in_thread(gpu_machine)(stub)
    await listener.join("live.fleet.en")
    await watchers.watch("fleet.en")
    observe()
    first = await listener.hears(lambda message: f"line-{node.pk}" in message["html"])
    await listener.hears(lambda message: f"line-{node.pk}" in message["html"] and message != first)


async def test_a_deployments_page_gets_its_engines_and_their_sum(stub, observe, listener):
    await in_thread(machine)(stub)
    deployment = await in_thread(lambda: run(wish()))()
    process = await in_thread(lambda: str(only_process(deployment).pk))()
    await listener.join(f"live.deployment-{deployment.pk}.en")
    await watchers.watch(f"deployment-{deployment.pk}.en")
    observe()
    message = await listener.hears(lambda message: f'id="engine-{process}"' in message["html"])
    assert f'id="totals-{deployment.pk}"' in message["html"]


async def test_a_deployment_on_nodes_of_two_observers_is_summed_over_both(stub, observe, listener):
    await in_thread(lambda: [machine(stub, f"n{i}", slots=1) for i in range(2)])()
    deployment = await in_thread(lambda: run(wish(replicas=2)))()
    processes = await in_thread(lambda: {str(p.pk): p.node_id for p in deployment.processes.all()})()
    assert len(set(processes.values())) == 2
    observe(), observe()
    await becomes("each has one", lambda: len(set(Node.objects.values_list("observer", flat=True)) - {""}) == 2)
    await listener.join(f"live.deployment-{deployment.pk}.en")
    nodes = set(processes.values())
    await becomes("both are heard", lambda: {pk for pk, one in latest(nodes).items() if one.engines} == nodes)
    await watchers.watch(f"deployment-{deployment.pk}.en")
    elements = [*(f"engine-{id}" for id in processes), f"totals-{deployment.pk}"]
    seen: dict[str, list[float]] = {element: [] for element in elements}
    while min(map(len, seen.values())) < 5:
        html = (await listener.hears(lambda message: message["type"] == "fragments"))["html"]
        for element, at in re.findall(r'id="([^"]+)"[^>]* data-seen="([0-9.]+)"', html):
            seen[element].append(float(at))
    assert {element: sorted(times) for element, times in seen.items()} == seen, "figures went back"


async def test_a_broker_that_hangs_stops_neither_watching_nor_writing(stub, observe, bell, caplog):
    caplog.set_level(logging.INFO)
    node = await in_thread(machine)(stub)
    deployment = await in_thread(lambda: run(wish()))()
    process = await in_thread(lambda: str(only_process(deployment).pk))()
    await watchers.watch("fleet.en")
    observe()
    await becomes("figures", lambda: latest([node.pk]))
    await in_thread(lambda: bell._broker.execute_command("CLIENT", "PAUSE", 9000, "ALL"))()
    # A transition has to be told to listeners on the way, which nobody may wait for either.
    await in_thread(lambda: Node.objects.update(state="UNREACHABLE"))()
    await in_thread(lambda: stub.node(node.pk).exit(process))()
    # Answered when the pause is over, and no sooner.
    answer = asyncio.create_task(asyncio.to_thread(bell._broker.ping))
    await becomes("its end is written", lambda: ended(process))
    await in_thread(lambda: Node.objects.update(heard_at=None))()
    await becomes("reports go on", lambda: Node.objects.filter(heard_at__isnull=False, state="READY").exists())
    assert not answer.done(), "the pause was over before anything was shown"
    await becomes("it was noticed", lambda: "figures are not stored" in caplog.text)
    await answer
    before = timezone.now().timestamp()
    await becomes("figures come again", lambda: latest([node.pk]) and latest([node.pk])[node.pk].heard_at > before)
    assert len([line for line in caplog.messages if line.startswith("figures are not stored: ")]) <= 2
    await becomes("it is rung", lambda: ("deployments.reconcile", [deployment.pk]) in bell.rings())
