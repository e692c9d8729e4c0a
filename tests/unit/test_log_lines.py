from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.domain.log_lines import LONGEST, clean, read_lines


def pieces(log: str, size: int) -> list[str]:
    """The lines that a reader gets who asks for `size` bytes at a time, going on where the last answer ended."""
    raw, offset, found = log.encode(), 0, []
    while offset < len(raw):
        data = raw[offset : offset + size]
        end = offset + len(data)
        piece = read_lines(data.decode("utf-8", "replace"), offset, end, ended=end == len(raw))
        found += [line.text for line in piece.lines]
        if piece.next_offset == offset:
            size *= 2
        offset = piece.next_offset
    return found


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=30)))
def test_a_log_read_in_pieces_is_the_log(lines: list[str]) -> None:
    log = "".join(f"{line}\n" for line in lines)
    assert pieces(log, 4096) == lines


def test_a_line_that_is_not_whole_yet_is_left_for_the_next_time() -> None:
    first = read_lines("one\ntw", 100, 106)
    assert ([line.text for line in first.lines], first.next_offset) == (["one"], 104)
    second = read_lines("two\n", 104, 108)
    assert [(line.offset, line.text) for line in second.lines] == [(104, "two")]


def test_bytes_that_are_no_text_do_not_move_what_follows() -> None:
    raw = b"\xff\xff\nrest"
    piece = read_lines(raw.decode("utf-8", "replace"), 0, len(raw))
    assert raw[piece.next_offset :] == b"rest"


def test_the_last_line_of_an_ended_process_needs_no_end() -> None:
    assert [line.text for line in read_lines("Killed", 0, 6, ended=True).lines] == ["Killed"]
    assert read_lines("Killed", 0, 6).lines == ()


def test_a_cut_first_line_is_left_out() -> None:
    piece = read_lines("of a line\nwhole\n", 50, 66, cut=True)
    assert [(line.offset, line.text) for line in piece.lines] == [(60, "whole")]


def test_a_line_without_end_is_shown_in_pieces() -> None:
    piece = read_lines("x" * (LONGEST + 1), 0, LONGEST + 1)
    assert (len(piece.lines), piece.next_offset) == (1, LONGEST + 1)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("10%\r50%\r100%", "100%"),
        ("tail\r", "tail"),
        ("a\x00b\x07c\td", "abc\td"),
        ("\x1b[?25lhidden cursor\x1b[K", "hidden cursor"),
    ],
)
def test_a_line_is_what_a_terminal_would_leave(raw: str, shown: str) -> None:
    assert clean(raw) == shown


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("ERROR 12-01 14:53:37 [core.py:1] it failed", "fault"),
        ("(EngineCore pid=22) ERROR 12-01 14:53:37 it failed", "fault"),
        ("Traceback (most recent call last):", "fault"),
        ("(APIServer pid=1) ValueError: no", "fault"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "fault"),
        ("vllm: error: unrecognized arguments: --x", "fault"),
        ("(Worker pid=32) WARNING 12-01 slow", "warning"),
        ("INFO 12-01 errors are counted", ""),
        ("INFO loading error_model", ""),
    ],
)
def test_what_went_wrong_is_marked(text: str, level: str) -> None:
    assert read_lines(f"{text}\n", 0, len(text) + 1).lines[0].level == level
