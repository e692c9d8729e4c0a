"""The numbered rules of what vLLM can start, checked before anything is started.

`check(Subject.of(layout, model, ...))` gives every problem; each names its rule, the number that must change
(`setting`) and values of it that satisfy that rule. What is not known is never an error.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..plugins import Problem
from . import hardware, machines, parallel, quantized, serving, shape
from .arguments import Arguments
from .rule import Rule
from .subject import Host, Subject

_MODULES = (shape, machines, quantized, hardware, serving, parallel)
RULES: dict[int, Rule] = {
    rule.number: rule for rule in sorted((r for m in _MODULES for r in m.RULES), key=lambda rule: rule.number)
}

__all__ = ["RULES", "Arguments", "Host", "Rule", "Subject", "check"]


def check(subject: Subject, only: Collection[int] | None = None) -> list[Problem]:
    """All problems of a subject in the order of the rules.

    Args:
        only: Numbers of the rules to ask; None = all.
    """
    return [
        replace(problem, rule=number)
        for number, rule in RULES.items()
        if only is None or number in only
        for problem in rule.check(subject)
    ]
