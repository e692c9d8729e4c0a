"""Open pages: what each is about, which figures it shows, and what happens that concerns it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LISTS = ("fleet", "nodes", "deployments", "models", "jobs", "all")
OBJECTS = ("node", "deployment", "job")
# Who may sign in with what is shown on pages without a socket, and is nobody else's business.
UNSHOWN = ("token", "user", "key")


@dataclass(frozen=True, slots=True)
class OpenPage:
    """A page that somebody looks at.

    Attributes:
        kind: One of LISTS or OBJECTS.
        id: Of the object that the page is about; None for a list.
    """

    kind: str
    id: int | str | None = None

    @property
    def topic(self) -> str | None:
        """The name of the figures that it shows: `fleet`, `node-7`, `deployment-3`; None when it shows none."""
        if self.kind in ("node", "deployment"):
            return f"{self.kind}-{self.id}"
        return "fleet" if self.kind == "fleet" else None


def concerns(page: OpenPage, ring: Mapping[str, Any]) -> bool:
    """Whether what happened may have changed what the page shows. Too often is cheap, too seldom is not.

    Args:
        ring: `subject`, and the ids of the `deployment`, `node` and `job` that it was about (None: about none).
            Where all is missing, anything may have happened.
    """
    subject = ring.get("subject") or ""
    about = {kind: ring.get(kind) for kind in OBJECTS if ring.get(kind) is not None}
    if subject in UNSHOWN:
        return False
    if page.kind in ("fleet", "all") or not (subject or about):
        return True
    return _concerns(page, subject or next(iter(about)), about)


def _concerns(page: OpenPage, subject: str, about: Mapping[str, Any]) -> bool:
    match page.kind:
        case "nodes":
            return "node" in about or subject in ("node", "job")
        case "node":
            # Jobs change what is known of nodes, and do not say of which.
            return about.get("node") == page.id or subject == "job"
        case "deployments":
            return "deployment" in about
        case "deployment":
            # How its machines fare is said on it too.
            return about.get("deployment") == page.id or subject == "node"
        case "models":
            return subject in ("model", "job", "node")
        case "jobs":
            return "job" in about
    return page.kind == "job" and about.get("job") == page.id
