"""Waiting for a state, and following what happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse
from django.test import AsyncClient

from deployments.domain.states import Wish
from deployments.models import ApiToken, Deployment, Transition
from deployments.remote.stub import StubLauncher
from deployments.services import access, deployments
from deployments.services.access import Actor
from deployments.services.deployments import DeploymentInput

from ..panel import PASSWORD, found_model, person, ready_node, settle, single_layout
from .client import token_for

pytestmark = pytest.mark.django_db(transaction=True)
later = sync_to_async


def served(admin: Actor) -> Deployment:
    ready_node(admin)
    found_model(admin)
    single_layout(admin)
    return deployments.apply(admin, DeploymentInput(name="chat", model="qwen", layout="one"))


async def get(token: str, path: str, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await AsyncClient().get(f"/api/v1{path}", headers={"Authorization": f"Bearer {token}", **named})


class Stream:
    """The events of a response, one at a time."""

    def __init__(self, response: StreamingHttpResponse) -> None:
        assert response.status_code == 200
        self.response = response
        self.parts: AsyncIterator[bytes] = aiter(response)

    async def next(self) -> dict[str, Any] | None:
        """The next event; None at the end of the stream."""
        async with asyncio.timeout(30):
            async for part in self.parts:
                lines = dict(line.split(": ", 1) for line in part.decode().strip().splitlines())
                if "data" in lines:
                    return {"last_id": int(lines["id"]), **json.loads(lines["data"])}
        return None

    async def close(self) -> None:
        await self.parts.aclose()  # type: ignore[attr-defined]
        await later(self.response.close)()


async def test_an_answer_comes_when_the_state_is_reached(stub: StubLauncher, admin: Actor) -> None:
    deployment = await later(served)(admin)
    token = await later(token_for)(admin)
    waiting = asyncio.create_task(get(token, "/deployments/chat?wait_for=ready,FAILED&timeout=60"))
    await asyncio.sleep(0)
    assert not waiting.done()
    await later(settle)(deployment)
    answer = (await asyncio.wait_for(waiting, 30)).json()
    assert (answer["state"], answer["reached"]) == ("READY", True)


async def test_at_the_timeout_the_answer_says_how_it_is(stub: StubLauncher, admin: Actor) -> None:
    await later(served)(admin)
    token = await later(token_for)(admin)
    answer = await get(token, "/deployments/chat?wait_for=READY&timeout=0.2")
    assert (answer.status_code, answer.json()["state"], answer.json()["reached"]) == (200, "PENDING", False)
    assert answer.headers["ETag"] == '"1"'
    assert (await get(token, "/deployments/chat")).json()["reached"] is None


async def test_what_cannot_be_waited_for_is_refused(stub: StubLauncher, admin: Actor) -> None:
    await later(served)(admin)
    token = await later(token_for)(admin)
    for words in ("wait_for=NICE", "wait_for=", "wait_for=READY&timeout=301", "wait_for=READY&timeout=-1"):
        assert (await get(token, f"/deployments/chat?{words}")).status_code == 422
    assert (await get(token, "/deployments/none?wait_for=READY")).status_code == 404


async def test_a_wait_ends_with_its_token(stub: StubLauncher, admin: Actor) -> None:
    await later(served)(admin)
    token = await later(token_for)(admin)
    waiting = asyncio.create_task(get(token, "/deployments/chat?wait_for=READY&timeout=60"))
    await asyncio.sleep(0)
    await later(access.revoke_token)(admin, (await later(ApiToken.objects.get)()).pk)
    answer = await asyncio.wait_for(waiting, 30)
    assert answer.status_code in (401, 403)


async def test_jobs_can_be_waited_for(stub: StubLauncher, admin: Actor) -> None:
    await later(served)(admin)
    token = await later(token_for)(admin)
    job = (await get(token, "/jobs")).json()["items"][0]
    answer = (await get(token, f"/jobs/{job['id']}?wait_for=SUCCEEDED")).json()
    assert (answer["state"], answer["reached"]) == ("SUCCEEDED", True)


async def test_changes_are_streamed_as_they_happen(stub: StubLauncher, admin: Actor) -> None:
    deployment = await later(served)(admin)
    token = await later(token_for)(admin)
    stream = Stream(await get(token, "/events?deployment=chat"))
    assert stream.response.headers["Content-Type"] == "text/event-stream"
    try:
        reading = asyncio.create_task(stream.next())
        await later(settle)(deployment)
        seen = [await reading]
        while (seen[-1] or {}).get("new") != "READY" or (seen[-1] or {}).get("subject") != "deployment":
            seen.append(await stream.next())
    finally:
        await stream.close()
    ids = [event["id"] for event in seen if event]
    assert ids == sorted(ids)
    assert all(event and event["deployment"] == "chat" and event["last_id"] == event["id"] for event in seen)


async def test_a_stream_goes_on_after_the_last_event_seen(stub: StubLauncher, admin: Actor) -> None:
    deployment = await later(served)(admin)
    await later(settle)(deployment)
    token = await later(token_for)(admin)
    rows = await later(lambda: list(Transition.objects.filter(deployment=deployment).order_by("pk")))()
    stream = Stream(await get(token, "/events?deployment=chat", Last_Event_ID=str(rows[1].pk)))
    try:
        seen = [await stream.next() for _ in rows[2:]]
    finally:
        await stream.close()
    assert [event["id"] for event in seen if event] == [row.pk for row in rows[2:]]


async def test_a_row_that_was_committed_late_is_not_lost(stub: StubLauncher, admin: Actor) -> None:
    token = await later(token_for)(admin)
    first = await later(lambda: Transition.objects.order_by("-pk").first())()
    new = {"subject": "node", "subject_id": "1", "new": "READY", "reason": "APPLIED", "actor": "test"}
    stream = Stream(await get(token, "/events", Last_Event_ID=str(first.pk)))
    try:
        await later(Transition.objects.create)(pk=first.pk + 5, **new)
        assert (await stream.next() or {})["id"] == first.pk + 5
        await later(Transition.objects.create)(pk=first.pk + 3, **new)
        assert (await stream.next() or {})["id"] == first.pk + 3
    finally:
        await stream.close()


async def test_a_stream_ends_when_its_token_is_revoked(stub: StubLauncher, admin: Actor) -> None:
    token = await later(token_for)(admin)
    stream = Stream(await get(token, "/events"))
    try:
        await later(access.revoke_token)(admin, (await later(ApiToken.objects.get)()).pk)
        while await stream.next() is not None:
            pass
    finally:
        await stream.close()


async def test_a_stream_ends_when_its_user_signs_out(stub: StubLauncher) -> None:
    await later(person)("ada", "viewer")
    client = AsyncClient()
    await client.alogin(username="ada", password=PASSWORD)
    stream = Stream(await client.get("/api/v1/events"))
    try:
        await client.alogout()
        assert await stream.next() is None
    finally:
        await stream.close()


async def test_a_stream_of_nothing_says_that_it_lives(stub: StubLauncher, admin: Actor) -> None:
    from deployments.api.streaming import Follower

    follower = Follower(lambda: admin, admin, 0, None, heartbeat_s=0.0)
    parts = follower.stream(lambda row: "")
    assert await anext(parts) == "retry: 2000\n\n"
    while (part := await anext(parts)) == "":
        pass
    assert part.startswith(":")
    await parts.aclose()  # type: ignore[attr-defined]


async def test_a_bad_last_event_id_and_an_unknown_deployment_are_refused(stub: StubLauncher, admin: Actor) -> None:
    token = await later(token_for)(admin)
    assert (await get(token, "/events", Last_Event_ID="x")).status_code == 422
    assert (await get(token, "/events?deployment=none")).status_code == 404


async def test_stopping_is_seen_by_a_waiter(stub: StubLauncher, admin: Actor) -> None:
    deployment = await later(served)(admin)
    await later(settle)(deployment)
    token = await later(token_for)(admin)
    await later(deployments.set_wish)(admin, "chat", Wish.STOPPED)
    waiting = asyncio.create_task(get(token, "/deployments/chat?wait_for=STOPPED&timeout=60"))
    await later(settle)(deployment)
    assert (await asyncio.wait_for(waiting, 30)).json()["reached"] is True
