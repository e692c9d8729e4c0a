"""Typed reading of a settings mapping: every wrong value is collected, named, and comes with its remedy.

A value `X` may also be given as `X_FILE`, the path of a file that holds it (for secrets). Nothing here looks at the
process's environment: `settings.py` passes it in, and tests pass a dict.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
TRUE, FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong setting: its name, what is wrong with it, and what to do."""

    name: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message} {self.remedy}"


class WrongSettings(Exception):
    """Raised once, with all problems, so that an operator repairs them in one go."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))


class _Refused(Exception):
    """A parser's word that the text is not what the setting needs; the message says what it needs."""


@dataclass
class Reader:
    """Reads typed values out of `source`; what is wrong lands in `problems` and the default is returned instead."""

    source: Mapping[str, str]
    problems: list[Problem] = field(default_factory=list)

    def text(self, name: str, default: str = "") -> str:
        return self._given(name) or default

    def flag(self, name: str, default: bool) -> bool:
        return self._parsed(name, default, _bool)

    def number(self, name: str, default: int, low: int, high: int) -> int:
        return self._parsed(name, default, lambda text: _int(text, low, high))

    def words(self, name: str, default: tuple[str, ...] = ()) -> list[str]:
        """A comma-separated list; blanks are dropped."""
        text = self._given(name)
        return [part.strip() for part in text.split(",") if part.strip()] if text else [*default]

    def one_of(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        return self._parsed(name, default, lambda text: _one_of(text, allowed))

    def url(self, name: str, default: str, schemes: tuple[str, ...]) -> str:
        return self._parsed(name, default, lambda text: _url(text, schemes))

    def path(self, name: str, default: Path) -> Path:
        return self._parsed(name, default, _path)

    def refuse(self, name: str, message: str, remedy: str) -> None:
        self.problems.append(Problem(name, message, remedy))

    def is_refused(self, name: str) -> bool:
        return any(problem.name in (name, f"{name}_FILE") for problem in self.problems)

    def finish(self) -> None:
        """Raise `WrongSettings` if anything was refused."""
        if self.problems:
            raise WrongSettings(self.problems)

    def _parsed(self, name: str, default: T, parse: Callable[[str], T]) -> T:
        text = self._given(name)
        if not text:
            return default
        try:
            return parse(text)
        except _Refused as refused:
            self.refuse(name, f"{_shown(text)} is not usable.", str(refused))
            return default

    def _given(self, name: str) -> str:
        direct, file = self.source.get(name, "").strip(), self.source.get(f"{name}_FILE", "").strip()
        if direct and file:
            self.refuse(name, f"both {name} and {name}_FILE are set.", "Keep one of them.")
        if direct or not file:
            return direct
        try:
            text = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            self.refuse(f"{name}_FILE", f"cannot be read: {error}.", "Give the path of a readable text file.")
            return ""
        if not text:
            self.refuse(f"{name}_FILE", f"{file} is empty.", "Put the value into it.")
        return text


def _shown(text: str) -> str:
    """The refused text for the operator, without a password that a URL may hold."""
    head, at, tail = text.rpartition("@")
    hidden = f"***@{tail}" if at and "://" in head else text
    return repr(hidden if len(hidden) <= 80 else hidden[:77] + "...")


def _bool(text: str) -> bool:
    if text.lower() in TRUE | FALSE:
        return text.lower() in TRUE
    raise _Refused("Use 1 or 0 (true/false, yes/no, on/off).")


def _int(text: str, low: int, high: int) -> int:
    wanted = f"Use a whole number from {low} to {high}."
    try:
        number = int(text)
    except ValueError as error:
        raise _Refused(wanted) from error
    if not low <= number <= high:
        raise _Refused(wanted)
    return number


def _one_of(text: str, allowed: tuple[str, ...]) -> str:
    if text not in allowed:
        raise _Refused(f"Use one of: {', '.join(allowed)}.")
    return text


def _url(text: str, schemes: tuple[str, ...]) -> str:
    try:
        parts = urlsplit(text)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError as error:
        raise _Refused(f"It is no URL: {error}.") from error
    if parts.scheme not in schemes or not port_is_fine:
        raise _Refused(f"Use a URL that begins with {' or '.join(scheme + '://' for scheme in schemes)}.")
    return text


def _path(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise _Refused("Use an absolute path.")
    return path


@contextmanager
def or_exit() -> Iterator[None]:
    """Entry points wrap the import of settings with this: problems go to stderr, one a line, and the exit code is 2."""
    try:
        yield
    except WrongSettings as wrong:
        for problem in wrong.problems:
            print(f"pilothouse: wrong setting {problem}", file=sys.stderr)  # noqa: T201 - logging is not set up yet
        raise SystemExit(2) from None
