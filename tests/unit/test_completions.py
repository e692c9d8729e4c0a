"""What engines write, read: every piece, and whatever else may stand there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deployments.domain.completions import Chunk, lacks_chat_template, read_line, read_refusal


def data(value: Any) -> str:
    return f"data: {json.dumps(value)}"


def choice(**words: Any) -> str:
    return data({"choices": [{"index": 0, **words}]})


@pytest.mark.parametrize(
    ("line", "chunk"),
    [
        (choice(delta={"role": "assistant", "content": ""}), Chunk()),
        (choice(delta={"content": "Good"}), Chunk("Good")),
        (choice(delta={"content": None, "reasoning_content": "hm"}), Chunk(thought="hm")),
        (choice(delta={"reasoning": "hm"}, finish_reason=None), Chunk(thought="hm")),
        (choice(delta={}, finish_reason="stop"), Chunk(finish_reason="stop")),
        (choice(text=" day", finish_reason="length"), Chunk(" day", finish_reason="length")),
        (
            data({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}}),
            Chunk(prompt_tokens=3, completion_tokens=9),
        ),
        ("data: [DONE]", Chunk(done=True)),
        ("data:[DONE]", Chunk(done=True)),
        (data({"error": {"message": "gone", "code": 500}}), Chunk(error=(500, "gone"))),
        (data({"error": "gone"}), Chunk(error=(None, "gone"))),
        (data({"choices": [None], "usage": {"prompt_tokens": True, "completion_tokens": -1}}), Chunk()),
        (data({"choices": {"0": "x"}, "usage": []}), Chunk()),
        (choice(delta="x", text=["x"]), Chunk()),
    ],
)
def test_each_piece_is_read(line: str, chunk: Chunk) -> None:
    assert read_line(line) == chunk


@pytest.mark.parametrize("line", [": ping", "event: message", "", "retry: 3", "id: 7"])
def test_what_carries_nothing_is_passed_over(line: str) -> None:
    assert read_line(line) is None


@pytest.mark.parametrize("line", ["data: {", "data: [1]", "data: null", "data: <html>"])
def test_what_is_no_piece_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting|no object"):
        read_line(line)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error": {"message": "too long", "type": "BadRequestError"}}', "too long"),
        ('{"object": "error", "message": "too long"}', "too long"),
        ('{"detail": "Not Found"}', "Not Found"),
        ('{"error": "Unauthorized"}', "Unauthorized"),
        ('{"detail": [{"loc": ["body"]}]}', '{"detail": [{"loc": ["body"]}]}'),
        ("Internal Server Error", "Internal Server Error"),
        ("", "status 500, without a word"),
        ("x" * 9000, "x" * 2000),
        ("[" * 100_000, "[" * 2000),
        (r'{"message": "half \ud800"}', "half ?"),
    ],
)
def test_an_engines_words_are_found_in_every_shape(body: str, words: str) -> None:
    assert read_refusal(500, body) == words


@pytest.mark.parametrize(
    ("message", "lacks"),
    [
        ("As of transformers v4.44, default chat template is no longer allowed", True),
        ("ChatTemplateResolutionError: ...", True),
        ("This model's maximum context length is 1024 tokens", False),
    ],
)
def test_a_missing_chat_template_is_told_from_other_faults(message: str, lacks: bool) -> None:
    assert lacks_chat_template(message) is lacks


def test_what_no_page_can_be_sent_becomes_a_question_mark() -> None:
    chunk = read_line(r'data: {"choices": [{"delta": {"content": "a\ud800"}, "finish_reason": "\udc00"}]}')
    assert chunk == Chunk(text="a?", finish_reason="?")


def test_a_piece_that_is_nested_without_end_is_no_answer() -> None:
    with pytest.raises(ValueError, match="nested"):
        read_line("data: " + "[" * 100_000)
