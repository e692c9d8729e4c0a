"""Ask nodes for their facts."""

from __future__ import annotations

import time
from typing import Any

from deployments.domain.policy import Policy
from deployments.jobs.shapes import Kind, check_nothing
from deployments.models import Job, JobStep, Node
from deployments.remote import launcher
from deployments.remote.launcher import NodeTarget
from deployments.reports import record, record_facts, record_failure


def _call(target: NodeTarget, job: Job, step: JobStep) -> dict[str, Any]:
    facts = launcher().probe(target, step.node.environment or None)
    asked = time.time()
    report = launcher().report(target)
    # The node's clock against the middle of the question: good to half the round trip, which is kept beside it.
    answered = time.time()
    clock = facts.get("clock") or {}
    offset = None if report.get("at") is None else report["at"] - (asked + answered) / 2
    facts["clock"] = {**clock, "offset_s": offset, "offset_within_s": (answered - asked) / 2}
    return {"facts": facts, "report": report}


def _done(job: Job, node: Node, result: dict[str, Any]) -> str:
    record_facts(node, result["facts"])
    record(node, result["report"])
    found = node.accelerators.filter(present=True)
    return f"{found.count()} accelerators, {found[0].name}" if found else "no accelerator"


KIND = Kind(
    name="probe",
    role="operator",
    title=lambda args: "Probe nodes",
    check=check_nothing,
    call=_call,
    done=_done,
    failed=lambda job, node, error: record_failure(node, error, Policy().report_ttl),
)
