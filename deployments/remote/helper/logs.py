"""A process's log: read by offsets that stay true when its front is cut off, and the cutting itself.

An offset counts all bytes ever logged; `log.base` holds how many of them were cut. The lock on that file keeps readers
from looking while the log is being rewritten.
"""

import contextlib
import errno
import os
import time

from . import paths
from .errors import HelperError
from .record import Record

_LIMIT = 1 << 20
_POLL_S = 0.1


def _base(fd):
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else 0


def extent(record):
    """(base, size): the first offset still kept and one past the last."""
    try:
        with paths.locked(record.file("log.base"), shared=True) as fd:
            base = _base(fd)
            return base, base + os.path.getsize(record.log)
    except OSError:
        return 0, 0


def read(record, offset, limit):
    """(offset, base, size, bytes) from `offset`: negative counts from the end, too early jumps to the first kept."""
    try:
        with paths.locked(record.file("log.base"), shared=True) as fd, open(record.log, "rb") as file:
            base = _base(fd)
            size = base + os.fstat(file.fileno()).st_size
            start = max(base, size + offset) if offset < 0 else min(max(offset, base), size)
            file.seek(start - base)
            return start, base, size, file.read(limit)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        return 0, 0, 0, b""


def text(data):
    """Log bytes as text that every store takes (PostgreSQL has no NUL)."""
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


def _begun(data):
    """How many bytes at the start continue a character that began before."""
    count = 0
    while count < min(3, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count


def _unfinished(data):
    """How many bytes at the end begin a character that is not complete."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if length > back else 0
    return 0


def tail(record, limit):
    """The last bytes of the log as text, beginning at a character."""
    data = read(record, -limit, limit)[3]
    return text(data[_begun(data) :])


def logs(session, call):
    """The verb: a piece of a log, waiting up to `wait_s` for the first new byte."""
    record = Record(session.folder, call.args.get("process"))
    if not record.exists():
        raise HelperError("UNKNOWN_PROCESS", "This node knows no process %s." % record.process)
    offset = int(call.args.get("offset", 0))
    limit = max(4, min(int(call.args.get("limit") or 65536), _LIMIT))
    deadline = time.monotonic() + float(call.args.get("wait_s") or 0)
    while True:
        start, base, size, data = read(record, offset, limit)
        cut = _unfinished(data)
        late = time.monotonic() >= deadline or call.cancelled.is_set()
        if len(data) > cut or late:
            break
        # A negative offset means "from the end as it is now": what comes next is what the caller waits for.
        offset = start
        call.cancelled.wait(_POLL_S)
    begin = _begun(data) if offset < 0 else 0
    # What is left of a broken character at the very end is handed out as it is, or the reader would never pass it.
    end = len(data) - cut if len(data) > cut else len(data)
    result = {"offset": start + begin, "next_offset": start + end, "base": base, "size": size}
    result["data"] = text(data[begin:end])
    return result


def cap(record, limit):
    """Cuts the log down to the last quarter of `limit` once it is larger; the writers need not know."""
    with contextlib.suppress(OSError):
        if os.path.getsize(record.log) > limit:
            with paths.locked(record.file("log.base")) as fd:
                _cut(record.log, fd, max(1, limit // 4))


def _cut(log, base_fd, keep):
    with open(log, "r+b", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size < 2 * keep:
            return
        at, moved = size - keep, 0
        while True:
            # What is appended meanwhile is moved too, until nothing new came: then only an instant is left to lose.
            data = os.pread(file.fileno(), 1 << 20, at)
            if not data:
                break
            os.pwrite(file.fileno(), data, moved)
            at += len(data)
            moved += len(data)
        base = b"%d\n" % (_base(base_fd) + at - moved)
        os.pwrite(base_fd, base, 0)
        os.ftruncate(file.fileno(), moved)
