"""Long work for people to follow: one engine, one file per kind."""

from .engine import advance, due
from .shapes import job_kinds

__all__ = ["advance", "due", "job_kinds"]
