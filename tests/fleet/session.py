"""One SSH session of a simulated node: from the line for `/bin/sh` to frames, on the session's own callbacks."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import asyncssh

from deployments.domain.errors import PilothouseError
from deployments.remote.frames import FrameDecoder, encode
from tests.fleet.verbs import Machine, error_of

SHELL = "/bin/sh"
# The format of code in this greeting is nobody's, so that the panel sends sources.
GREETING = "\nPHBOOT {nonce} 3.12.3 00000000\n"
_NONCE = re.compile(rb"PHFAIL ([0-9a-f]{32}) INTERPRETER_MISSING")
_LENGTH_DIGITS = 8


class Session(asyncssh.SSHServerSession[bytes]):
    """A shell that becomes the helper of `machine`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._buffer = bytearray()
        self._nonce = ""
        self._decoder: FrameDecoder | None = None
        self._calls: dict[int, asyncio.Task[None]] = {}

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        self._channel = chan

    def exec_requested(self, command: str) -> bool:
        return command == SHELL

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        if self._decoder is not None:
            self._take(data)
            return
        self._buffer += data
        if not self._nonce:
            self._greet()
        elif (length := self._bundle_end()) is not None:
            rest = bytes(self._buffer[length:])
            self._buffer.clear()
            self._decoder = FrameDecoder(self._nonce)
            self._take(rest)

    def _greet(self) -> None:
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return
        found = _NONCE.search(line)
        if found is None:
            self._channel.exit(127)
            return
        self._nonce = found[1].decode()
        self._buffer = bytearray(rest)
        self._channel.write(GREETING.format(nonce=self._nonce).encode())

    def _bundle_end(self) -> int | None:
        """Where the bundle ends, once all of it is there. Nothing of it is needed here."""
        if len(self._buffer) < _LENGTH_DIGITS:
            return None
        end = _LENGTH_DIGITS + int(self._buffer[:_LENGTH_DIGITS], 16)
        return end if len(self._buffer) >= end else None

    def _take(self, data: bytes) -> None:
        assert self._decoder is not None
        try:
            messages = self._decoder.feed(data)
        except PilothouseError:
            self._channel.exit(1)
            return
        for message in messages:
            self._begin(message["id"], message["verb"], message.get("args") or {})

    def _begin(self, number: int, verb: str, args: dict[str, Any]) -> None:
        if verb == "cancel":
            other = self._calls.get(args.get("id", 0))
            if other is not None:
                other.cancel()
            self._send({"id": number, "ok": True, "result": {"found": other is not None}})
            return
        task = asyncio.get_running_loop().create_task(self._run(number, verb, args))
        self._calls[number] = task
        task.add_done_callback(lambda done: self._calls.pop(number, None))

    async def _run(self, number: int, verb: str, args: dict[str, Any]) -> None:
        def event(payload: dict[str, Any]) -> None:
            self._send({"id": number, "event": payload})

        try:
            result = await self._machine.answer(verb, args, event)
        except asyncio.CancelledError:
            self._send({"id": number, "ok": True, "result": {"ended": "cancelled"}})
        except Exception as failure:
            self._send({"id": number, "ok": False, "error": error_of(failure)})
        else:
            self._send({"id": number, "ok": True, "result": result})

    def _send(self, message: dict[str, Any]) -> None:
        if not self._channel.is_closing():
            self._channel.write(encode(self._nonce, message))

    def eof_received(self) -> bool:
        self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        for task in list(self._calls.values()):
            task.cancel()
