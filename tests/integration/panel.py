"""Driving a panel without worker, observer or machines: what a test asks for, done to the end in its own thread."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.utils import timezone

from deployments import jobs, reports
from deployments import reconcile as reconciler
from deployments.domain.states import JOB_FINAL, PROCESS_FINAL
from deployments.models import Deployment, Job, LanguageModel, Member, Node, ParallelLayout, Replica, Transition
from deployments.remote import launcher
from deployments.remote.launcher import RemoteError
from deployments.services import access, keys, layouts, models, nodes
from deployments.services.access import Actor
from deployments.targets import target_of

PASSWORD = "correct horse battery staple"
MODEL_PATH = "/models/Qwen2.5-7B-Instruct"
STEPS = 60


def person(name: str, role: str) -> Actor:
    """A user with a role who may sign in with PASSWORD."""
    user = get_user_model().objects.create_user(name, password=PASSWORD)
    Member.objects.create(user=user, role=role)
    actor = access.actor_of_user(user)
    assert actor is not None
    return actor


def observe(deployment: Deployment) -> None:
    """What the observer does: a fresh report from each node that a deployment's living processes are on."""
    live = deployment.processes.exclude(state__in=[state.value for state in PROCESS_FINAL])
    for node in Node.objects.filter(processes__in=live).distinct().select_related("key", "jump__key"):
        try:
            reports.record(node, launcher().report(target_of(node)))
        except RemoteError as error:
            reports.record_failure(node, error, 0.0)


def settle(deployment: Deployment) -> Deployment:
    """Reconcile until nothing moves any more (or only time would move it); the row as it is then."""
    for _ in range(STEPS):
        before = _marks(deployment)
        observe(deployment)
        reconciler.reconcile(deployment.pk)
        if _marks(deployment) == before:
            break
    else:
        raise AssertionError(f"{deployment.name} still moves after {STEPS} steps")
    deployment.refresh_from_db()
    return deployment


def _marks(deployment: Deployment) -> tuple[Any, ...]:
    """Grows or changes with everything that a step writes down."""
    written = Transition.objects.filter(deployment=deployment).count()
    rows = deployment.processes.values_list("pk", "state", "launch_requested_at", "black_box__isnull", "note")
    return written, sorted(map(str, rows)), Deployment.objects.values_list("state").get(pk=deployment.pk)


def retry_now(deployment: Deployment) -> None:
    """Let the time of every backoff have come."""
    Replica.objects.filter(deployment=deployment, next_attempt_at__isnull=False).update(next_attempt_at=timezone.now())


def advance(job: Job) -> Job:
    """Advance a job until it is over (or nothing moves it any more); the row as it is then."""
    for _ in range(STEPS):
        state = jobs.advance(str(job.pk))
        if state in JOB_FINAL:
            break
    job.refresh_from_db()
    return job


def advance_all() -> None:
    """Advance every job that is not over, those too that another one began."""
    while open_jobs := list(Job.objects.exclude(state__in=[state.value for state in JOB_FINAL]).order_by("created_at")):
        for job in open_jobs:
            assert advance(job).state in JOB_FINAL, f"{job.title} does not end"


def ready_node(admin: Actor, name: str = "node-1", **fields: Any) -> Node:
    """A node that was added, whose host key was accepted, and that was probed. Needs the fixture `stub`."""
    if not any(key.name == "main" for key in keys.list_keys()):
        keys.generate_key(admin, name="main")
    item = {"name": name, "address": f"{name}.example", "user": "pilot", "key": "main", **fields}
    (node,) = nodes.add_nodes(admin, [item])
    advance_all()
    (row,) = nodes.fingerprints([nodes.get_node(name)])
    nodes.accept_host_keys(admin, [{"node": name, "fingerprint": row["offered"]}])
    advance_all()
    node.refresh_from_db()
    return node


def found_model(admin: Actor, name: str = "qwen", path: str = MODEL_PATH) -> LanguageModel:
    """A model that was looked for on all nodes."""
    model, _ = models.register_model(admin, name=name, path=path)
    advance_all()
    model.refresh_from_db()
    return model


def single_layout(admin: Actor, name: str = "one") -> ParallelLayout:
    """The layout of one process on one accelerator."""
    return layouts.add_layout(admin, name=name, kind="single")
