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
        self.remedy = remedy or self.default_remedy
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
    default_remedy = "Correct the value and send it again."


class InvalidLayout(DomainError):
    code = "INVALID_LAYOUT"
    default_remedy = "Choose other sizes or another layout."


class Unplaceable(DomainError):
    code = "UNPLACEABLE"
    retryable = True
    default_remedy = "Free accelerators or ports on a node, or choose a smaller layout."


class NotFound(DomainError):
    code = "NOT_FOUND"
    default_remedy = "Look at the list of what there is; it may have been removed."


class NotPermitted(DomainError):
    code = "NOT_PERMITTED"
    default_remedy = "Ask an admin for a role or token that may do this."


class Conflict(DomainError):
    code = "CONFLICT"
    retryable = True
    default_remedy = "Look at what it is now and decide again."


class Taken(Conflict):
    """A name that somebody has; the same request can hardly succeed later."""

    retryable = False
    default_remedy = "Choose another name."


class StaleGeneration(Conflict):
    """`If-Match` names another generation than the current one."""

    code = "STALE_GENERATION"
    retryable = False
    default_remedy = "Read the deployment again and repeat the change on what it is now."


class IllegalTransition(DomainError):
    code = "ILLEGAL_TRANSITION"
