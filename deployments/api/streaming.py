"""Transitions as they happen, for one listener."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

from asgiref.sync import sync_to_async

from deployments.api.listening import Bell, give_back_connection
from deployments.models import Transition
from deployments.services import events
from deployments.services.access import Actor

HEARTBEAT_S = 15.0
PAUSE_S = 2.0
# Ids are given out before they are committed, so a smaller one may appear after a larger one, this much later (s).
LATE_S = 10.0


class Follower:
    """Reads what happened since `last_id` for one listener, for as long as that listener may.

    Args:
        reauthenticate: Who asks, by now; None ends the stream.
    """

    def __init__(
        self,
        reauthenticate: Callable[[], Actor | None],
        actor: Actor,
        last_id: int,
        deployment: str | None,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._reauthenticate = reauthenticate
        self._actor: Actor | None = actor
        self._floor = last_id
        self._sent: dict[int, float] = {}
        self._deployment = deployment
        self._heartbeat_s = heartbeat_s

    async def stream(self, frame: Callable[[Transition], str]) -> AsyncIterator[str]:
        """One `frame` per transition, each once, and a comment when nothing was said for `heartbeat_s`."""
        yield "retry: 2000\n\n"
        said_at = time.monotonic()
        read = sync_to_async(self._read)
        async with Bell() as bell:
            while (rows := await read()) is not None:
                for row in rows:
                    yield frame(row)
                if rows:
                    said_at = time.monotonic()
                elif time.monotonic() - said_at >= self._heartbeat_s:
                    yield ": still here\n\n"
                    said_at = time.monotonic()
                if len(rows) < events.BATCH:
                    await bell.wait(PAUSE_S)

    def _read(self) -> list[Transition] | None:
        """The next rows; None when the listener may listen no more."""
        try:
            self._actor = self._reauthenticate()
            if self._actor is None:
                return None
            self._forget_old()
            rows = events.since(self._actor, self._floor, deployment=self._deployment, without=self._sent)
            now = time.monotonic()
            self._sent.update({row.pk: now for row in rows})
            return rows
        finally:
            give_back_connection()

    def _forget_old(self) -> None:
        """Raise the floor to the newest id below which nothing can appear any more."""
        settled = [pk for pk, at in self._sent.items() if time.monotonic() - at > LATE_S]
        if settled:
            self._floor = max(self._floor, *settled)
            self._sent = {pk: at for pk, at in self._sent.items() if pk > self._floor}
