"""Memory (PSS) and idle CPU of each part of a running panel: alone, with lab hosts connected, and on the hosts.

CPU is in percent of one core over a minute. Parts are the supervisor's children with their own; "postgres" is all of
its processes. On a host: what one helper, one supervisor of a started process, and the SSH session around cost.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import payload
from benchmarks.fleet import Fleet
from benchmarks.processes import cpu_s, pss_mib, tree, words
from benchmarks.report import Options, machine, table
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.lab.panel import PARTS, Panel

SETTLE_S, WATCH_S = 10.0, 60.0
ON_A_HOST = ("sshd session", "helper", "process supervisor")
Sample = dict[str, dict[str, float]]


def run(options: Options) -> dict[str, Any]:
    payload.make()
    count, seconds = max(options.hosts), 5.0 if options.quick else WATCH_S
    samples: dict[str, Sample] = {}
    with Lab(count) as lab, Panel() as panel:
        samples["no host"] = _parts(panel, seconds)
        fleet = Fleet(panel)
        fleet.add(lab.hosts)
        samples[f"{count} hosts connected"] = _parts(panel, seconds)
        fleet.start(lab.hosts)
        samples[f"{count} processes running"] = _parts(panel, seconds)
        hosts = _hosts(lab.hosts, seconds)
        fleet.stop()
    print(_table(samples), "\n\n" + _host_table(hosts), sep="\n")
    return {"seconds": seconds, "load_after": machine()["load"], "panel": samples, "per_host": hosts}


def _parts(panel: Panel, seconds: float) -> Sample:
    """{part: {"pss_mib", "cpu_percent", "processes"}}, after a while in which nothing is asked of it."""
    time.sleep(min(SETTLE_S, seconds))
    assert panel.process is not None
    pids = {part: tree(panel.pid_of(part)) for part in PARTS}
    pids["supervisor"] = [panel.process.pid]
    found = _watch(pids, seconds)
    print(f"panel: {found}", file=sys.stderr, flush=True)
    found["all"] = {name: sum(values[name] for values in found.values()) for name in next(iter(found.values()))}
    return found


def _hosts(hosts: Sequence[Host], seconds: float) -> Sample:
    """What one host spends on being a node, on average."""
    pids: dict[str, list[int]] = {name: [] for name in ON_A_HOST}
    for host in hosts:
        for pid in tree(host.running.pid):
            if (kind := _kind(words(pid))) is not None:
                pids[kind].append(pid)
    found = _watch(pids, seconds)
    return {kind: {name: value / len(hosts) for name, value in values.items()} for kind, values in found.items()}


def _kind(line: str) -> str | None:
    if "pilothouse-supervisor:" in line:
        return "process supervisor"
    if "The first words a node" in line:
        return "helper"
    return "sshd session" if line.startswith("sshd: root") else None


def _watch(pids: dict[str, list[int]], seconds: float) -> Sample:
    before = {name: cpu_s(group) for name, group in pids.items()}
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return {
        name: {
            "pss_mib": round(pss_mib(group), 2),
            "cpu_percent": round(max(0.0, cpu_s(group) - before[name]) / took * 100, 3),
            "processes": len(group),
        }
        for name, group in pids.items()
    }


def _table(samples: dict[str, Sample]) -> str:
    head = ["panel: PSS MiB / CPU % of a core", *samples]
    names = next(iter(samples.values()))
    return table(head, [[name, *(_cell(sample[name]) for sample in samples.values())] for name in names])


def _host_table(hosts: Sample) -> str:
    rows = [[name, f"{values['processes']:.1f}", _cell(values)] for name, values in hosts.items()]
    return table(["on each host", "processes", "PSS MiB / CPU %"], rows)


def _cell(values: dict[str, float]) -> str:
    return f"{values['pss_mib']:.1f} / {values['cpu_percent']:.2f}"
