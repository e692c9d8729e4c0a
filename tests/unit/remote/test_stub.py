"""The stub keeps the node helper's promises."""

from __future__ import annotations

import contextlib

import pytest

from deployments.domain.facts import accelerators_of, read_facts
from deployments.remote.launcher import (
    HelperFailed,
    HostKeyChanged,
    HostKeyUnknown,
    Launcher,
    NodeTarget,
    SshEndpoint,
    StartRequest,
    StopRequest,
    TimedOut,
    Unreachable,
)
from deployments.remote.stub import StubLauncher
from deployments.remote.stub_facts import h200_host

TARGET = NodeTarget(1, "gpu-a", "installation")
PROBE = {"kind": "openai", "base_url": "http://10.0.0.2:8000", "model": "qwen", "api_key_env": "VLLM_API_KEY"}


@pytest.fixture
def clock():
    return [1_800_000_000.0]


@pytest.fixture
def stub(clock) -> StubLauncher:
    return StubLauncher(clock=lambda: clock[0])


def request(process: str = "p1", **changes) -> StartRequest:
    values = {"replica": "r1", "attempt": 1, "role": "engine", "argv": ("/opt/vllm/bin/vllm", "serve"), "probe": PROBE}
    return StartRequest(process, **{**values, **changes})


def test_it_is_a_launcher(stub):
    launcher: Launcher = stub
    launcher.close()


def test_a_started_engine_becomes_ready(stub):
    started = stub.start(TARGET, request())
    report = stub.report(TARGET)
    entry = report["processes"]["p1"]
    assert entry["probe"]["health"]["status"] == 200
    assert entry["probe"]["models"] == ["qwen"]
    assert entry["probe"]["completion"]["ok"] is True
    assert (entry["pid"], report["boot_id"]) == (started.pid, started.boot_id)


def test_an_engine_takes_as_many_reports_as_it_is_told(stub):
    stub.node(1).ready_after = 2
    stub.start(TARGET, request())
    probes = [stub.report(TARGET)["processes"]["p1"]["probe"] for _ in range(3)]
    assert [probe["health"]["status"] for probe in probes] == [None, None, 200]
    assert [probe["completion"] is None for probe in probes] == [True, True, False]


def test_a_known_process_is_not_started_twice(stub):
    first = stub.start(TARGET, request())
    again = stub.start(TARGET, request())
    assert (again.already, again.pid) == (True, first.pid)
    stub.stop(TARGET, StopRequest("p1"))
    assert stub.start(TARGET, request()).already


def test_a_late_start_of_a_stopped_process_is_refused(stub):
    proof = stub.stop(TARGET, StopRequest("p1"))
    assert (proof.proven, proof.known) == (True, False)
    with pytest.raises(HelperFailed) as caught:
        stub.start(TARGET, request())
    assert (caught.value.code, caught.value.node) == ("FENCED", "gpu-a")


def test_an_older_attempt_is_refused(stub):
    stub.start(TARGET, request("p2", attempt=2))
    with pytest.raises(HelperFailed) as caught:
        stub.start(TARGET, request("p1", attempt=1))
    assert caught.value.code == "FENCED"


def test_a_taken_port_is_refused_and_named(stub):
    stub.start(TARGET, request("p1", ports=(8000,)))
    with pytest.raises(HelperFailed, match="8000") as caught:
        stub.start(TARGET, request("p2", ports=(8000,)))
    assert caught.value.code == "PORT_IN_USE"
    stub.stop(TARGET, StopRequest("p1"))
    assert not stub.start(TARGET, request("p2", ports=(8000,))).already


def test_a_stop_is_proven_and_leaves_the_report_after_a_minute(stub, clock):
    stub.start(TARGET, request())
    proof = stub.stop(TARGET, StopRequest("p1"))
    assert proof.proven
    assert proof.evidence["members"]
    assert not stub.report(TARGET)["processes"]["p1"]["alive"]
    clock[0] += 61
    report = stub.report(TARGET)
    assert (report["processes"], report["ended"]) == ({}, ["p1"])
    assert stub.stop(TARGET, StopRequest("p1")).proven


def test_a_stubborn_process_cannot_be_proven_gone(stub):
    stub.start(TARGET, request())
    stub.node(1).stubborn = True
    proof = stub.stop(TARGET, StopRequest("p1"))
    assert not proof.proven
    assert proof.evidence["left"]["members"]
    stub.node(1).stubborn = False
    assert stub.stop(TARGET, StopRequest("p1")).proven


def test_an_exit_is_reported_with_its_last_words(stub):
    stub.start(TARGET, request())
    stub.node(1).exit("p1", code=1, log="torch.OutOfMemoryError: CUDA out of memory.")
    entry = stub.report(TARGET)["processes"]["p1"]
    assert entry["exit"]["code"] == 1
    assert entry["members"] == []
    assert "out of memory" in entry["log_tail"]
    assert "out of memory" in stub.collect(TARGET, "p1")["log_tail"]


def test_a_reboot_takes_everything_without_an_exit(stub):
    stub.start(TARGET, request())
    before = stub.report(TARGET)["boot_id"]
    stub.node(1).reboot()
    report = stub.report(TARGET)
    assert report["boot_id"] != before
    assert report["processes"]["p1"]["exit"] is None
    assert not report["processes"]["p1"]["alive"]
    assert stub.stop(TARGET, StopRequest("p1")).proven


def test_secrets_are_never_told(stub):
    stub.start(TARGET, request(secrets={"VLLM_API_KEY": "s3cret"}))
    assert "s3cret" not in str(stub.collect(TARGET, "p1"))


def test_a_job_ends_when_it_is_looked_at(stub):
    stub.start(TARGET, request("job", steps=(("true",), ("echo", "x")), probe=None, argv=()))
    stub.start(
        TARGET, request("print", builtin={"name": "fingerprint", "args": {"path": "/models/Qwen2.5-7B-Instruct"}})
    )
    assert stub.report(TARGET)["processes"]["job"]["exit"]["code"] == 0
    assert '"fingerprint"' in stub.logs(TARGET, "print", 0).data


def test_logs_are_read_by_offset(stub):
    stub.start(TARGET, request())
    first = stub.logs(TARGET, "p1", 0)
    stub.node(1).processes["p1"].say("more")
    assert stub.logs(TARGET, "p1", first.next_offset).data == "more\n"
    assert stub.logs(TARGET, "p1", -5).data == "more\n"
    with pytest.raises(HelperFailed):
        stub.logs(TARGET, "nobody", 0)


def test_a_silent_node_raises_and_a_failure_strikes_as_often_as_told(stub):
    stub.node(1).silent = True
    with pytest.raises(Unreachable):
        stub.report(TARGET)
    stub.node(1).silent = False
    stub.node(1).fail(TimedOut("slow"), verb="start", times=2)
    stub.report(TARGET)
    for _ in range(2):
        with pytest.raises(TimedOut):
            stub.start(TARGET, request())
    stub.start(TARGET, request())
    assert len(stub.made("start")) == 3


def test_the_default_hosts_are_read_like_real_ones(stub):
    stub.node(2, h200_host("gpu-b"))
    gpus = accelerators_of(stub.probe(NodeTarget(2, "gpu-b", "i"), "/opt/vllm"))
    assert len(gpus) == 8
    assert {gpu.memory_mib for gpu in gpus} == {143771}
    assert len({gpu.uuid for gpu in gpus}) == 8
    facts = read_facts(stub.probe(TARGET, None))
    assert facts["gpu"]["found"] is False
    assert facts["environment"]["executables"]["vllm"] == "/opt/vllm/bin/vllm"
    assert stub.probe(TARGET, "/elsewhere")["environment"]["executables"]["vllm"] is None


def test_a_model_folder_is_read_and_a_missing_one_named(stub):
    assert stub.read_model(TARGET, "/models/Qwen2.5-7B-Instruct")["config"]["model_type"] == "qwen2"
    with pytest.raises(HelperFailed, match="deepest folder there is /models") as caught:
        stub.read_model(TARGET, "/models/none")
    assert caught.value.code == "PATH_MISSING"


def test_forgetting_keeps_the_tombstone(stub):
    stub.start(TARGET, request())
    with pytest.raises(HelperFailed) as caught:
        stub.forget(TARGET, "p1")
    assert caught.value.code == "STILL_RUNNING"
    stub.stop(TARGET, StopRequest("p1"))
    stub.forget(TARGET, "p1")
    with pytest.raises(HelperFailed):
        stub.start(TARGET, request())


def test_host_keys_are_scanned_and_checked_when_asked(stub):
    stub.check_host_keys = True
    endpoint = SshEndpoint("10.0.0.1", 22, "root", "key")
    with pytest.raises(HostKeyUnknown) as caught:
        stub.report(NodeTarget(1, "a", "i", endpoint))
    offered = stub.scan(NodeTarget(1, "a", "i", endpoint)).host
    assert caught.value.detail["offered_key"] == offered.public
    accepted = SshEndpoint("10.0.0.1", 22, "root", "key", (offered.public,))
    assert stub.report(NodeTarget(1, "a", "i", accepted))
    with pytest.raises(HostKeyChanged):
        stub.report(NodeTarget(1, "a", "i", SshEndpoint("10.0.0.2", 22, "root", "key", (offered.public,))))


async def test_a_watched_node_reports_until_it_falls_silent(stub):
    stub.start(TARGET, request())
    async with contextlib.aclosing(stub.watch(TARGET, interval_s=0)) as reports:
        assert "p1" in (await anext(reports))["processes"]
        stub.node(1).silent = True
        with pytest.raises(Unreachable):
            await anext(reports)
