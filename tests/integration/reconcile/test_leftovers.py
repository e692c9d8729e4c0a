"""What ended long ago leaves the nodes as well."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from deployments.models import Process
from deployments.reconcile import clear_away
from deployments.reconcile.leftovers import LOGS_KEPT
from deployments.remote.launcher import Unreachable
from deployments.remote.stub import StubLauncher

from ..scene import machine, run, wish

pytestmark = pytest.mark.django_db


@pytest.fixture
def ended(stub: StubLauncher) -> Process:
    machine(stub)
    deployment = wish()
    run(deployment)
    deployment.wish = "STOPPED"
    deployment.save(update_fields=["wish"])
    run(deployment)
    return Process.objects.get()


def aged(process: Process) -> None:
    Process.objects.update(ended_at=timezone.now() - LOGS_KEPT - timedelta(minutes=1))


def test_a_log_is_kept_while_somebody_may_want_it(ended: Process, stub: StubLauncher) -> None:
    assert clear_away() == 0
    assert stub.made("forget") == []


def test_what_ended_long_ago_is_cleared_away_once(ended: Process, stub: StubLauncher) -> None:
    aged(ended)
    assert clear_away() == 1
    assert [call.args for call in stub.made("forget")] == [str(ended.pk)]
    assert clear_away() == 0


def test_a_node_that_does_not_answer_is_asked_again(ended: Process, stub: StubLauncher) -> None:
    aged(ended)
    stub.node(ended.node_id).fail(Unreachable("away"), "forget")
    assert clear_away() == 0
    assert clear_away() == 1
