"""The stub answers in the shapes of the real helper: both do the same things, and the keys are compared."""

from __future__ import annotations

import contextlib
import time
from dataclasses import fields

import pytest

from deployments.remote.launcher import HelperFailed, LogChunk, NodeTarget, StartRequest, StopRequest
from deployments.remote.node_launcher import NodeLauncher
from deployments.remote.stub import StubLauncher
from tests.integration.remote.sshd import INSTALLATION

TARGET = NodeTarget(1, "here", INSTALLATION)
DEADLINE_S = 20.0


@pytest.fixture
def real(tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTHOUSE_STATE_ROOT", str(tmp_path / "state"))
    launcher = NodeLauncher()
    yield launcher
    launcher.close()


@pytest.fixture
def both(real):
    return real, StubLauncher()


def request(process: str, **changes) -> StartRequest:
    values = {
        "replica": "r1",
        "attempt": 1,
        "role": "engine",
        "argv": ("/bin/sleep", "300"),
        "probe": {"kind": "alive"},
    }
    return StartRequest(process, **{**values, **changes})


def shape(value) -> object:
    """Keys, and the shapes below them; lists by their first item."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in sorted(value.items())}
    return [shape(value[0])] if isinstance(value, list) and value and isinstance(value[0], dict) else None


@contextlib.contextmanager
def running(launcher, process: str = "p1", **changes):
    launcher.start(TARGET, request(process, **changes))
    try:
        yield
    finally:
        launcher.stop(TARGET, StopRequest(process, grace_s=2, kill_s=5))


def test_a_probe_has_the_same_facts(both):
    real, stub = (launcher.probe(TARGET, None, ("/models",)) for launcher in both)
    assert set(stub) == set(real)
    for name in ("os", "python", "cpu", "memory", "nvidia_smi", "shm", "paths", "limits", "clock", "detach", "tools"):
        assert set(stub[name]) == set(real[name]), name
    assert set(stub["paths"]["/models"]) == set(real["paths"]["/models"])
    for name in ("disks", "nics"):
        if real[name]:
            assert set(stub[name][0]) == set(real[name][0]), name


def test_an_environment_has_the_same_facts(both):
    real, stub = (launcher.probe(TARGET, "/no/such/environment")["environment"] for launcher in both)
    assert stub is None or real is None or set(stub) == set(real)


def test_a_running_process_is_reported_the_same(both):
    reports = []
    for launcher in both:
        with running(launcher):
            reports.append(launcher.report(TARGET))
    real, stub = reports
    assert set(stub) == set(real)
    assert set(stub["host"]) == set(real["host"])
    assert shape(stub["processes"]["p1"]) == shape(real["processes"]["p1"])


def test_an_engine_that_does_not_answer_yet_is_reported_the_same(both):
    probe = {"kind": "openai", "base_url": "http://127.0.0.1:9", "model": "m", "api_key_env": None}
    both[1].node(1).ready_after = None
    seen = []
    for launcher in both:
        with running(launcher, probe=probe):
            seen.append(
                until(lambda launcher=launcher: launcher.report(TARGET)["processes"]["p1"]["probe"], _was_probed)
            )
    assert shape(seen[1]) == shape(seen[0])
    assert seen[0]["health"]["status"] is seen[1]["health"]["status"] is None


def _was_probed(probe) -> bool:
    return bool(probe and probe["health"] and probe["health"]["error"])


def test_an_ended_process_is_reported_the_same(both):
    entries = []
    for launcher in both:
        if isinstance(launcher, StubLauncher):
            launcher.start(TARGET, request("p1"))
            launcher.node(1).exit("p1", code=3)
        else:
            launcher.start(TARGET, request("p1", argv=("/bin/sh", "-c", "exit 3")))
        entries.append(until(lambda launcher=launcher: launcher.report(TARGET)["processes"]["p1"], lambda e: e["exit"]))
    assert shape(entries[1]) == shape(entries[0])
    assert entries[0]["exit"]["code"] == entries[1]["exit"]["code"] == 3


def test_a_tombstone_is_reported_the_same(both):
    entries = []
    for launcher in both:
        proof = launcher.stop(TARGET, StopRequest("never"))
        assert (proof.proven, proof.known) == (True, False)
        entries.append(launcher.report(TARGET)["processes"]["never"])
    assert entries[1] == entries[0]


def test_a_stop_is_proven_the_same(both):
    proofs = []
    for launcher in both:
        launcher.start(TARGET, request("p1"))
        proofs.append(launcher.stop(TARGET, StopRequest("p1", grace_s=3, kill_s=5)))
    real, stub = proofs
    assert real.proven
    assert stub.proven
    assert shape(dict(stub.evidence)) == shape(dict(real.evidence))


def test_the_black_box_has_the_same_things(both):
    boxes = []
    for launcher in both:
        with running(launcher, ports=(59_998,), secrets={"KEY": "s3cret"}):
            boxes.append(launcher.collect(TARGET, "p1"))
    real, stub = boxes
    assert set(stub) == set(real)
    assert set(stub["ports"][0]) == set(real["ports"][0])
    assert set(stub["members"][0]) == set(real["members"][0])
    assert set(stub["request"]) <= set(real["request"])
    assert "s3cret" not in str(boxes)


def test_logs_come_the_same_way(both):
    for launcher in both:
        with running(launcher, argv=("/bin/sh", "-c", "echo hello; sleep 300")):
            read = lambda launcher=launcher: launcher.logs(TARGET, "p1", 0)  # noqa: E731
            chunk = until(read, lambda chunk: chunk.size > 0)
            assert chunk == LogChunk(0, chunk.size, 0, chunk.size, chunk.data)
            assert launcher.logs(TARGET, "p1", -3).data == chunk.data[-3:]
    assert {field.name for field in fields(LogChunk)} == {"offset", "next_offset", "base", "size", "data"}


def test_a_model_folder_is_read_the_same(both, tmp_path):
    real, stub = both
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen2ForCausalLM"]}')
    ours = stub.read_model(TARGET, "/models/Qwen2.5-7B-Instruct")
    assert shape({**ours, "config": None}) == shape({**real.read_model(TARGET, str(tmp_path)), "config": None})


@pytest.mark.parametrize(
    ("code", "provoke"),
    [
        ("PATH_MISSING", lambda launcher: launcher.read_model(TARGET, "/no/such/model")),
        ("UNKNOWN_PROCESS", lambda launcher: launcher.collect(TARGET, "nobody")),
        ("UNKNOWN_PROCESS", lambda launcher: launcher.logs(TARGET, "nobody", 0)),
        ("INVALID_ID", lambda launcher: launcher.stop(TARGET, StopRequest("../etc"))),
        ("FENCED", lambda launcher: (launcher.stop(TARGET, StopRequest("p9")), launcher.start(TARGET, request("p9")))),
    ],
)
def test_a_refusal_has_the_same_code(both, code, provoke):
    for launcher in both:
        with pytest.raises(HelperFailed) as caught:
            provoke(launcher)
        assert (caught.value.code, caught.value.node) == (code, "here")


def test_a_lower_attempt_and_a_taken_port_are_refused_by_both(both):
    for launcher in both:
        with running(launcher, "p1", attempt=2):
            with pytest.raises(HelperFailed) as caught:
                launcher.start(TARGET, request("p2", attempt=1))
            assert caught.value.code == "FENCED"
            with pytest.raises(HelperFailed) as caught:
                launcher.forget(TARGET, "p1")
            assert caught.value.code == "STILL_RUNNING"


def until(look, good):
    """What `look` gives once `good` likes it."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        seen = look()
        if good(seen):
            return seen
        time.sleep(0.05)
    raise AssertionError(f"still {seen!r}")
