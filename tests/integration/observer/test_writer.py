"""How reports get into the database: the quiet ones together, and what cannot be written costs only itself."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

import psycopg
import pytest
from django.db import connection, connections
from django.utils import timezone

from deployments import reports
from deployments.models import Node
from deployments.remote.launcher import Unreachable
from deployments.reports import Quiet, record_quiet
from deployments.targets import target_of
from monitoring.observer.writer import Writer

from ..scene import machine
from .conftest import DEADLINE_S, becomes, in_thread

pytestmark = pytest.mark.django_db(transaction=True)


def quiet(node: Node, **changes) -> Quiet:
    values = {"report": '{"processes": {}, "said": 2}', "boot_id": node.boot_id, "heard_at": timezone.now()}
    return Quiet(node.pk, **{**values, **changes})


def test_reports_without_news_are_kept_in_one_statement(stub, django_assert_num_queries):
    nodes = [machine(stub, f"n{i}") for i in range(3)]
    with django_assert_num_queries(1):
        assert record_quiet([quiet(node) for node in nodes]) == {node.pk for node in nodes}
    for node in Node.objects.all():
        assert node.report == {"processes": {}, "said": 2}
        assert node.heard_at > nodes[0].heard_at


def test_nothing_to_keep_asks_nothing(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert record_quiet([]) == set()


@pytest.mark.parametrize(
    "columns",
    [
        {"error": {"code": "UNREACHABLE"}},
        {"state": "UNREACHABLE"},
        {"heard_at": None},
        {"boot_id": "another"},
        {"heard_at": timezone.now() + timedelta(hours=1)},
    ],
    ids=["error", "state", "never-heard", "boot", "newer"],
)
def test_a_node_of_which_something_is_new_is_left_to_be_recorded_in_full(stub, columns):
    node = machine(stub)
    Node.objects.filter(pk=node.pk).update(**columns)
    assert record_quiet([quiet(node)]) == set()
    assert "said" not in Node.objects.get().report


@pytest.fixture
async def writer():
    """A writer that runs, and the nodes it rings for."""
    rung: list[int] = []
    writer = Writer("me", rung.append)
    task = asyncio.create_task(writer.run())
    yield writer, rung
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await in_thread(connections.close_all)()


def mine(stub, name: str) -> tuple[Node, dict]:
    node = machine(stub, name)
    Node.objects.filter(pk=node.pk).update(observer="me")
    return node, stub.report(target_of(node))


@pytest.mark.parametrize("nonsense", [{"said": object()}, {"boot_id": "x" * 100}], ids=["no JSON", "too long"])
async def test_what_cannot_be_written_costs_only_itself(stub, writer, caplog, nonsense):
    good, report = await in_thread(mine)(stub, "good")
    bad, wrong = await in_thread(mine)(stub, "bad")
    the_writer, _ = writer
    for number in range(2):
        the_writer.put(bad.pk, {**wrong, **nonsense}, is_news=False)
        the_writer.put(good.pk, {**report, "said": number}, is_news=False)
        await becomes("the good one is kept", kept(good, number))
    assert len([record for record in caplog.records if "cannot be written" in record.message]) == 1
    the_writer.put(bad.pk, {**wrong, "said": 3}, is_news=False)
    await becomes("it can be written again", kept(bad, 3))


def kept(node: Node, said: int):
    return lambda: Node.objects.get(pk=node.pk).report.get("said") == said


async def test_a_node_that_another_holds_is_not_written(stub, writer):
    node, report = await in_thread(mine)(stub, "taken")
    other, same = await in_thread(mine)(stub, "mine")
    await in_thread(lambda: Node.objects.filter(pk=node.pk).update(observer="another"))()
    the_writer, rung = writer
    the_writer.put(node.pk, {**report, "said": 1}, is_news=True)
    the_writer.put(other.pk, {**same, "said": 1, "boot_id": "new"}, is_news=True)
    await becomes("the other is written", kept(other, 1))
    assert "said" not in await in_thread(lambda: Node.objects.get(pk=node.pk).report)()
    await becomes("it rings for the other alone", lambda: rung == [other.pk])


async def test_of_a_report_and_the_failure_after_it_both_are_kept(stub, writer):
    node, report = await in_thread(mine)(stub, "n")
    the_writer, _ = writer
    the_writer.put(node.pk, {**report, "said": 1}, is_news=False)
    the_writer.put_failure(node.pk, Unreachable("It is gone."))
    await becomes("the failure is kept", lambda: Node.objects.get().error is not None)
    assert (await in_thread(lambda: Node.objects.get())()).report["said"] == 1


async def test_a_locked_row_delays_writing_and_never_the_streams(stub, writer):
    node, report = await in_thread(mine)(stub, "n")
    the_writer, _ = writer
    lock = Lock()
    await asyncio.to_thread(lock.take, node.pk)
    the_writer.put(node.pk, {**report, "boot_id": "new", "said": 0}, is_news=True)
    # The observer's own thread for the database is the one that waits.
    async with asyncio.timeout(DEADLINE_S):
        while not await asyncio.to_thread(lock.somebody_waits):
            await asyncio.sleep(0.05)
    for number in range(1, 5000):
        the_writer.put(node.pk, {**report, "boot_id": "new", "said": number}, is_news=False)
    assert len(the_writer._due) == 1
    await asyncio.to_thread(lock.give)
    await becomes("the newest is kept", kept(node, 4999))


class Lock:
    """Somebody else's transaction that holds a node's row."""

    def __init__(self) -> None:
        names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
        where = {name: connection.settings_dict[key] or None for key, name in names.items()}
        self._holding = psycopg.connect(**where)
        self._looking = psycopg.connect(**where, autocommit=True)

    def take(self, pk: int) -> None:
        self._holding.execute("SELECT 1 FROM deployments_node WHERE id = %s FOR UPDATE", [pk])

    def somebody_waits(self) -> bool:
        return bool(self._looking.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall())

    def give(self) -> None:
        self._holding.close()
        self._looking.close()


async def test_a_newer_report_that_was_kept_already_is_not_overwritten(stub, writer):
    node, report = await in_thread(mine)(stub, "n")
    newer = {**report, "said": "newer"}
    later = timezone.now() + timedelta(minutes=1)
    await in_thread(lambda: reports.record(node, newer, later))()
    the_writer, _ = writer
    the_writer.put(node.pk, {**report, "said": "older"}, is_news=True)
    await becomes("it was looked at", lambda: not the_writer._due)
    assert (await in_thread(lambda: Node.objects.get())()).report["said"] == "newer"
