"""A line to the broker that can be cut and mended."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class Line:
    """Forwards a loopback port to the broker that a redis-py address names; `cut` drops what is connected.

    While it is cut, whoever connects is hung up on.
    """

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._whole = threading.Event()
        self._whole.set()
        self._ends: list[socket.socket] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"redis://127.0.0.1:{self._door.getsockname()[1]}/0"

    def cut(self) -> None:
        self._whole.clear()
        self._drop()

    def mend(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self.cut()
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self._thread.join(5)

    def _drop(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._ends.clear()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _address = self._door.accept()
                if not self._whole.is_set():
                    near.close()
                    continue
                far = self._far()
                self._ends += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_forward, args=(source, sink), daemon=True).start()

    def _far(self) -> socket.socket:
        parts = urlsplit(self._broker)
        if parts.scheme != "unix":
            return socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6379))
        far = socket.socket(socket.AF_UNIX)
        far.connect(parts.path)
        return far


def _forward(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
