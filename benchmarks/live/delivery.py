"""How old a figure is when a browser has it: from the node's sample to the receipt of the fragment that shows it.

The way has three parts: the sample's to the observer; waiting for the round of sending, rendering and publishing until
the message is on the channel layer; the web process's until the socket has it. One clock serves for all here.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.live.browsers import Browser, Message, ages, digest_of, when
from benchmarks.live.observing import Meter, all_heard
from benchmarks.live.stand import Stand
from benchmarks.report import Options, percentile, table
from tests.fleet.apart import FleetApart

GOAL_P99_MS = 250.0
FIRST_S = 30.0
WAY = ("to observer", "to layer", "to socket", "all")
Figures = dict[str, Any]


def run(options: Options) -> Figures:
    nodes, seconds = (10, 6.0) if options.quick else (100, 15.0)
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
                stand.inside("unwatch")
                found[case] = asyncio.run(_case(stand, cookie, rows, kind, count, seconds))
    gpus = fleet.told["gpus"]
    print(_table(found, f"{nodes} nodes x {gpus} GPUs: ms, P50 / P99", seconds))
    return {"nodes": nodes, "gpus": gpus, "seconds": seconds, "goal_p99_ms": GOAL_P99_MS, "cases": found}


async def _case(stand: Stand, cookie: str, rows: dict[str, int], kind: str, count: int, seconds: float) -> Figures:
    names = list(rows)
    paths = ["fleet/" if kind == "fleet" else f"node/{names[place % len(names)]}/" for place in range(count)]
    async with AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(Browser(stand.url, cookie, path)) for path in paths]
        for browser in browsers:
            browser.keeping = True
        await when("fragments on every socket", lambda: all(each.messages for each in browsers), FIRST_S)
        noting = stand.begin_inside(
            "notes", {"nodes": list(rows.values()), "groups": _groups(paths, rows), "seconds": seconds}
        )
        assert noting.stdout is not None
        await asyncio.to_thread(noting.stdout.readline)
        for browser in browsers:
            browser.messages.clear()
        meter = Meter({name: [stand.pid(name)] for name in ("web", "observer")})
        await asyncio.sleep(seconds)
        cpu = meter.read(1)
        for browser in browsers:
            browser.keeping = False
        said = await asyncio.to_thread(noting.stdout.read)
        noting.wait()
    inside = Inside(json.loads(said))
    closed = [browser.closed for browser in browsers if browser.closed not in (None, 1000)]
    return {**_figures([browser.messages for browser in browsers], inside), "cpu_ms_per_s": cpu, "closed": closed}


def _groups(paths: Sequence[str], rows: dict[str, int]) -> list[str]:
    """Where the figures of these pages are sent."""
    topics = {"fleet" if path == "fleet/" else f"node-{rows[path.split('/')[1]]}" for path in paths}
    return [f"live.{topic}.en" for topic in sorted(topics)]


class Inside:
    """What was noted inside: when a figure was sampled, and when a message was on the layer."""

    def __init__(self, noted: dict[str, Any]) -> None:
        self._sampled = {(node, round(heard, 3)): at for node, heard, at in noted["samples"]}
        self._sent: dict[str, float] = noted["sent"]
        self._shown: dict[str, tuple[float | None, dict[tuple[str, int], float]]] = {}

    def shown(self, text: str) -> tuple[float | None, dict[tuple[str, int], float]]:
        """When a message was on the layer (None = not seen there), and the hearings that it shows."""
        if text not in self._shown:
            hearings = {key: at for key, at in ages(text).items() if key[0] != "gpus"}
            self._shown[text] = (self._sent.get(digest_of(text)), hearings)
        return self._shown[text]

    def sampled(self, node: int, heard: float) -> float | None:
        return self._sampled.get((node, round(heard, 3)))


def _figures(received: Sequence[Sequence[Message]], inside: Inside) -> Figures:
    parts: dict[str, list[float]] = {name: [] for name in WAY}
    for messages in received:
        seen: dict[tuple[str, int], float] = {}
        for message in messages:
            sent, hearings = inside.shown(message.text)
            for key, heard in hearings.items():
                sampled = inside.sampled(key[1], heard)
                if seen.get(key) != heard and sampled is not None and sent is not None:
                    way = (heard - sampled, sent - heard, message.at - sent, message.at - sampled)
                    for name, took in zip(WAY, way, strict=True):
                        parts[name].append(took)
                seen[key] = heard
    sizes = [len(message.text.encode()) for message in received[0]]
    found: Figures = {name: _spread(values) for name, values in parts.items()}
    found["message_bytes"] = max(sizes, default=0)
    found["message_gzip_bytes"] = len(gzip.compress(received[0][-1].text.encode())) if received[0] else 0
    found["messages_per_socket"] = len(received[0])
    found["bytes_per_socket"] = sum(sizes)
    return found


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    milliseconds = [1000 * value for value in values]
    return {"p50": percentile(milliseconds, 50), "p99": percentile(milliseconds, 99), "count": len(values)}


def _table(found: Figures, head: str, seconds: float) -> str:
    rows = []
    for case, figures in found.items():
        cells = [f"{figures[name]['p50']:.0f} / {figures[name]['p99']:.0f}" if figures[name] else "-" for name in WAY]
        met = figures["all"] is not None and figures["all"]["p99"] <= GOAL_P99_MS
        cpu = figures["cpu_ms_per_s"]
        use = f"{cpu['web_ms'] / 10:.1f} / {cpu['observer_ms'] / 10:.1f}"
        kib = f"{figures['bytes_per_socket'] / seconds / 1024:.1f}"
        rows.append([case, *cells, "yes" if met else "NO", kib, use])
    return table([head, *WAY, f"P99 <= {GOAL_P99_MS:.0f}", "KiB/s", "web / observer CPU %"], rows)
