"""The reconciler: lease, load, plan, act, record. The sole writer of replicas, processes and claims."""

from .loop import due, reconcile
from .orphans import sweep

__all__ = ["due", "reconcile", "sweep"]
