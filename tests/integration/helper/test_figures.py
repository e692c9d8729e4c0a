"""Figures in reports: what the real helper says of this machine and of engines, and what must never wait for them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from monitoring.domain.metrics import WANTED
from monitoring.domain.samples import Metrics, Sample, read_sample

from .client import Client, running, until
from .conftest import Engines, interpreters

GENERATED = "vllm:generation_tokens_total"
RUNNING = "vllm:num_requests_running"
E2E = "vllm:e2e_request_latency_seconds"
FOUND = interpreters()
NEW_ENOUGH = sorted(version for version in FOUND if tuple(map(int, version.split("."))) >= (3, 8))


def samples(client: Client, **args: object) -> Iterator[Sample]:
    for report in client.events(**{"interval_s": 0.6, **args}):
        yield read_sample(json.loads(json.dumps(report)))


def first(found: Iterator[Sample], good: Callable[[Sample], object], limit: int = 60) -> Sample:
    """The first of the next reports that a test likes."""
    for _ in range(limit):
        if good(sample := next(found)):
            return sample
    raise AssertionError(f"none of {limit} reports was it")


def metrics(sample: Sample, process: str) -> Metrics | None:
    return sample.processes[process].metrics


def complete(port: int, tokens: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": "Hi", "max_tokens": tokens}))
    assert connection.getresponse().status == 200
    connection.close()


def test_rates_of_the_host_come_with_the_second_report(client: Client) -> None:
    found = samples(client)
    one = next(found).host
    assert one is not None
    assert one.cpu is None
    assert 0 < one.memory_available <= one.memory_total
    two = first(found, lambda sample: sample.host.cpu is not None, limit=3).host
    assert 0 <= two.cpu <= 100
    assert all(net.rx_bps is not None for net in two.networks or ())
    later = first(found, lambda sample: any(room.size for room in sample.host.filesystems)).host
    assert all(room.free <= room.size for room in later.filesystems if room.size)


def test_a_single_report_has_the_host_and_nothing_that_was_not_asked_for(client: Client, engines: Engines) -> None:
    process = engines.start()
    report = client.call("report")
    assert report["host"]["memory_total"] > 0
    assert report["host"]["cpu"] is None
    assert "gpu" not in report
    assert "metrics" not in report["processes"][process]
    assert "host" not in client.call("report", host=False)


def test_an_engines_metrics_move_with_its_requests(client: Client, engines: Engines) -> None:
    process = engines.start()
    found = samples(client, metrics=list(WANTED))
    before = metrics(first(found, lambda sample: metrics(sample, process) is not None), process)
    assert before.error is None
    assert before.series[RUNNING][0].value == 0.0
    complete(engines.port, tokens=7)

    def generated(sample: Sample) -> float:
        return metrics(sample, process).series[GENERATED][0].value - before.series[GENERATED][0].value

    after = metrics(first(found, lambda sample: generated(sample) == 7.0), process)
    assert after.series[E2E][0].value == before.series[E2E][0].value + 1
    assert after.series[E2E][0].buckets[-1] == (None, after.series[E2E][0].value)
    assert after.at > before.at
    assert set(after.series) <= set(WANTED)


def test_there_are_no_metrics_before_the_engine_serves_nor_of_anything_else(client: Client, engines: Engines) -> None:
    lying = engines.start("health_lies")
    plain, _ = client.start(argv=["/bin/sleep", "600"], probe={"kind": "alive"})
    found = samples(client, metrics=[RUNNING])
    for _ in range(4):
        sample = next(found)
        assert metrics(sample, lying) is metrics(sample, plain) is None


def test_slow_metrics_delay_neither_health_nor_reports(client: Client, engines: Engines) -> None:
    process = engines.start("slow_metrics=30")
    found = client.events(interval_s=0.3, metrics=[RUNNING])
    times, error = set(), None
    while error is None or len(times) < 4:
        entry = next(found)["processes"][process]
        assert entry["probe"] is None or entry["probe"]["health"]["error"] is None
        if entry["probe"] and entry.get("metrics"):
            times.add(entry["probe"]["at"])
            error = entry["metrics"]["error"]
            assert entry["metrics"]["series"] == {}
    assert error == "timed out"


def test_the_threads_of_an_engine_end_with_it(client: Client, engines: Engines) -> None:
    process = engines.start()
    found = samples(client, metrics=[RUNNING])
    first(found, lambda sample: metrics(sample, process) is not None)
    client.stop(process)
    ended = first(found, lambda sample: not sample.processes[process].alive)
    assert metrics(ended, process) is None
    threads = Path(f"/proc/{client.hello['pid']}/task")
    # Main, the writer's guard and the watch remain; what looked at the host ends by itself.
    until(lambda: len(list(threads.iterdir())) <= 3, "the engine's threads ended")
    assert running(client.hello["pid"])


def test_a_report_that_would_be_too_large_comes_without_figures(client: Client) -> None:
    script = "head -c 60000 /dev/zero | tr '\\0' '\\1'; exit 1"
    ids = [client.start(f"p{place}", argv=["/bin/sh", "-c", script])[0] for place in range(45)]
    until(lambda: all(client.folder(process).joinpath("exit.json").exists() for process in ids), "all ended")
    report = next(client.events(interval_s=60))
    assert "host" not in report
    assert {report["processes"][process]["exit"]["code"] for process in ids} == {1}
    assert len(report["processes"]["p0"]["log_tail"]) == 1024
    assert len(json.dumps(report)) < 4 * 1024 * 1024


@pytest.mark.parametrize("version", NEW_ENOUGH)
def test_figures_come_from_every_python_that_a_node_may_have(
    connect: Callable[..., Client], port: int, version: str
) -> None:
    client = connect(interpreter=FOUND[version])
    process, _ = client.start(**Engines(client, port).request())
    found = samples(client, metrics=[RUNNING], gpu=True)
    sample = first(found, lambda sample: sample.host.cpu is not None and metrics(sample, process) is not None)
    assert metrics(sample, process).series[RUNNING][0].value == 0.0
    assert sample.host.memory_total


@pytest.mark.parametrize(
    "args", [{"metrics": None}, {"metrics": []}, {"gpu": None, "host": None}, {"interval_s": None}]
)
def test_a_watch_without_wishes_is_a_plain_one(client: Client, args: dict) -> None:
    assert next(samples(client, **args)).processes == {}
