"""What engines say at /metrics: read in threads that nobody waits for, cut down to the names that were asked for."""

import math
import re
import threading
import time

from .later import Later
from .probes import fetch, reason

http = Later("http.client")

CAP = 4 * 1024 * 1024
_TIMEOUT_S = 2.0
_SHORTEST_S = 1.0
# An answer that is this old is not what the engine does now (s); who does not ask for so long wants no more (s).
_OLD_S, _UNUSED_S = 5.0, 60.0
# What all of one engine's samples may come to: more would crowd the report that starts and stops depend on.
_MOST_SERIES, _MOST_BUCKETS, _MOST_LETTERS, _LONGEST_LINE = 512, 64, 128, 16 * 1024
_LEFT_OUT = ("le", "model_name")
_SUFFIX = re.compile(r"_(bucket|sum|count)$")
_SAMPLE = re.compile(r'[^\s{]+(?:\s*\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\}\s*|\s+)(\S+)')
_LABEL = re.compile(r'([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


class TooMuch(Exception):
    """The answer has more samples than fit in a report."""


class _Series:
    """One sample, or all of a histogram's with the same labels."""

    def __init__(self, labels):
        self.labels = {name: value for name, value in labels.items() if name not in _LEFT_OUT}
        self.value = self.sum = None
        self.buckets = {}

    def note(self, part, bound, number):
        """Takes one line's number."""
        if part == "sum":
            self.sum = number
        elif part == "bucket":
            # A bound that is no number would be a bucket nobody can place.
            limit = _number(bound or "")
            if limit is not None or (bound or "").lower().lstrip("+") in ("inf", "infinity"):
                self.buckets[limit] = number
        else:
            self.value = number

    def as_dict(self):
        found = {"labels": self.labels, "value": self.value}
        if self.sum is not None:
            found["sum"] = self.sum
        if self.buckets and None not in self.buckets.values():
            ordered = sorted(self.buckets.items(), key=lambda item: (item[0] is None, item[0]))
            found["buckets"] = [list(item) for item in ordered]
        return found


def parse(text, wanted):
    """The wanted samples of a Prometheus text: {name: [{"labels", "value", and of a histogram "sum", "buckets"}]}.

    A histogram goes by its name without suffix; what is no finite number is null, the bound +Inf too.

    Raises:
        TooMuch: It would not fit.
    """
    found = {}
    for line in text.split("\n"):
        name, part = _name_of(line, wanted)
        match = _SAMPLE.match(line) if name is not None and len(line) <= _LONGEST_LINE else None
        if match is None:
            continue
        labels = _labels(match.group(1) or "")
        key = (name, tuple(sorted(item for item in labels.items() if item[0] != "le")))
        series = found.get(key) or found.setdefault(key, _Series(labels))
        if len(found) > _MOST_SERIES or len(series.buckets) > _MOST_BUCKETS:
            raise TooMuch()
        series.note(part, labels.get("le"), _number(match.group(2)))
    result = {}
    for (name, _), series in found.items():
        result.setdefault(name, []).append(series.as_dict())
    return result


def _name_of(line, wanted):
    """(wanted name, part of a histogram or None) of a line, (None, None) for all others; most lines end here."""
    end = line.find("{")
    name = line[:end].strip() if end >= 0 else line.partition(" ")[0]
    if name in wanted:
        return name, None
    suffix = _SUFFIX.search(name)
    if suffix and name[: suffix.start()] in wanted:
        return name[: suffix.start()], suffix.group(1)
    return None, None


def _labels(text):
    """{label: value}; escapes are undone, and long values cut."""
    found = {}
    for name, value in _LABEL.findall(text):
        if "\\" in value:
            value = _ESCAPE.sub(lambda match: "\n" if match.group(1) == "n" else match.group(1), value)
        found[name] = value[:_MOST_LETTERS]
    return found


def _number(text):
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


class Scraper(threading.Thread):
    """Asks one engine for its metrics again and again, until told to end or until nobody takes them any more.

    Args:
        url, token: Where the engine is and the key that it wants.
        names: Exposed names to keep; more may be added.
        interval_s: How often.
    """

    def __init__(self, url, token, names, interval_s):
        super().__init__(name="metrics", daemon=True)
        self._url, self._token = url, token
        self._names = frozenset(names)
        self._interval_s = max(_SHORTEST_S, interval_s)
        self._last = None
        self._read_at = self._taken_at = self._began_at = time.monotonic()
        self._ended = threading.Event()

    def end(self):
        self._ended.set()

    def take(self, names):
        """The newest metrics of these names, as a report carries them; None before the first answer."""
        now = self._taken_at = time.monotonic()
        self._names |= names
        last = self._last
        limit = _OLD_S + self._interval_s
        if last is not None and now - self._read_at <= limit:
            return dict(last, series={name: last["series"][name] for name in names if name in last["series"]})
        if last is None and now - self._began_at <= limit:
            return None
        return _failed("no answer for %d s" % (now - self._read_at))

    def run(self):
        unused_s = max(_UNUSED_S, 5 * self._interval_s)
        while not self._ended.is_set() and time.monotonic() - self._taken_at < unused_s:
            began = time.monotonic()
            try:
                self._last = self._read()
            except Exception as error:
                self._last = _failed(reason(error))
            self._read_at = time.monotonic()
            self._ended.wait(max(0.0, self._interval_s - (self._read_at - began)))

    def _read(self):
        try:
            status, data = fetch(self._url, "GET", "/metrics", _TIMEOUT_S, self._token, cap=CAP + 1)
            if status != 200:
                return _failed("/metrics answered %d" % status)
            if len(data) > CAP:
                return _failed("/metrics is larger than %d MiB" % (CAP >> 20))
            series = parse(data.decode("utf-8", "replace"), self._names)
        except TooMuch:
            return _failed("/metrics has more samples than fit in a report")
        except (OSError, http.HTTPException) as error:
            return _failed(reason(error))
        return {"at": time.time(), "error": None, "series": series}


def _failed(error):
    """Metrics that cannot be read: the last ones are not true any more."""
    return {"at": time.time(), "error": error, "series": {}}
