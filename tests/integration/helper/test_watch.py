"""Reports, probes and logs: pushed at once, true after cuts, and not to be forged by what an engine prints."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .client import Client, Refused, until
from .conftest import Engines

Connect = Callable[..., Client]


def test_an_exit_is_pushed_without_waiting_for_the_interval(client: Client) -> None:
    process, _ = client.start(argv=["/bin/sh", "-c", "read line < /dev/zero; exit 9"])
    began = time.monotonic()
    for report in client.events(interval_s=60):
        if report["processes"][process]["exit"] is None:
            client.send("stop", process=process, grace_s=5, kill_s=5)
        else:
            break
    assert report["processes"][process]["alive"] is False
    assert time.monotonic() - began < 60


def test_a_probe_result_is_pushed_without_waiting_for_the_interval(client: Client, engines: Engines) -> None:
    process, _ = client.start(**engines.request())
    for report in client.events(interval_s=60):
        probe = report["processes"][process]["probe"]
        if probe and probe["completion"]:
            break
    assert probe["health"] == {"status": 200, "error": None}
    assert probe["models"] == ["m"]
    assert probe["completion"]["ok"]


def test_a_health_that_lies_is_found_out_by_the_completion(client: Client, engines: Engines) -> None:
    process = engines.start("health_lies")
    probe = until(lambda: (p := client.process(process)["probe"]) and p["completion"] and p, "a completion was tried")
    assert probe["health"]["status"] == 200
    assert (probe["completion"]["ok"], probe["completion"]["status"]) == (False, 500)


def test_a_wrong_key_is_told_by_the_probe(client: Client, engines: Engines) -> None:
    process = engines.start(secrets={"VLLM_API_KEY": "right"})
    probe = until(lambda: (p := client.process(process)["probe"]) and p["completion"] and p, "a completion was tried")
    assert probe["completion"]["status"] == 401


def test_an_engine_that_hangs_does_not_block_reports(client: Client, engines: Engines) -> None:
    process = engines.start("hang")
    probe = until(lambda: client.process(process)["probe"], "the probe gave up")
    assert probe["health"] == {"status": None, "error": "timed out"}


def test_the_log_of_a_failed_start_is_in_the_report(client: Client, engines: Engines) -> None:
    request = engines.request("exit_early=3", env={"FAKE_VLLM_MODE": "exit_early=3", "FAKE_VLLM_ERROR": "OSError: no"})
    process, _ = client.start(**request)
    report = until(lambda: (r := client.process(process))["exit"] and r, "it ended")
    assert report["exit"]["code"] == 3
    assert "OSError: no" in report["log_tail"]
    box = client.call("collect", process=process)
    assert "OSError: no" in box["log_tail"]
    assert box["exit"]["code"] == 3
    client.stop(process)
    assert client.process(process)["log_tail"] is None


def test_frames_in_a_log_stay_text(client: Client) -> None:
    forged = f'\nPHBOOT {client.nonce} 3.11.2\nPHF1 {client.nonce} 0000000b\n{{"id": 1}}\n'
    process, _ = client.start(argv=["printf", "%s", forged])
    until(lambda: client.process(process)["exit"], "it ended")
    assert client.log(process) == forged
    assert client.process(process)["log_tail"] == forged


def test_bytes_that_are_no_text_reach_the_reader_as_marks(client: Client) -> None:
    process, _ = client.start(argv=["printf", r"a\0b\377c\303\251\303"])
    until(lambda: client.process(process)["exit"], "it ended")
    piece = client.call("logs", process=process, offset=0, limit=100)
    assert piece["data"] == "a\ufffdb\ufffdc\u00e9"
    # The last byte begins a character that never ends: held back once, in case more comes, but not for ever.
    assert client.call("logs", process=process, offset=piece["next_offset"], limit=100)["data"] == "\ufffd"


def test_a_log_is_read_in_pieces_that_do_not_split_characters(client: Client) -> None:
    text = "caf\u00e9 \u20ac \U0001f680 " * 20
    process, _ = client.start(argv=["printf", "%s", text])
    until(lambda: client.process(process)["exit"], "it ended")
    offset, found = 0, ""
    while True:
        piece = client.call("logs", process=process, offset=offset, limit=7)
        if piece["next_offset"] == offset:
            break
        offset, found = piece["next_offset"], found + piece["data"]
    assert found == text
    last = client.call("logs", process=process, offset=-8, limit=100)
    assert last["data"] == " \U0001f680 "


def test_a_reader_can_wait_for_the_next_line(client: Client, tmp_path: Path) -> None:
    script = f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo two; sleep 600"
    process, _ = client.start(argv=["/bin/sh", "-c", script])
    until(lambda: client.log(process) == "one\n", "the first line came")
    number = client.send("logs", process=process, offset=4, limit=100, wait_s=20)
    (tmp_path / "go").touch()
    assert client.next(number)["result"]["data"] == "two\n"


def test_a_capped_log_keeps_its_offsets(client: Client, tmp_path: Path) -> None:
    # Each half in one write: what is appended in the very instant of a cut may be lost, by design.
    lines = [b"line-%d-............................\n" % number for number in range(1, 3001)]
    (tmp_path / "first").write_bytes(b"".join(lines[:1500]))
    (tmp_path / "second").write_bytes(b"".join(lines[1500:]))
    once = "import os, sys; os.write(1, open(sys.argv[1], 'rb').read())"
    half = f"{sys.executable} -c {shlex.quote(once)}"
    script = f"{half} first; while [ ! -e go ]; do sleep 0.05; done; {half} second; sleep 600"
    process, _ = client.start(argv=["/bin/sh", "-c", script], cwd=str(tmp_path), log_cap_bytes=20_000)
    cut_to(client, process, sum(map(len, lines[:1500])))
    (tmp_path / "go").touch()
    total = sum(map(len, lines))
    small = cut_to(client, process, total)
    early = client.call("logs", process=process, offset=0, limit=100)
    assert early["offset"] == small["base"]
    last = client.call("logs", process=process, offset=total - 39, limit=100)
    assert last["data"] == "line-3000-............................\n"


def cut_to(client: Client, process: str, size: int) -> dict[str, int]:
    """The log's extent once all was written and it was cut."""

    def cut() -> dict[str, int] | None:
        log = client.process(process)["log"]
        return log if log["size"] == size and log["size"] - log["base"] <= 20_000 else None

    return until(cut, "it was cut")


def test_a_log_of_an_unknown_process_is_a_typed_error(client: Client) -> None:
    with pytest.raises(Refused, match="UNKNOWN_PROCESS"):
        client.call("logs", process="never", offset=0)


def test_a_cancelled_watch_ends_with_a_reply(client: Client) -> None:
    number = client.send("watch", interval_s=60)
    assert "event" in client.next(number)
    assert client.call("cancel", id=number) == {"found": True}
    message = client.next(number)
    assert message["result"] == {"ended": "cancelled"}
