"""Passing one request to an engine of this node, and its answer back piece by piece."""

import contextlib
import json
import threading

from .errors import HelperError
from .later import Later
from .logs import text
from .record import Record

http, socket, urls = Later("http.client"), Later("socket"), Later("urllib.parse")

PATHS = ("/v1/chat/completions", "/v1/completions")
# The panel gives up earlier; this is for the case that nobody is there any more.
_SILENCE_S = 75.0
_ANSWER_CAP = 16 << 20
_LINE_CAP = 256 << 10
_ERROR_CAP = 64 << 10
_PIECE = 64 << 10


def converse(session, call):
    """The verb: events `{"asked": true}`, `{"status": 200}`, then `{"lines": [...]}` as the engine writes them.

    Only the address that the process was started with is asked, with the key that was left with it. When the caller
    cancels or its connection ends, so does the engine's.

    Raises:
        HelperError: UNKNOWN_PROCESS, NOT_RUNNING, NO_ENGINE, BAD_REQUEST; ENGINE_UNREACHABLE when it takes no
            connection; ENGINE_ANSWERED (detail: status, body) when it answers anything but 200; ENGINE_BROKE.
    """
    url, headers = _engine(session, call.args)
    body = json.dumps(call.args.get("body") or {}).encode("utf-8")
    connection = http.HTTPConnection(url.hostname, url.port or 80, timeout=_SILENCE_S)
    try:
        _connect(connection, url)
        # Whoever waits in a read notices a cancelled call by this only.
        threading.Thread(target=_hang_up, args=(call.cancelled, connection.sock), daemon=True).start()
        call.event({"asked": True})
        return _exchange(call, connection, (url.path.rstrip("/") + call.args["path"], body, headers))
    finally:
        call.cancelled.set()
        connection.close()


def _engine(session, args):
    """(address, headers) of the process's own engine."""
    if args.get("path") not in PATHS:
        raise HelperError("BAD_REQUEST", "Engines are asked for %s only." % " and ".join(PATHS))
    record = Record(session.folder, args.get("process"))
    if not record.exists():
        raise HelperError("UNKNOWN_PROCESS", "This node knows no process %s." % record.process)
    probe = record.request().get("probe") or {}
    if probe.get("kind") != "openai" or not probe.get("base_url"):
        raise HelperError("NO_ENGINE", "Process %s is no engine that could be asked." % record.process)
    if not record.main_runs():
        raise HelperError("NOT_RUNNING", "Process %s does not run." % record.process)
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    token = record.secrets().get(probe.get("api_key_env") or "")
    if token:
        headers["Authorization"] = "Bearer " + token
    return urls.urlsplit(probe["base_url"]), headers


def _connect(connection, url):
    try:
        connection.connect()
    except OSError as error:
        message = "The engine at %s:%s takes no connection: %s." % (url.hostname, url.port, error.strerror or error)
        raise HelperError("ENGINE_UNREACHABLE", message, "Look at the engine's log.") from error


def _hang_up(cancelled, sock):
    cancelled.wait()
    with contextlib.suppress(OSError):  # it may be closed already
        sock.shutdown(socket.SHUT_RDWR)


def _exchange(call, connection, request):
    path, body, headers = request
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise _answered(answer)
        call.event({"status": answer.status})
        return {"bytes": _pass_on(call, answer), "cancelled": call.cancelled.is_set()}
    except (OSError, http.HTTPException) as error:
        if call.cancelled.is_set():
            return {"bytes": 0, "cancelled": True}
        message = "The engine's connection broke: %s: %s." % (type(error).__name__, error)
        raise HelperError("ENGINE_BROKE", message, "Look at the engine's log.") from error


def _answered(answer):
    body = text(answer.read(_ERROR_CAP))
    return HelperError(
        "ENGINE_ANSWERED", "The engine answered %d." % answer.status, detail={"status": answer.status, "body": body}
    )


def _pass_on(call, answer):
    """Sends whole lines on as they come, all that came together in one event. Returns the number of bytes."""
    rest, count = b"", 0
    while not call.cancelled.is_set():
        data = answer.read1(_PIECE)
        if not data:
            break
        count += len(data)
        *lines, rest = (rest + data).split(b"\n")
        if count > _ANSWER_CAP or len(rest) > _LINE_CAP:
            raise HelperError("TOO_LARGE", "The engine's answer is larger than %d MiB." % (_ANSWER_CAP >> 20))
        _send(call, lines)
    _send(call, [rest])
    return count


def _send(call, lines):
    said = [text(line).rstrip("\r") for line in lines if line.strip()]
    if said:
        call.event({"lines": said})
