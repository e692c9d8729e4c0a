"""For each rule: subjects that break it, with what must be said of them.

A case is (subject, severity, setting, words of the message); the words hold the number that must change.
"""

from __future__ import annotations

from .broken_from_13 import FROM_13
from .broken_to_12 import TO_12, Broken

__all__ = ["ALL_BROKEN", "BROKEN", "Broken"]
BROKEN = TO_12 | FROM_13
ALL_BROKEN = [(number, case) for number, cases in BROKEN.items() for case in cases]
