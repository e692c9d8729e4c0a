"""What watching costs: the real observer on real databases, beside the least that can read the same streams.

Both are measured one after the other, several times, with the same nodes and the same requests to them. CPU is the
process's own, in milliseconds per node and second; the lag is from the node's sample to the reader's having it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.live.stand import Stand
from benchmarks.processes import cpu_s, pss_mib, rss_mib, tree
from benchmarks.report import BASE, Options, Summary, percentile, table
from tests.fleet.apart import FleetApart
from tests.fleet.server import ADDRESS, names
from tests.lab.hosts import Lab
from tests.lab.needs import LabUnavailable
from tests.lab.panel import until

OBSERVER, BARE = "observer", "asyncssh + msgspec"
OPEN_S, SETTLE_S = 90.0, 5.0
Endpoints = Sequence[dict[str, Any]]


def run(options: Options) -> dict[str, Any]:
    """{set of nodes: {reader: figures}}; lab hosts are left out where this machine cannot have them."""
    found: dict[str, Any] = {}
    with Stand() as stand:
        try:
            with Lab(4 if options.quick else 32) as lab:
                found[f"{len(lab.hosts)} lab hosts"] = _measure(stand, _lab(stand, lab), options)
        except LabUnavailable as error:
            print(f"no lab hosts: {error}", file=sys.stderr)
        count = 20 if options.quick else 200
        with FleetApart(count) as fleet:
            fleet.make_busy()
            found[f"{count} simulated, 8 GPUs and an engine each"] = _measure(stand, _simulated(stand, fleet), options)
    print(_table(found))
    return found


def _lab(stand: Stand, lab: Lab) -> Endpoints:
    private = lab.key_path.read_text()
    endpoints = [
        {"name": host.name, "address": host.address, "port": host.port, "user": host.user}
        | {"host_key": host.host_key, "private_key": private}
        for host in lab.hosts
    ]
    stand.inside("register_hosts", endpoints)
    return endpoints


def _simulated(stand: Stand, fleet: FleetApart) -> Endpoints:
    told = fleet.told
    stand.inside("register_fleet", told)
    place = {"address": ADDRESS, **{name: told[name] for name in ("port", "host_key", "private_key")}}
    return [{"name": name, "user": name, **place} for name in names(told["nodes"])]


def _measure(stand: Stand, endpoints: Endpoints, options: Options) -> dict[str, Any]:
    seconds, repetitions = (4.0, 1) if options.quick else (12.0, 2)
    installation = stand.inside("installation")
    given = [{**endpoint, "installation": installation} for endpoint in endpoints]
    parts: dict[str, list[dict[str, float]]] = {OBSERVER: [], BARE: []}
    lags: list[float] = []
    for _ in range(repetitions):
        parts[OBSERVER].append(_observer(stand, len(endpoints), seconds))
        figures, more = _bare(given, seconds)
        parts[BARE].append(figures)
        lags += more
        print(f"{len(endpoints)} nodes: {parts[OBSERVER][-1]} / {figures}", file=sys.stderr, flush=True)
    found: dict[str, Any] = {
        name: {key: Summary.of([row[key] for row in rows]) for key in rows[0]} for name, rows in parts.items()
    }
    found["ratio"] = statistics.median(
        one["cpu_ms"] / other["cpu_ms"] for one, other in zip(*parts.values(), strict=True)
    )
    found["lag_ms"] = {"p50": 1000 * percentile(lags, 50), "p99": 1000 * percentile(lags, 99), "count": len(lags)}
    return found


def _observer(stand: Stand, nodes: int, seconds: float) -> dict[str, float]:
    """CPU and memory of `manage.py observe`, and what it makes the servers do, once it hears all nodes."""
    stand.inside("forget")
    began = time.monotonic()
    stand.start("observer")
    try:
        all_heard(stand, nodes)
        opened = time.monotonic() - began
        time.sleep(min(SETTLE_S, seconds))
        pid = stand.pid("observer")
        meter = Meter({"cpu": [pid], "servers": [*tree(stand.pid("postgres")), stand.pid("valkey")]})
        time.sleep(seconds)
        return {**meter.read(nodes), "rss_mib": rss_mib(pid), "pss_mib": pss_mib([pid]), "open_s": round(opened, 1)}
    finally:
        stand.stop("observer")


def all_heard(stand: Stand, nodes: int) -> None:
    """Until the observer has written down a report of each node."""
    heard: dict[str, Any] = {}

    def look() -> bool:
        stand.check()
        heard.update(stand.inside("heard"))
        return bool(heard["heard"] == nodes and not heard["errors"])

    until(look, OPEN_S, lambda: f"not all nodes were heard: {heard} {stand.log('observer')}")


def _bare(endpoints: Endpoints, seconds: float) -> tuple[dict[str, float], list[float]]:
    argv = [sys.executable, "-m", "benchmarks.live.reader"]
    environment = {**os.environ, "PYTHONPATH": str(BASE)}
    run: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, cwd=BASE, env=environment, **run) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(list(endpoints)) + "\n")
        child.stdin.flush()
        if child.stdout.readline() != "open\n":
            raise RuntimeError("the plain reader could not open its streams")
        time.sleep(min(SETTLE_S, seconds))
        meter = Meter({"cpu": [child.pid]})
        time.sleep(seconds)
        figures = {**meter.read(len(endpoints)), "rss_mib": rss_mib(child.pid)}
        child.stdin.close()
        return figures, json.loads(child.stdout.readline())


class Meter:
    """CPU of groups of processes from now on, in milliseconds per node and second."""

    def __init__(self, groups: dict[str, list[int]]) -> None:
        self._groups = groups
        self._before = {name: cpu_s(pids) for name, pids in groups.items()}
        self._began = time.monotonic()

    def read(self, nodes: int) -> dict[str, float]:
        share = 1000 / (time.monotonic() - self._began) / nodes
        return {
            f"{name}_ms": round((cpu_s(pids) - self._before[name]) * share, 4) for name, pids in self._groups.items()
        }


def _table(found: dict[str, Any]) -> str:
    rows = []
    for nodes, figures in found.items():
        for name in (OBSERVER, BARE):
            row = figures[name]
            servers = row["servers_ms"].text() if "servers_ms" in row else "-"
            ratio = f"{figures['ratio']:.1f}x" if name == OBSERVER else f"lag {_lag(figures)} ms"
            rows.append([f"{nodes}: {name}", row["cpu_ms"].text(), servers, f"{row['rss_mib'].median:.0f}", ratio])
    return table(["watching: ms of CPU per node and second", "itself", "servers", "RSS MiB", ""], rows)


def _lag(figures: dict[str, Any]) -> str:
    return f"{figures['lag_ms']['p50']:.1f} / {figures['lag_ms']['p99']:.1f}"
