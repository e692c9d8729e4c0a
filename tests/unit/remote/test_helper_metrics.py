"""What the node helper makes of an engine's /metrics: real text, hostile text, and engines that answer badly."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.remote.helper.metrics import CAP, Scraper, TooMuch, parse
from monitoring.domain.metrics import WANTED
from monitoring.domain.samples import read_sample

GOLDEN = Path(__file__).parents[2] / "golden" / "metrics"
NAMES = frozenset(WANTED)
TTFT = "vllm:time_to_first_token_seconds"
DEADLINE_S = 20.0


def golden(name: str, wanted: frozenset[str] = NAMES) -> dict:
    return parse((GOLDEN / f"{name}.txt").read_text(), wanted)


def value(text: str, name: str = "x") -> object:
    """The one sample of a name."""
    (series,) = parse(text, frozenset({name}))[name]
    return series


def test_a_busy_engine_is_read_as_it_stands():
    found = golden("under-load")
    assert found["vllm:num_requests_running"] == [{"labels": {"engine": "0"}, "value": 128.0}]
    assert found["vllm:generation_tokens_total"][0]["value"] == 683557.0
    ends = {series["labels"]["finished_reason"]: series["value"] for series in found["vllm:request_success_total"]}
    assert ends == {"stop": 0.0, "length": 5404.0, "abort": 0.0, "error": 0.0, "repetition": 0.0}
    (ttft,) = found[TTFT]
    assert (ttft["value"], ttft["sum"], len(ttft["buckets"])) == (5532.0, 1741.8639450073242, 23)
    assert ttft["buckets"][3] == [0.02, 366.0]
    assert ttft["buckets"][-1] == [None, 5532.0]


def test_an_idle_engine_has_zeros_which_are_not_nothing():
    found = golden("idle")
    assert found["vllm:num_requests_running"] == [{"labels": {"engine": "0"}, "value": 0.0}]
    assert found["vllm:prompt_tokens_total"][0]["value"] == 512.0


def test_only_what_was_asked_for_is_kept():
    assert set(golden("idle", frozenset({"vllm:num_requests_waiting"}))) == {"vllm:num_requests_waiting"}
    assert golden("idle", frozenset({"vllm:no_such_thing"})) == {}


def test_a_histogram_may_be_called_total():
    (series,) = golden("idle", frozenset({"vllm:iteration_tokens_total"}))["vllm:iteration_tokens_total"]
    assert (series["value"], series["sum"]) == (16.0, 528.0)
    assert len(series["buckets"]) == 14


def test_what_is_read_fits_the_panels_shapes():
    metrics = {"at": 1.0, "error": None, "series": golden("under-load")}
    sample = read_sample({"at": 1.0, "processes": {"p": {"alive": True, "metrics": metrics}}})
    assert sample.processes["p"].metrics.series[TTFT][0].buckets[-1] == (None, 5532.0)


def test_engines_of_one_server_stay_apart_and_models_too():
    text = 'x{engine="0",model_name="m"} 1\nx{engine="1",model_name="m"} 2\nx{engine="0",model_name="lora"} 3\n'
    found = parse(text, frozenset({"x"}))["x"]
    assert [(series["labels"], series["value"]) for series in found] == [
        ({"engine": "0"}, 1.0),
        ({"engine": "1"}, 2.0),
        ({"engine": "0"}, 3.0),
    ]


@pytest.mark.parametrize("word", ["NaN", "+Inf", "-Inf", "1e999", "many"])
def test_what_is_no_finite_number_is_null(word):
    assert value(f"x {word}\n") == {"labels": {}, "value": None}


def test_a_histogram_with_a_count_that_is_no_number_has_no_buckets():
    text = 'x_bucket{le="1"} NaN\nx_bucket{le="+Inf"} 3\nx_count 3\nx_sum 2\n'
    assert value(text) == {"labels": {}, "value": 3.0, "sum": 2.0}


def test_buckets_are_in_order_however_they_came():
    text = 'x_bucket{le="+Inf"} 3\nx_bucket{le="10"} 2\nx_bucket{le="9"} 1\nx_bucket{le="wide"} 7\nx_count 3\n'
    assert value(text)["buckets"] == [[9.0, 1.0], [10.0, 2.0], [None, 3.0]]


def test_labels_may_hold_anything():
    line = r'x{a="}",b="q\"uote",c="back\\slash",d="new\nline",e=",f=",g=""} 5 1395066363000'
    labels = {"a": "}", "b": 'q"uote', "c": "back\\slash", "d": "new\nline", "e": ",f=", "g": ""}
    assert value(line) == {"labels": labels, "value": 5.0}


@pytest.mark.parametrize("line", ["x{broken 5", 'x{a="open} 5', "x", "x{}", "{} 5", "# x 5", "xy 5", "x" * 100_000])
def test_a_line_that_is_no_sample_is_passed_over(line):
    assert parse(f"{line}\n", frozenset({"x"})) == {}


def test_more_samples_than_fit_are_refused_and_long_labels_cut():
    with pytest.raises(TooMuch):
        parse("\n".join(f'x{{user="{place}"}} 1' for place in range(2000)), frozenset({"x"}))
    with pytest.raises(TooMuch):
        parse("\n".join(f'x_bucket{{le="{place}"}} 1' for place in range(200)), frozenset({"x"}))
    assert len(value(f'x{{a="{"y" * 5000}"}} 1')["labels"]["a"]) == 128


pieces = st.sampled_from(
    ["x", "x_bucket", "x_sum", "{", "}", '"', "\\", "le=", 'le="', ",", " ", "\n", "NaN", "7", "+Inf"]
)


@given(st.lists(pieces | st.text(max_size=3), max_size=40).map("".join))
def test_no_text_surprises_the_reader_and_all_of_it_is_plain_json(text):
    found = parse(text, frozenset({"x"}))
    json.dumps(found, allow_nan=False)
    read_sample({"at": 1.0, "processes": {"p": {"metrics": {"series": found}}}})


class Engine:
    """A server whose /metrics does what a test says."""

    def __init__(self, answer: Callable[[http.server.BaseHTTPRequestHandler], None]) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_) -> None: ...

            def do_GET(self) -> None:
                with contextlib.suppress(OSError):
                    answer(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def engine() -> Iterator[Callable[..., Engine]]:
    engines = []

    def make(answer: Callable) -> Engine:
        engines.append(Engine(answer))
        return engines[-1]

    yield make
    for each in engines:
        each.server.shutdown()
        each.server.server_close()


@pytest.fixture
def scrape() -> Iterator[Callable[..., dict]]:
    """The first metrics of a url that say something `good`."""
    scrapers = []

    def ask(url: str, good: Callable[[dict], object] = bool) -> dict:
        scraper = Scraper(url, None, frozenset({"x"}), 1.0)
        scrapers.append(scraper)
        scraper.start()
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            taken = scraper.take(frozenset({"x"}))
            if taken and good(taken):
                return taken
            time.sleep(0.02)
        raise AssertionError("no metrics came")

    yield ask
    for scraper in scrapers:
        scraper.end()


def say(handler: http.server.BaseHTTPRequestHandler, data: bytes, status: int = 200, length: int | None = None) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(data) if length is None else length))
    handler.end_headers()
    handler.wfile.write(data)


def test_an_engine_is_asked_again_and_again(engine, scrape):
    asked = []

    def answer(handler) -> None:
        asked.append(handler.path)
        say(handler, f"x {len(asked)}\n".encode())

    found = scrape(engine(answer).url, lambda taken: taken["series"]["x"][0]["value"] == 2.0)
    assert found["error"] is None
    assert asked == ["/metrics"] * 2


def drip(handler: http.server.BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x 1\n")
        handler.wfile.flush()
        time.sleep(0.2)


BAD = {
    "another status": (lambda handler: say(handler, b"no", 405), "answered 405"),
    "an answer that is cut off": (lambda handler: say(handler, b"x 1\n", length=100), "IncompleteRead"),
    "an endless answer": (lambda handler: say(handler, b"y" * (CAP + 100)), "larger than 4 MiB"),
    "an answer that drips": (drip, "timed out"),
    "silence": (lambda handler: time.sleep(5), "timed out"),
    "no http": (lambda handler: handler.wfile.write(b"SSH-2.0-x\r\n"), "BadStatusLine"),
    "too many samples": (
        lambda handler: say(handler, b"".join(b'x{a="%d"} 1\n' % place for place in range(999))),
        "more samples than fit",
    ),
}


@pytest.mark.parametrize(("answer", "words"), BAD.values(), ids=BAD.keys())
def test_metrics_that_cannot_be_read_say_why(engine, scrape, answer, words):
    found = scrape(engine(answer).url)
    assert words in found["error"]
    assert found["series"] == {}
    assert found["at"] > 0


def test_an_engine_that_is_gone_is_told_and_its_last_values_are_not_kept(engine, scrape):
    answers = []

    def answer(handler) -> None:
        answers.append(1)
        if len(answers) > 1:
            raise OSError("gone")
        say(handler, b"x 1\n")

    found = scrape(engine(answer).url, lambda taken: taken["error"])
    assert found["series"] == {}


def test_who_does_not_take_metrics_is_not_asked_for_ever(monkeypatch):
    monkeypatch.setattr("deployments.remote.helper.metrics._UNUSED_S", 0.0)
    scraper = Scraper("http://127.0.0.1:9", None, frozenset({"x"}), 0.0)
    scraper._interval_s = 0.0
    scraper.start()
    scraper.join(DEADLINE_S)
    assert not scraper.is_alive()
