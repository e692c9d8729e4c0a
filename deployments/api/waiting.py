"""Answers that come once a row is in a wanted state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from asgiref.sync import sync_to_async
from ninja import Query

from deployments.api.asking import Asking
from deployments.api.listening import Bell, give_back_connection
from deployments.domain.errors import InvalidInput, NotPermitted

# Looks without a ring (s): the bell wakes us, this is for rings that got lost.
PAUSE_S = 1.0
MAX_WAIT_S = 300.0
WaitFor = Annotated[str | None, Query(None, description="states, separated by commas")]
WaitTimeout = Annotated[float, Query(60.0, ge=0, le=MAX_WAIT_S, description="seconds to wait at most")]
Answer = TypeVar("Answer", bound=Any)


def states_of(text: str | None, kind: type[StrEnum]) -> frozenset[str]:
    """The states named in `text`; empty when nothing is to be waited for.

    Raises:
        InvalidInput: A word is no state.
    """
    if text is None:
        return frozenset()
    names = [word.strip().upper() for word in text.split(",")]
    for name in names:
        if name not in kind.__members__:
            raise InvalidInput(
                f"{name!r} is not a state.", remedy=f"Choose among {', '.join(kind.__members__)}.", field="wait_for"
            )
    return frozenset(names)


async def wait_until(
    request: Asking, render: Callable[[bool | None], Answer], states: frozenset[str], timeout: float
) -> Answer:
    """`render(reached)` once its `state` is among `states`, else as it is after `timeout` seconds.

    Raises:
        NotPermitted: The caller's token or session ended meanwhile.
    """
    look = sync_to_async(_looking(render))
    if not states:
        return await look(None)
    ends = asyncio.get_running_loop().time() + timeout
    async with Bell() as bell:
        while True:
            answer = await look(True)
            left = ends - asyncio.get_running_loop().time()
            if answer.state in states:
                return answer
            if left <= 0:
                return answer.model_copy(update={"reached": False})
            await bell.wait(min(PAUSE_S, left))
            if await sync_to_async(_looking(lambda _: request.reauthenticate()))(None) is None:
                raise NotPermitted("The token or session ended while this request was waiting.")


def _looking(work: Callable[[bool | None], Answer]) -> Callable[[bool | None], Answer]:
    """`work`, giving its database connection back."""

    def look(reached: bool | None) -> Answer:
        try:
            return work(reached)
        finally:
            give_back_connection()

    return look
