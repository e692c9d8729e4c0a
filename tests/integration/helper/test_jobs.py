"""Jobs: steps one after the other, and functions of the helper itself."""

from __future__ import annotations

import json
from pathlib import Path

from .client import Client, until


def ended(client: Client, process: str) -> int:
    return until(lambda: client.process(process)["exit"], "the job ended")["code"]


def lines(client: Client, process: str) -> list[dict]:
    return [json.loads(line) for line in client.log(process).splitlines() if line.startswith("{")]


def test_steps_run_in_order_and_stop_at_the_first_failure(client: Client) -> None:
    steps = [["echo", "one"], ["/bin/sh", "-c", "echo two; exit 5"], ["echo", "three"]]
    process, _ = client.start(steps=steps, role="job")
    assert ended(client, process) == 5
    log = client.log(process)
    assert "one\n" in log
    assert "two\n" in log
    assert "three\n" not in log
    assert lines(client, process)[0] == {"step": 1, "of": 3, "argv": ["echo", "one"]}
    assert lines(client, process)[-1] == {"step": 2, "code": 5}


def test_steps_that_all_succeed_end_with_zero(client: Client) -> None:
    process, _ = client.start(steps=[["true"], ["true"]], role="job")
    assert ended(client, process) == 0


def test_a_later_step_whose_program_is_missing_says_so(client: Client) -> None:
    process, _ = client.start(steps=[["true"], ["/opt/none/pip", "install"]], role="job")
    assert ended(client, process) == 127
    assert "/opt/none/pip" in lines(client, process)[-1]["error"]


def test_a_running_step_is_stopped_with_its_job(client: Client) -> None:
    process, _ = client.start(steps=[["/bin/sh", "-c", "sleep 600 & wait"]], role="job")
    until(lambda: len(client.process(process)["members"]) == 3, "job, shell and sleep run")
    assert client.stop(process)["proven"]


def fingerprint(client: Client, path: Path) -> dict:
    process, _ = client.start(builtin={"name": "fingerprint", "args": {"path": str(path)}}, role="job")
    assert ended(client, process) == 0
    said = lines(client, process)
    assert [line["progress"] for line in said[:-1]] == sorted(line["progress"] for line in said[:-1])
    assert said[-2]["progress"] == 100
    return said[-1]["result"]


def test_a_fingerprint_depends_on_names_and_contents_only(client: Client, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "weights.bin").write_bytes(b"\1" * 9_000_000)
        (tmp_path / name / "sub" / "config.json").write_text("{}")
    (tmp_path / "b" / ".cache").mkdir()
    (tmp_path / "b" / ".cache" / "stamp").write_text("when it was downloaded")
    one, other = fingerprint(client, tmp_path / "a"), fingerprint(client, tmp_path / "b")
    assert one == other
    assert (one["files"], one["bytes"]) == (2, 9_000_002)
    (tmp_path / "b" / "sub" / "config.json").write_text("[]")
    assert fingerprint(client, tmp_path / "b")["fingerprint"] != one["fingerprint"]


def test_a_fingerprint_of_a_missing_folder_fails_with_a_reason(client: Client) -> None:
    process, _ = client.start(builtin={"name": "fingerprint", "args": {"path": "/nowhere"}}, role="job")
    assert ended(client, process) == 1
    assert "/nowhere" in lines(client, process)[-1]["error"]
