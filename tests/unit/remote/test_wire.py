"""What a node answers is checked where it comes in: what gets through breaks nobody, and nothing else gets through."""

from __future__ import annotations

import contextlib
import copy
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.domain.evidence import evidence_of
from deployments.domain.facts import accelerators_of, read_facts
from deployments.remote.launcher import HelperFailed, LogChunk, Started, StartRequest
from deployments.remote.stub_facts import cpu_host, h200_host
from deployments.remote.stub_node import StubNode
from deployments.remote.wire import Facts, check_answer, check_report, read_answer

PROBE = {"kind": "openai", "base_url": "http://10.0.0.2:8000", "model": "m"}


def good() -> dict:
    """A report with an engine that serves, one that ended, and a tombstone."""
    node = StubNode(cpu_host("node-a"), clock=time.time)
    for process, probe in (("p1", PROBE), ("p2", None)):
        node.start(StartRequest(process, f"r-{process}", 1, "engine", probe=probe))
    node.exit("p2", code=3)
    node.stop("never")
    for _ in range(3):
        report = node.report()
    return json.loads(json.dumps(report))


GOOD = good()


def changed(path: tuple, value: object, of: dict = GOOD) -> dict:
    report = copy.deepcopy(of)
    place = report
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return report


def places(value: object, path: tuple = ()) -> list[tuple]:
    """The path of every value in a report, but its own."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in inner for found in ((*path, key), *places(item, (*path, key)))]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def test_a_good_report_comes_through_as_it_is_with_what_nobody_knows():
    report = changed(("processes", "p1", "from_a_later_version"), {"x": [1]})
    report["also"] = None
    assert check_report("node-a", copy.deepcopy(report)) == report


def test_figures_are_not_looked_into():
    report = {**GOOD, "gpu": {"source": 7}, "host": {"cpu": "much"}}
    report["processes"] = {"p1": {**GOOD["processes"]["p1"], "metrics": {"series": 3}}}
    assert check_report("node-a", report) is report


WRONG = {
    "no object": [],
    "nothing": None,
    "no processes": {"at": 1.0},
    "a list of processes": changed(("processes",), ["what", 7, None]),
    "a process that is text": changed(("processes", "p1"), "alive"),
    "alive in words": changed(("processes", "p1", "alive"), "yes"),
    "alive by number": changed(("processes", "p1", "alive"), 1),
    "an exit that is text": changed(("processes", "p2", "exit"), "3"),
    "an exit code beyond any": changed(("processes", "p2", "exit", "code"), 10**30),
    "a member without pid": changed(("processes", "p1", "members"), [{"name": "x"}]),
    "a negative pid": changed(("processes", "p1", "pid"), -1),
    "a log tail of bytes": changed(("processes", "p1", "log_tail"), [104, 105]),
    "a completion that is maybe ok": changed(("processes", "p1", "probe", "completion", "ok"), None),
    "models that are no names": changed(("processes", "p1", "probe", "models"), [1]),
    "a time beyond every calendar": changed(("at",), 1e300),
    "a time before the epoch": changed(("at",), -1.0),
    "a boot id that is a number": changed(("boot_id",), 7),
    "figures that are text": changed(("gpu",), "fast"),
    "ended processes that are objects": changed(("ended",), [{}]),
}


@pytest.mark.parametrize("report", WRONG.values(), ids=WRONG.keys())
def test_a_report_of_another_shape_is_a_typed_error(report):
    with pytest.raises(HelperFailed) as caught:
        check_report("node-a", report)
    assert (caught.value.code, caught.value.node) == ("BAD_REPORT", "node-a")
    assert caught.value.remedy
    assert len(caught.value.message) < 500


def test_the_error_names_the_process_that_is_wrong():
    with pytest.raises(HelperFailed, match=r"process p2"):
        check_report("node-a", changed(("processes", "p2", "alive"), None))


@given(json_values)
def test_any_answer_at_all_is_a_report_or_a_typed_error(value):
    with contextlib.suppress(HelperFailed):
        assert check_report("node-a", value) is value


@given(st.sampled_from(places(GOOD)), json_values)
def test_what_gets_through_is_evidence_for_the_reconciler_without_surprises(path, value):
    report = changed(path, value)
    try:
        check_report("node-a", report)
    except HelperFailed:
        return
    for process in ("p1", "p2", "never", "unknown"):
        evidence_of(report, process, "m")


FACTS = {
    host["hostname"]: json.loads(json.dumps({**host, "at": 1.0, "clock": {"now": 1.0}, "paths": {}}))
    for host in (cpu_host("cpu"), h200_host("gpu"))
}


@pytest.mark.parametrize("host", FACTS)
def test_what_gets_through_of_a_probe_are_facts_without_surprises(host):
    refused = 0
    for path in places(FACTS[host]):
        for value in (None, 7, "x", [], {}, [1], {"a": 1}, -1, 1e300, True):
            facts = changed(path, value, FACTS[host])
            try:
                check_answer("node-a", "probe", facts, Facts)
            except HelperFailed:
                refused += 1
                continue
            read_facts(facts)
            accelerators_of(facts)
    assert refused


def test_other_answers_are_read_into_the_launchers_types():
    answer = {"pid": 7, "start_time": 70, "boot_id": "b", "already": True, "from_a_later_version": 1}
    assert read_answer("node-a", "start", answer, Started) == Started(7, 70, "b", True)


@pytest.mark.parametrize("answer", [None, [], "no", {}, {"pid": "7", "start_time": 70, "boot_id": "b"}])
def test_an_answer_of_another_shape_is_a_typed_error(answer):
    with pytest.raises(HelperFailed, match="`start`") as caught:
        read_answer("node-a", "start", answer, Started)
    assert (caught.value.code, caught.value.node) == ("BAD_ANSWER", "node-a")


def test_a_log_piece_without_its_offsets_is_a_typed_error():
    with pytest.raises(HelperFailed, match="next_offset"):
        read_answer("node-a", "logs", {"offset": 0, "base": 0, "size": 0, "data": ""}, LogChunk)
