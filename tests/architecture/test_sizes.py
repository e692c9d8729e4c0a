"""Limits that keep files and functions readable, and names that say what is inside."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

BASE = Path(__file__).resolve().parents[2]
FILE_LINES, FUNCTION_LINES = 400, 40
SAY_NOTHING = set(
    ["utils", "util", "common", "helpers", "misc", "manager", "managers", "handler", "handlers", "base", "core"]
)
OURS = ("controlplane", "deployments", "monitoring")
SOURCES = {
    str(path.relative_to(BASE)): path.read_text(encoding="utf-8")
    for package in (*OURS, "tests", "tools", "benchmarks")
    for path in sorted((BASE / package).rglob("*.py"))
    if "migrations" not in path.parts
}


def test_a_file_is_short_enough_to_read() -> None:
    lengths = {name: len(text.splitlines()) for name, text in SOURCES.items()}
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES} == {}


def test_a_function_is_short_enough_to_see_at_once() -> None:
    lengths = {f"{name}: {function}": lines for name in SOURCES for function, lines in functions(name)}
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES} == {}


def test_a_name_says_what_is_inside() -> None:
    assert [name for name in SOURCES if SAY_NOTHING & {Path(name).stem, *Path(name).parts}] == []


def test_only_the_settings_read_the_panels_environment() -> None:
    """Children inherit theirs through one place; on nodes and in tests there are other environments."""
    readers = {name for name in SOURCES if name.startswith(OURS) and reads_environment(name)}
    on_nodes = {name for name in readers if name.startswith("deployments/remote/")}
    assert readers - on_nodes == {"controlplane/settings.py", "controlplane/embedded/children.py"}


def functions(name: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(SOURCES[name])):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def reads_environment(name: str) -> bool:
    """`os.environ` or `os.getenv`, except where a variable is only set for what comes later."""
    nodes = list(ast.walk(ast.parse(SOURCES[name])))
    written = [node.value for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)]
    written += [node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == "setdefault"]
    used = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")]
    return any(node not in written for node in used)
