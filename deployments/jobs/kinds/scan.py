"""Fetch the host keys that nodes and their jump hosts offer, without logging in."""

from __future__ import annotations

from deployments.domain.policy import Policy
from deployments.jobs.shapes import Kind, check_nothing
from deployments.models import Job, JobStep, Node
from deployments.remote import launcher
from deployments.remote.launcher import NodeTarget, ScanResult
from deployments.reports import record_failure, record_offers


def _call(target: NodeTarget, job: Job, step: JobStep) -> ScanResult:
    return launcher().scan(target)


def _done(job: Job, node: Node, result: ScanResult) -> str:
    record_offers(node, result.host.public if result.host else None, result.jump.public if result.jump else None)
    if result.host is None:
        return "the jump host's key must be accepted first"
    return f"offers {result.host.fingerprint}"


KIND = Kind(
    name="scan",
    role="admin",
    title=lambda args: "Fetch host keys",
    check=check_nothing,
    call=_call,
    done=_done,
    failed=lambda job, node, error: record_failure(node, error, Policy().report_ttl),
)
