"""The engine of jobs on simulated machines."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from deployments import jobs
from deployments.domain.errors import Conflict
from deployments.domain.states import JobState
from deployments.models import Job, JobStep, LanguageModel, ModelCopy, Node, Transition
from deployments.remote import use_launcher
from deployments.remote.launcher import AuthFailed, HelperFailed, TimedOut, Unreachable
from deployments.services import jobs as services

from ..dying import DyingCaller, Killed
from ..panel import advance
from ..scene import machine, model, running

pytestmark = pytest.mark.django_db
INSTALL = {"path": "/opt/vllm", "packages": ["vllm==0.33.0"]}


def unsent(error):
    error.sent = False
    return error


@pytest.fixture
def fleet(stub) -> list[Node]:
    return [machine(stub, f"n{number}") for number in range(4)]


def start(actor, kind, nodes, **args) -> Job:
    return services.start_job(actor, kind=kind, nodes=nodes, args=args)


def install(admin, nodes) -> Job:
    return start(admin, "install_environment", nodes, **INSTALL)


def steps(job: Job) -> list[tuple[str, str]]:
    return [(step.node.name, str(step.state)) for step in job.steps.select_related("node").order_by("node__name")]


def look(job: Job, times: int = 1) -> Job:
    for _ in range(times):
        jobs.advance(str(job.pk))
    job.refresh_from_db()
    return job


def test_many_nodes_are_probed_in_one_step(stub, fleet, operator):
    Node.objects.update(facts={}, state="UNKNOWN", heard_at=None)
    job = start(operator, "probe", fleet)
    assert look(job).state == JobState.SUCCEEDED
    assert (job.progress, job.note, job.next_look_at) == (100, "4 of 4 done", None)
    assert {node.state for node in Node.objects.all()} == {"READY"}
    assert all(step.note == "4 accelerators, AMD EPYC 9354 32-Core Processor" for step in job.steps.all())
    told = Transition.objects.filter(job=job).order_by("id")
    assert [(row.new, row.actor) for row in told] == [("RUNNING", "otto"), ("SUCCEEDED", "otto")]


def test_one_node_that_fails_is_named_and_the_others_are_done(stub, fleet, operator):
    stub.node(fleet[1].pk).silent = True
    job = look(start(operator, "probe", fleet))
    assert (job.state, job.note) == (JobState.FAILED, "1 of 4 failed")
    assert steps(job) == [("n0", "SUCCEEDED"), ("n1", "FAILED"), ("n2", "SUCCEEDED"), ("n3", "SUCCEEDED")]
    failed = job.steps.get(state=JobState.FAILED)
    assert (failed.error["code"], failed.error["node"]) == ("UNREACHABLE", "n1")
    assert failed.error["remedy"]


def test_what_nobody_expected_of_one_node_fails_that_node_alone(stub, fleet, operator):
    stub.node(fleet[2].pk).fail(KeyError("nvidia_smi"), "probe")
    job = look(start(operator, "probe", fleet))
    assert [state for _, state in steps(job)] == ["SUCCEEDED", "SUCCEEDED", "FAILED", "SUCCEEDED"]
    assert job.steps.get(state=JobState.FAILED).error["code"] == "INTERNAL"


def test_an_answer_that_cannot_be_written_down_fails_that_node_alone(stub, fleet, operator):
    stub.node(fleet[0].pk).facts["cpu"] = {"cores": 1, "model": 7}
    job = look(start(operator, "probe", fleet))
    assert [state for _, state in steps(job)] == ["FAILED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED"]


def test_a_model_that_was_removed_meanwhile_does_not_stop_the_job(stub, fleet, operator):
    row = LanguageModel.objects.create(name="gone", path="/models/not-there")
    job = start(operator, "find_model", fleet[:1], model=row.pk)
    row.delete()
    assert look(job).state == JobState.FAILED
    assert ModelCopy.objects.count() == 0


def test_a_retry_asks_only_the_nodes_that_failed(stub, fleet, operator):
    stub.node(fleet[1].pk).silent = True
    stub.node(fleet[3].pk).silent = True
    job = look(start(operator, "probe", fleet))
    stub.node(fleet[1].pk).silent = False
    again = services.retry_job(operator, str(job.pk))
    assert (again.retry_of, again.kind) == (job, "probe")
    assert [step.node.name for step in again.steps.all()] == ["n1", "n3"]
    assert steps(look(again)) == [("n1", "SUCCEEDED"), ("n3", "FAILED")]
    third = services.retry_job(operator, str(again.pk))
    stub.node(fleet[3].pk).silent = False
    assert look(third).state == JobState.SUCCEEDED
    with pytest.raises(Conflict, match="succeeded on all"):
        services.retry_job(operator, str(third.pk))


def test_an_install_runs_on_every_node_and_is_believed_when_a_probe_finds_the_engine(stub, fleet, admin):
    job = look(install(admin, fleet))
    assert job.state == JobState.RUNNING
    assert {step.state for step in job.steps.all()} == {JobState.RUNNING}
    assert advance(job).state == JobState.SUCCEEDED
    assert {node.environment for node in Node.objects.all()} == {"/opt/vllm"}
    assert all("vllm 0.33.0" in step.note for step in job.steps.all())
    assert all('"step": 1' in step.log for step in job.steps.all())
    assert len(stub.made("start")) == 4
    assert not any(running(stub.node(node.pk)) for node in fleet)


def test_an_install_after_which_there_is_no_engine_has_failed(stub, fleet, admin):
    stub.node(fleet[0].pk).facts["environment"] = None
    job = advance(install(admin, fleet[:1]))
    step = job.steps.get()
    assert (job.state, step.error["code"], step.error["node"]) == (JobState.FAILED, "ENGINE_MISSING", "n0")


def test_a_step_that_ends_badly_shows_its_last_line(stub, fleet, admin):
    machine_ = stub.node(fleet[0].pk)
    machine_.ready_after = None
    job = look(install(admin, fleet[:1]), 2)
    machine_.exit(str(job.steps.get().process), code=1, log="ERROR: No matching distribution found for vllm==0.33.0")
    step = advance(job).steps.get()
    assert (job.state, step.error["code"]) == (JobState.FAILED, "JOB_FAILED")
    assert step.note == "It ended with code 1: ERROR: No matching distribution found for vllm==0.33.0"


def test_progress_and_log_grow_while_it_runs(stub, fleet, admin):
    machine_ = stub.node(fleet[0].pk)
    machine_.ready_after = None
    job = look(install(admin, fleet[:1]), 2)
    process = machine_.processes[str(job.steps.get().process)]
    process.say('{"step": 2, "of": 4, "argv": []}')
    assert look(job).progress == 25
    process.say("Collecting torch\n" + '{"progress": 90}')
    assert look(job).progress == 90
    step = job.steps.get()
    assert step.log.count("Collecting torch") == 1
    assert step.log_offset == len(process.log)


def test_a_cancelled_job_stops_its_processes_with_proof(stub, fleet, admin):
    for node in fleet[:2]:
        stub.node(node.pk).ready_after = None
    stub.node(fleet[0].pk).stubborn = True
    job = look(install(admin, fleet[:2]), 2)
    services.cancel_job(admin, str(job.pk))
    services.cancel_job(admin, str(job.pk))
    assert look(job, 2).state == JobState.CANCELLING
    assert steps(job) == [("n0", "RUNNING"), ("n1", "CANCELLED")]
    assert job.steps.get(node=fleet[0]).note == "stopping: not proven yet"
    stub.node(fleet[0].pk).stubborn = False
    assert look(job).state == JobState.CANCELLED
    assert not any(running(stub.node(node.pk)) for node in fleet)
    told = Transition.objects.filter(job=job).order_by("id")
    assert [(row.new, row.actor) for row in told][1] == ("CANCELLING", "ada")


def test_a_job_cancelled_before_it_began_starts_nothing(stub, fleet, admin):
    job = install(admin, fleet)
    services.cancel_job(admin, str(job.pk))
    assert look(job).state == JobState.CANCELLED
    assert (stub.made("start"), stub.made("stop")) == ([], [])


def test_a_cancel_on_a_silent_node_waits_for_the_proof(stub, fleet, admin):
    machine_ = stub.node(fleet[0].pk)
    machine_.ready_after = None
    job = look(install(admin, fleet[:1]), 2)
    machine_.silent = True
    services.cancel_job(admin, str(job.pk))
    assert look(job, 3).state == JobState.CANCELLING
    assert "cannot be proven" in job.steps.get().note
    machine_.silent = False
    assert look(job).state == JobState.CANCELLED
    assert running(machine_) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("verb", ["start", "report", "logs", "stop", "probe"])
def test_a_worker_that_dies_at_a_call_is_followed_by_one_that_starts_nothing_twice(stub, fleet, admin, verb, after):
    machine_ = stub.node(fleet[0].pk)
    machine_.ready_after = 2
    job = install(admin, fleet[:1])
    use_launcher(DyingCaller(stub, verb, after))
    deaths = 0
    for _ in range(20):
        try:
            state = jobs.advance(str(job.pk))
        except Killed:
            deaths += 1
            continue
        if state == JobState.SUCCEEDED:
            break
    job.refresh_from_db()
    assert (job.state, deaths) == (JobState.SUCCEEDED, 1)
    assert len(machine_.processes) == 1
    assert job.steps.get().log.count('"step": 1') == 1


def test_a_worker_that_died_between_writing_and_starting_is_made_up_for(stub, fleet, admin):
    job = install(admin, fleet[:1])
    now = timezone.now()
    JobStep.objects.update(launch_requested_at=now, started_at=now, state=JobState.RUNNING)
    assert advance(job).state == JobState.SUCCEEDED
    assert len(stub.made("start")) == 1


def test_a_process_that_runs_though_its_start_was_not_recorded_is_followed(stub, fleet, admin):
    machine_ = stub.node(fleet[0].pk)
    machine_.ready_after = None
    job = look(install(admin, fleet[:1]))
    assert len(machine_.processes) == 1
    JobStep.objects.update(launch_requested_at=None, started_at=None, state=JobState.PENDING)
    machine_.ready_after = 0
    for process in machine_.processes.values():
        process.ready_after = 0
    assert advance(job).state == JobState.SUCCEEDED
    assert len(machine_.processes) == 1


def test_a_start_whose_answer_is_lost_is_stopped_by_a_cancel(stub, fleet, admin):
    """Nobody knows whether the request still arrives, so the cancel leaves a tombstone."""
    machine_ = stub.node(fleet[0].pk)
    machine_.fail(TimedOut("No answer."), "start", times=5)
    job = look(install(admin, fleet[:1]), 3)
    assert job.steps.get().launch_requested_at is not None
    services.cancel_job(admin, str(job.pk))
    assert look(job).state == JobState.CANCELLED
    (stopped,) = stub.made("stop")
    assert stopped.args.process == str(job.steps.get().process)


def test_a_node_that_cannot_be_reached_is_tried_for_a_while_and_then_failed(stub, fleet, admin):
    stub.node(fleet[0].pk).fail(unsent(Unreachable("No way there.")), "start", times=10)
    job = look(install(admin, fleet[:1]), 2)
    assert (job.state, job.steps.get().note) == (JobState.RUNNING, "No way there.")
    JobStep.objects.update(started_at=F("started_at") - timedelta(seconds=600))
    assert look(job).state == JobState.FAILED
    assert job.steps.get().error["code"] == "UNREACHABLE"


@pytest.mark.parametrize(
    "error",
    [unsent(AuthFailed("Refused.")), HelperFailed("No.", code="FENCED"), HelperFailed("Full.", code="DISK_FULL")],
)
def test_a_start_that_is_refused_fails_the_step_at_once(stub, fleet, admin, error):
    stub.node(fleet[0].pk).fail(error, "start")
    job = look(install(admin, fleet[:1]))
    assert (job.state, job.steps.get().error["code"]) == (JobState.FAILED, error.code)


def test_silence_while_it_runs_is_not_its_end(stub, fleet, admin):
    machine_ = stub.node(fleet[0].pk)
    machine_.ready_after = None
    job = look(install(admin, fleet[:1]), 2)
    machine_.silent = True
    assert look(job, 3).state == JobState.RUNNING
    assert "does not answer" in job.steps.get().note
    machine_.silent = False
    machine_.exit(str(job.steps.get().process), code=0)
    assert advance(job).state == JobState.SUCCEEDED


def test_an_end_that_nobody_looked_at_for_long_is_still_found(stub, fleet, admin):
    machine_ = stub.node(fleet[0].pk)
    machine_.ready_after = None
    job = look(install(admin, fleet[:1]), 2)
    process = str(job.steps.get().process)
    machine_.exit(process, code=0)
    machine_.stop(process)
    machine_.processes[process].stopped_at -= 3600
    assert process in machine_.report()["ended"]
    assert advance(job).state == JobState.SUCCEEDED


def test_a_job_whose_lease_another_holds_is_left_alone(stub, fleet, operator):
    job = start(operator, "probe", fleet)
    Job.objects.update(lease_token="another", lease_until=timezone.now() + timedelta(seconds=60))
    assert jobs.advance(str(job.pk)) is None
    assert stub.made("probe")[len(fleet) :] == []
    Job.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert jobs.advance(str(job.pk)) == JobState.SUCCEEDED


def test_due_jobs_are_those_whose_moment_has_come(stub, fleet, operator):
    first, second, over = (start(operator, "probe", fleet[:1]) for _ in range(3))
    Job.objects.filter(pk=second.pk).update(next_look_at=timezone.now() + timedelta(hours=1))
    look(over)
    assert jobs.due() == [str(first.pk)]


def test_hashing_keeps_the_fingerprint_of_each_copy(stub, fleet, operator):
    row = model()
    job = advance(start(operator, "fingerprint_model", fleet[:2], model=row.pk))
    assert job.state == JobState.SUCCEEDED
    prints = set(ModelCopy.objects.filter(node__in=fleet[:2]).values_list("fingerprint", flat=True))
    assert len(prints) == 1
    assert prints != {""}
