"""Each numbered rule by its cases, and all of them on random subjects."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from deployments.domain.plugins import Problem
from deployments.domain.rules import RULES, Subject, check

from .examples_that_break import ALL_BROKEN, BROKEN, Broken
from .examples_that_hold import ALL_GOOD, GOOD
from .random_subjects import subjects
from .subjects import AWQ, LLAMA_8B, QWEN_72B, host, subject

NUMBERS = list(range(1, 27))


def test_there_are_26_rules_each_with_a_case_that_holds_and_one_that_is_broken() -> None:
    assert list(RULES) == NUMBERS
    assert all(rule.number == number and rule.title for number, rule in RULES.items())
    assert len({rule.title for rule in RULES.values()}) == len({rule.check for rule in RULES.values()}) == 26
    assert [number for number in NUMBERS if not GOOD.get(number)] == []
    assert [number for number in NUMBERS if not BROKEN.get(number)] == []


@pytest.mark.parametrize(("number", "good"), ALL_GOOD, ids=[f"{number}" for number, _ in ALL_GOOD])
def test_what_satisfies_a_rule_has_no_problem_with_it(number: int, good: Subject) -> None:
    assert check(good, only=[number]) == []


@pytest.mark.parametrize(("number", "broken"), ALL_BROKEN, ids=[f"{n}-{case[3][:40]}" for n, case in ALL_BROKEN])
def test_what_breaks_a_rule_is_told_with_its_number_and_a_cure(number: int, broken: Broken) -> None:
    wrong, severity, setting, words = broken
    found = [problem for problem in check(wrong, only=[number]) if words in problem.message]
    assert len(found) == 1, [problem.message for problem in check(wrong, only=[number])]
    (problem,) = found
    assert (problem.rule, problem.severity, problem.setting) == (number, severity, setting)
    assert problem.field
    assert problem.remedy
    assert problem.code in ("INVALID_LAYOUT", "INVALID_OPTION")
    assert cured(wrong, problem)


def cured(wrong: Subject, problem: Problem) -> bool:
    """Whether each suggested value takes the problem away."""
    assert problem.rule is not None
    for value in problem.values:
        after = check(wrong.changed(problem.setting or "", value, problem.node), only=[problem.rule])
        if any((p.setting, p.node, p.message) == (problem.setting, problem.node, problem.message) for p in after):
            return False
        if any((p.setting, p.node, p.severity) == (problem.setting, problem.node, "error") for p in after):
            return False
    return True


def test_the_message_and_the_remedy_of_a_wrong_size_hold_the_legal_sizes_of_these_gpus() -> None:
    (problem,) = check(subject(QWEN_72B, "", host(count=4), tp=3), only=[1])
    assert problem.values == (2, 4)
    assert "(2 or 4)" in problem.remedy


def test_suggested_sizes_satisfy_all_rules_about_the_model_and_not_only_the_one() -> None:
    (problem,) = check(subject(QWEN_72B | {"quantization_config": AWQ}, tp=3), only=[1])
    assert problem.values == (1,)  # 64 heads and 231 groups have no divisor in common
    for size in problem.values:
        assert check(subject(QWEN_72B | {"quantization_config": AWQ}, tp=size), only=[1, 2, 3, 4, 10, 12]) == []


def test_what_is_not_known_is_never_an_error() -> None:
    for tp in range(1, 65):
        for problem in check(
            Subject(model=subject({}).model, tensor_parallel_size=tp, nodes=tp % 3 + 1, backend="ray")
        ):
            assert problem.severity == "warning", problem


def test_a_nested_text_config_is_read_as_the_model() -> None:
    nested = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": LLAMA_8B}
    assert [problem.rule for problem in check(subject(nested, tp=3))] == [1, 2, 3]


@given(subjects())
def test_every_refusal_names_its_rule_and_a_number_or_name_that_must_change(any_subject: Subject) -> None:
    for problem in check(any_subject):
        assert problem.rule in RULES
        assert problem in check(any_subject, only=[problem.rule])
        assert problem.severity in ("error", "warning")
        assert problem.setting
        assert re.search(r"\d|--|'", problem.message + problem.remedy)


def padded(entries: int) -> int:
    return entries + (64 - entries % 64) % 64


def plainly(any_subject: Subject) -> dict[int, bool]:
    """Whether some rules are broken, worked out once more and plainly. Only for models whose config is known."""
    config, tp = any_subject.config, any_subject.tensor_parallel_size
    kv, asked = config["num_key_value_heads"], any_subject.args.number("max_model_len")
    return {
        1: config["num_attention_heads"] % tp != 0,
        2: "kv_lora_rank" not in config and (kv % tp if kv >= tp else tp % kv) != 0,
        4: padded(config["vocab_size"]) % tp != 0,
        5: any_subject.pipeline_parallel_size > config["num_hidden_layers"],
        18: asked is not None and asked > config["max_position_embeddings"],
        23: "enable_sleep_mode" in any_subject.args.values,
        25: any_subject.nodes > 1 and len({item.model_path for item in any_subject.hosts} - {None}) > 1,
    }


@given(subjects().filter(lambda item: "vocab_size" in item.config))
def test_a_rule_speaks_exactly_when_it_is_broken(any_subject: Subject) -> None:
    for number, broken in plainly(any_subject).items():
        assert bool(check(any_subject, only=[number])) is broken, number


@given(subjects())
def test_changing_what_is_named_to_a_suggested_value_takes_that_problem_away(any_subject: Subject) -> None:
    for problem in check(any_subject):
        assert cured(any_subject, problem), problem
