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
            Without a subject it tells of the node alone, or, without that too, of anything.
    """
    subject, node = ring.get("subject") or "", ring.get("node")
    if subject in UNSHOWN:
        return False
    if page.kind in ("fleet", "all") or (not subject and node is None):
        return True
    return _concerns(page, subject, node, ring)


def _concerns(page: OpenPage, subject: str, node: int | None, ring: Mapping[str, Any]) -> bool:
    deployment, job = ring.get("deployment"), ring.get("job")
    match page.kind:
        case "nodes":
            return node is not None or subject in ("node", "job")
        case "node":
            return node == page.id or subject == "job" or (subject == "node" and node is None)
        case "deployments":
            return deployment is not None
        case "deployment":
            # How its machines fare is said on it too.
            return deployment == page.id or (deployment is None and node is not None)
        case "models":
            return subject in ("model", "job", "node")
        case "jobs":
            return job is not None
    return page.kind == "job" and job == page.id
