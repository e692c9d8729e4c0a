"""A running panel for a browser: the real ASGI application on a loopback port, with worker and observer in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from deployments import jobs, reports
from deployments import reconcile as reconciler
from deployments.models import Node
from deployments.remote import launcher
from deployments.remote.launcher import RemoteError
from deployments.targets import target_of

TICK_S = 0.25


@contextmanager
def served() -> Iterator[str]:
    """The panel's address while it is up."""
    from controlplane.web import server_config

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    # Before the server runs: whoever connects now waits in the queue instead of being refused.
    listening.listen(128)
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
    """Jobs are advanced, deployments reconciled and nodes heard, as worker and observer would do it."""
    stop = threading.Event()
    thread = threading.Thread(target=_work, args=(stop,), daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join(10)


def _work(stop: threading.Event) -> None:
    from django.db import connection

    while not stop.wait(TICK_S):
        tick()
    connection.close()


def tick() -> None:
    """One look at everything whose moment has come."""
    for job in jobs.due():
        jobs.advance(job)
    for node in Node.objects.exclude(facts={}).select_related("key", "jump__key"):
        hear(node)
    for deployment in reconciler.due():
        reconciler.reconcile(deployment)


def hear(node: Node) -> None:
    """A report, as the observer's stream brings it."""
    try:
        reports.record(node, launcher().report(target_of(node)))
    except RemoteError as error:
        reports.record_failure(node, error, 15.0)
