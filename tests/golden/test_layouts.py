"""What each layout starts, written by hand from the engine's documentation. A new example is one JSON file.

`node.slots` makes that many accelerators, of which those at the places in `taken` are claimed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deployments.domain.placement import check_layout, layout_kinds, place, render
from deployments.domain.plugins import RenderContext
from deployments.domain.specs import Accelerator, EngineOptions, LayoutSpec, ModelFacts, NodeView

HERE = Path(__file__).parent / "layouts"
EXAMPLES = sorted(HERE.glob("*/*.json"))
COMMANDS = [path for path in EXAMPLES if "argv" in json.loads(path.read_text())]
PROBLEMS = [path for path in EXAMPLES if "problems" in json.loads(path.read_text())]


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def node(given: dict[str, Any]) -> NodeView:
    facts = dict(given)
    taken, memory = facts.pop("taken", []), facts.pop("memory_mib", 143771)
    word = "GPU" if facts["platform"] == "cuda" else "CPU"
    slots = [
        Accelerator(f"{word}-{i}", i, word, memory, platform=facts["platform"]) for i in range(facts.pop("slots", 0))
    ]
    slots += [Accelerator(**slot) for slot in facts.pop("accelerators", [])]
    free = tuple(slot for slot in slots if slot.index not in taken)
    ports = frozenset(facts.pop("used_ports", []))
    return NodeView(1, "n1", accelerators=tuple(slots), free_accelerators=free, used_ports=ports, **facts)


@pytest.mark.parametrize("path", COMMANDS, ids=name)
def test_a_layout_starts_exactly_this(path: Path) -> None:
    example = json.loads(path.read_text())
    spec, model, seat = LayoutSpec(**example["layout"]), ModelFacts(**example["model"]), node(example["node"])
    wanted = example.get("options", {})
    options = EngineOptions(tuple(wanted.get("args", ())), wanted.get("env", {}))
    assert check_layout(spec, model) == []
    context = RenderContext(example["served_name"], model, spec, {1: seat}, place(spec, [seat]), options)
    (process,) = render(context)
    assert list(process.argv) == example["argv"]
    assert process.env == example["env"]
    assert process.secrets == ("VLLM_API_KEY",)
    if "accelerators" in example:
        assert list(process.accelerators) == example["accelerators"]
    if "probe" in example:
        assert process.probe.as_dict() == example["probe"]


@pytest.mark.parametrize("path", PROBLEMS, ids=name)
def test_a_layout_that_cannot_run_is_refused(path: Path) -> None:
    example = json.loads(path.read_text())
    found = check_layout(LayoutSpec(**example["layout"]), ModelFacts(**example["model"]))
    assert [[problem.code, problem.field, problem.severity] for problem in found] == example["problems"]
    assert all(problem.message and problem.remedy for problem in found)


def test_every_layout_has_examples_of_commands_and_of_problems() -> None:
    for kind in layout_kinds():
        assert any(path.parent.name == kind for path in COMMANDS), f"no command of {kind}"
        assert any(path.parent.name == kind for path in PROBLEMS), f"no problem of {kind}"
