"""What a failed program's log is quoted with."""

from __future__ import annotations

import pytest

from deployments.jobs.progress import last_words

STEP = '{"step": 2, "of": 2, "argv": ["pip"]}\n'
END = '{"step": 2, "code": 1}\n'


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (STEP + "Looking\nERROR: No matching distribution\n\n" + END, "ERROR: No matching distribution"),
        (STEP + "ERROR: the cause\n[notice] a newer pip is there\n" + END, "ERROR: the cause"),
        (STEP + "killed by somebody\n" + END, "killed by somebody"),
        (STEP + END, END.strip()),
        ("", ""),
    ],
)
def test_the_last_words_are_the_programs_own_and_its_errors_first(log, words):
    assert last_words(log) == words
