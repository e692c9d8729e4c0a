"""An interpreter that answers in the node helper's place, in the way that its own name says. For tests."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

GOOD = {"schema": 1, "at": 1_800_000_000.0, "processes": {}, "strays": [], "ended": []}


def out(data: bytes) -> None:
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError:
        os._exit(0)


def for_ever(data: bytes) -> None:
    while True:
        out(data)


def frame(nonce: str, message: object) -> bytes:
    payload = message if isinstance(message, bytes) else json.dumps(message).encode()
    return f"PHF1 {nonce} {len(payload):08x}\n".encode() + payload + b"\n"


class Peer:
    """Greets as the helper does and takes requests; what follows is garbage."""

    def __init__(self, nonce: str) -> None:
        self.nonce = nonce
        self.input = os.fdopen(0, "rb", buffering=0)

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.input.read(count - len(data))
            if not part:
                os._exit(0)
            data += part
        return data

    def next(self) -> dict:
        header = self.exactly(len(f"PHF1 {self.nonce} 00000000\n"))
        payload = self.exactly(int(header.split()[2], 16) + 1)
        return json.loads(payload)

    def greet(self, said: object = None) -> Peer:
        out(f"\nPHBOOT {self.nonce} 3.11.2 00\n".encode())
        self.exactly(int(self.exactly(8), 16))
        hello = self.next()
        self.answer(hello, said or {"schema": 1, "python": "3.11.2", "wants": []})
        return self

    def answer(self, request: dict, result: object) -> None:
        out(frame(self.nonce, {"id": request["id"], "ok": True, "result": result}))

    def event(self, request: dict, event: object) -> bytes:
        return frame(self.nonce, {"id": request["id"], "event": event})


def noise_without_newline(peer: Peer) -> None:
    for_ever(b"x" * 65536)


def lines_of_ten_megabytes(peer: Peer) -> None:
    for_ever(b"y" * 10_000_000 + b"\n")


def a_hello_of_another_shape(peer: Peer) -> None:
    peer.greet(["what", 7, None])
    time.sleep(3600)


def log_lines_instead_of_frames(peer: Peer) -> None:
    peer.greet().next()
    for_ever(b"INFO 12-01 12:00:00 loading weights\n" * 1000)


def a_frame_of_four_gigabytes(peer: Peer) -> None:
    peer.greet().next()
    out(f"PHF1 {peer.nonce} ffffffff\n".encode())
    for_ever(b"z" * 65536)


def a_report_of_five_megabytes(peer: Peer) -> None:
    request = peer.greet().next()
    out(peer.event(request, {**GOOD, "hostname": "h" * 5_000_000}))
    time.sleep(3600)


def tiny_events_without_end(peer: Peer) -> None:
    request = peer.greet().next()
    for_ever(peer.event(request, GOOD) * 100)


def late_replies_without_end(peer: Peer) -> None:
    peer.greet().next()
    for_ever(frame(peer.nonce, {"id": 1, "ok": True}) * 1000)


def a_report_of_another_shape(peer: Peer) -> None:
    request = peer.greet().next()
    report = {**GOOD, "processes": ["what", 7, None]}
    out(peer.event(request, GOOD) + peer.event(request, report))
    peer.answer(request, report)
    time.sleep(3600)


def answers_of_another_shape(peer: Peer) -> None:
    peer.greet()
    while True:
        peer.answer(peer.next(), ["what", 7, None])


WAYS: dict[str, Callable[[Peer], None]] = {
    function.__name__: function
    for function in (
        noise_without_newline,
        lines_of_ten_megabytes,
        a_hello_of_another_shape,
        log_lines_instead_of_frames,
        a_frame_of_four_gigabytes,
        a_report_of_five_megabytes,
        tiny_events_without_end,
        late_replies_without_end,
        a_report_of_another_shape,
        answers_of_another_shape,
    )
}


def main(way: str) -> None:
    if sys.argv[1].startswith("-") and "exit(sys.version_info" in sys.argv[-1]:
        return
    WAYS[way](Peer(sys.argv[-1]))
