"""The web process: uvicorn around our ASGI application, on a socket that it opens or was handed."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import struct
from typing import Any

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from controlplane.env import or_exit

log = logging.getLogger("controlplane.websocket")

# A browser that takes nothing of what it is sent for so long is cut off (s).
TAKES_NOTHING_S = 10.0


class Websocket(WebSocketsSansIOProtocol):
    """A socket that does not wait for a peer which does not read: neither to send, nor to say goodbye."""

    _cut: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Under a name of its own, whose level is set so that pages which come and go leave no lines.
        self.logger = self.conn.logger = log

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # Whatever is left over counts as not taken, so that even a goodbye has an end.
        transport.set_write_buffer_limits(high=0)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._cut = self.loop.call_later(TAKES_NOTHING_S, self._cut_off)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._forget_cut()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget_cut()

    def _cut_off(self) -> None:
        # Without lingering: what the system holds for it is given up too.
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _forget_cut(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m controlplane.web", description=__doc__)
    parser.add_argument("--fd", type=int, help="an open listening socket; without it BIND and PORT are used")
    handed = parser.parse_args().fd
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    with or_exit():
        from controlplane import settings
    config = server_config(
        host=settings.BIND,
        port=settings.PORT,
        proxy_headers=bool(settings.TRUSTED_PROXIES),
        forwarded_allow_ips=settings.TRUSTED_PROXIES,
    )
    uvicorn.Server(config).run(sockets=None if handed is None else [socket.socket(fileno=handed)])


def server_config(**more: Any) -> uvicorn.Config:
    """How uvicorn serves the panel, wherever it listens."""
    return uvicorn.Config(
        "controlplane.asgi:application",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ws=Websocket,
        ws_max_size=4 * 1024,
        # Everybody is sent the same; packing it for each browser would cost more than it saves on a local network.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=3,
        **more,
    )


if __name__ == "__main__":
    main()
