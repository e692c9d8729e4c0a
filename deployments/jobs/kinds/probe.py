"""Ask nodes for their facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deployments.domain.policy import Policy
from deployments.jobs.shapes import Kind
from deployments.models import Job, JobStep, Node
from deployments.remote import launcher
from deployments.remote.launcher import NodeTarget
from deployments.reports import record, record_facts, record_failure


def _call(target: NodeTarget, job: Job, step: JobStep) -> dict[str, Any]:
    facts = launcher().probe(target, step.node.environment or None)
    return {"facts": facts, "report": launcher().report(target)}


def _done(job: Job, node: Node, result: dict[str, Any]) -> str:
    record_facts(node, result["facts"])
    record(node, result["report"])
    found = node.accelerators.filter(present=True)
    return f"{found.count()} accelerators, {found[0].name}" if found else "no accelerator"


def _check(args: Mapping[str, Any]) -> dict[str, Any]:
    return {}


KIND = Kind(
    name="probe",
    role="operator",
    title=lambda args: "Probe nodes",
    check=_check,
    call=_call,
    done=_done,
    failed=lambda job, node, error: record_failure(node, error, Policy().report_ttl),
)
