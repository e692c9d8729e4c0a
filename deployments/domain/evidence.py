"""What a report says about one process, as evidence. Missing is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .failures import read_failure
from .specs import ProcessEvidence
from .startup import read_phase


def evidence_of(report: Mapping[str, Any], process_id: str, model: str | None = None) -> ProcessEvidence:
    """Read a node's report (the helper's schema 1) for one process id that serves `model`."""
    boot_id = report.get("boot_id")
    entry = (report.get("processes") or {}).get(process_id)
    if not entry or (entry.get("tombstone") and entry.get("pid") is None):
        return ProcessEvidence(known=process_id in (report.get("ended") or ()), boot_id=boot_id)
    probe = entry.get("probe") or {}
    end = entry.get("exit") or {}
    alive = bool(entry.get("alive"))
    tail = entry.get("log_tail") or ""
    phase = read_phase(tail) if tail else None
    failure = read_failure(tail) if tail and not alive else None
    return ProcessEvidence(
        known=True,
        alive=alive,
        members=len(entry.get("members") or ()),
        exit_code=end.get("code"),
        exit_signal=end.get("signal"),
        health_status=(probe.get("health") or {}).get("status"),
        model_listed=_listed(probe, model),
        completion_ok=(probe.get("completion") or {}).get("ok"),
        phase=phase[0] if phase else None,
        progress=phase[1] if phase else None,
        boot_id=boot_id,
        failure=failure[0] if failure else None,
        failure_line=failure[1] if failure else None,
        probed=entry.get("probe") is not None,
    )


def _listed(probe: Mapping[str, Any], model: str | None) -> bool | None:
    models = probe.get("models")
    if models is None:
        return None
    return model in models if model else bool(models)
