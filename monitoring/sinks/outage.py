"""One line when something goes away, one when it is back, whatever happens in between."""

from __future__ import annotations

import logging


class Outage:
    """Tells of an outage once.

    Args:
        log: Where to.
        what: What is away, as the start of a sentence.
    """

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self.lasting = False

    def failed(self, error: BaseException) -> None:
        if not self.lasting:
            self.lasting = True
            self._log.warning("%s: %s", self._what, str(error) or type(error).__name__)

    def worked(self) -> None:
        if self.lasting:
            self.lasting = False
            self._log.info("%s: over", self._what)
