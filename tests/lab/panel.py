"""A real panel for the lab: the embedded default in a folder of its own, driven through its REST API as a client does.

with Panel() as panel:
    panel.add_hosts(lab.hosts, engine)
    panel.api("GET", "/nodes")
"""

from __future__ import annotations

import contextlib
import html
import http.cookiejar
import json as jsons
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlencode

from tests.lab import needs
from tests.lab.client import ANSWER_S, Client
from tests.lab.folder import start_time

BASE = Path(__file__).resolve().parents[2]
START_S, STOP_S = 180.0, 90.0
PARTS = ("web", "worker", "beat", "observer", "postgres", "valkey")
# What the caller's own panel or test settings would change here.
FOREIGN = (
    "VAR_DIR",
    "SECRET_KEY",
    "FIELD_KEYS",
    "DATABASE_URL",
    "BROKER_URL",
    "PROCESS",
    "DJANGO_SETTINGS_MODULE",
    "LAUNCHER",
    "KEYS_DIR",
)


class Panel(Client):
    """The embedded default as a child of this process, in its own group; it ends with us however we end.

    `var` is its VAR_DIR (a temporary folder that goes with it if None); `settings` are more variables for it.
    """

    def __init__(self, var: Path | None = None, **settings: str):
        self.port = free_port()
        super().__init__(f"http://127.0.0.1:{self.port}")
        self._temporary = var is None
        self.var = var or Path(tempfile.mkdtemp(prefix="pilothouse-panel-"))
        self.settings = {"VAR_DIR": str(self.var), "PORT": str(self.port), **settings}
        self.process: subprocess.Popen[bytes] | None = None
        self.visitor: Visitor | None = None
        self._log = self.var.with_name(self.var.name + ".out")

    def __enter__(self) -> Panel:
        try:
            self.start()
            self.visitor = Visitor(self.url, *self.first_login())
            self.token = self.visitor.make_token()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    # Life

    def start(self) -> None:
        """Returns when it says that it is ready. Raises RuntimeError with what it printed when it ends instead."""
        seen = len(self.output)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [needs.find("setpriv"), "--pdeathsig", "KILL", sys.executable, "-m", "controlplane.embedded"],
                cwd=BASE,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(
            lambda: "is ready" in self.output[seen:] or self.process.poll() is not None,
            START_S,
            lambda: f"the panel is not ready: {self.output[seen:]}",
        )
        if self.process.poll() is not None:
            raise RuntimeError(f"the panel ended: {self.output[seen:]}")

    def stop(self) -> None:
        """Ctrl-C, as in a terminal: the whole foreground group is signalled. Kills what does not obey."""
        if self.process is None or self.process.poll() is not None:
            return
        os.killpg(self.process.pid, signal.SIGINT)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"the panel did not stop within {STOP_S:.0f} s: {self.output[-4000:]}") from None

    def restart(self) -> None:
        self.stop()
        self.start()

    def end(self) -> None:
        """Stop it and take its temporary folder away."""
        try:
            self.stop()
        finally:
            if self._temporary:
                shutil.rmtree(self.var, ignore_errors=True)
                self._log.unlink(missing_ok=True)

    def kill(self, part: str) -> int:
        """kill -9 of one part (see PARTS) or of the "supervisor", waited for. Returns its pid."""
        assert self.process is not None
        pid = self.process.pid if part == "supervisor" else self.pid_of(part)
        began = start_time(pid)
        os.kill(pid, signal.SIGKILL)
        if part == "supervisor":
            self.process.wait()
        until(lambda: start_time(pid) != began, STOP_S, lambda: f"{part} (pid {pid}) does not die")
        return pid

    def pid_of(self, part: str) -> int:
        """The pid of a part that runs. Raises LookupError when none does."""
        assert self.process is not None
        for pid in _children(self.process.pid):
            with contextlib.suppress(OSError):
                if part in _words(pid):
                    return pid
        raise LookupError(f"no {part} among the children of the panel's supervisor")

    def wait_for_part(self, part: str, instead_of: int) -> int:
        """The pid of a part once another process runs it."""
        found: list[int] = []

        def came() -> bool:
            with contextlib.suppress(LookupError):
                found[:] = [self.pid_of(part)]
            return bool(found) and found[0] != instead_of

        until(came, STOP_S, lambda: f"no new {part}: {self.output[-2000:]}")
        return found[0]

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Until /readyz says 200."""
        until(self._is_ready, timeout, lambda: f"/readyz is not 200: {self.output[-2000:]}")

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
            return answer.status == 200
        return False

    @property
    def output(self) -> str:
        """Everything it has printed, over all its starts."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def environment(self) -> dict[str, str]:
        return own_environment(self.settings)

    def manage(self, *words: str) -> str:
        """`manage.py WORDS` on this panel's database; its output."""
        return manage(self.environment(), *words)

    def first_login(self) -> tuple[str, str]:
        """Name and password of the first admin, as its very first start has printed them."""
        said = re.search(r"First login: (\S+) / (\S+)", self.output)
        if said is None:
            raise LookupError("this panel was not started for the first time here")
        return said[1], said[2]


class Visitor:
    """Somebody in a browser, signed in with name and password."""

    def __init__(self, url: str, user: str, password: str):
        self.url = url
        self._jar = http.cookiejar.CookieJar()
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self._jar))
        self.page("/login/")
        form = {"username": user, "password": password, "next": "/healthz", "csrfmiddlewaretoken": _csrf(self._jar)}
        self._open(urllib.request.Request(f"{url}/login/", urlencode(form).encode()))

    def page(self, path: str) -> str:
        """The words of a page as people read them: without tags, entities and line breaks resolved."""
        text = self._open(urllib.request.Request(f"{self.url}{path}"))
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())

    def make_token(self, scope: str = "admin") -> str:
        """A token through the API, by the session and its CSRF token."""
        wish = jsons.dumps({"name": "lab", "scope": scope, "days": 1}).encode()
        headers = {"Content-Type": "application/json", "X-CSRFToken": _csrf(self._jar), "Referer": self.url}
        answer = self._open(urllib.request.Request(f"{self.url}/api/v1/access/tokens", wish, headers))
        return str(jsons.loads(answer)["text"])

    def _open(self, request: urllib.request.Request) -> str:
        with self._opener.open(request, timeout=ANSWER_S) as answer:
            return answer.read().decode()


def _csrf(jar: http.cookiejar.CookieJar) -> str:
    found = [cookie.value for cookie in jar if cookie.name == "pilothouse_csrf"]
    if not found or found[0] is None:
        raise LookupError("the panel gave no CSRF cookie")
    return found[0]


def own_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Our environment without what would lead to another panel's folder or servers, and with `settings`."""
    return {**{name: value for name, value in os.environ.items() if name not in FOREIGN}, **settings}


def manage(environment: Mapping[str, str], *words: str) -> str:
    """The output of `manage.py WORDS`. Raises RuntimeError with its complaint when it fails."""
    argv = [sys.executable, str(BASE / "manage.py"), *words]
    done = subprocess.run(
        argv, cwd=BASE, env=environment, capture_output=True, text=True, timeout=ANSWER_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"manage.py {words[0]}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def until(condition: Callable[[], object], timeout: float, complaint: Callable[[], str]) -> None:
    """Poll `condition` until it holds. Raises TimeoutError with the complaint when it does not in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(complaint())
        time.sleep(0.05)


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append(int(stat.parent.name))
    return found


def _words(pid: int) -> set[str]:
    """What a child of the supervisor can be called: the part its environment names, and its program."""
    environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    part = next((word[8:].decode() for word in environment if word.startswith(b"PROCESS=")), "")
    program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    return {program.removesuffix("-server"), part if part != "supervisor" else ""}
