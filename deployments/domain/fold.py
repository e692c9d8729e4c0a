"""What one process becomes, from what its node says. Pure: state + evidence + clock -> the next state, or none."""

from __future__ import annotations

from dataclasses import dataclass

from .policy import Policy
from .specs import ProcessEvidence, ProcessView
from .states import ProcessState, Reason

P = ProcessState


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state a process moves to, why, and in words what was seen."""

    state: ProcessState
    reason: Reason
    note: str


def silent(heard_at: float | None, now: float, policy: Policy) -> bool:
    """Whether a node has not been heard for longer than a report lives."""
    return heard_at is None or now - heard_at > policy.report_ttl


def serves(probe_kind: str, evidence: ProcessEvidence) -> bool:
    """Whether the evidence proves that a process does its work (READY as DESIGN asks for)."""
    if not evidence.alive:
        return False
    if probe_kind == "alive":
        return True
    return evidence.health_status == 200 and bool(evidence.model_listed) and bool(evidence.completion_ok)


def fails(probe_kind: str, evidence: ProcessEvidence) -> bool:
    """Whether the evidence speaks against a process that has served; what was not looked at does not."""
    if probe_kind == "alive" or not evidence.probed:
        return False
    return evidence.health_status != 200 or evidence.model_listed is False or evidence.completion_ok is False


def fold(process: ProcessView, now: float, policy: Policy) -> Verdict | None:
    """The move that the newest evidence calls for, or None to stay."""
    if process.state is P.PENDING:
        return _pending(process, now, policy)
    if process.state in (P.STOPPING, P.STOPPED, P.FAILED):
        return None  # a stop ends by its proof, which the stop itself brings
    if silent(process.heard_at, now, policy):
        return None if process.state is P.UNKNOWN else Verdict(P.UNKNOWN, Reason.NODE_SILENT, _silence(process, now))
    if process.evidence is None:
        return None
    if not process.evidence.known:
        return _lost(process, process.evidence, policy)
    return _ended(process, process.evidence) or _living(process, process.evidence, now, policy)


def _silence(process: ProcessView, now: float) -> str:
    if process.heard_at is None:
        return "the node has not been heard yet"
    return f"no report for {now - process.heard_at:.0f} s; the process is left as it is"


def _pending(process: ProcessView, now: float, policy: Policy) -> Verdict | None:
    """A launch that was asked for ends by the node's word; one that never left the panel, by its deadline."""
    if not process.launch_requested:
        if process.deadline is None or now <= process.deadline:
            return None  # it waits for its wave, or for the pause to end
        return Verdict(P.FAILED, Reason.UNREACHABLE, "its node could not be reached, and nothing was sent")
    if process.evidence is not None and process.evidence.known:
        return Verdict(P.STARTING, Reason.LAUNCHED, "the node knows it, though its answer to the start was lost")
    end = process.since + policy.launch_deadline if process.deadline is None else process.deadline
    if now <= end or silent(process.heard_at, now, policy):
        return None  # a silent node may be running it: it is adopted or stopped once the node speaks
    note = (
        f"not started within {policy.launch_deadline:.0f} s; whether it runs is not known, so it is stopped with proof"
    )
    return Verdict(P.STOPPING, Reason.UNREACHABLE, note)


def _rebooted(process: ProcessView, evidence: ProcessEvidence) -> Verdict | None:
    if process.launch_boot_id and evidence.boot_id and evidence.boot_id != process.launch_boot_id:
        return Verdict(P.FAILED, Reason.NODE_LOST, "the machine was restarted (new boot id)")
    return None


def _lost(process: ProcessView, evidence: ProcessEvidence, policy: Policy) -> Verdict | None:
    """The node does not know the process; believed only when no report made before the start can still be under way."""
    if process.heard_at is None or process.heard_at < process.since + policy.report_ttl:
        return None
    reason = Reason.NODE_LOST if _rebooted(process, evidence) else Reason.EXITED
    return Verdict(P.STOPPING, reason, "the node no longer knows it; what is left is stopped with proof")


def _ended(process: ProcessView, evidence: ProcessEvidence) -> Verdict | None:
    """The process is over: its machine rebooted, or its main process is gone."""
    rebooted = _rebooted(process, evidence)
    if rebooted or evidence.alive:
        return rebooted
    reason = evidence.failure or Reason.EXITED
    note = exit_note(evidence)
    if evidence.members == 0:
        return Verdict(P.FAILED, reason, note)
    return Verdict(P.STOPPING, reason, f"{note}, leaving {evidence.members} of its processes alive")


def exit_note(evidence: ProcessEvidence) -> str:
    """How a process ended, in words."""
    if evidence.exit_signal is not None:
        how = f"ended by signal {evidence.exit_signal}"
    elif evidence.exit_code is not None:
        how = f"exited with code {evidence.exit_code}"
    else:
        how = "ended (nobody saw how)"
    return f"{how}: {evidence.failure_line}" if evidence.failure_line else how


def _living(process: ProcessView, evidence: ProcessEvidence, now: float, policy: Policy) -> Verdict | None:
    if process.state is P.STARTING:
        return _starting(process, evidence, now)
    if not evidence.probed and process.probe_kind != "alive":
        return None
    if process.state is P.UNKNOWN:
        return _sighted(process, evidence)
    failing = fails(process.probe_kind, evidence)
    if process.state is P.READY:
        return _failing(process, evidence, now, policy) if failing else None
    if not failing:
        return Verdict(P.READY, Reason.PROBE_PASSED, "it answers again")
    return _impatient(process, evidence, now, policy)


def _failing(process: ProcessView, evidence: ProcessEvidence, now: float, policy: Policy) -> Verdict | None:
    began = process.unhealthy_since
    if began is not None and now - began < policy.unhealthy_after:
        return None
    return Verdict(P.UNHEALTHY, Reason.PROBE_FAILED, _probe_note(evidence))


def _impatient(process: ProcessView, evidence: ProcessEvidence, now: float, policy: Policy) -> Verdict | None:
    # An engine under load may fail a completion while /health says 200; that is shown, but is no ground for a stop.
    if evidence.health_status == 200 or now <= process.since + policy.unhealthy_patience:
        return None
    note = f"unhealthy for {now - process.since:.0f} s: {_probe_note(evidence)}"
    return Verdict(P.STOPPING, Reason.UNRESPONSIVE, note)


def _starting(process: ProcessView, evidence: ProcessEvidence, now: float) -> Verdict | None:
    if serves(process.probe_kind, evidence):
        note = "running" if process.probe_kind == "alive" else "/health 200, model listed, one token came back"
        return Verdict(P.READY, Reason.PROBE_PASSED, note)
    if process.deadline is not None and now > process.deadline:
        phase = f" in phase {evidence.phase}" if evidence.phase else ""
        return Verdict(P.STOPPING, Reason.START_TIMEOUT, f"not ready after {now - process.since:.0f} s{phase}")
    return None


def _sighted(process: ProcessView, evidence: ProcessEvidence) -> Verdict:
    """The node speaks again: the process is adopted as it is."""
    served = process.served or bool(evidence.completion_ok)
    if serves(process.probe_kind, evidence) or (served and not fails(process.probe_kind, evidence)):
        return Verdict(P.READY, Reason.ADOPTED, "the node speaks again and it serves")
    if served:
        return Verdict(P.UNHEALTHY, Reason.ADOPTED, f"the node speaks again: {_probe_note(evidence)}")
    return Verdict(P.STARTING, Reason.ADOPTED, "the node speaks again and it is still starting")


def _probe_note(evidence: ProcessEvidence) -> str:
    if evidence.health_status is None:
        return "/health does not answer"
    if evidence.health_status != 200:
        return f"/health answers {evidence.health_status}"
    if evidence.model_listed is False:
        return "/v1/models does not list the model"
    return "a one-token completion fails"
