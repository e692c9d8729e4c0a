"""How several observers share the nodes, and what happens to those of one that is gone."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from django.db import connection
from django.utils import timezone

from deployments.models import Node, SshKey
from monitoring.models import ObserverSeen

from ..scene import machine, only_process, run, wish
from .conftest import becomes, held, in_thread

pytestmark = pytest.mark.django_db(transaction=True)


async def test_a_second_observer_gets_half_of_the_nodes_and_keeps_them(stub, observe):
    nodes = {node.pk for node in await in_thread(lambda: [machine(stub, f"n{i}") for i in range(4)])()}
    first, _ = observe()
    await becomes("the first has all", lambda: held(first) == nodes)
    second, _ = observe()
    await becomes("both have half", lambda: len(held(first)) == len(held(second)) == 2)
    before = await in_thread(lambda: (held(first), held(second)))()
    assert before[0] | before[1] == nodes
    for observer in (first, second, first):
        await observer._round()
    assert await in_thread(lambda: (held(first), held(second)))() == before
    assert set(first._watches) == before[0]


async def test_a_node_that_was_given_back_is_heard_again_by_the_other(stub, observe):
    await in_thread(lambda: [machine(stub, f"n{i}") for i in range(2)])()
    first, _ = observe()
    await becomes("the first has all", lambda: len(held(first)) == 2)
    second, _ = observe()
    await becomes("it has one", lambda: held(second))
    (given,) = await in_thread(held)(second)
    await in_thread(lambda: Node.objects.update(heard_at=timezone.now() - timedelta(hours=1)))()
    await becomes("the other hears it", heard_lately(given))


async def test_a_key_that_cannot_be_decrypted_costs_its_own_nodes_only(stub, observe):
    sealed, other = await in_thread(lambda: [machine(stub, name) for name in ("sealed", "other")])()
    await in_thread(seal_with_a_lost_key)(sealed)
    observer, task = observe()
    await becomes("the other is heard", heard_lately(other.pk))
    await becomes(
        "why is told", lambda: "FIELD_KEYS" in (Node.objects.get(pk=sealed.pk).error or {}).get("message", "")
    )
    assert not task.done()
    assert set(observer._watches) == {other.pk}
    key = await in_thread(SshKey.objects.create)(name="good", public="p", fingerprint="f", private="k", source="pasted")
    await in_thread(lambda: Node.objects.filter(pk=sealed.pk).update(key=key))()
    await becomes("it is heard with another key", heard_lately(sealed.pk))


def seal_with_a_lost_key(node: Node) -> None:
    key = SshKey.objects.create(name="lost", public="p", fingerprint="f", private="k", source="pasted")
    with connection.cursor() as cursor:
        token = Fernet(Fernet.generate_key()).encrypt(b"k").decode()
        cursor.execute("UPDATE deployments_sshkey SET private = %s WHERE id = %s", [token, key.pk])
    Node.objects.filter(pk=node.pk).update(key=key)


def heard_lately(pk: int):
    return lambda: Node.objects.filter(pk=pk, heard_at__gte=timezone.now() - timedelta(minutes=1)).exists()


async def test_shares_that_do_not_divide_evenly_still_hold_every_node(stub, observe):
    await in_thread(lambda: [machine(stub, f"n{i}") for i in range(7)])()
    observers = [observe()[0] for _ in range(3)]
    await becomes("all nodes are held", lambda: sum(len(held(one)) for one in observers) == 7)
    for _ in range(3):
        for one in observers:
            await one._round()
    shares = sorted([len(await in_thread(held)(one)) for one in observers])
    assert sum(shares) == 7
    assert shares[-1] <= 3


async def test_the_nodes_of_a_dead_observer_are_taken_over_when_its_lease_runs_out(stub, observe, bell):
    node = await in_thread(machine)(stub)
    deployment = await in_thread(lambda: run(wish()))()
    first, dead = observe()
    await becomes("the first has it", lambda: held(first))
    # It dies without a word: nothing is let go of.
    first._let_go_all = lambda: None
    dead.cancel()
    await asyncio.gather(dead, return_exceptions=True)
    second, _ = observe()
    await second._round()
    assert await in_thread(held)(second) == set()
    bell.silence()
    await in_thread(lambda: stub.node(node.pk).exit(str(only_process(deployment).pk)))()
    await in_thread(lambda: Node.objects.update(observed_until=timezone.now() - timedelta(seconds=1)))()
    await becomes("the second has taken over", lambda: held(second) == {node.pk})
    # What happened in between is news, though this observer never saw it otherwise.
    await becomes("the reconciler is rung", lambda: ("deployments.reconcile", [deployment.pk]) in bell.rings())


async def test_an_observer_that_died_no_longer_counts_for_shares(stub, observe):
    nodes = {node.pk for node in await in_thread(lambda: [machine(stub, f"n{i}") for i in range(4)])()}
    await in_thread(lambda: seen("dead", timezone.now()))()
    living, _ = observe()
    await becomes("it has its half", lambda: len(held(living)) == 2)
    await in_thread(lambda: seen("dead", timezone.now() - timedelta(seconds=20)))()
    await becomes("it has all", lambda: held(living) == nodes)


async def test_an_observer_that_ends_leaves_its_share_to_the_others_at_once(stub, observe):
    nodes = {node.pk for node in await in_thread(lambda: [machine(stub, f"n{i}") for i in range(4)])()}
    first, _ = observe()
    second, ending = observe()
    await becomes("both have half", lambda: len(held(first)) == len(held(second)) == 2)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    await first._round()
    assert await in_thread(held)(first) == nodes
    assert await in_thread(lambda: [row.pk for row in ObserverSeen.objects.all()])() == [first.id]


async def test_who_observed_long_ago_is_forgotten(stub, observe):
    await in_thread(lambda: seen("old", timezone.now() - timedelta(days=1)))()
    observer, _ = observe()
    await observer._round()
    found = await in_thread(lambda: ObserverSeen.objects.get())()
    assert (found.pk, found.pid > 0, found.host != "") == (observer.id, True, True)


def seen(name: str, at) -> None:
    ObserverSeen.objects.update_or_create(pk=name, defaults={"seen_at": at, "host": "elsewhere", "pid": 1})
