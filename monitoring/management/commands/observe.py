"""`manage.py observe`: watch the nodes until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from typing import Any

import uvloop
from django.core.management.base import BaseCommand

from monitoring.observer import Observer


class Command(BaseCommand):
    help = "Watches all nodes and writes down what they say, until SIGTERM or Ctrl-C."

    def handle(self, *args: Any, **options: Any) -> None:
        # Each report is thousands of small objects without cycles: the collector would walk everything that was ever
        # imported over and over, and find nothing.
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 20, 20)
        # asyncio's own loop takes a fifth more CPU for the same streams.
        uvloop.run(_observe())


async def _observe() -> None:
    task = asyncio.ensure_future(Observer().run())
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
