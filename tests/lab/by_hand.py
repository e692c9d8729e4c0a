"""`make lab`: hosts registered in a running panel, to try things out in a browser, until Ctrl-C."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from controlplane.embedded.places import Places
from tests.lab import engine as engines
from tests.lab import fake_engine
from tests.lab.client import ApiError, Client, key_name
from tests.lab.hosts import Lab
from tests.lab.panel import BASE, Panel, manage, own_environment


def run(count: int) -> None:
    """Start `count` hosts, register them and a model, wait for Ctrl-C, and take out of the panel what went in."""
    with Lab(count, binds=engines.binds()) as lab, _some_panel() as panel, _registered(panel, lab):
        environment, model = _engine(lab)
        panel.add_hosts(lab.hosts, environment)
        _add_model(panel, model)
        for host in lab.hosts:
            print(f"{host.name}  {host.user}@{host.address}:{host.port}  registered in {panel.url}", flush=True)
        print("Ctrl-C ends the lab.", flush=True)
        while True:
            signal.pause()


def _engine(lab: Lab) -> tuple[str, str]:
    """Paths of environment and model on the hosts: the real ones where they were made, else fake ones."""
    if engine := engines.find():
        return str(engine.root), str(engine.model)
    print("The real engine is not made (`python -m tests.lab engine`); the hosts get a fake one.", flush=True)
    found = {(fake_engine.install(host), fake_engine.put_model(host)) for host in lab.hosts}
    return found.pop()


def _add_model(panel: Client, path: str) -> None:
    """The model of the lab, kept from one lab to the next."""
    try:
        panel.add_model("tiny", path)
    except ApiError as error:
        if error.status != 409:
            raise
        panel.api("POST", "/models/tiny/find", {"nodes": []})


@contextlib.contextmanager
def _some_panel() -> Iterator[Client]:
    """The panel of `make run` if it runs now, else one in a temporary folder."""
    places = Places(Path(os.environ.get("VAR_DIR") or BASE / "var"), os.getuid())
    if url := _running(places.lock):
        settings = {"VAR_DIR": str(places.var)}
        token = manage(
            own_environment(settings),
            "issue_token",
            "--user",
            "admin",
            "--scope",
            "admin",
            "--days",
            "1",
            "--name",
            "lab",
        )
        yield Client(url, token)
        return
    print("No panel runs (`make run` starts one); one is started in a temporary folder ...", flush=True)
    with Panel() as panel:
        user, password = panel.first_login()
        print(f"{panel.url}/   {user} / {password}", flush=True)
        yield panel


def _running(lock: Path) -> str | None:
    """The URL of the supervisor that holds this lock."""
    with contextlib.suppress(FileNotFoundError), lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read().split()[0]
    return None


@contextlib.contextmanager
def _registered(panel: Client, lab: Lab) -> Iterator[None]:
    """Leaves a panel without the lab's nodes, so that the next lab can use their names."""
    try:
        yield
    finally:
        names = {host.name for host in lab.hosts}
        for row in panel.api("GET", "/deployments")["items"]:
            if names & {process["node"] for process in panel.deployment(row["name"])["processes"]}:
                panel.stop_deployment(row["name"])
        for name in names:
            panel.ask("DELETE", f"/nodes/{name}")
        panel.ask("DELETE", f"/keys/{key_name(lab)}")
