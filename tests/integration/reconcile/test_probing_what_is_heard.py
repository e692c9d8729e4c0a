"""A node that answers is probed without being asked for, once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from deployments import jobs, reports
from deployments.domain.specs import LayoutSpec
from deployments.domain.states import NodeState
from deployments.models import Job, LanguageModel, Node
from deployments.remote import launcher
from deployments.remote.launcher import Unreachable
from deployments.remote.stub import StubLauncher
from deployments.services import nodes
from deployments.services.preflight import node_problems
from deployments.targets import target_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def late(stub: StubLauncher) -> Node:
    """A node that was away when it was first probed, and answers now."""
    node = Node.objects.create(name="late", kind=Node.Kind.LOCAL, environment="/opt/vllm")
    reports.record_failure(node, Unreachable("away"), 0.0)
    reports.record(node, launcher().report(target_of(node)))
    return node


def probed(node: Node) -> Node:
    for job in Job.objects.filter(kind="probe"):
        jobs.advance(str(job.pk))
    node.refresh_from_db()
    return node


def test_it_becomes_ready(late: Node) -> None:
    assert late.state == NodeState.UNREACHABLE
    assert nodes.probe_heard() == 1
    assert probed(late).state == NodeState.READY
    assert nodes.probe_heard() == 0


def test_it_is_not_probed_again_while_a_probe_is_young(late: Node) -> None:
    assert nodes.probe_heard() == 1
    assert nodes.probe_heard() == 0
    Job.objects.update(created_at=timezone.now() - timedelta(minutes=2))
    assert nodes.probe_heard() == 1


def test_a_machine_that_was_restarted_is_probed_anew(late: Node, stub: StubLauncher) -> None:
    nodes.probe_heard()
    probed(late)
    Job.objects.update(created_at=timezone.now() - timedelta(minutes=2))
    stub.node(late.pk).reboot()
    reports.record(late, launcher().report(target_of(late)))
    assert nodes.probe_heard() == 1


def test_a_silent_node_is_left_alone(late: Node) -> None:
    Node.objects.update(heard_at=timezone.now() - timedelta(minutes=5))
    assert nodes.probe_heard() == 0


def test_nothing_is_said_against_a_node_before_it_is_probed(late: Node) -> None:
    model = LanguageModel.objects.create(name="m", path="/models/m")
    assert node_problems(model, LayoutSpec("single"), [late]) == []
