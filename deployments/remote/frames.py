"""The bytes between panel and node helper, without I/O: finding the helper's first word, and its frames after that.

A connection's nonce is in every line that counts, so that banners, rc files and log text cannot pass for an answer.
"""

from __future__ import annotations

import gc
import json
import math
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from .launcher import HelperFailed

MAX_NOISE_BYTES = 256 * 1024
KEPT_NOISE_BYTES = 2 * 1024
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
MAX_REPORT_BYTES = 4 * 1024 * 1024
LARGE_BYTES = 256 * 1024
MAX_GREETING_BYTES = 4 * 1024
MAGIC = b"PHF1"


def violation(message: str, **detail: Any) -> HelperFailed:
    """The other side broke the protocol; the connection is of no more use."""
    return HelperFailed(
        message,
        code="PROTOCOL",
        remedy="Something on the node writes into the connection; what it wrote is in the detail.",
        detail=detail,
    )


def printable(data: bytes, limit: int = KEPT_NOISE_BYTES) -> str:
    """The first `limit` bytes as text that is safe to show."""
    text = data[:limit].decode("utf-8", "replace")
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first line that carries the nonce.

    Attributes:
        ok: A Python waits for the helper's source.
        words: Its version and the format of its code in hex; when not ok, an error code and what was tried.
        noise: What came before.
        rest: The bytes after the line.
    """

    ok: bool
    words: str
    noise: str
    rest: bytes


class GreetingFinder:
    """Looks for the greeting behind whatever a login shell prints."""

    def __init__(self, nonce: str) -> None:
        self._pattern = re.compile(rb"\nPH(BOOT|FAIL) " + nonce.encode() + rb" ([^\n]{0,%d})\n" % MAX_GREETING_BYTES)
        self._seen = bytearray()

    @property
    def noise(self) -> str:
        return printable(bytes(self._seen))

    def feed(self, data: bytes) -> Greeting | None:
        """The greeting, once it is complete.

        Raises:
            HelperFailed: PROTOCOL when more than 256 KiB came without one.
        """
        start = max(0, len(self._seen) - MAX_GREETING_BYTES - 64)
        self._seen += data
        found = self._pattern.search(self._seen, start)
        noise_bytes = found.start() if found else len(self._seen) - MAX_GREETING_BYTES
        if noise_bytes > MAX_NOISE_BYTES:
            raise violation("The login shell printed more than 256 KiB before it ran a command.", noise=self.noise)
        if found is None:
            return None
        return Greeting(
            ok=found[1] == b"BOOT",
            words=printable(found[2], MAX_GREETING_BYTES),
            noise=printable(bytes(self._seen[: found.start()])),
            rest=bytes(self._seen[found.end() :]),
        )


def encode(nonce: str, message: dict[str, Any]) -> bytes:
    """One frame.

    Raises:
        HelperFailed: PROTOCOL when the message is larger than 8 MiB.
    """
    payload = msgspec.json.encode(message)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise violation(f"A request of {len(payload)} bytes is larger than the 8 MiB that fit in one frame.")
    return b"%s %s %08x\n%s\n" % (MAGIC, nonce.encode(), len(payload), payload)


class FrameDecoder:
    """Cuts a stream of bytes into the messages of one connection.

    Args:
        nonce: The connection's.
        cap: The largest payload that is taken (bytes); no more than this is ever held.
    """

    def __init__(self, nonce: str, cap: int = MAX_PAYLOAD_BYTES) -> None:
        self._cap = cap
        self._prefix = MAGIC + b" " + nonce.encode() + b" "
        self._header_length = len(self._prefix) + 9
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that are complete now.

        Raises:
            HelperFailed: PROTOCOL, at the first byte that cannot belong to a frame.
        """
        self._buffer += data
        messages = []
        while (frame := self._next()) is not None:
            messages.append(_message(frame))
        return messages

    def _next(self) -> bytes | None:
        length = self._payload_length()
        if length is None:
            return None
        end = self._header_length + length
        if len(self._buffer) <= end:
            return None
        if self._buffer[end : end + 1] != b"\n":
            raise violation("A frame is longer than it says.", got=printable(bytes(self._buffer[end : end + 80])))
        payload = bytes(self._buffer[self._header_length : end])
        del self._buffer[: end + 1]
        return payload

    def _payload_length(self) -> int | None:
        head = bytes(self._buffer[: self._header_length])
        if head[: len(self._prefix)] != self._prefix[: len(head)]:
            raise violation("The node sent something that is not a frame.", got=printable(head))
        if len(head) < self._header_length:
            return None
        digits, end = head[len(self._prefix) : -1], head[-1:]
        if end != b"\n" or not re.fullmatch(rb"[0-9a-f]{8}", digits):
            raise violation("The node sent a frame without a length.", got=printable(head))
        length = int(digits, 16)
        if length > self._cap:
            raise violation(f"The node announced a frame of {length} bytes; {self._cap >> 20} MiB is the most.")
        return length


def _message(payload: bytes) -> dict[str, Any]:
    try:
        message = _decoded(payload)
        if b"\\u0000" in payload:
            message = _storable(message)
    except msgspec.DecodeError:
        message = _lenient(payload)
    except RecursionError:
        raise violation("The node sent a frame that is nested too deeply.") from None
    if not isinstance(message, dict) or type(message.get("id")) is not int:
        raise violation("The node sent a frame without a request id.", got=printable(payload, 200))
    return message


def _decoded(payload: bytes) -> Any:
    """What the JSON says. A large one may be millions of tiny lists: the cycle collector, which would walk over them
    again and again as they grow, is paused meanwhile, since JSON has no cycles."""
    if len(payload) < LARGE_BYTES or not gc.isenabled():
        return msgspec.json.decode(payload)
    gc.disable()
    try:
        return msgspec.json.decode(payload)
    finally:
        gc.enable()


def _lenient(payload: bytes) -> Any:
    """File names on nodes need not be UTF-8: Python writes such bytes as lone surrogates, which strict JSON refuses.

    It also writes NaN, and a number may be larger than any float; both are no number to anybody else.
    """
    try:
        return _storable(json.loads(payload, parse_constant=lambda _: None, parse_float=_finite))
    except (ValueError, RecursionError):
        raise violation("The node sent a frame that is not JSON.", got=printable(payload, 200)) from None


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _storable(value: Any) -> Any:
    """The same without what no database text can hold: lone surrogates, and NUL, which broken logs contain."""
    if isinstance(value, str):
        return value.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    return value
