"""The reconciler, the real helper on this machine, and a fake engine that fails in the ways real ones do."""

from __future__ import annotations

import os
import signal
import urllib.request
from pathlib import Path

import pytest

from deployments.domain.policy import Policy
from deployments.domain.states import DeploymentState, ProcessState, Reason, Wish
from deployments.models import Deployment, Process, Transition
from deployments.remote import launcher
from deployments.remote.launcher import NodeTarget
from deployments.targets import target_of

from ..local_node import runs, wait_for
from ..scene import claims, only_process, only_replica, states, step, wish

pytestmark = pytest.mark.django_db
POLICY = Policy(backoff_base=0.0, max_attempts=2, stop_grace=1.0, stop_kill=10.0)
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"


def faulty(mode: str, **columns) -> Deployment:
    env = columns.pop("env", {})
    return wish(env={"FAKE_VLLM_MODE": mode, **env}, **columns)


def becomes(deployment: Deployment, state: DeploymentState, policy: Policy = POLICY) -> Deployment:
    def look():
        step(deployment, policy)
        deployment.refresh_from_db()
        return deployment if deployment.state == state else None

    return wait_for(f"{deployment.name} is {state}", look)


def members(process: Process) -> list[dict]:
    report = launcher().report(target_of(process.node))
    return (report["processes"].get(str(process.pk)) or {}).get("members", [])


def stop(deployment: Deployment) -> None:
    Deployment.objects.filter(pk=deployment.pk).update(wish=Wish.STOPPED)
    becomes(deployment, DeploymentState.STOPPED)
    assert claims(deployment) == 0


@pytest.mark.parametrize("tensor", [1, 2])
def test_a_fake_engine_is_served_asked_and_stopped_with_proof(here, tensor):
    if here.accelerators.count() < tensor:
        pytest.skip("this machine has one core, so one CPU slot")
    deployment = becomes(wish(tensor=tensor), DeploymentState.READY)
    process = only_process(deployment)
    assert process.evidence["completion_ok"] is True
    assert process.phase == "ready"
    url = process.spec["probe"]["base_url"] + "/v1/models"
    request = urllib.request.Request(url, headers={"Authorization": "Bearer sk-of-a-test"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert b'"chat"' in answer.read()
    pids = [member["pid"] for member in members(process)]
    assert len(pids) >= 2 + tensor
    stop(deployment)
    process.refresh_from_db()
    assert process.stop_evidence["proven"] is True
    assert not [pid for pid in pids if runs(pid)]


def test_what_a_killed_engine_leaves_is_stopped_before_the_next_attempt(here):
    deployment = becomes(faulty("wipe_environ,detach_worker"), DeploymentState.READY)
    first = only_process(deployment)
    left = [member["pid"] for member in members(first) if member["pid"] != first.pid]
    assert left
    os.kill(first.pid, signal.SIGKILL)

    def second_is_ready():
        step(deployment, POLICY)
        alive = deployment.processes.filter(attempt=2).first()
        if alive is not None and alive.launch_requested_at is not None:
            assert not [pid for pid in left if runs(pid)], "orphans are gone before anything new begins"
        return alive if alive is not None and alive.state == ProcessState.READY else None

    second = wait_for("a second attempt serves", second_is_ready)
    first.refresh_from_db()
    assert (first.state, first.reason) == (ProcessState.FAILED, Reason.EXITED)
    assert "signal 9" in first.note
    assert {member["pid"] for member in first.stop_evidence["members"]} & set(left)
    assert second.pid != first.pid
    stop(deployment)


def test_an_engine_that_swallows_term_is_killed_after_its_grace(here):
    deployment = becomes(faulty("swallow_term", stop_grace=0.5), DeploymentState.READY)
    process = only_process(deployment)
    stop(deployment)
    process.refresh_from_db()
    assert {"TERM", "KILL"} <= {sent["signal"] for sent in process.stop_evidence["signals"]}
    assert not runs(process.pid)


def test_an_engine_whose_health_lies_is_never_ready_and_ends_by_its_deadline(here):
    deployment = faulty("health_lies", start_deadline=3.0)
    becomes(deployment, DeploymentState.FAILED)
    assert states(deployment) == [(1, "FAILED", "START_TIMEOUT"), (2, "FAILED", "START_TIMEOUT")]
    first = deployment.processes.first()
    assert first.ready_at is None
    assert first.evidence["proven"] is True
    assert "startup complete" in first.black_box["log_tail"]
    assert only_replica(deployment).reason == Reason.ATTEMPTS_USED_UP
    assert claims(deployment) == 0


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (OUT_OF_MEMORY, Reason.OUT_OF_MEMORY),
        ("ValueError: something that nobody has seen before", Reason.EXITED),
    ],
)
def test_an_engine_that_ends_early_fails_with_the_reason_in_its_log(here, said, reason):
    deployment = faulty("exit_early=1", env={"FAKE_VLLM_ERROR": said})
    becomes(deployment, DeploymentState.FAILED)
    first = deployment.processes.order_by("created_at").first()
    assert (first.state, first.reason) == (ProcessState.FAILED, reason)
    assert "exited with code 1" in first.note
    assert said in first.black_box["log_tail"]
    assert len(states(deployment)) == (2 if reason.retryable else 1)


def test_a_flag_that_the_engine_does_not_know_is_named_and_not_tried_again(here):
    deployment = becomes(wish(args=["--no-such-flag"]), DeploymentState.FAILED)
    assert states(deployment) == [(1, "FAILED", "UNKNOWN_FLAG")]
    assert "--no-such-flag" in deployment.processes.get().note


def test_an_environment_without_the_engine_fails_naming_the_path(here):
    Path(here.environment, "bin", "vllm").unlink()
    deployment = becomes(wish(), DeploymentState.FAILED)
    process = deployment.processes.get()
    assert (process.state, process.reason) == (ProcessState.FAILED, Reason.ENGINE_MISSING)
    assert f"{here.environment}/bin/vllm" in process.note
    assert process.error["node"] == "here"
    assert process.error["remedy"]


def test_another_installation_on_the_same_machine_sees_nothing_of_ours(here):
    deployment = becomes(wish(), DeploymentState.READY)
    process = only_process(deployment)
    ours = target_of(here)
    theirs = NodeTarget(ours.id + 1000, "theirs", "00000000-0000-4000-8000-000000000000")
    report = launcher().report(theirs)
    assert (report["processes"], report["strays"], report["ended"]) == ({}, [], [])
    assert str(process.pk) in launcher().report(ours)["processes"]
    stop(deployment)


def test_the_panel_may_restart_while_an_engine_serves(here):
    deployment = becomes(wish(), DeploymentState.READY)
    process = only_process(deployment)
    for _ in range(3):
        launcher().close()
        step(deployment)
        again = only_process(deployment)
        assert (again.pk, again.pid, again.state) == (process.pk, process.pid, ProcessState.READY)
    changes = Transition.objects.filter(subject="process", subject_id=str(process.pk))
    assert [row.new for row in changes.order_by("id")] == ["STARTING", "READY"]
    stop(deployment)
