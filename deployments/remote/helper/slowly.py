"""Values that change slowly, and values whose look-up may take long, or for ever."""

import threading
import time

# Looked for again after so long; a look that takes longer than the second hides the value; older than the third it is
# not true any more (s).
AGAIN_S, HANGS_S, OLD_S = 10.0, 2.0, 120.0


class Sometimes:
    """What `look` gives, in the thread that asks, looked for again only every few seconds."""

    def __init__(self, look, clock=time.monotonic):
        self._look = look
        self._clock = clock
        self._value = self._found_at = None

    def value(self):
        now = self._clock()
        if self._found_at is None or now - self._found_at >= AGAIN_S:
            self._value, self._found_at = self._look(), now
        return self._value


class Slowly:
    """What `look` gives, found in a thread of its own and never waited for: None until it is there, and while it hangs.

    There is at most one look at a time, so a file server that is gone costs one thread.
    """

    def __init__(self, look, clock=time.monotonic):
        self._look = look
        self._clock = clock
        self._value = None
        self._found_at = self._asked_at = None
        self._looking = False

    def value(self):
        now = self._clock()
        if not self._looking and (self._asked_at is None or now - self._asked_at >= AGAIN_S):
            self._looking, self._asked_at = True, now
            threading.Thread(target=self._run, name="slowly", daemon=True).start()
        hangs = self._looking and now - self._asked_at > HANGS_S
        if hangs or self._found_at is None or now - self._found_at > OLD_S:
            return None
        return self._value

    def _run(self):
        try:
            self._value = self._look()
        except Exception:
            self._value = None
        self._found_at = self._clock()
        self._looking = False
