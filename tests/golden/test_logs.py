"""Real logs, and by hand what is to be read out of them. A new example is a JSON file (and a log) and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deployments.domain.failures import LONGEST, read_failure
from deployments.domain.startup import MILESTONES, read_phase
from deployments.domain.states import Reason

HERE = Path(__file__).parent
# What the helper sends of a log, in bytes.
TAIL = 16 * 1024


def examples(folder: str) -> list:
    files = sorted((HERE / folder).glob("*.json"))
    assert files, f"no examples in {folder}"
    return [pytest.param(path, id=path.stem) for path in files]


def read(path: Path, log: str) -> str:
    return (path.parent / log).read_bytes().decode("utf-8", "replace")


@pytest.mark.parametrize("path", examples("startup"))
def test_a_start_is_followed_through_its_phases(path: Path) -> None:
    example = json.loads(path.read_text())
    text = read(path, example["log"])
    for marker, phase, percent in example["seen"]:
        position = text.find(marker)
        assert position >= 0, f"{marker!r} is not in the log"
        end = text.find("\n", position)
        assert read_phase(text[:end]) == (phase, percent), marker
        assert read_phase(text[:end][-TAIL:]) == (phase, percent), f"the tail at {marker}"


@pytest.mark.parametrize("path", examples("startup"))
def test_progress_never_goes_back_and_knows_its_words(path: Path) -> None:
    lines = read(path, json.loads(path.read_text())["log"]).split("\n")
    phases = {phase for phase, _, _ in MILESTONES}
    last = 0
    for count in range(len(lines)):
        seen = read_phase("\n".join(lines[:count]))
        if seen is not None:
            assert seen[0] in phases
            assert seen[1] >= last
            last = seen[1]
    assert last == 100


@pytest.mark.parametrize("path", examples("failures"))
def test_the_root_cause_of_an_end_is_found(path: Path) -> None:
    example = json.loads(path.read_text())
    text = read(path, example["log"])
    for log in (text, text[-TAIL:]):
        found = read_failure(log)
        if example["reason"] is None:
            assert found is None
            continue
        assert found is not None
        reason, line, remedy = found
        assert reason is Reason(example["reason"])
        assert example["line"] in line
        assert example["remedy"] in remedy
        assert "pid=" not in line
        assert len(line) <= LONGEST
