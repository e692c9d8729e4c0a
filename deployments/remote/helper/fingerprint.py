"""A fingerprint of a model folder, so that copies on several nodes can be compared."""

import concurrent.futures
import hashlib
import os
import threading

_CHUNK = 4 * 1024 * 1024
_THREADS = 4


def files(root):
    """(relative name, size) of all files below a folder, sorted; hidden ones are a download tool's own bookkeeping."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            path = os.path.join(folder, name)
            if not name.startswith(".") and os.path.isfile(path):
                found.append((os.path.relpath(path, root), os.path.getsize(path)))
    return sorted(found)


class _Progress:
    def __init__(self, say, total):
        self._say = say
        self._total = total
        self._done = 0
        self._percent = -1
        self._lock = threading.Lock()

    def add(self, count, name):
        with self._lock:
            self._done += count
            percent = 100 * self._done // self._total if self._total else 100
            if percent != self._percent:
                self._percent = percent
                self._say({"progress": percent, "file": name})


def _digest(root, name, progress):
    digest = hashlib.sha256()
    with open(os.path.join(root, name), "rb") as file:
        while True:
            data = file.read(_CHUNK)
            if not data:
                return digest.hexdigest()
            digest.update(data)
            progress.add(len(data), name)


def fingerprint(say, path):
    """Hashes name, size and content of every file; prints progress and a last line with the result. Returns 0 or 1."""
    if not os.path.isdir(path):
        say({"error": "%s is not a folder" % path})
        return 1
    found = files(path)
    total = sum(size for _, size in found)
    progress = _Progress(say, total)
    whole = hashlib.sha256()
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        digests = pool.map(lambda item: _digest(path, item[0], progress), found)
        for (name, size), digest in zip(found, digests):  # noqa: B905 (`strict` came with Python 3.10)
            whole.update(("%s\0%d\0%s\n" % (name, size, digest)).encode("utf-8", "surrogateescape"))
    say({"result": {"fingerprint": whole.hexdigest(), "files": len(found), "bytes": total}})
    return 0
