"""How old a figure is when a browser has it: from the node's sample to the receipt of the fragment that shows it.

The way has three parts: the sample's way to the observer, the wait for the observer's next tick, and rendering and
sending until the socket has it. A tick's start is the newest hearing that its message shows: with many nodes one has
just been heard. Nodes, panel and browsers share one clock here.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.live.browsers import Browser, Message, ages, when
from benchmarks.live.observing import Meter, all_heard
from benchmarks.live.stand import Stand
from benchmarks.report import Options, percentile, table
from tests.fleet.apart import FleetApart

GOAL_P99_MS = 250.0
FIRST_S = 30.0
Figures = dict[str, Any]


def run(options: Options) -> Figures:
    nodes, seconds = (10, 6.0) if options.quick else (100, 20.0)
    found: Figures = {}
    with Stand() as stand, FleetApart(nodes) as fleet:
        fleet.make_busy()
        rows = stand.inside("register_fleet", fleet.told)
        stand.start("web", "observer")
        all_heard(stand, nodes)
        cookie = stand.inside("sign_in")["cookie"]
        for kind in ("node", "fleet"):
            for count in (1, 50):
                case = f"{kind}, {count} socket{'s' if count > 1 else ''}"
                found[case] = asyncio.run(_case(stand, cookie, rows, kind, count, seconds))
    gpus = fleet.told["gpus"]
    print(_table(found, f"{nodes} nodes x {gpus} GPUs: ms, P50 / P99"))
    return {"nodes": nodes, "gpus": gpus, "seconds": seconds, "goal_p99_ms": GOAL_P99_MS, "cases": found}


async def _case(stand: Stand, cookie: str, rows: dict[str, int], kind: str, count: int, seconds: float) -> Figures:
    names = list(rows)
    paths = ["fleet/" if kind == "fleet" else f"node/{names[place % len(names)]}/" for place in range(count)]
    async with AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(Browser(stand.url, cookie, path)) for path in paths]
        for browser in browsers:
            browser.keeping = True
        await when("fragments on every socket", lambda: all(each.messages for each in browsers), FIRST_S)
        for browser in browsers:
            browser.messages.clear()
        meter = Meter({name: [stand.pid(name)] for name in ("web", "observer")})
        noting = stand.begin_inside("samples", {"nodes": list(rows.values()), "seconds": seconds})
        await asyncio.sleep(seconds)
        cpu = meter.read(1)
        for browser in browsers:
            browser.keeping = False
        said = await asyncio.to_thread(noting.communicate)
    sampled = {(node, round(heard, 3)): at for node, heard, at in json.loads(said[0])}
    closed = [browser.closed for browser in browsers if browser.closed not in (None, 1000)]
    return {**_figures([browser.messages for browser in browsers], sampled), "cpu_ms_per_s": cpu, "closed": closed}


def _figures(received: Sequence[Sequence[Message]], sampled: dict[tuple[int, float], float]) -> Figures:
    parts: dict[str, list[float]] = {"to observer": [], "tick wait": [], "to socket": [], "all": []}
    shown: dict[str, dict[tuple[str, int], float]] = {}
    for messages in received:
        seen: dict[tuple[str, int], float] = {}
        for message in messages:
            now = shown.get(message.text) or shown.setdefault(message.text, ages(message.text))
            hearings = {key: at for key, at in now.items() if key[0] != "gpus"}
            if not hearings:
                continue
            tick = max(hearings.values())
            for key, heard in hearings.items():
                if seen.get(key) == heard:
                    continue
                seen[key] = heard
                _add(parts, message.at, tick, heard, sampled.get((key[1], round(heard, 3))))
    sizes = [len(message.text.encode()) for message in received[0]]
    found: Figures = {name: _spread(values) for name, values in parts.items()}
    found["message_bytes"] = max(sizes, default=0)
    found["message_gzip_bytes"] = len(gzip.compress(received[0][-1].text.encode())) if received[0] else 0
    found["messages_per_socket"] = len(received[0])
    return found


def _add(parts: dict[str, list[float]], at: float, tick: float, heard: float, sampled: float | None) -> None:
    parts["tick wait"].append(tick - heard)
    parts["to socket"].append(at - tick)
    if sampled is not None:
        parts["to observer"].append(heard - sampled)
        parts["all"].append(at - sampled)


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    milliseconds = [1000 * value for value in values]
    return {"p50": percentile(milliseconds, 50), "p99": percentile(milliseconds, 99), "count": len(values)}


def _table(found: Figures, head: str) -> str:
    names = ("to observer", "tick wait", "to socket", "all")
    rows = []
    for case, figures in found.items():
        cells = [f"{figures[name]['p50']:.0f} / {figures[name]['p99']:.0f}" if figures[name] else "-" for name in names]
        met = figures["all"] is not None and figures["all"]["p99"] <= GOAL_P99_MS
        cpu = figures["cpu_ms_per_s"]
        use = f"{cpu['web_ms'] / 10:.1f} / {cpu['observer_ms'] / 10:.1f}"
        kib = f"{figures['message_bytes'] / 1024:.1f}"
        rows.append([case, *cells, "yes" if met else "NO", kib, use])
    return table([head, *names, f"P99 <= {GOAL_P99_MS:.0f}", "KiB", "web / observer CPU %"], rows)
