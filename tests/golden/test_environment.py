"""The programs that make an engine environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deployments.domain.environment import check_environment, default_packages, install_steps
from deployments.domain.errors import InvalidInput

HERE = Path(__file__).parent / "environment"


def without_scripts(step: tuple[str, ...]) -> list[str]:
    """A script given with -c is code of ours, not an example."""
    words = list(step)
    if words[1] == "-c":
        compile(words[2], "script", "exec")
        words[2] = "a script of its own"
    return words


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("*.json")))
def test_the_steps_are_as_written_down(name):
    example = json.loads((HERE / f"{name}.json").read_text())
    steps = install_steps(check_environment(example["args"]), python=example["python"])
    assert [without_scripts(step) for step in steps] == example["steps"]


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_what_is_offered_can_be_installed(platform):
    checked = check_environment({"path": "/opt/vllm", "packages": default_packages(platform)})
    assert install_steps(checked, python="/usr/bin/python3")


GOOD = {"path": "/opt/vllm", "packages": ["vllm==0.33.0"]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("path", path) for path in ("", "opt/vllm", "~/vllm", "/", "//", "/a\x00b", "/" + "a" * 400, None)],
        *[
            ("packages", [pin])
            for pin in ("vllm", "vllm>=0.33", "vllm==", "-r evil.txt", "--index-url=http://x", "", 7)
        ],
        *[("packages", [pin]) for pin in ("git+https://x/y", "a==1\n--pre", "a==1 b==2", "a==1;python_version>'3'")],
        *[("packages", packages) for packages in ([], None, "vllm==0.33.0", 5)],
        *[("python", path) for path in ("python3", "./python", "-c", "/a\x00b", ["/x"])],
        *[("find_links", path) for path in ("wheels", "https://somewhere/wheels", "--pre")],
    ],
)
def test_arguments_that_could_mean_something_else_are_refused_by_field(field, value):
    with pytest.raises(InvalidInput) as caught:
        check_environment({**GOOD, field: value})
    assert caught.value.field == field


def test_what_is_not_asked_for_is_not_kept():
    assert check_environment({**GOOD, "python": "", "extra": "x"}) == GOOD
