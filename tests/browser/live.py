"""A running panel for a browser: the real ASGI application on a loopback port, with worker and observer in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import uvicorn
from asgiref.sync import sync_to_async

from deployments import jobs, reports
from deployments import reconcile as reconciler
from deployments.models import Node
from deployments.remote import launcher
from deployments.remote.launcher import RemoteError
from deployments.targets import target_of

TICK_S = 0.25


@contextmanager
def served(port: int = 0) -> Iterator[str]:
    """The panel's address while it is up; on `port` again after a restart."""
    from controlplane.web import server_config

    # Before the server runs: whoever connects now waits in the queue instead of being refused.
    listening = socket.create_server(("127.0.0.1", port), backlog=128)
    server = uvicorn.Server(server_config())
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


@contextmanager
def working() -> Iterator[None]:
    """Jobs are advanced and deployments reconciled as the worker does it, and nodes are heard by an observer."""
    stop = threading.Event()
    thread = threading.Thread(target=_work, args=(stop,), daemon=True)
    thread.start()
    try:
        with observing():
            yield
    finally:
        stop.set()
        thread.join(10)


def _work(stop: threading.Event) -> None:
    from django.db import connection

    while not stop.wait(TICK_S):
        work()
    connection.close()


@contextmanager
def observing(interval_s: float = 0.5) -> Iterator[None]:
    """An observer in a thread with an event loop of its own."""
    running: SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = SimpleQueue()
    thread = threading.Thread(target=lambda: asyncio.run(_observe(interval_s, running)), daemon=True)
    thread.start()
    loop, task = running.get(timeout=30)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(20)
        assert not thread.is_alive(), "the observer does not end"


async def _observe(
    interval_s: float, running: SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]]
) -> None:
    from django.db import connections

    from monitoring.observer import Observer

    task = asyncio.create_task(Observer(interval_s).run())
    running.put((asyncio.get_running_loop(), task))
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await sync_to_async(connections.close_all)()


def tick() -> None:
    """One look at everything whose moment has come, for who has no observer."""
    for node in Node.objects.exclude(facts={}).select_related("key", "jump__key"):
        hear(node)
    work()


def work() -> None:
    """What the worker does."""
    for job in jobs.due():
        jobs.advance(job)
    for deployment in reconciler.due():
        reconciler.reconcile(deployment)


def hear(node: Node) -> None:
    """A report, as the observer's stream brings it."""
    try:
        reports.record(node, launcher().report(target_of(node)))
    except RemoteError as error:
        reports.record_failure(node, error, 15.0)
