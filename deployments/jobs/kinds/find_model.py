"""Look for a model's folder on nodes and read its config.json."""

from __future__ import annotations

from typing import Any

from deployments.domain.errors import PilothouseError
from deployments.jobs.shapes import Kind, check_model
from deployments.models import Job, JobStep, Node
from deployments.remote import launcher
from deployments.remote.launcher import HelperFailed, NodeTarget
from deployments.reports import record_files, record_missing

# The node was asked and says that the folder is not usable; anything else says nothing about the folder.
ABOUT_THE_FOLDER = frozenset({"PATH_MISSING", "NOT_A_FOLDER", "PERMISSION"})


def _call(target: NodeTarget, job: Job, step: JobStep) -> dict[str, Any]:
    return launcher().read_model(target, job.args["path"])


def _done(job: Job, node: Node, result: dict[str, Any]) -> str:
    copy = record_files(job.args["model"], node, result)
    return f"{copy.files} files, {copy.total_bytes / 1e9:.3g} GB" if copy else "the model was removed meanwhile"


def _failed(job: Job, node: Node, error: PilothouseError) -> None:
    if isinstance(error, HelperFailed) and error.code in ABOUT_THE_FOLDER:
        record_missing(job.args["model"], node, {**error.as_dict(), "code": "MODEL_MISSING"})


KIND = Kind(
    name="find_model",
    role="operator",
    title=lambda args: f"Look for {args['path']}",
    check=check_model,
    call=_call,
    done=_done,
    failed=_failed,
)
