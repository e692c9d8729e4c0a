"""The connection itself: caps, order, errors, its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .client import Client, Refused, until

Connect = Callable[..., Client]
CAP = 8 * 1024 * 1024


def exit_code(client: Client) -> int:
    return until(lambda: (client.shell.poll() is not None) and [client.shell.returncode], "the helper ended")[0]


def test_a_frame_over_the_cap_ends_the_connection(client: Client) -> None:
    client.write(b"PHF1 %s %08x\n" % (client.nonce.encode(), CAP + 1))
    assert exit_code(client) == 3


@pytest.mark.parametrize("junk", [b"hello\n", b"PHF1 " + b"0" * 32 + b" 00000002\n{}\n", b"x" * 500])
def test_anything_but_a_frame_ends_the_connection(client: Client, junk: bytes) -> None:
    client.write(junk)
    assert exit_code(client) == 3


def test_an_answer_over_the_cap_is_a_typed_error(client: Client, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text": "x" * (CAP + 1)}))
    with pytest.raises(Refused, match="TOO_LARGE"):
        client.call("read_model", path=str(tmp_path))
    assert client.call("report")["schema"] == 1


def test_a_request_just_under_the_cap_is_taken(client: Client) -> None:
    with pytest.raises(Refused, match="UNKNOWN_VERB"):
        client.call("nonsense", text="x" * (CAP - 200))


def test_the_end_of_input_ends_the_helper(client: Client) -> None:
    client.hang_up()
    assert exit_code(client) == 0


def test_another_schema_is_refused(client: Client) -> None:
    with pytest.raises(Refused, match="SCHEMA_MISMATCH"):
        client.call("hello", installation="one", schema=99)


def test_a_slow_request_does_not_hold_up_others(client: Client) -> None:
    process, _ = client.start(argv=["sleep", "600"])
    waiting = client.send("logs", process=process, offset=0, wait_s=25)
    assert client.process(process)["alive"]
    client.call("cancel", id=waiting)
    assert client.next(waiting)["result"]["data"] == ""


def test_what_a_tool_prints_cannot_reach_the_frames(client: Client) -> None:
    fds = [Path(f"/proc/{client.hello['pid']}/fd/{number}").resolve() for number in (0, 1)]
    assert fds == [Path("/dev/null"), Path("/dev/null")]
