"""Install or upgrade an engine environment: a venv with the same pins on every node of the job."""

from __future__ import annotations

from typing import Any

from deployments.domain.environment import check_environment, install_steps
from deployments.jobs.shapes import Kind
from deployments.models import Job, JobStep, Node
from deployments.remote import launcher
from deployments.remote.launcher import HelperFailed, NodeTarget, StartRequest
from deployments.reports import record_environment, record_facts


def _request(job: Job, step: JobStep) -> StartRequest:
    python = (step.node.facts.get("python") or {}).get("executable") or "/usr/bin/python3"
    return StartRequest(
        process=str(step.process),
        replica=f"{job.pk}-{step.node_id}",
        attempt=1,
        role="job",
        steps=install_steps(job.args, python=job.args.get("python") or python),
        env={"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONUNBUFFERED": "1"},
    )


def _confirm(target: NodeTarget, job: Job, step: JobStep) -> dict[str, Any]:
    """The environment is there when a probe finds the engine in it, not when pip says so."""
    facts = launcher().probe(target, job.args["path"])
    environment = facts.get("environment") or {}
    if not (environment.get("executables") or {}).get("vllm"):
        raise HelperFailed(
            f"pip ended well, but there is no vllm program in {job.args['path']}.",
            remedy="Read the log; the pins may lack vllm.",
            code="ENGINE_MISSING",
        )
    return facts


def _done(job: Job, node: Node, facts: dict[str, Any]) -> str:
    record_environment(node, job.args["path"])
    record_facts(node, facts)
    packages = (facts.get("environment") or {}).get("packages") or {}
    return ", ".join(f"{name} {packages[name]}" for name in ("vllm", "ray", "torch") if packages.get(name))


KIND = Kind(
    name="install_environment",
    role="admin",
    title=lambda args: f"Install {', '.join(args['packages'])} into {args['path']}",
    check=check_environment,
    request=_request,
    confirm=_confirm,
    done=_done,
)
