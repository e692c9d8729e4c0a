"""Use cases: one function for each thing people and programs may do, the Actor first where it changes anything."""

from __future__ import annotations

from .nodes import ensure_local_node

__all__ = ["ensure_local_node"]
