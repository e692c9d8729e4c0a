"""The least that can read the nodes' streams: asyncssh and msgspec, nothing kept but the newest sample of each.

A child process: `python -m benchmarks.live.reader`, endpoints as JSON on its first line of stdin; it prints a line when
all streams are open, and at the end of stdin a line with the lags (s) from sample to reader since then. What it says
to a node is what the panel says; it does not look at what it gets beyond decoding it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from typing import Any

import asyncssh
import msgspec

from deployments.remote import bundle, frames
from monitoring.domain.metrics import WANTED
from monitoring.domain.samples import Sample

OPENING = 32
HEADER_TAIL = 9


class Envelope(msgspec.Struct):
    """One frame of a stream."""

    id: int
    event: Sample | None = None


decode = msgspec.json.Decoder(Envelope).decode


class Reader:
    """Reads all streams; `lags` grow from the moment at which all are open."""

    def __init__(self, endpoints: list[dict[str, Any]]) -> None:
        self._endpoints = endpoints
        self._slots = asyncio.Semaphore(OPENING)
        self._latest: dict[str, Sample] = {}
        self._key = asyncssh.import_private_key(endpoints[0]["private_key"])
        self.lags: list[float] = []

    async def run(self) -> None:
        tasks = [asyncio.create_task(self._follow(endpoint)) for endpoint in self._endpoints]
        while len(self._latest) < len(tasks):
            await asyncio.sleep(0.05)
            for task in tasks:
                if task.done():
                    task.result()
        self.lags.clear()

    async def _follow(self, endpoint: dict[str, Any]) -> None:
        async with self._slots:
            reader, nonce = await self._open(endpoint)
        header = len(f"PHF1 {nonce} ") + HEADER_TAIL
        while True:
            head = await reader.readexactly(header)
            payload = await reader.readexactly(int(head[-HEADER_TAIL:], 16) + 1)
            sample = decode(payload).event
            if sample is not None:
                self._latest[endpoint["name"]] = sample
                self.lags.append(time.time() - sample.at)

    async def _open(self, endpoint: dict[str, Any]) -> tuple[Any, str]:
        host_key = asyncssh.import_public_key(endpoint["host_key"])
        connection = await asyncssh.connect(
            endpoint["address"],
            endpoint["port"],
            username=endpoint["user"],
            client_keys=[self._key],
            known_hosts=lambda *_: ([host_key], [], []),
            server_host_key_algs=[host_key.get_algorithm()],
            config=None,
            agent_path=None,
        )
        shell = await connection.create_process("/bin/sh", encoding=None)
        nonce = secrets.token_hex(16)
        shell.stdin.write(bundle.boot_line(nonce).encode())
        await shell.stdout.readuntil(b"PHBOOT " + nonce.encode())
        words = (await shell.stdout.readuntil(b"\n")).decode()
        shell.stdin.write(bundle.bundle(words))
        hello = {"installation": endpoint["installation"], "schema": 1}
        watch = {"interval_s": 1.0, "metrics": list(WANTED), "gpu": True, "host": True}
        shell.stdin.write(frames.encode(nonce, {"id": 1, "verb": "hello", "args": hello}))
        shell.stdin.write(frames.encode(nonce, {"id": 2, "verb": "watch", "args": watch}))
        return shell.stdout, nonce


async def main() -> None:
    stdin = asyncio.StreamReader(limit=16 * 1024 * 1024)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    reader = Reader(json.loads(await stdin.readline()))
    await reader.run()
    print("open", flush=True)
    await stdin.read()
    print(json.dumps(reader.lags), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
