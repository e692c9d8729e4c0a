"""Thousands of random lives, each of which must end as wished.

`CONVERGENCE_HISTORIES=20000` runs more of them; `CONVERGENCE_SEED=123` runs one again.
"""

from __future__ import annotations

import os

import pytest

from deployments.domain.states import PROCESS_EDGES

from .history import History
from .world import Violation

HISTORIES = int(os.environ.get("CONVERGENCE_HISTORIES", "3000"))
SEED = os.environ.get("CONVERGENCE_SEED")
ALL_EDGES = {(old, new) for old, targets in PROCESS_EDGES.items() for new in targets}


def live(seed: int) -> set:
    """Run one history; the edges it took."""
    history = History(seed)
    try:
        history.run()
    except Exception as error:
        kind = "rule broken" if isinstance(error, Violation) else type(error).__name__
        pytest.fail(f"{kind} in history {seed}: {error}\nrun it again with CONVERGENCE_SEED={seed}", pytrace=False)
    return history.panel.edges


@pytest.mark.timeout(0)
def test_every_history_ends_as_wished_and_every_edge_is_taken() -> None:
    if SEED:
        live(int(SEED))
        return
    taken: set = set()
    for seed in range(HISTORIES):
        taken |= live(seed)
    missing = sorted(f"{old} -> {new}" for old, new in ALL_EDGES - taken)
    assert not missing, f"no history took {', '.join(missing)}"
