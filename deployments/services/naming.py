"""What may be a name, an address, a path, a port."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from deployments.domain.errors import InvalidInput, InvalidLayout, NotPermitted, PilothouseError, Unplaceable
from deployments.domain.options import check_env
from deployments.domain.plugins import Problem

NAME = re.compile(r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$")
HOST = re.compile(
    r"^(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9])?)*\.?$"
)
USER = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}\$?$")
# Words that are addresses of their own below a list, so no row can be called so.
TAKEN = frozenset(
    {"many", "fingerprints", "probe", "scan", "kinds", "preview", "generate", "paste", "folder", "import", "new", "add"}
)
INTERFACE = re.compile(r"^[A-Za-z0-9_.:@-]{1,15}$")


def name(text: str, field: str = "name") -> str:
    """A name for a row: lower-case letters, digits, dots, dashes, underscores."""
    if not NAME.fullmatch(text):
        raise InvalidInput(
            f"{text!r} cannot be a name.",
            remedy="Use 1 to 63 lower-case letters, digits, '.', '_', '-'; begin and end with a letter or digit.",
            field=field,
        )
    if text in TAKEN:
        raise InvalidInput(f"{text!r} is a word of the panel's own.", remedy="Choose another name.", field=field)
    return text


def known(text: str) -> str:
    """A name that is looked for: '' instead of one that no row can have (PostgreSQL takes no NUL)."""
    return "" if "\x00" in text else text


def host(text: str, field: str = "address") -> str:
    """A host name or an IP address."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        if HOST.fullmatch(text):
            return text
    raise InvalidInput(f"{text!r} is neither a host name nor an IP address.", field=field)


def port(number: int, field: str = "port") -> int:
    """A TCP port."""
    if not 1 <= number <= 65535:
        raise InvalidInput(f"{number} is not a port.", remedy="Give a number from 1 to 65535.", field=field)
    return number


def user(text: str, field: str = "user") -> str:
    """A login name."""
    if not USER.fullmatch(text):
        raise InvalidInput(f"{text!r} is not a user name.", field=field)
    return text


def path(text: str, field: str) -> str:
    """An absolute path, any characters but NUL; '' stays ''."""
    if text and (not text.startswith("/") or "\x00" in text or len(text) > 500):
        raise InvalidInput(f"{text!r} is not an absolute path.", remedy="Begin with '/'.", field=field)
    return text.rstrip("/") or text


def interface(text: str, field: str = "interface") -> str:
    """A network interface's name; '' stays ''."""
    if text and not INTERFACE.fullmatch(text):
        raise InvalidInput(f"{text!r} is not the name of a network interface.", field=field)
    return text


def env(values: Mapping[str, str], *, may_run_code: bool) -> dict[str, str]:
    """Environment overrides.

    Raises:
        InvalidInput, NotPermitted: The first problem, with its remedy.
    """
    for problem in check_env(values, may_run_code=may_run_code):
        raise problem_error(problem)
    return dict(values)


def problem_error(problem: Problem) -> PilothouseError:
    """A Problem as the error that refuses a request."""
    kinds = {"NOT_PERMITTED": NotPermitted, "INVALID_LAYOUT": InvalidLayout, "UNPLACEABLE": Unplaceable}
    kind = kinds.get(problem.code, InvalidInput)
    return kind(problem.message, remedy=problem.remedy, field=problem.field, node=problem.node, code=problem.code)
