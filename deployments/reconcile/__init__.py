"""The reconciler: lease, load, plan, act, record. The sole writer of replicas, processes and claims."""

from .loop import due, reconcile

__all__ = ["due", "reconcile"]
