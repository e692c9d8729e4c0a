from __future__ import annotations

from dataclasses import replace

import pytest

from deployments.domain.fold import Verdict, exit_note, fold
from deployments.domain.specs import ProcessEvidence, ProcessView
from deployments.domain.states import ProcessState, Reason

from .views import GONE, LOADING, NOW, ORPHANED, POLICY, REFUSED, SERVING, UNHEARD_OF, process

P = ProcessState
SILENT = {"heard_at": NOW - POLICY.report_ttl - 1}
REBOOTED = replace(GONE, boot_id="b2")
BUSY = replace(SERVING, completion_ok=False)
NOT_PROBED = replace(LOADING, probed=False)

MOVES = {
    "PENDING and asked for, the node knows it": (
        process(P.PENDING, launch_requested=True, evidence=LOADING),
        (P.STARTING, Reason.LAUNCHED),
    ),
    "PENDING and asked for, the node speaks and does not know it": (
        process(P.PENDING, launch_requested=True, evidence=UNHEARD_OF, deadline=NOW - 1),
        (P.STOPPING, Reason.UNREACHABLE),
    ),
    "PENDING, asked for long ago, without a stored deadline": (
        process(P.PENDING, launch_requested=True, since=NOW - 61),
        (P.STOPPING, Reason.UNREACHABLE),
    ),
    "PENDING, tried, and nothing ever left the panel": (
        process(P.PENDING, deadline=NOW - 1),
        (P.FAILED, Reason.UNREACHABLE),
    ),
    "STARTING and it serves": (process(P.STARTING), (P.READY, Reason.PROBE_PASSED)),
    "STARTING and it only has to run": (
        process(P.STARTING, evidence=LOADING, probe_kind="alive"),
        (P.READY, Reason.PROBE_PASSED),
    ),
    "STARTING and late": (
        process(P.STARTING, evidence=LOADING, deadline=NOW - 1),
        (P.STOPPING, Reason.START_TIMEOUT),
    ),
    "STARTING and ended": (process(P.STARTING, evidence=GONE), (P.FAILED, Reason.EXITED)),
    "STARTING and ended for a known reason": (
        process(P.STARTING, evidence=replace(GONE, failure=Reason.UNKNOWN_FLAG)),
        (P.FAILED, Reason.UNKNOWN_FLAG),
    ),
    "STARTING and silent": (process(P.STARTING, **SILENT), (P.UNKNOWN, Reason.NODE_SILENT)),
    "never heard": (process(P.STARTING, heard_at=None), (P.UNKNOWN, Reason.NODE_SILENT)),
    "READY and /health refuses": (process(evidence=REFUSED), (P.UNHEALTHY, Reason.PROBE_FAILED)),
    "READY and /health says 503": (
        process(evidence=replace(SERVING, health_status=503)),
        (P.UNHEALTHY, Reason.PROBE_FAILED),
    ),
    "READY and completions fail": (process(evidence=BUSY), (P.UNHEALTHY, Reason.PROBE_FAILED)),
    "READY and the model is not listed": (
        process(evidence=replace(SERVING, model_listed=False)),
        (P.UNHEALTHY, Reason.PROBE_FAILED),
    ),
    "READY, failing for long enough": (
        process(evidence=REFUSED, unhealthy_since=NOW - 5),
        (P.UNHEALTHY, Reason.PROBE_FAILED),
    ),
    "READY and killed, its children live on": (process(evidence=ORPHANED), (P.STOPPING, Reason.EXITED)),
    "READY and gone": (process(evidence=GONE), (P.FAILED, Reason.EXITED)),
    "READY and silent": (process(**SILENT), (P.UNKNOWN, Reason.NODE_SILENT)),
    "READY and the machine was restarted": (process(evidence=REBOOTED), (P.FAILED, Reason.NODE_LOST)),
    "READY and the node has lost it": (process(evidence=UNHEARD_OF), (P.STOPPING, Reason.EXITED)),
    "READY, lost in a restart of the machine": (
        process(evidence=replace(UNHEARD_OF, boot_id="b2")),
        (P.STOPPING, Reason.NODE_LOST),
    ),
    "UNHEALTHY and it answers again": (process(P.UNHEALTHY), (P.READY, Reason.PROBE_PASSED)),
    "UNHEALTHY for longer than our patience": (
        process(P.UNHEALTHY, evidence=REFUSED, since=NOW - 61),
        (P.STOPPING, Reason.UNRESPONSIVE),
    ),
    "UNHEALTHY and gone": (process(P.UNHEALTHY, evidence=GONE), (P.FAILED, Reason.EXITED)),
    "UNHEALTHY and silent": (process(P.UNHEALTHY, **SILENT), (P.UNKNOWN, Reason.NODE_SILENT)),
    "UNKNOWN and it serves": (process(P.UNKNOWN), (P.READY, Reason.ADOPTED)),
    "UNKNOWN, it served and /health says 200": (
        process(P.UNKNOWN, evidence=replace(LOADING, health_status=200), served=True),
        (P.READY, Reason.ADOPTED),
    ),
    "UNKNOWN, it served and does not answer": (
        process(P.UNKNOWN, evidence=LOADING, served=True),
        (P.UNHEALTHY, Reason.ADOPTED),
    ),
    "UNKNOWN and its node saw it serve": (process(P.UNKNOWN, evidence=REFUSED), (P.UNHEALTHY, Reason.ADOPTED)),
    "UNKNOWN and still loading": (process(P.UNKNOWN, evidence=LOADING), (P.STARTING, Reason.ADOPTED)),
    "UNKNOWN and its children are left": (process(P.UNKNOWN, evidence=ORPHANED), (P.STOPPING, Reason.EXITED)),
    "UNKNOWN and gone": (process(P.UNKNOWN, evidence=GONE), (P.FAILED, Reason.EXITED)),
    "UNKNOWN and the machine was restarted": (
        process(P.UNKNOWN, evidence=REBOOTED),
        (P.FAILED, Reason.NODE_LOST),
    ),
}
STAYS = {
    "PENDING waits for its wave however long": process(P.PENDING, since=NOW - 5000),
    "PENDING, tried a moment ago": process(P.PENDING, deadline=NOW + 1),
    "PENDING and asked for, its node says nothing": process(
        P.PENDING, launch_requested=True, since=NOW - 5000, deadline=NOW - 5000, **SILENT
    ),
    "PENDING and asked for, in time": process(P.PENDING, launch_requested=True, deadline=NOW + 1),
    "PENDING is not started by a report that knows it though nobody asked": process(P.PENDING, evidence=LOADING),
    "STARTING and loading": process(P.STARTING, evidence=LOADING, deadline=NOW + 1),
    "STARTING, /health says 200 and nothing more is known": process(
        P.STARTING, evidence=replace(LOADING, health_status=200)
    ),
    "STARTING without a deadline": process(P.STARTING, evidence=LOADING, since=NOW - 99_999),
    "STARTING, and a report from before the start does not know it": process(
        P.STARTING, evidence=UNHEARD_OF, since=NOW - 14
    ),
    "STARTING, and a report from before a restart of the machine": process(
        P.STARTING, evidence=replace(UNHEARD_OF, boot_id="b0"), since=NOW - 14
    ),
    "READY and serving": process(),
    "READY and its node has said nothing of it": process(evidence=None),
    "READY and the probe has not run yet": process(evidence=NOT_PROBED),
    "READY, and only /health was looked at": process(evidence=replace(LOADING, health_status=200)),
    "READY and failing for a moment": process(evidence=REFUSED, unhealthy_since=NOW - 4),
    "READY and the report is just young enough": process(heard_at=NOW - POLICY.report_ttl),
    "UNHEALTHY within our patience": process(P.UNHEALTHY, evidence=REFUSED, since=NOW - 59),
    "UNHEALTHY for long, but /health says 200": process(P.UNHEALTHY, evidence=BUSY, since=NOW - 9999),
    "UNHEALTHY and the probe has not run yet": process(P.UNHEALTHY, evidence=NOT_PROBED, since=NOW - 9999),
    "UNKNOWN and still silent, however long": process(P.UNKNOWN, since=NOW - 99_999, heard_at=NOW - 99_999),
    "UNKNOWN and the probe has not run yet": process(P.UNKNOWN, evidence=NOT_PROBED),
    "STOPPING waits for its proof": process(P.STOPPING, evidence=GONE),
    "STOPPING on a silent node": process(P.STOPPING, **SILENT),
    "STOPPED is final": process(P.STOPPED),
    "FAILED is final": process(P.FAILED),
}


@pytest.mark.parametrize(("seen", "expected"), MOVES.values(), ids=MOVES)
def test_the_evidence_calls_for_a_move(seen: ProcessView, expected: tuple[ProcessState, Reason]) -> None:
    verdict = fold(seen, NOW, POLICY)
    assert isinstance(verdict, Verdict)
    assert (verdict.state, verdict.reason) == expected
    assert verdict.note


@pytest.mark.parametrize("seen", STAYS.values(), ids=STAYS)
def test_the_evidence_calls_for_no_move(seen: ProcessView) -> None:
    assert fold(seen, NOW, POLICY) is None


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (GONE, "exited with code 1"),
        (ORPHANED, "ended by signal 9"),
        (ProcessEvidence(known=True), "ended (nobody saw how)"),
        (replace(GONE, exit_code=0, failure_line="out of memory"), "exited with code 0: out of memory"),
    ],
)
def test_an_end_is_told_in_words(evidence: ProcessEvidence, words: str) -> None:
    assert exit_note(evidence) == words


def test_a_late_start_names_the_phase_it_hangs_in() -> None:
    late = fold(process(P.STARTING, evidence=LOADING, deadline=NOW - 1), NOW, POLICY)
    assert late is not None
    assert late.note == "not ready after 100 s in phase loading"
