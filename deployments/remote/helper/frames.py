"""Frames on a pair of pipes: a header with the connection's nonce, a length, and one JSON object."""

import json
import os
import threading
import time

from .errors import HelperError

CAP = 8 * 1024 * 1024
BLOCKED_LIMIT_S = 30.0
_HEADER_CAP = 128


class ProtocolError(Exception):
    """The other side sent something that is no frame; the connection is of no use any more."""


def encode(nonce, message, cap=CAP):
    """One frame as bytes.

    Raises:
        HelperError: TOO_LARGE when the payload is over the cap.
    """
    # Lone surrogates come from file names that are not UTF-8; a "?" is better than a frame nobody can decode.
    payload = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    if len(payload) > cap:
        raise HelperError(
            "TOO_LARGE", "The answer has %d bytes, more than a frame may hold (%d)." % (len(payload), cap)
        )
    return b"PHF1 %s %08x\n" % (nonce.encode("ascii"), len(payload)) + payload + b"\n"


class Reader:
    """Takes frames from a file descriptor."""

    def __init__(self, fd, nonce):
        self._fd = fd
        self._prefix = b"PHF1 " + nonce.encode("ascii") + b" "
        self._buffer = b""

    def read(self):
        """The next message, or None at the end of input.

        Raises:
            ProtocolError: no frame where one is due, or one over the cap.
        """
        header = self._line()
        if header is None:
            return None
        length = self._length(header)
        payload = self._take(length + 1)
        if payload is None:
            return None
        try:
            message = json.loads(payload.decode("utf-8"))
        except ValueError as error:
            raise ProtocolError("payload is not JSON: %s" % error) from error
        if not isinstance(message, dict) or payload[-1:] != b"\n":
            raise ProtocolError("payload is not an object that ends with a newline")
        return message

    def _length(self, header):
        digits = header[len(self._prefix) :]
        if not header.startswith(self._prefix) or len(digits) != 8:
            raise ProtocolError("no frame header: %r" % header[:80])
        try:
            length = int(digits, 16)
        except ValueError as error:
            raise ProtocolError("no frame header: %r" % header[:80]) from error
        if length > CAP:
            raise ProtocolError("a frame of %d bytes is over the cap" % length)
        return length

    def _line(self):
        while b"\n" not in self._buffer:
            if len(self._buffer) > _HEADER_CAP:
                raise ProtocolError("no frame header: %r" % self._buffer[:80])
            if not self._fill():
                return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _take(self, count):
        parts, have = [self._buffer], len(self._buffer)
        while have < count:
            part = os.read(self._fd, 65536)
            if not part:
                return None
            parts.append(part)
            have += len(part)
        data = b"".join(parts)
        self._buffer = data[count:]
        return data[:count]

    def _fill(self):
        part = os.read(self._fd, 65536)
        self._buffer += part
        return bool(part)


class Writer:
    """Puts frames on a file descriptor, one at a time; ends the helper when the other side stops reading."""

    def __init__(self, fd, nonce):
        self._fd = fd
        self._nonce = nonce
        self._lock = threading.Lock()
        self._blocked_since = None
        threading.Thread(target=self._guard, name="guard", daemon=True).start()

    def send(self, message, cap=CAP):
        data = memoryview(encode(self._nonce, message, cap))
        with self._lock:
            self._blocked_since = time.monotonic()
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
                    self._blocked_since = time.monotonic()
            except OSError:
                # The panel is gone; engines and their supervisors do not need this process.
                os._exit(0)
            finally:
                self._blocked_since = None

    def _guard(self):
        while True:
            time.sleep(1.0)
            since = self._blocked_since
            if since is not None and time.monotonic() - since > BLOCKED_LIMIT_S:
                os._exit(4)
