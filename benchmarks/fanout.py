"""Time from the request to processes that run on N lab hosts: the panel against asyncssh and ansible.

All methods start the same program on the same hosts, one after the other in each repetition; the first repetition is
dropped. The panel is the whole embedded default, watching all its nodes while the others are measured, and is driven
by one PUT. "fresh" means that the worker has no SSH connection to any of the hosts when the request comes (its
sessions were ended from the hosts' side; the observer's stay, as in real life), "open" that it has one to each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import payload
from benchmarks.fleet import Fleet
from benchmarks.plain import Ansible, Asyncssh
from benchmarks.report import Options, Summary, machine, table
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.lab.panel import Panel

FRESH, OPEN = "panel, fresh", "panel, open"
Method = Callable[[], float]


def run(options: Options) -> dict[str, Any]:
    payload.make()
    values: dict[int, dict[str, list[float]]] = {}
    loads = []
    with Lab(max(options.hosts)) as lab, Panel() as panel:
        fleet = Fleet(panel)
        for count in options.hosts:
            fleet.add(lab.hosts[len(fleet.hosts) : count])
            values[count] = _measure(fleet, lab.hosts[:count], options)
            loads.append({"hosts": count, "load": machine()["load"]})
    print(_table(values), "\n\n" + _goals(values), sep="\n")
    return {"unit": "s", "load_after": loads, "values": values, "summary": _summaries(values), "goals": goals(values)}


def _measure(fleet: Fleet, hosts: Sequence[Host], options: Options) -> dict[str, list[float]]:
    asyncssh, ansible = Asyncssh(hosts), Ansible(hosts) if options.ansible else None
    methods: dict[str, Method] = {
        "asyncssh, fresh": _ending(hosts, asyncssh.fresh),
        "asyncssh, open": _ending(hosts, asyncssh.open),
        FRESH: lambda: _panel_fresh(fleet, hosts),
        OPEN: lambda: _panel(fleet, hosts),
    }
    if ansible is not None:
        methods["ansible, fresh"] = _ending(hosts, ansible.fresh)
        methods["ansible, open"] = _ending(hosts, ansible.open)
    found: dict[str, list[float]] = {name: [] for name in methods}
    try:
        for repetition in range(options.reps + 1):
            for name, method in methods.items():
                took = method()
                print(f"{len(hosts)} hosts, {name}: {took:.3f}", file=sys.stderr, flush=True)
                if repetition:
                    found[name].append(took)
    finally:
        for plain in (asyncssh, ansible):
            if plain is not None:
                plain.close()
    return found


def _ending(hosts: Sequence[Host], method: Method) -> Method:
    """The method, with what it has started ended after the measurement."""

    def measured() -> float:
        took = method()
        payload.end(hosts)
        return took

    return measured


def _panel_fresh(fleet: Fleet, hosts: Sequence[Host]) -> float:
    fleet.cut_worker(hosts)
    return _panel(fleet, hosts)


def _panel(fleet: Fleet, hosts: Sequence[Host]) -> float:
    took = fleet.start(hosts)
    fleet.stop()
    return took


def _summaries(values: dict[int, dict[str, list[float]]]) -> dict[int, dict[str, Summary]]:
    return {count: {name: Summary.of(took) for name, took in found.items()} for count, found in values.items()}


def _table(values: dict[int, dict[str, list[float]]]) -> str:
    summaries = _summaries(values)
    names = list(next(iter(values.values())))
    rows = [[name, *(summaries[count][name].text() for count in values)] for name in names]
    return table(["seconds: median (low-high)", *(f"{count} hosts" for count in values)], rows)


def goals(values: dict[int, dict[str, list[float]]]) -> list[dict[str, Any]]:
    """For each width: the panel's median, what it may be (1.5 x asyncssh + 0.3 s), and how much faster than ansible."""
    found = []
    for count, summary in _summaries(values).items():
        for kind in ("fresh", "open"):
            panel, bare = summary[f"panel, {kind}"].median, summary[f"asyncssh, {kind}"].median
            ansible = summary.get(f"ansible, {kind}")
            found.append(
                {
                    "hosts": count,
                    "connections": kind,
                    "panel": panel,
                    "asyncssh": bare,
                    "allowed": 1.5 * bare + 0.3,
                    "met": panel <= 1.5 * bare + 0.3,
                    "faster_than_ansible": ansible.median / panel if ansible else None,
                    "met_ansible": ansible.median / panel >= 8 if ansible else None,
                }
            )
    return found


def _goals(values: dict[int, dict[str, list[float]]]) -> str:
    rows = []
    for goal in goals(values):
        faster = goal["faster_than_ansible"]
        rows.append(
            [
                f"{goal['hosts']} hosts, {goal['connections']}",
                f"{goal['panel']:.3f}",
                f"<= {goal['allowed']:.3f}",
                "yes" if goal["met"] else "NO",
                "-" if faster is None else f"{faster:.1f}x",
                "-" if faster is None else "yes" if goal["met_ansible"] else "NO",
            ]
        )
    return table(["goals", "panel", "1.5x asyncssh + 0.3 s", "met", "than ansible (8x)", "met"], rows)
