"""The pump: one connection and one stream per node; what nodes say is written down and changes ring the reconciler.

Nodes are shared out by leases, so that several observers may run and a dead one's nodes are taken over. Nothing is
decided here: if no observer runs, the reconciler asks the nodes itself.
"""

from .pump import Observer

__all__ = ["Observer"]
