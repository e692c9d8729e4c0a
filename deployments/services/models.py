"""Models: what is served and on which nodes its files are."""

from __future__ import annotations

import re
from collections.abc import Sequence

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from deployments.domain.errors import Conflict, InvalidInput, NotFound, Taken
from deployments.models import Job, LanguageModel, Node
from deployments.services import jobs as job_services
from deployments.services import naming
from deployments.services.access import Actor, Role, require
from deployments.services.nodes import get_node
from deployments.transitions import record

HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}$")


def list_models() -> list[LanguageModel]:
    """All models with their copies, by name."""
    return list(LanguageModel.objects.prefetch_related("copies__node").order_by("name"))


def get_model(model_name: str) -> LanguageModel:
    """The model called `model_name`."""
    row = LanguageModel.objects.filter(name=naming.known(model_name)).first()
    if row is None:
        raise NotFound(f"There is no model {model_name!r}.", remedy="Register it first.", field="model")
    return row


def register_model(
    actor: Actor, *, name: str, path: str, nodes: Sequence[str] = ()
) -> tuple[LanguageModel, Job | None]:
    """Register a model by folder (the same on all nodes) or hub id and look for it on nodes.

    Args:
        nodes: Names of the nodes to look on; empty = all nodes.

    Returns:
        The model, and the job that looks for its files (None when there is no node).

    Raises:
        InvalidInput: Neither an absolute path nor a hub id.
        Conflict: The name is taken.
    """
    require(actor, Role.operator, "register models")
    naming.name(name)
    if path.startswith("/"):
        path = naming.path(path, "path")
    elif not HUB_ID.fullmatch(path):
        raise InvalidInput(
            f"{path!r} is neither an absolute folder nor a hub id.",
            remedy="Give a folder such as /models/qwen, or an id such as Qwen/Qwen2.5-7B-Instruct.",
            field="path",
        )
    try:
        with transaction.atomic():
            model = LanguageModel.objects.create(name=name, path=path)
    except IntegrityError:
        raise Taken(f"There is a model {name!r} already.", remedy="Choose another name.", field="name") from None
    record("model", model.pk, "", "ADDED", "APPLIED", path, actor=actor.name, name=name)
    return model, look_for_files(actor, model, nodes)


def look_for_files(actor: Actor, model: LanguageModel | str, nodes: Sequence[str] = ()) -> Job | None:
    """Look for the files of a model (or of the one of this name) on nodes again."""
    require(actor, Role.operator, "look for models")
    model = get_model(model) if isinstance(model, str) else model
    rows = [get_node(node) for node in nodes] or list(Node.objects.all())
    if not rows or not model.is_local:
        return None
    return job_services.start_job(actor, kind="find_model", nodes=rows, args={"model": model.pk, "path": model.path})


def fingerprint_files(actor: Actor, model: LanguageModel | str, nodes: Sequence[str] = ()) -> Job:
    """Hash the files of a model (or of the one of this name) on nodes that have them: are they the same?

    Raises:
        Conflict: No node has them.
    """
    require(actor, Role.operator, "hash model files")
    model = get_model(model) if isinstance(model, str) else model
    rows = [get_node(node) for node in nodes] or [
        c.node for c in model.copies.filter(present=True).select_related("node")
    ]
    if not rows:
        raise Conflict(f"No node is known to have the files of {model.name}.", remedy="Look for them first.")
    return job_services.start_job(
        actor, kind="fingerprint_model", nodes=rows, args={"model": model.pk, "path": model.path}
    )


def remove_model(actor: Actor, model_name: str) -> None:
    """Forget a model that no deployment serves, and removed deployments that did. Files on nodes stay."""
    require(actor, Role.operator, "remove models")
    model = get_model(model_name)
    try:
        with transaction.atomic():
            model.deployments.filter(removed_at__isnull=False).delete()
            model.delete()
    except ProtectedError:
        raise Conflict(f"Deployments serve {model_name!r}.", remedy="Remove them first.") from None
    record("model", model_name, "", "REMOVED", "APPLIED", actor=actor.name, name=model_name)
