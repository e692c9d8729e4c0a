"""A worker that is killed in the middle of its work, at the launcher's seam."""

from __future__ import annotations

from typing import Any


class Killed(BaseException):
    """The worker's process is gone from here on."""


class DyingCaller:
    """A launcher whose caller dies once, before or after one verb's real call."""

    def __init__(self, real: Any, verb: str, after: bool) -> None:
        self._real = real
        self._verb = verb
        self._after = after
        self.armed = True

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        if name != self._verb:
            return real

        def call(*args: Any) -> Any:
            dies, self.armed = self.armed, False
            if dies and not self._after:
                raise Killed
            answer = real(*args)
            if dies:
                raise Killed
            return answer

        return call
