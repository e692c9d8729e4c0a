"""The shape of a kind of job, and how kinds are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deployments.domain.errors import InvalidInput, PilothouseError
from deployments.domain.plugins import discover
from deployments.models import Job, JobStep, LanguageModel, Node
from deployments.remote.launcher import NodeTarget, StartRequest


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job: what it does on each of its nodes.

    Either `call` does it in one answer, or `request` says which process to start on the node, which is then followed
    until it ends. Calls run side by side and must not touch the database; `done` and `failed` write down.

    Attributes:
        title: Words for people, from the arguments.
        check: Refuses bad arguments with a typed error and returns them complete.
        call: (target, job, step) -> result.
        request: (job, step) -> what to start.
        confirm: (target, job, step) -> result, after a process has ended well.
    """

    name: str
    role: str
    title: Callable[[Mapping[str, Any]], str]
    check: Callable[[Mapping[str, Any]], dict[str, Any]]
    call: Callable[[NodeTarget, Job, JobStep], Any] | None = None
    request: Callable[[Job, JobStep], StartRequest] | None = None
    confirm: Callable[[NodeTarget, Job, JobStep], Any] | None = None
    done: Callable[[Job, Node, Any], str] = lambda job, node, result: ""
    failed: Callable[[Job, Node, PilothouseError], None] = lambda job, node, error: None


def check_nothing(args: Mapping[str, Any]) -> dict[str, Any]:
    """For kinds that take no arguments."""
    return {}


def check_model(args: Mapping[str, Any]) -> dict[str, Any]:
    """For kinds about the files of a model: `model` is its id; the path is the model's own.

    Raises:
        InvalidInput: There is no such model, or it is named by a hub id.
    """
    model = args.get("model")
    row = LanguageModel.objects.filter(pk=model).first() if isinstance(model, int) else None
    if row is None or not row.is_local:
        raise InvalidInput(
            f"There is no model {model!r} that is named by a folder.", remedy="Give a model's id.", field="model"
        )
    return {"model": row.pk, "path": row.path}


def job_kinds() -> dict[str, Kind]:
    """All kinds of jobs by name."""
    from deployments.jobs import kinds

    return discover(kinds, "KIND", "name")
