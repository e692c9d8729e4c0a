"""Answers of the fake engine that come word by word, as vLLM streams them, and stop where a test wants them to.

A word in capitals in what is asked says how: HOLD waits after the first word until GET /fake/release, BREAK ends the
connection after two words, GARBAGE writes something else. GET /fake/streams counts what became of them.
"""

import json
import select
import socket
import threading
import time

WORDS = ("The", " ship", " is", " on", " her", " course", ".")
NO_TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the "
    "tokenizer does not define one."
)
LOOK_S = 0.02


class Streams:
    """What became of the streams so far; `release` lets all held ones go on."""

    def __init__(self):
        self.lock = threading.Lock()
        self.release = threading.Event()
        self.open = self.finished = self.aborted = 0

    def count(self, **changes):
        with self.lock:
            for name, change in changes.items():
                setattr(self, name, getattr(self, name) + change)

    def as_dict(self):
        return {"open": self.open, "finished": self.finished, "aborted": self.aborted}


STREAMS = Streams()


def control(path):
    """The answer of GET /fake/..."""
    if path == "/fake/release":
        STREAMS.release.set()
    return STREAMS.as_dict()


def answer(handler, wish, meters, faults):
    """Streams an answer to `wish` through a BaseHTTPRequestHandler."""
    chat = handler.path.endswith("/chat/completions")
    if chat and "no_chat_template" in faults:
        error = {"message": NO_TEMPLATE, "type": "BadRequestError", "param": None, "code": 400}
        handler._say(400, {"error": error})
        return
    STREAMS.count(open=1)
    began, reason = time.monotonic(), "abort"
    meters.began(5)
    try:
        reason = _speak(handler, wish, meters, chat)
    except OSError:
        pass
    finally:
        handler.close_connection = True
        meters.ended(reason, time.monotonic() - began)
        STREAMS.count(open=-1, aborted=reason == "abort", finished=reason != "abort")


def _speak(handler, wish, meters, chat):
    asked = json.dumps(wish.get("messages") or wish.get("prompt"))
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    words = WORDS[: int(wish.get("max_tokens") or 16)]
    last = time.monotonic()
    for place, word in enumerate(words):
        if place == 2 and "BREAK" in asked:
            handler.connection.shutdown(socket.SHUT_RDWR)
            return "abort"
        _send(handler, "nonsense" if "GARBAGE" in asked else _chunk(chat, word))
        meters.said(time.monotonic() - last, first=place == 0)
        last = time.monotonic()
        if "HOLD" in asked and place == 0 and not _released(handler.connection):
            return "abort"
    reason = "stop" if len(words) == len(WORDS) else "length"
    _send(handler, _chunk(chat, "", reason))
    usage = {"prompt_tokens": 5, "completion_tokens": len(words), "total_tokens": 5 + len(words)}
    _send(handler, json.dumps({"id": "cmpl-fake", "choices": [], "usage": usage}))
    _send(handler, "[DONE]")
    handler.wfile.write(b"0\r\n\r\n")
    return reason


def _released(connection):
    """Waits to be let go on; False when whoever asked has gone."""
    while not STREAMS.release.wait(LOOK_S):
        if select.select([connection], [], [], 0)[0] and not connection.recv(1, socket.MSG_PEEK):
            return False
    return True


def _chunk(chat, word, reason=None):
    said = {"delta": {"content": word}} if chat else {"text": word}
    return json.dumps({"id": "cmpl-fake", "choices": [{"index": 0, **said, "finish_reason": reason}]})


def _send(handler, data):
    line = f"data: {data}\n\n".encode()
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
