"""Hash a model's files on nodes, to see whether they are the same everywhere."""

from __future__ import annotations

from typing import Any

from deployments.jobs.shapes import Kind, check_model
from deployments.models import Job, JobStep, Node
from deployments.remote.launcher import StartRequest
from deployments.reports import record_fingerprint


def _request(job: Job, step: JobStep) -> StartRequest:
    return StartRequest(
        process=str(step.process),
        replica=str(job.pk),
        attempt=1,
        role="job",
        builtin={"name": "fingerprint", "args": {"path": job.args["path"]}},
    )


def _done(job: Job, node: Node, result: dict[str, Any]) -> str:
    record_fingerprint(job.args["model"], node, result)
    return f"{result.get('fingerprint', '')[:19]}, {result.get('files')} files, {result.get('bytes')} bytes"


KIND = Kind(
    name="fingerprint_model",
    role="operator",
    title=lambda args: f"Hash {args['path']}",
    check=check_model,
    request=_request,
    done=_done,
)
