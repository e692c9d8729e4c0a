"""The multiplexer against a scripted peer at the other end of a socket pair."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from deployments.remote.channel import Channel, ChannelEnded, Link, open_channel
from deployments.remote.frames import FrameDecoder, encode
from deployments.remote.launcher import HelperFailed, RemoteError, TimedOut, Unreachable

WAIT_S = 5.0


class Peer:
    """The node's side: what a test makes of it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.nonce = ""
        self.decoder: FrameDecoder | None = None
        self.waiting: list[dict] = []

    async def greet(self) -> None:
        """Takes the boot line and the bundle, and answers hello."""
        line = await self.reader.readline()
        self.nonce = line.split(b"PHFAIL ")[1][:32].decode()
        self.writer.write(f"motd\n\nPHBOOT {self.nonce} 3.11.2\n".encode())
        length = int(await self.reader.readexactly(8), 16)
        await self.reader.readexactly(length)
        self.decoder = FrameDecoder(self.nonce)
        hello = await self.next()
        assert hello["verb"] == "hello"
        self.send({"id": hello["id"], "ok": True, "result": {"schema": 1}})

    async def next(self) -> dict:
        while not self.waiting:
            data = await asyncio.wait_for(self.reader.read(65536), WAIT_S)
            assert data, "the panel hung up"
            self.waiting += self.decoder.feed(data)
        return self.waiting.pop(0)

    def send(self, message: dict) -> None:
        self.writer.write(encode(self.nonce, message))


async def _pair() -> tuple[Link, Peer]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    peer = Peer(*await asyncio.open_connection(sock=theirs))

    async def close() -> None:
        writer.close()

    def translate(error: Exception) -> RemoteError:
        return Unreachable(str(error))

    return Link(reader, writer, None, close, translate), peer


@pytest.fixture
async def opened() -> AsyncIterator[tuple[Channel, Peer]]:
    link, peer = await _pair()
    greeting = asyncio.create_task(peer.greet())
    channel = await open_channel(link, node="node-a", installation="i")
    await greeting
    yield channel, peer
    await channel.close()
    peer.writer.close()


async def ask(channel: Channel, verb: str = "report", timeout: float = WAIT_S):
    return await channel.request(verb, {}, timeout)


async def test_replies_find_their_requests_in_any_order(opened):
    channel, peer = opened
    asked = [asyncio.create_task(ask(channel, f"verb-{place}")) for place in range(5)]
    requests = [await peer.next() for _ in asked]
    for request in reversed(requests):
        peer.send({"id": request["id"], "ok": True, "result": request["verb"]})
    assert await asyncio.gather(*asked) == [f"verb-{place}" for place in range(5)]


async def test_a_refusal_keeps_the_helpers_own_words(opened):
    channel, peer = opened
    task = asyncio.create_task(ask(channel))
    error = {"code": "PORT_IN_USE", "message": "Port 8000 is taken.", "remedy": "Free it.", "detail": {"port": 8000}}
    peer.send({"id": (await peer.next())["id"], "ok": False, "error": error})
    with pytest.raises(HelperFailed) as caught:
        await task
    assert {name: caught.value.as_dict()[name] for name in error} == error
    assert caught.value.node == "node-a"


async def test_a_late_reply_is_dropped_and_the_helper_told_to_give_up(opened):
    channel, peer = opened
    with pytest.raises(TimedOut, match="`slow`"):
        await ask(channel, "slow", timeout=0.05)
    slow, cancel = await peer.next(), await peer.next()
    assert (cancel["verb"], cancel["args"]) == ("cancel", {"id": slow["id"]})
    peer.send({"id": slow["id"], "ok": True, "result": "too late"})
    peer.send({"id": cancel["id"], "ok": True, "result": {"found": True}})
    task = asyncio.create_task(ask(channel))
    peer.send({"id": (await peer.next())["id"], "ok": True, "result": "in time"})
    assert await task == "in time"


async def test_a_reply_nobody_asked_for_ends_the_connection(opened):
    channel, peer = opened
    task = asyncio.create_task(ask(channel))
    await peer.next()
    peer.send({"id": 99, "ok": True, "result": None})
    with pytest.raises(HelperFailed) as caught:
        await task
    assert (caught.value.code, caught.value.node) == ("PROTOCOL", "node-a")
    with pytest.raises(ChannelEnded):
        await ask(channel)


@pytest.mark.parametrize("body", [{}, {"ok": 1}, {"ok": False}, {"ok": False, "error": "no"}, {"event": 3}])
async def test_a_reply_of_no_known_shape_ends_the_connection(opened, body):
    channel, peer = opened
    task = asyncio.create_task(ask(channel))
    peer.send({"id": (await peer.next())["id"], **body})
    with pytest.raises(HelperFailed) as caught:
        await task
    assert caught.value.code == "PROTOCOL"


async def test_everybody_who_waits_learns_that_the_connection_ended(opened):
    channel, peer = opened
    asked = [asyncio.create_task(ask(channel)) for _ in range(3)]
    for _ in asked:
        await peer.next()
    peer.writer.close()
    failures = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(failure, ChannelEnded) and failure.retryable for failure in failures)
    assert channel.ended is not None


async def test_a_stream_gives_events_until_its_reply(opened):
    channel, peer = opened

    async def collect() -> list[dict]:
        return [event async for event in channel.stream("watch", {}, depth=10)]

    task = asyncio.create_task(collect())
    number = (await peer.next())["id"]
    for place in range(3):
        peer.send({"id": number, "event": {"n": place}})
    peer.send({"id": number, "ok": True, "result": None})
    assert await task == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_a_slow_reader_loses_the_oldest_reports_and_blocks_nobody(opened):
    channel, peer = opened
    stream = channel.stream("watch", {}, depth=2)
    first = asyncio.create_task(anext(stream))
    number = (await peer.next())["id"]
    peer.send({"id": number, "event": {"n": 0}})
    assert await first == {"n": 0}
    for place in range(1, 500):
        peer.send({"id": number, "event": {"n": place, "padding": "x" * 1000}})
    task = asyncio.create_task(ask(channel))
    peer.send({"id": (await peer.next())["id"], "ok": True, "result": "not blocked"})
    assert await task == "not blocked"
    assert [(await anext(stream))["n"] for _ in range(2)] == [498, 499]
    await stream.aclose()


async def test_a_stream_that_is_left_is_cancelled(opened):
    channel, peer = opened
    async with contextlib.aclosing(channel.stream("watch", {})) as stream:
        task = asyncio.create_task(anext(stream))
        number = (await peer.next())["id"]
        peer.send({"id": number, "event": {}})
        await task
    assert (await peer.next())["args"] == {"id": number}


async def test_a_silent_stream_times_out(opened):
    channel, _ = opened
    with pytest.raises(TimedOut, match="sent nothing"):
        await anext(channel.stream("watch", {}, silence_s=0.05))


async def test_a_stream_ends_with_the_connection(opened):
    channel, peer = opened
    stream = channel.stream("watch", {})
    task = asyncio.create_task(anext(stream))
    await peer.next()
    peer.writer.close()
    with pytest.raises(ChannelEnded):
        await task


async def test_a_request_that_is_too_large_harms_only_itself(opened):
    channel, peer = opened
    with pytest.raises(HelperFailed, match="8 MiB"):
        await channel.request("start", {"argv": ["x" * 9_000_000]}, WAIT_S)
    assert (await peer.next())["verb"] == "cancel"
    assert channel.ended is None


async def test_a_closed_channel_refuses_at_once(opened):
    channel, _ = opened
    await channel.close()
    await channel.close()
    with pytest.raises(ChannelEnded, match="was closed"):
        await ask(channel)


async def test_bytes_after_the_greeting_that_are_no_frame_end_the_start():
    link, peer = await _pair()

    async def speak() -> None:
        nonce = (await peer.reader.readline()).split(b"PHFAIL ")[1][:32].decode()
        peer.writer.write(f"\nPHBOOT {nonce} 3.11.2\nTraceback".encode())

    speaking = asyncio.create_task(speak())
    with pytest.raises(HelperFailed) as caught:
        await open_channel(link, node="node-a", installation="i")
    await speaking
    assert caught.value.code == "PROTOCOL"
    peer.writer.close()


async def test_each_connection_has_a_nonce_of_its_own():
    nonces = set()
    for _ in range(3):
        link, peer = await _pair()
        greeting = asyncio.create_task(peer.greet())
        channel = await open_channel(link, node="node-a", installation="i")
        await greeting
        nonces.add(peer.nonce)
        await channel.close()
        peer.writer.close()
    assert len(nonces) == 3


async def test_a_lossless_stream_makes_the_node_wait_and_loses_nothing(opened):
    channel, peer = opened
    events = channel.stream("converse", {}, depth=2, lossless=True)
    first = asyncio.create_task(anext(events))
    number = (await peer.next())["id"]
    big = "x" * 65536
    sent = 0
    while sent < 1000:
        peer.send({"id": number, "event": {"n": sent, "text": big}})
        sent += 1
        try:
            await asyncio.wait_for(peer.writer.drain(), 0.2)
        except TimeoutError:
            break
    assert sent < 1000, "nothing ever held the node back"
    peer.send({"id": number, "ok": True, "result": {}})
    seen = [(await first)["n"], *[event["n"] async for event in events]]
    assert seen == list(range(sent))


async def test_a_lossless_reader_who_leaves_lets_the_others_go_on(opened):
    channel, peer = opened
    events = channel.stream("converse", {}, depth=1, lossless=True)
    first = asyncio.create_task(anext(events))
    number = (await peer.next())["id"]
    for place in range(8):
        peer.send({"id": number, "event": {"n": place}})
    assert (await first)["n"] == 0
    await events.aclose()
    assert (await peer.next())["verb"] == "cancel"
    task = asyncio.create_task(ask(channel))
    peer.send({"id": (await peer.next())["id"], "ok": True, "result": "heard"})
    assert await task == "heard"
