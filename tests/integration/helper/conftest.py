"""The real helper, run through the real boot line on this machine, with its state in a folder of the test."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .client import Client, running, until

FAKE = Path(__file__).parents[2] / "fakes" / "fake_vllm.py"


@pytest.fixture(scope="session", autouse=True)
def _servers() -> None:
    """Nothing here needs the database or the broker."""


def interpreters() -> dict[str, str]:
    """{"3.8": path} of every Python 3 on PATH or kept by pyenv."""
    names = [f"python3.{minor}" for minor in range(4, 20)]
    found = [shutil.which(name) for name in names]
    found += [str(path) for path in sorted(Path.home().glob(".pyenv/versions/*/bin/python"))]
    versions: dict[str, str] = {}
    for path in filter(None, found):
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if re.fullmatch(r"\d\.\d+", done.stdout.strip()):
            versions.setdefault(done.stdout.strip(), path)
    return versions


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    yield folder
    _clean(folder)


def _clean(folder: Path) -> None:
    """Ends every process that a test left, through the helper's own stop."""
    installations = {path.parent.parent.name for path in folder.glob("*/*/p/*")}
    for installation in installations:
        client = Client(folder, installation)
        for path in folder.glob(f"*/{installation}/p/*"):
            with contextlib.suppress(Exception):
                client.stop(path.name, grace_s=0, kill_s=5)
        client.close()


@pytest.fixture
def connect(root: Path) -> Iterator[Callable[..., Client]]:
    """Opens a client; all are closed at the end."""
    opened: list[Client] = []

    def open_(**options: Any) -> Client:
        client = Client(options.pop("root", root), **options)
        opened.append(client)
        return client

    yield open_
    for client in opened:
        client.close()


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    return connect()


@pytest.fixture
def port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Engines:
    """Starts fake engines through one client."""

    def __init__(self, client: Client, port: int) -> None:
        self.client = client
        self.port = port

    def request(self, mode: str = "", **fields: object) -> dict:
        return {
            "argv": [str(FAKE), "serve", "m", "--host", "127.0.0.1", "--port", str(self.port)],
            "env": {"FAKE_VLLM_MODE": mode},
            "ports": [self.port],
            "probe": {"kind": "openai", "base_url": f"http://127.0.0.1:{self.port}", "model": "m"},
            **fields,
        }

    def start(self, mode: str = "", **fields: object) -> str:
        """A fake engine that has come up, by its log."""
        process, _ = self.client.start(**self.request(mode, **fields))
        until(lambda: "startup complete" in self.client.log(process), "the engine came up")
        return process

    def members(self, process: str) -> dict[str, int]:
        """{name: pid} of the live members."""
        return {member["name"]: member["pid"] for member in self.client.process(process)["members"]}


@pytest.fixture
def engines(client: Client, port: int) -> Engines:
    return Engines(client, port)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    until(lambda: not running(pid), f"process {pid} ended")
