"""What many machines have in common is said once."""

from __future__ import annotations

from deployments.domain.plugins import Problem
from deployments.domain.rules import check
from deployments.domain.rules.fleet import allowed, told_once
from deployments.domain.specs import EngineOptions, LayoutSpec, NodeView

from .subjects import LLAMA_8B, cards, host, subject


def on(*cards: str, words: str = "--dtype bfloat16") -> list[list[Problem]]:
    return [check(subject(LLAMA_8B, words, host(f"n{i}", card))) for i, card in enumerate(cards)]


def test_what_is_wrong_on_every_machine_is_an_error_and_names_them() -> None:
    (problem,) = told_once(on("T4", "T4", "T4"), chosen=False)
    assert (problem.rule, problem.severity, problem.node) == (15, "error", "n0")
    assert problem.message.endswith("T4 on n0 has 7.5. The same holds for n1 and n2.")


def test_what_is_wrong_on_some_machines_is_a_warning() -> None:
    (problem,) = told_once(on("H200", "T4"), chosen=False)
    assert (problem.rule, problem.severity, problem.node) == (15, "warning", "n1")


def test_a_warning_of_some_machines_is_told_where_they_were_chosen() -> None:
    found = on("H200", "A100", words="--kv-cache-dtype fp8")
    assert told_once(found, chosen=False) == []
    (problem,) = told_once(found, chosen=True)
    assert (problem.rule, problem.severity, problem.node) == (17, "warning", "n1")


def test_what_does_not_depend_on_the_machine_is_told_without_names() -> None:
    (problem,) = told_once(on("H200", "H200", words="--max-model-len 131073"), chosen=False)
    assert (problem.rule, problem.severity, problem.node) == (18, "error", None)
    assert "The same holds" not in problem.message


def test_many_names_are_counted() -> None:
    (problem,) = told_once(on(*["T4"] * 9), chosen=False)
    assert problem.message.endswith("The same holds for n1, n2, n3, n4, n5 and 3 more.")


def test_nothing_wrong_is_nothing_said() -> None:
    assert told_once(on("H200"), chosen=True) == told_once([], chosen=True) == []


def view(id: int, card: str) -> NodeView:
    return NodeView(id, f"n{id}", "10.0.0.1", accelerators=cards(card, 2), engine_version="0.33.0")


def choice(*views: NodeView, words: str = "--dtype bfloat16") -> list[int]:
    model = subject(LLAMA_8B).model
    return allowed(views, LayoutSpec("single"), model, LLAMA_8B, EngineOptions(tuple(words.split())))


def test_nodes_on_which_a_launch_would_fail_are_not_chosen() -> None:
    assert choice(view(1, "T4"), view(2, "H200"), view(3, "T4"), view(4, "an unknown card")) == [2, 4]


def test_rules_leave_all_nodes_where_they_would_leave_none() -> None:
    assert choice(view(1, "T4"), view(2, "T4")) == [1, 2]
    assert choice(view(1, "T4"), view(2, "H200"), words="--max-model-len 99999999") == [1, 2]
    assert choice() == []
