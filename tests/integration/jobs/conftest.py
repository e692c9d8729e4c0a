"""Jobs on simulated machines, and on this one through the real helper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from deployments.models import Node


@pytest.fixture
def here(db: None, tmp_path: Path) -> Iterator[Node]:
    """This machine, probed through the real helper."""
    from ..local_node import node_row, probe, real_launcher

    with real_launcher(tmp_path):
        node = node_row(tmp_path)
        probe(node)
        yield node
