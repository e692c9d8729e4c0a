"""What can be wrong with a wish. Every error says what to do next and whether trying again can help."""

from __future__ import annotations

from typing import Any


class PilothouseError(Exception):
    """Base of all typed errors: a stable `code`, a message, a remedy, and where it happened.

    Args:
        message: What happened, in one sentence.
        remedy: What the reader should do next.
        field: The input field that caused it, when there is one.
        node: The name of the node concerned, when there is one.
        detail: JSON-able evidence.
    """

    code = "ERROR"
    retryable = False
    default_remedy = ""

    def __init__(
        self,
        message: str,
        *,
        remedy: str | None = None,
        field: str | None = None,
        node: str | None = None,
        detail: dict[str, Any] | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = self.default_remedy if remedy is None else remedy
        self.field = field
        self.node = node
        self.detail = detail or {}
        if code is not None:
            self.code = code

    def as_dict(self) -> dict[str, Any]:
        """The error as the API and the pages show it."""
        return {
            "code": self.code,
            "message": self.message,
            "remedy": self.remedy,
            "field": self.field,
            "node": self.node,
            "retryable": self.retryable,
            "detail": self.detail,
        }


class DomainError(PilothouseError):
    """A wish that cannot be granted as it stands."""

    code = "INVALID"


class InvalidInput(DomainError):
    code = "INVALID_INPUT"


class InvalidLayout(DomainError):
    code = "INVALID_LAYOUT"


class Unplaceable(DomainError):
    code = "UNPLACEABLE"
    retryable = True
    default_remedy = "Free accelerators or ports on a node, or choose a smaller layout."


class NotFound(DomainError):
    code = "NOT_FOUND"


class NotPermitted(DomainError):
    code = "NOT_PERMITTED"
    default_remedy = "Ask an admin for a role or token that may do this."


class Conflict(DomainError):
    code = "CONFLICT"
    retryable = True


class StaleGeneration(Conflict):
    """`If-Match` names another generation than the current one."""

    code = "STALE_GENERATION"
    retryable = False
    default_remedy = "Read the deployment again and repeat the change on what it is now."


class IllegalTransition(DomainError):
    code = "ILLEGAL_TRANSITION"
