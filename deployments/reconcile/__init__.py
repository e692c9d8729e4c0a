"""The reconciler: lease, load, plan, act, record. The sole writer of replicas, processes and claims."""

from .leftovers import clear_away
from .loop import due, reconcile
from .orphans import sweep

__all__ = ["clear_away", "due", "reconcile", "sweep"]
