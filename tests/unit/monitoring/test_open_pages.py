"""What happens, and whose page it concerns."""

from __future__ import annotations

from typing import Any

import pytest

from monitoring.domain.pages import LISTS, OpenPage, concerns

NODE, OTHER_NODE = OpenPage("node", 1), OpenPage("node", 2)
CHAT, OTHER_CHAT = OpenPage("deployment", 5), OpenPage("deployment", 6)
JOB, OTHER_JOB = OpenPage("job", "a"), OpenPage("job", "b")
PAGES = [*map(OpenPage, LISTS), NODE, OTHER_NODE, CHAT, OTHER_CHAT, JOB, OTHER_JOB]


def told(**ring: Any) -> set[str]:
    return {page.kind if page.id is None else f"{page.kind} {page.id}" for page in PAGES if concerns(page, ring)}


def test_a_process_concerns_its_deployment_and_its_node() -> None:
    ring = {"subject": "process", "deployment": 5, "node": 1, "job": None}
    assert told(**ring) == {"fleet", "all", "nodes", "node 1", "deployments", "deployment 5"}


def test_a_node_concerns_what_may_run_on_it_and_the_models_there() -> None:
    expected = {"fleet", "all", "nodes", "node 1", "models", "deployment 5", "deployment 6"}
    assert told(subject="node", node=1) == told(node=1) == expected


def test_a_job_concerns_nodes_and_models_whichever_they_are() -> None:
    expected = {"fleet", "all", "nodes", "node 1", "node 2", "models", "jobs", "job a"}
    assert told(subject="job", job="a") == told(job="a") == expected


def test_progress_of_a_deployment_concerns_it_alone() -> None:
    assert told(deployment=5) == {"fleet", "all", "deployments", "deployment 5"}


def test_many_things_at_once_concern_everybody() -> None:
    assert len(told(subject="", deployment=None, node=None, job=None)) == len(PAGES)


@pytest.mark.parametrize("subject", ["token", "user", "key"])
def test_who_may_sign_in_concerns_nobody(subject: str) -> None:
    assert told(subject=subject) == set()


def test_only_pages_with_figures_have_a_topic() -> None:
    topics = {page.topic for page in PAGES}
    assert topics == {"fleet", "node-1", "node-2", "deployment-5", "deployment-6", None}
