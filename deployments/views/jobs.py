"""Jobs: long work, its progress and log."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from deployments.domain.log_lines import clean
from deployments.domain.states import JOB_FINAL
from deployments.jobs import job_kinds
from deployments.models import Job
from deployments.services import jobs
from deployments.services.access import Actor, Role

from .page import Question, ask, done, page, show

LOG_SHOWN = 64 * 1024


@page
def index(request: HttpRequest, actor: Actor) -> HttpResponse:
    return show(request, actor, "jobs/index.html", {"jobs": jobs.list_jobs(), "place": "jobs"}, parts=("live",))


@page
def detail(request: HttpRequest, actor: Actor, job_id: str) -> HttpResponse:
    job = jobs.get_job(job_id)
    steps = [
        {"step": step, "log": "\n".join(clean(line) for line in step.log[-LOG_SHOWN:].split("\n")).strip("\n")}
        for step in job.steps.all()
    ]
    over = job.state in JOB_FINAL
    context = {
        "job": job,
        "steps": steps,
        "over": over,
        "failed": any(step.state != "SUCCEEDED" for step in job.steps.all()),
        "may_act": _may_act(actor, job),
        "place": "jobs",
    }
    return show(request, actor, "jobs/detail.html", context, parts=("live",), over=over)


def _may_act(actor: Actor, job: Job) -> bool:
    kind = job_kinds().get(job.kind)
    return kind is not None and actor.role >= max(Role.operator, Role[kind.role])


@page
def cancel(request: HttpRequest, actor: Actor, job_id: str) -> HttpResponse:
    job = jobs.get_job(job_id)

    def act() -> HttpResponse:
        jobs.cancel_job(actor, job_id)
        return done(request, "job", _("The job is being cancelled."), job.pk)

    question = Question(
        _("Cancel this job?"),
        _("Cancel the job"),
        f"/jobs/{job.pk}/",
        [_("What it started on nodes is stopped, with proof. What it has done so far stays.")],
        [f"{step.node.name}: {job.title}" for step in job.steps.all() if step.state not in JOB_FINAL],
    )
    return ask(request, actor, Role.operator, question, act)


@page
def retry(request: HttpRequest, actor: Actor, job_id: str) -> HttpResponse:
    if request.method != "POST":
        return detail(request, job_id)
    job = jobs.retry_job(actor, job_id)
    return done(request, "job", _("The job runs again where it had not succeeded."), job.pk)
