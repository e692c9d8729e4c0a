"""How long a browser shows a dead process as alive: from its end on the node to the page that says so.

On lab hosts the program is killed for real, and the real helper hears of it; simulated nodes, of which there are many
deaths, tell an end at once. The browser does what the page's script does: it fetches the live part at the socket's
signal, the first time at once and then at most every 0.7 s.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import payload
from benchmarks.live.browsers import Browser
from benchmarks.live.observing import all_heard
from benchmarks.live.stand import Stand
from benchmarks.report import Options, percentile, table
from tests.fleet.apart import FleetApart
from tests.lab.client import Client
from tests.lab.hosts import Lab
from tests.lab.needs import LabUnavailable

GOAL_P99_S = 1.5
NODES, GPUS, HOSTS = 5, 8, 4
FOLDER, LAYOUT = "/models/Qwen2.5-7B-Instruct", "one"
BEGIN_S, SEEN_S, FETCH_EVERY_S = 90.0, 30.0, 0.7
Death = dict[str, float]
# Ends a process of the API's and says when (epoch seconds).
Kill = Callable[[dict[str, Any]], float]


def run(options: Options) -> dict[str, Any]:
    with Stand() as stand:
        stand.start("web", "worker", "beat", "observer")
        panel = _Panel(stand)
        deaths = {"simulated": _simulated(panel, 3 if options.quick else NODES * GPUS)}
        try:
            deaths["lab"] = _lab(panel, 2 if options.quick else HOSTS)
        except LabUnavailable as error:
            print(f"no lab hosts: {error}", file=sys.stderr)
    found = {
        kind: {name: _spread([death[name] for death in rows]) for name in rows[0]} for kind, rows in deaths.items()
    }
    print(_table(found))
    met = {kind: values["page"]["p99"] <= GOAL_P99_S for kind, values in found.items()}
    return {"deaths": deaths, "seconds": found, "goal_p99_s": GOAL_P99_S, "met": met}


class _Panel:
    """A panel that somebody has signed in to."""

    def __init__(self, stand: Stand) -> None:
        signed = stand.inside("sign_in")
        self.stand = stand
        self.cookie: str = signed["cookie"]
        self.client = Client(stand.url, signed["token"])
        self.client.add_layout(LAYOUT, "single")

    def begin(self, model: str, nodes: Sequence[str], count: int, state: str) -> dict[str, dict[str, Any]]:
        """`count` deployments of one process each; the process of each, by deployment, once it is in `state`."""
        names = [f"{model}-{place:02}" for place in range(count)]
        for name in names:
            self.client.deploy(name, model=model, layout=LAYOUT, replicas=1, nodes=list(nodes))
        return {
            name: self.client.wait_process(name, lambda row: row["state"] == state and row["pid"], BEGIN_S)
            for name in names
        }

    async def watch_die(self, name: str, process: dict[str, Any], kill: Kill) -> Death:
        """Seconds from the end to the socket's signal, and to the page that shows it."""
        page = _Page(f"{self.stand.url}/deployments/{name}/", self.cookie)
        before = await asyncio.to_thread(page.look_of, process["id"])
        async with Browser(self.stand.url, self.cookie, f"deployment/{name}/") as browser:
            await asyncio.sleep(0.2)
            browser.refreshes.clear()
            browser.refreshed.clear()
            died = await asyncio.to_thread(kill, process)
            async with asyncio.timeout(SEEN_S):
                while True:
                    await browser.refreshed.wait()
                    browser.refreshed.clear()
                    fetched = time.time()
                    if await asyncio.to_thread(page.look_of, process["id"]) != before:
                        break
                    await asyncio.sleep(max(0.0, fetched + FETCH_EVERY_S - time.time()))
            now = time.time()
            return {"signal": browser.refreshes[0] - died, "page": now - died, "fetch": now - fetched}


def _simulated(panel: _Panel, count: int) -> list[Death]:
    with FleetApart(NODES, GPUS) as fleet:
        nodes = list(panel.stand.inside("register_fleet", fleet.told))
        all_heard(panel.stand, NODES)
        panel.client.add_model("simulated", FOLDER, nodes)

        def kill(process: dict[str, Any]) -> float:
            return float(fleet.tell(process["node"], "exit", process=process["id"], code=None, signal=9)["at"])

        processes = panel.begin("simulated", nodes, count, "READY")
        return [asyncio.run(panel.watch_die(name, process, kill)) for name, process in processes.items()]


def _lab(panel: _Panel, hosts: int) -> list[Death]:
    payload.make()
    with Lab(hosts) as lab:
        by_name = {host.name: host for host in lab.hosts}
        panel.client.add_hosts(lab.hosts, payload.ENVIRONMENT)
        panel.client.add_model("lab", payload.MODEL, list(by_name))
        slots = sum(len(panel.client.node(name)["accelerators"]) for name in by_name)

        def kill(process: dict[str, Any]) -> float:
            # Before the kill and what it takes to get into the host: what is measured is never too short.
            at = time.time()
            by_name[process["node"]].kill(process["pid"])
            return at

        processes = panel.begin("lab", list(by_name), min(slots, 2 * hosts), "STARTING")
        return [asyncio.run(panel.watch_die(name, process, kill)) for name, process in processes.items()]


class _Page:
    """The live part of one page, as htmx fetches it."""

    def __init__(self, url: str, cookie: str) -> None:
        self._request = urllib.request.Request(
            url, headers={"Cookie": cookie, "HX-Request": "true", "HX-Target": "live", "HX-Current-URL": url}
        )

    def look_of(self, process: str) -> str | None:
        """The class with which the part shows a process; None when it does not."""
        with urllib.request.urlopen(self._request, timeout=SEEN_S) as answer:
            text = answer.read().decode()
        found = re.search(rf'<article class="([^"]*)" id="process-{process}"', text)
        return found[1] if found else None


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"p50": percentile(values, 50), "p99": percentile(values, 99), "max": max(values), "count": len(values)}


def _table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    names = {"signal": "the socket's signal", "page": "the page shows it", "fetch": "of it the last fetch"}
    rows = [
        [f"{kind}: {names[name]}", *(f"{values[key]:.3f}" for key in ("p50", "p99", "max")), f"{values['count']:.0f}"]
        for kind, parts in found.items()
        for name, values in parts.items()
    ]
    return table([f"a process's end until ...: s (page: P99 <= {GOAL_P99_S})", "P50", "P99", "max", "deaths"], rows)
