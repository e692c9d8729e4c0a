"""Models: what is served, and where its files are."""

from __future__ import annotations

from typing import Any

from ninja import Router, Status

from deployments.api.asking import Asking
from deployments.domain.errors import Conflict
from deployments.schemas.jobs import Job
from deployments.schemas.models import Model, ModelAnswer, ModelInput
from deployments.schemas.nodes import NodeNames
from deployments.services import models

router = Router(tags=["models"])


@router.get("", response=list[Model])
def list_models(request: Asking) -> Any:
    """All models with their copies, by name."""
    return [Model.of(row) for row in models.list_models()]


@router.post("", response={201: ModelAnswer})
def register_model(request: Asking, body: ModelInput) -> Any:
    """Register a model by folder or hub id; a job looks for its files."""
    model, job = models.register_model(request.auth, name=body.name, path=body.path, nodes=body.nodes)
    return Status(201, {"model": Model.of(model), "job": Job.of(job) if job else None})


@router.get("/{name}", response=Model)
def get_model(request: Asking, name: str) -> Any:
    """One model: facts of its config.json, and its copies."""
    return Model.of(models.get_model(name))


@router.post("/{name}/find", response={202: Job})
def find_model(request: Asking, name: str, body: NodeNames) -> Any:
    """Look for its files again."""
    job = models.look_for_files(request.auth, name, body.nodes)
    if job is None:
        raise Conflict("There is no node to look on, or the model is named by a hub id.", remedy="Add a node first.")
    return Status(202, Job.of(job))


@router.post("/{name}/fingerprint", response={202: Job})
def fingerprint_model(request: Asking, name: str, body: NodeNames) -> Any:
    """Hash its files on the nodes that have them."""
    return Status(202, Job.of(models.fingerprint_files(request.auth, name, body.nodes)))


@router.delete("/{name}", response={204: None})
def remove_model(request: Asking, name: str) -> Any:
    """Forget a model that no deployment serves; files on nodes stay."""
    models.remove_model(request.auth, name)
    return Status(204, None)
