"""Words that people type, through real shells: they come out as they went in, and nothing else happens."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.domain.command import quote, shell
from deployments.remote import ssh
from deployments.remote.bundle import boot_line
from deployments.remote.ssh import REMOTE_COMMAND
from tests.lab.fixtures import give_up

# Nothing can hold a NUL: neither a shell's word nor an argument of a program. Lone surrogates are not text.
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
nasty = st.sampled_from(
    ["", " ", "'", '"', "\\", "$(touch x)", "`id`", "a\nb", "!!", "*", "~", "-n", "%s", "#", ";&|", "é漢"]
)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True).map(lambda name: f"PH_{name}")
NONCE = "0123456789abcdef0123456789abcdef"
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PRINT = ("/usr/bin/printf", r"%s\0")


def run(text: str, shell_argv: tuple[str, ...] = ("/bin/sh",), cwd=None) -> bytes:
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    done = subprocess.run(shell_argv, input=text.encode(), capture_output=True, timeout=30, env=environment, cwd=cwd)
    assert done.returncode in (0, 127), done.stderr
    return done.stdout


@few
@given(st.lists(words | nasty, max_size=6))
def test_quoted_words_come_out_of_a_shell_as_they_went_in(argv):
    line = f"printf '%s\\0' {' '.join(quote(word) for word in ['x', *argv])}\n"
    assert run(line).decode().split("\0")[1:-1] == argv


@few
@given(st.lists(words | nasty, min_size=1, max_size=4))
def test_a_rendered_command_runs_with_exactly_its_words(argv):
    assert run(shell([*PRINT, *argv]) + "\n").decode().split("\0")[:-1] == argv


@few
@given(st.dictionaries(names, words | nasty, min_size=1, max_size=3))
def test_a_rendered_environment_arrives_as_it_was(env):
    entries = run(shell(["/usr/bin/env", "-0"], env) + "\n").decode().split("\0")
    assert {f"{name}={value}" for name, value in env.items()} <= set(entries)


def test_a_secret_is_shown_as_stars():
    assert shell(["vllm", "serve"], {"A": "b c"}, secrets=["KEY"]) == "env A='b c' KEY='***' vllm serve"


@few
@given(interpreter=(words | nasty).filter(bool))
def test_a_hostile_interpreter_path_is_only_ever_a_path(tmp_path, interpreter):
    line = boot_line(NONCE, f"/no/such/{interpreter}")
    said = run(line, cwd=tmp_path).decode()
    assert said == f"\nPHFAIL {NONCE} INTERPRETER_MISSING /no/such/{interpreter}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "login_shell", [("/bin/csh", "-c"), ("/usr/bin/fish", "-c"), ("/bin/bash", "-c"), ("/bin/dash", "-c")]
)
def test_the_boot_line_works_behind_every_login_shell(login_shell):
    if not os.path.exists(login_shell[0]):
        give_up(f"{login_shell[0]} is missing: install tcsh, fish, bash and dash")
    said = run(boot_line(NONCE), (*login_shell, REMOTE_COMMAND))
    assert said.startswith(f"\nPHBOOT {NONCE} 3.".encode())


def test_what_a_login_shell_is_told_is_a_constant():
    assert ssh.REMOTE_COMMAND == "/bin/sh"
    assert len(boot_line(NONCE).splitlines()) == 1
    assert boot_line(NONCE).endswith("\n")
