"""Asking engines whether they serve, from the node itself, in threads that reports never wait for."""

import json
import threading
import time

from .later import Later

http, socket, urls = Later("http.client"), Later("socket"), Later("urllib.parse")

_HEALTH_S = 2.0
_COMPLETION_S = 30.0
_INTERVAL_S = 1.0
_BODY = 1 << 20


def fetch(base_url, method, path, timeout_s, token=None, body=None, cap=_BODY):
    """(status, the answer's first `cap` bytes). Raises OSError or http.client.HTTPException.

    `timeout_s` is for each wait; an answer that drips may take twice as long as that, and no longer.
    """
    deadline = time.monotonic() + 2 * timeout_s
    url = urls.urlsplit(base_url)
    connection = http.HTTPConnection(url.hostname, url.port or 80, timeout=timeout_s)
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = "Bearer " + token
    try:
        connection.request(method, url.path.rstrip("/") + path, body and json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, _read(answer, cap, deadline)
    finally:
        connection.close()


def _read(answer, cap, deadline):
    parts, room = [], cap
    while room > 0:
        part = answer.read1(min(room, 65536))
        if not part:
            break
        if time.monotonic() > deadline:
            raise socket.timeout("timed out")
        parts.append(part)
        room -= len(part)
    if room > 0 and answer.length:
        raise http.IncompleteRead(b"", answer.length)
    return b"".join(parts)


def _ask(base_url, method, path, timeout_s, token=None, body=None):
    """(status, parsed JSON or None). Raises OSError or http.client.HTTPException."""
    status, data = fetch(base_url, method, path, timeout_s, token, body)
    try:
        return status, json.loads(data.decode("utf-8"))
    except ValueError:
        return status, None


def reason(error):
    """Why a request failed, in a few words."""
    if isinstance(error, socket.timeout):
        return "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return "%s: %s" % (type(error).__name__, error)


class OpenAiProbe:
    """The state of one engine's answers: health each time, names and one token until they came back once."""

    def __init__(self, wanted, secrets):
        self.url = wanted["base_url"]
        self._model = wanted.get("model")
        self.token = secrets.get(wanted.get("api_key_env") or "")
        self.health = {"status": None, "error": None}
        self.models = None
        self.completion = None
        self.passed_at = None
        self._at = None

    def as_dict(self):
        """The probe part of a report; None before the first answer."""
        if self._at is None:
            return None
        return {"health": self.health, "models": self.models, "completion": self.completion, "at": self._at}

    def signature(self):
        """Changes when the result does."""
        completion = self.completion and (self.completion["ok"], self.completion["status"])
        return self.health["status"], self.health["error"], tuple(self.models or ()), completion

    def ask(self):
        self._ask_health()
        self._at = time.time()
        if self.passed_at is None and self.health["status"] == 200 and self._serves_model():
            self._ask_completion()
            if self.completion["ok"]:
                self.passed_at = time.monotonic()

    def _ask_health(self):
        try:
            self.health = {"status": _ask(self.url, "GET", "/health", _HEALTH_S)[0], "error": None}
        except (OSError, http.HTTPException) as error:
            # A busy engine answers late: slow is not down, so the last status stays.
            last = self.health["status"] if isinstance(error, socket.timeout) else None
            self.health = {"status": last, "error": reason(error)}

    def _serves_model(self):
        try:
            status, answer = _ask(self.url, "GET", "/v1/models", _HEALTH_S, self.token)
            if status == 200:
                self.models = [str(item["id"]) for item in answer["data"]]
            else:
                self._fail(status, "/v1/models answered %d" % status)
        except (OSError, http.HTTPException, KeyError, TypeError) as error:
            self._fail(None, reason(error))
        return self._model is None or self._model in (self.models or ())

    def _ask_completion(self):
        body = {"model": self._model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
        try:
            status, answer = _ask(self.url, "POST", "/v1/completions", _COMPLETION_S, self.token, body)
            if status == 200 and isinstance(answer, dict) and answer.get("choices"):
                self.completion = {"ok": True, "status": status, "error": None, "at": time.time()}
            else:
                self._fail(status, json.dumps(answer)[:500])
        except (OSError, http.HTTPException) as error:
            self._fail(None, reason(error))

    def _fail(self, status, error):
        self.completion = {"ok": False, "status": status, "error": error, "at": time.time()}


class Prober(threading.Thread):
    """Asks one process's probe again and again, until told to end."""

    def __init__(self, probe, changed):
        super().__init__(name="probe", daemon=True)
        self.probe = probe
        self.interval_s = _INTERVAL_S
        self._changed = changed
        self._ended = threading.Event()

    def end(self):
        self._ended.set()

    def run(self):
        while not self._ended.is_set():
            before = self.probe.signature()
            self.probe.ask()
            if self.probe.signature() != before:
                self._changed.set()
            self._ended.wait(self.interval_s)
