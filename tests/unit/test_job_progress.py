"""How far a job is, from what its process has written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.jobs.progress import read_progress, tail


def lines(*values: object) -> str:
    return "".join((value if isinstance(value, str) else json.dumps(value)) + "\n" for value in values)


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        ("", None),
        (lines("Collecting torch"), None),
        (lines({"step": 1, "of": 4, "argv": []}), 0),
        (lines({"step": 1, "of": 4}, "Collecting torch", {"step": 3, "of": 4}), 50),
        (lines({"step": 3, "of": 4}, {"progress": 80}), 80),
        (lines({"progress": 80}, {"step": 1, "of": 2}), 0),
        (lines({"progress": 12.7, "file": "a"}), 12),
        (lines({"progress": 250}), 100),
        (lines({"progress": -3}), 0),
    ],
)
def test_the_newest_line_that_says_so_tells_the_percentage(text, percent):
    assert read_progress(text) == (percent, None)


def test_the_result_is_the_last_one_that_was_written():
    text = lines({"result": {"fingerprint": "a"}}, {"progress": 100}, {"result": {"fingerprint": "b", "files": 2}})
    assert read_progress(text) == (100, {"fingerprint": "b", "files": 2})


LOOK_ALIKES = """
{"progress": true}
{"progress": "9"}
{"progress": NaN}
{"progress": 1e999}
{"progress":
{'progress': 5}
{"step": 1, "of": 0}
{"step": 1.5, "of": 3}
{"result": 7}
{}
[1]
 {"progress": 5}
"""


@pytest.mark.parametrize("line", LOOK_ALIKES.strip("\n").splitlines())
def test_lines_that_only_look_alike_say_nothing(line):
    assert read_progress(line + "\n") == (None, None)


@given(st.text())
def test_any_log_can_be_read(text):
    percent, _ = read_progress(text)
    assert percent is None or 0 <= percent <= 100


@given(st.text(alphabet="ab\n", max_size=80), st.integers(1, 40))
def test_a_tail_is_an_end_of_the_text_that_fits(text, limit):
    kept = tail(text, limit)
    assert len(kept) <= limit
    assert text.endswith(kept)
    if len(text) <= limit:
        assert kept == text


def test_a_tail_begins_with_a_whole_line_where_there_is_one():
    assert tail("one\ntwo\nthree\n", 10) == "three\n"
    assert tail("x" * 50, 10) == "x" * 10
