"""Deployments: preview, apply, stop, scale, and what people may ask about them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from deployments.domain import options
from deployments.domain.command import shell
from deployments.domain.errors import Conflict, DomainError, InvalidInput, NotFound, StaleGeneration, Taken
from deployments.domain.placement import layout_of
from deployments.domain.plugins import Problem
from deployments.domain.specs import EngineOptions, ProcessSpec
from deployments.domain.states import DeploymentState, Reason, ReplicaState, Wish
from deployments.models import Deployment, Generation, Node, Replica
from deployments.reconcile.load import layout_spec
from deployments.reconcile.place import model_facts, specs_for
from deployments.services import naming
from deployments.services.access import Actor, Role, require, shown_env
from deployments.services.layouts import get_layout
from deployments.services.models import get_model
from deployments.services.nodes import get_nodes
from deployments.services.paging import Page, page
from deployments.services.preflight import node_problems, rule_problems
from deployments.services.processes import (  # noqa: F401 - callers find all about deployments here
    curl_line,
    endpoints,
    force_stopped,
    get_process,
    problems_of,
    processes_of,
    read_log,
)
from deployments.transitions import move, nudge, record

MAX_REPLICAS = 256


@dataclass(frozen=True, slots=True)
class DeploymentInput:
    """A wish as people write it. `nodes` are names to choose among; empty = any."""

    name: str
    model: str
    layout: str
    served_name: str = ""
    replicas: int = 1
    nodes: Sequence[str] = ()
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    start_deadline: float | None = None
    stop_grace: float | None = None


@dataclass(frozen=True, slots=True)
class PreviewedProcess:
    """One process that apply would start: where, and the exact command, secrets as ***."""

    node: str
    role: str
    rank: int
    accelerators: tuple[str, ...]
    ports: Mapping[str, int]
    argv: tuple[str, ...]
    env: Mapping[str, str]
    command: str


@dataclass(frozen=True, slots=True)
class Preview:
    """What apply would do now. `ok` = no problem is an error; without `processes` there is no place for them now."""

    ok: bool
    problems: tuple[Problem, ...]
    processes: tuple[PreviewedProcess, ...]


def list_deployments() -> list[Deployment]:
    """All deployments that were not removed, by name."""
    rows = Deployment.objects.filter(removed_at=None).select_related("model", "layout")
    return list(rows.prefetch_related("nodes", "replicas").order_by("name"))


def page_of_deployments(cursor: str | None, limit: int) -> Page[Deployment]:
    """Some deployments that were not removed, by name."""
    rows = Deployment.objects.filter(removed_at=None).select_related("model", "layout")
    return page(rows.prefetch_related("nodes", "replicas"), ("name",), cursor, limit)


def get_deployment(deployment_name: str) -> Deployment:
    """The deployment called `deployment_name`."""
    rows = Deployment.objects.select_related("model", "layout").filter(
        name=naming.known(deployment_name), removed_at=None
    )
    row = rows.first()
    if row is None:
        raise NotFound(f"There is no deployment {deployment_name!r}.")
    return row


def preview(actor: Actor, wish: DeploymentInput) -> Preview:
    """The exact commands and every problem of a wish, without doing anything."""
    require(actor, Role.viewer, "preview deployments")
    problems, deployment, nodes = _check(actor, wish)
    processes: tuple[ProcessSpec, ...] = ()
    if deployment is not None and not _errors(problems):
        try:
            processes = specs_for(deployment, [node.pk for node in nodes])
        except DomainError as error:
            problems.append(Problem(error.code, error.message, error.remedy, error.field, error.node, "warning"))
    names = dict(Node.objects.values_list("pk", "name"))
    shown = tuple(_previewed(spec, names[spec.node_id], actor) for spec in processes)
    return Preview(not _errors(problems), tuple(problems), shown)


def _previewed(spec: ProcessSpec, node: str, actor: Actor) -> PreviewedProcess:
    env = shown_env(spec.env, actor)
    command = shell(spec.argv, env, spec.secrets)
    return PreviewedProcess(node, spec.role, spec.rank, spec.accelerators, spec.ports, spec.argv, env, command)


def _errors(problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.severity == "error"]


def _check(actor: Actor, wish: DeploymentInput) -> tuple[list[Problem], Deployment | None, list[Node]]:
    """Every problem of a wish, and the unsaved row it would be (None when its parts do not exist)."""
    problems: list[Problem] = []
    found: dict[str, Any] = {}
    parts: tuple[tuple[str, Callable[[Any], Any], Any], ...] = (
        ("name", naming.name, wish.name),
        ("model", get_model, wish.model),
        ("layout", get_layout, wish.layout),
        ("nodes", get_nodes, wish.nodes),
    )
    for part, get, value in parts:
        try:
            found[part] = get(value)
        except DomainError as error:
            problems.append(Problem(error.code, error.message, error.remedy, error.field or part, error.node))
    problems += _check_numbers(wish)
    admin = actor.role >= Role.admin
    problems += options.check_args(wish.args, may_run_code=admin)
    problems += options.check_env(wish.env, may_run_code=admin)
    if len(found) < 4:
        return problems, None, []
    deployment = Deployment(
        name=found["name"],
        served_name=wish.served_name or found["model"].name,
        model=found["model"],
        layout=found["layout"],
        replicas_wished=wish.replicas,
        args=list(wish.args),
        env=dict(wish.env),
        start_deadline=wish.start_deadline,
        stop_grace=wish.stop_grace,
    )
    layout, facts = layout_spec(deployment.layout), model_facts(deployment.model)
    problems += layout_of(layout).check(layout, facts)
    wanted = EngineOptions(tuple(wish.args), wish.env)
    problems += rule_problems(deployment.model, facts, layout, wanted, found["nodes"])
    problems += node_problems(deployment.model, layout, found["nodes"])
    return problems, deployment, found["nodes"]


def _check_numbers(wish: DeploymentInput) -> list[Problem]:
    problems = []
    if not 0 <= wish.replicas <= MAX_REPLICAS:
        problems.append(Problem("INVALID_INPUT", f"Replicas are between 0 and {MAX_REPLICAS}.", field="replicas"))
    for name, value, top in (("start_deadline", wish.start_deadline, 86400), ("stop_grace", wish.stop_grace, 3600)):
        if value is not None and not 0 < value <= top:
            problems.append(Problem("INVALID_INPUT", f"{name} is between 0 and {top} seconds.", field=name))
    return problems + _check_served_name(wish.served_name)


def _check_served_name(name: str) -> list[Problem]:
    """The name is a word of the engine's command line, where one that begins like a flag would be taken for one."""
    if len(name) <= 128 and name.isprintable() and not name.startswith("-"):
        return []
    message = "The served name is up to 128 printable letters and does not begin with '-'."
    return [Problem("INVALID_INPUT", message, "Choose another served name.", field="served_name")]


def apply(
    actor: Actor, wish: DeploymentInput, *, if_generation: int | None = None, create_only: bool = False
) -> Deployment:
    """Make a wish, or change one of the same name: its generation grows if anything differs.

    Args:
        if_generation: The generation that the caller has read; another one refuses the change.
        create_only: Refuse a name that exists.

    Raises:
        InvalidInput, InvalidLayout, NotFound, NotPermitted: The first error; the detail lists all problems.
        StaleGeneration, Conflict: Somebody was faster.
    """
    require(actor, Role.operator, "deploy models")
    problems, deployment, nodes = _check(actor, wish)
    if errors := _errors(problems):
        error = naming.problem_error(errors[0])
        error.detail["problems"] = [asdict(problem) for problem in problems]
        raise error
    assert deployment is not None
    with transaction.atomic():
        existing = Deployment.objects.select_for_update().filter(name=wish.name).first()
        if existing is None or existing.removed_at is not None:
            _check_absent(wish.name, if_generation)
        if existing is None:
            return _create(actor, deployment, nodes)
        if create_only and existing.removed_at is None:
            raise _taken(wish.name)
        check_generation(existing, if_generation)
        return _change(actor, existing, deployment, nodes)


def _check_absent(name: str, if_generation: int | None) -> None:
    if if_generation is not None:
        raise StaleGeneration(f"There is no deployment {name!r} any more.", field="If-Match")


def _taken(name: str) -> Conflict:
    return Taken(f"There is a deployment {name!r} already.", remedy="Choose another name.", field="name")


def check_generation(deployment: Deployment, if_generation: int | None) -> None:
    """Refuse a change based on another generation than the current one."""
    if if_generation is not None and if_generation != deployment.generation:
        raise StaleGeneration(
            f"{deployment.name} is at generation {deployment.generation}, not {if_generation}.", field="If-Match"
        )


def _create(actor: Actor, deployment: Deployment, nodes: Sequence[Node]) -> Deployment:
    deployment.api_key = "sk-" + secrets.token_urlsafe(32)
    try:
        with transaction.atomic():
            deployment.save()
    except IntegrityError:  # made by somebody else since we looked
        raise _taken(deployment.name) from None
    deployment.nodes.set(nodes)
    _remember(actor, deployment, nodes, "applied")
    return deployment


def _change(actor: Actor, row: Deployment, wish: Deployment, nodes: Sequence[Node]) -> Deployment:
    fields = ("served_name", "model_id", "layout_id", "args", "env", "start_deadline", "stop_grace")
    kept_nodes = set(row.nodes.values_list("pk", flat=True)) == {node.pk for node in nodes}
    same = kept_nodes and all(getattr(row, name) == getattr(wish, name) for name in fields) and row.removed_at is None
    if same and row.replicas_wished == wish.replicas_wished and row.wish == Wish.RUNNING:
        return row
    for name in (*fields, "replicas_wished"):
        setattr(row, name, getattr(wish, name))
    row.wish, row.removed_at = Wish.RUNNING, None
    if not same:
        row.generation += 1
    row.save(update_fields=[*fields, "replicas_wished", "wish", "generation", "removed_at"])
    row.nodes.set(nodes)
    _remember(actor, row, nodes, "changed" if same else f"generation {row.generation}")
    return Deployment.objects.select_related("model", "layout").get(pk=row.pk)


def _remember(actor: Actor, row: Deployment, nodes: Sequence[Node], note: str) -> None:
    spec = {
        "served_name": row.served_name,
        "model": row.model.name,
        "layout": row.layout.name,
        "replicas": row.replicas_wished,
        "nodes": [node.name for node in nodes],
        "args": row.args,
        "env": row.env,
        "start_deadline": row.start_deadline,
        "stop_grace": row.stop_grace,
    }
    Generation.objects.get_or_create(
        deployment=row, number=row.generation, defaults={"spec": spec, "actor": actor.name}
    )
    _tell(actor, row, "", Reason.APPLIED, note)
    nudge(row)


def _tell(actor: Actor, row: Deployment, old: str, reason: str, note: str = "", *, new: str | None = None) -> None:
    """Write down what somebody wished of a deployment."""
    links: dict[str, Any] = {"deployment_id": row.pk, "name": row.name}
    record("deployment", row.pk, old, new or row.wish, reason, note, actor=actor.name, **links)


def set_wish(actor: Actor, deployment_name: str, wish: Wish, *, if_generation: int | None = None) -> Deployment:
    """Stop, pause or run a deployment. Wishing what is wished already does nothing."""
    require(actor, Role.operator, f"set deployments to {wish.value.lower()}")
    with transaction.atomic():
        row = _locked(deployment_name)
        check_generation(row, if_generation)
        if row.wish != wish:
            old, row.wish = row.wish, wish
            row.save(update_fields=["wish"])
            reason = Reason.STOPPED_BY_OPERATOR if wish is Wish.STOPPED else Reason.APPLIED
            _tell(actor, row, old, reason)
            nudge(row)
    return row


def scale(actor: Actor, deployment_name: str, replicas: int, *, if_generation: int | None = None) -> Deployment:
    """Set the number of replicas; running ones are not touched by a change of the number."""
    require(actor, Role.operator, "scale deployments")
    if not 0 <= replicas <= MAX_REPLICAS:
        raise InvalidInput(f"Replicas are between 0 and {MAX_REPLICAS}.", field="replicas")
    with transaction.atomic():
        row = _locked(deployment_name)
        check_generation(row, if_generation)
        if row.replicas_wished != replicas:
            note = f"{row.replicas_wished} to {replicas} replicas"
            row.replicas_wished = replicas
            row.save(update_fields=["replicas_wished"])
            _tell(actor, row, row.wish, Reason.APPLIED, note)
            nudge(row)
    return row


def retry(actor: Actor, deployment_name: str) -> Deployment:
    """Give replicas that are FAILED or backing off a new attempt now."""
    require(actor, Role.operator, "retry deployments")
    row = get_deployment(deployment_name)
    note = "asked for by an operator"
    for replica in row.replicas.filter(state__in=[ReplicaState.FAILED, ReplicaState.BACKOFF]):
        if replica.state == ReplicaState.FAILED:
            move(replica, ReplicaState.BACKOFF, Reason.APPLIED, note, actor=actor.name)
        Replica.objects.filter(pk=replica.pk).update(failures=0, next_attempt_at=timezone.now(), note=note)
    nudge(row)
    return row


def remove(actor: Actor, deployment_name: str, *, if_generation: int | None = None) -> None:
    """Forget a deployment that is proven stopped. Its history stays in the database.

    Raises:
        Conflict: Something of it is not proven gone.
    """
    require(actor, Role.operator, "remove deployments")
    with transaction.atomic():
        row = _locked(deployment_name)
        check_generation(row, if_generation)
        if row.state != DeploymentState.STOPPED or row.wish != Wish.STOPPED:
            raise Conflict(f"{row.name} is {row.state.lower()}.", remedy="Stop it and wait until it is STOPPED.")
        row.removed_at = timezone.now()
        row.save(update_fields=["removed_at"])
        _tell(actor, row, row.state, Reason.APPLIED, new="REMOVED")


def _locked(deployment_name: str) -> Deployment:
    row = Deployment.objects.select_for_update().filter(name=naming.known(deployment_name), removed_at=None).first()
    if row is None:
        raise NotFound(f"There is no deployment {deployment_name!r}.")
    return row


def reveal_api_key(actor: Actor, deployment_name: str) -> str:
    """The generated key of a deployment's engines. Reading it is written down."""
    require(actor, Role.operator, "read API keys")
    row = get_deployment(deployment_name)
    _tell(actor, row, row.wish, "KEY_READ")
    return row.api_key
