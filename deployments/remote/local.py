"""This machine as a node: the same helper behind the same frames, without SSH."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from .channel import Link
from .launcher import NodeTarget, RemoteError, Unreachable

CLOSE_TIMEOUT_S = 3.0
BUFFER_BYTES = 64 * 1024

# The panel's own environment holds its secrets; the helper, and what it starts, get what a login would give.
_KEPT_ENVIRONMENT = (
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "VIRTUAL_ENV",
    "PILOTHOUSE_STATE_ROOT",
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def open_link(target: NodeTarget) -> Link:
    """Starts `/bin/sh` on this machine, in its own session.

    Raises:
        Unreachable: The system would not start it.
    """
    loop, pipe = asyncio.get_running_loop(), asyncio.subprocess.PIPE
    try:
        transport, streams = await loop.subprocess_exec(
            lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=BUFFER_BYTES, loop=loop),
            "/bin/sh",
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd="/",
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise _translate(error) from error
    shell = asyncio.subprocess.Process(transport, streams, loop)

    async def close() -> None:
        assert shell.stdin is not None
        shell.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await shell.wait()
        # Kills it if it still runs, and closes the pipes: waiting for a process whose output nobody reads any more
        # would never end.
        transport.close()
        await shell.wait()

    return Link(shell.stdout, shell.stdin, shell.stderr, close, _translate)


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return {"HOME": str(Path.home()), "PATH": _PATH, "LANG": "C.UTF-8", **kept}


def _translate(error: Exception) -> RemoteError:
    return error if isinstance(error, RemoteError) else Unreachable(f"This machine's /bin/sh: {error}.")
