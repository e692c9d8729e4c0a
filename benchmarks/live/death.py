"""How long a browser shows a dead process as alive: from its end on the node to the page that says so.

Simulated nodes tell an end at once; a real node's supervisor is woken by the kernel, and its report goes out within a
tenth of a second. The browser does what the page's script does: it fetches the live part at the socket's signal, the
first time at once and then at most every 0.7 s.
"""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

from benchmarks.live.browsers import Browser
from benchmarks.live.observing import all_heard
from benchmarks.live.stand import Stand
from benchmarks.report import Options, percentile, table
from tests.fleet.apart import FleetApart
from tests.lab.client import Client

GOAL_P99_S = 1.5
NODES, GPUS = 4, 8
MODEL, FOLDER, LAYOUT = "bench", "/models/Qwen2.5-7B-Instruct", "one"
READY_S, SEEN_S, FETCH_EVERY_S = 90.0, 30.0, 0.7
Death = dict[str, float]


def run(options: Options) -> dict[str, Any]:
    count = 3 if options.quick else 30
    with Stand() as stand, FleetApart(NODES, GPUS) as fleet:
        rows = stand.inside("register_fleet", fleet.told)
        stand.start("web", "worker", "beat", "observer")
        all_heard(stand, NODES)
        signed = stand.inside("sign_in")
        client = Client(stand.url, signed["token"])
        processes = _deploy(client, [*rows], count)
        deaths = [
            asyncio.run(_die(stand.url, signed["cookie"], fleet, name, process)) for name, process in processes.items()
        ]
    found = {name: _spread([death[name] for death in deaths]) for name in deaths[0]}
    print(_table(found))
    return {"deaths": deaths, "seconds": found, "goal_p99_s": GOAL_P99_S, "met": found["page"]["p99"] <= GOAL_P99_S}


def _deploy(client: Client, nodes: Sequence[str], count: int) -> dict[str, dict[str, Any]]:
    """`count` deployments of one process; the process of each, once READY."""
    client.add_model(MODEL, FOLDER, nodes)
    client.add_layout(LAYOUT, "single")
    names = [f"death-{place:02}" for place in range(count)]
    for name in names:
        client.deploy(name, model=MODEL, layout=LAYOUT, replicas=1, nodes=list(nodes))
    for name in names:
        client.wait_deployment(name, "READY", READY_S)
    return {name: client.only_process(name) for name in names}


async def _die(url: str, cookie: str, fleet: FleetApart, name: str, process: dict[str, Any]) -> Death:
    """Seconds from the end to the socket's signal, and to the page that shows it."""
    page = Page(f"{url}/deployments/{name}/", cookie)
    before = await asyncio.to_thread(page.look_of, process["id"])
    async with Browser(url, cookie, f"deployment/{name}/") as browser:
        await asyncio.sleep(0.2)
        browser.refreshes.clear()
        browser.refreshed.clear()
        died = fleet.tell(process["node"], "exit", process=process["id"], code=None, signal=9)["at"]
        async with asyncio.timeout(SEEN_S):
            while True:
                await browser.refreshed.wait()
                browser.refreshed.clear()
                fetched = time.time()
                if await asyncio.to_thread(page.look_of, process["id"]) != before:
                    break
                await asyncio.sleep(max(0.0, fetched + FETCH_EVERY_S - time.time()))
        return {"signal": browser.refreshes[0] - died, "page": time.time() - died, "fetch": time.time() - fetched}


class Page:
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


def _table(found: dict[str, dict[str, float]]) -> str:
    names = {"signal": "the socket's signal", "page": "the page shows it", "fetch": "of it the last fetch"}
    rows = [
        [names[name], *(f"{values[key]:.3f}" for key in ("p50", "p99", "max")), f"{values['count']:.0f}"]
        for name, values in found.items()
    ]
    rows[1][0] += " (goal P99 1.5)"
    return table(["a process's end until ...: s", "P50", "P99", "max", "deaths"], rows)
