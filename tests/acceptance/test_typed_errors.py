"""What can be wrong with machines and wishes: each is named, with node and remedy, and nothing half-started stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.serving import api_servers
from tests.lab import fake_engine, needs
from tests.lab.client import fingerprint
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.lab.panel import Panel, until
from tests.lab.remains import engine_remains
from tests.lab.spec import HostSpec

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
BARE, EQUIPPED, DOOMED = "bare", "equipped", "doomed"


@pytest.fixture(scope="module")
def lab(module_lab, panel) -> Lab:
    """One host without an engine, one with, and one for faults of its machine."""
    lab = module_lab(3, specs=[HostSpec(name=name) for name in (BARE, EQUIPPED, DOOMED)])
    for host in lab.hosts[1:]:
        fake_engine.install(host)
        fake_engine.put_model(host)
    panel.add_hosts(lab.hosts[:1])
    panel.add_hosts(lab.hosts[1:], "/home/engine")
    panel.add_model("toy", "/home/model", nodes=[host.name for host in lab.hosts])
    panel.add_layout("single", "single")
    return lab


def host_of(lab: Lab, name: str) -> Host:
    return next(host for host in lab.hosts if host.name == name)


@pytest.fixture(autouse=True)
def nothing_is_left(lab) -> Iterator[None]:
    """Whatever went wrong: when a test is over no host runs anything of an engine."""
    yield
    for host in lab.hosts:
        assert engine_remains(host) == []


def is_complete(error: dict[str, Any], code: str, node: str) -> None:
    assert (error["code"], error["node"]) == (code, node), error
    assert error["message"]
    assert error["remedy"]


def awaited_error(panel: Panel, node: str, code: str) -> dict[str, Any]:
    """The node's error once it is this one; complete."""
    row = panel.wait(f"/nodes/{node}", lambda row: row["error"] and row["error"]["code"] == code, 90)
    is_complete(row["error"], code, node)
    if code == "HOST_KEY_CHANGED":  # the page has a way to mend it instead of words about one
        assert "The host key has changed." in (shown := panel.visitor.page(f"/nodes/{node}/"))
        assert "Compare and accept" in shown
    else:
        on_page(panel, f"/nodes/{node}/", row["error"])
    return row


def on_page(panel: Panel, path: str, error: dict[str, Any]) -> None:
    """People read the same on their page: what happened, and what to do."""
    shown = panel.visitor.page(path)
    for words in (error["message"], error["remedy"]):
        assert " ".join(words.split()) in shown, f"{words!r} is not on {path}: {shown}"


def introduce(panel: Panel, host: Host, name: str, **fields: Any) -> None:
    """The host under another name, reached another way."""
    key = panel.api("GET", "/keys")[0]["name"]
    login = {"name": name, "address": host.address, "port": host.port, "user": host.user, "key": key}
    panel.api("POST", "/nodes", {**login, **fields})


def accept(panel: Panel, host: Host, name: str) -> None:
    offered = fingerprint(host.host_key)
    panel.wait("/nodes/fingerprints", lambda rows: [r for r in rows if (r["node"], r["offered"]) == (name, offered)])
    panel.api("POST", "/nodes/fingerprints/accept", {"accept": [{"node": name, "fingerprint": offered}]})


def forget(panel: Panel, name: str) -> None:
    panel.api("DELETE", f"/nodes/{name}")


def wish(node: str, **more: Any) -> dict[str, Any]:
    return {"model": "toy", "layout": "single", "nodes": [node], **more}


def refused(panel: Panel, name: str, **fields: Any) -> dict[str, Any]:
    """The error by which a wish is refused; the preview has shown the same before."""
    preview = panel.api("POST", "/deployments/preview", {"name": name, **fields})
    status, body = panel.ask("PUT", f"/deployments/{name}", fields)
    assert status >= 400
    assert not preview["ok"]
    assert body["error"]["code"] in [problem["code"] for problem in preview["problems"]]
    assert panel.ask("GET", f"/deployments/{name}")[0] == 404
    return body["error"]


def test_a_key_that_the_machine_does_not_know(panel, lab):
    host = host_of(lab, EQUIPPED)
    panel.api("POST", "/keys/generate", {"name": "stranger"})
    introduce(panel, host, "wrong-key", key="stranger")
    accept(panel, host, "wrong-key")
    assert awaited_error(panel, "wrong-key", "AUTH_FAILED")["state"] == "NOT_READY"
    forget(panel, "wrong-key")


def test_a_port_on_which_nobody_listens(panel, lab):
    host = host_of(lab, EQUIPPED)
    introduce(panel, host, "wrong-port", port=2222)
    awaited_error(panel, "wrong-port", "UNREACHABLE")
    forget(panel, "wrong-port")


def test_an_interpreter_that_is_not_there(panel, lab):
    host = host_of(lab, EQUIPPED)
    introduce(panel, host, "no-python", interpreter="/opt/none/bin/python3")
    accept(panel, host, "no-python")
    row = awaited_error(panel, "no-python", "INTERPRETER_MISSING")
    assert "/opt/none/bin/python3" in row["error"]["message"]
    forget(panel, "no-python")


def test_a_machine_without_an_engine_offers_to_install_one(panel, lab):
    error = refused(panel, "no-engine", **wish(BARE))
    is_complete(error, "ENGINE_MISSING", BARE)
    assert "Install an engine environment" in error["remedy"]


def test_a_model_folder_that_is_not_there(panel, lab):
    model = panel.add_model("absent", "/home/models/absent", nodes=[EQUIPPED])
    [copy] = model["copies"]
    assert not copy["present"]
    is_complete(copy["error"], "MODEL_MISSING", EQUIPPED)
    assert "/home" in copy["error"]["message"]
    on_page(panel, "/models/absent/", copy["error"])
    is_complete(refused(panel, "absent", **wish(EQUIPPED, model="absent")), "MODEL_MISSING", EQUIPPED)


def test_a_model_folder_that_is_empty(panel, lab):
    host_of(lab, EQUIPPED).path("/home/empty").mkdir()
    [copy] = panel.add_model("empty", "/home/empty", nodes=[EQUIPPED])["copies"]
    is_complete(copy["error"], "MODEL_MISSING", EQUIPPED)
    assert "config.json" in copy["error"]["message"]
    on_page(panel, "/models/empty/", copy["error"])
    is_complete(refused(panel, "empty", **wish(EQUIPPED, model="empty")), "MODEL_MISSING", EQUIPPED)


@pytest.mark.parametrize("model", ["", "nobody-knows-it"])
def test_a_model_that_nobody_registered(panel, lab, model):
    error = refused(panel, "no-model", **wish(EQUIPPED, model=model))
    assert (error["code"], error["field"]) == ("NOT_FOUND", "model")


@pytest.fixture
def one_port(panel, lab) -> Iterator[int]:
    """The equipped host has one port for engines, and a stranger listens on it. Gives the stranger's pid."""
    host = host_of(lab, EQUIPPED)
    panel.api("PATCH", f"/nodes/{EQUIPPED}", {"port_first": 20500, "port_last": 20500})
    program = "import socket,time; s=socket.create_server(('', 20500)); print('up', flush=True); time.sleep(600)"
    listen = f'nohup {needs.HOST_PYTHON} -c "{program}" > /tmp/up 2>&1 & echo $!'
    stranger = int(host.exec(["sh", "-c", listen]).stdout)
    until(lambda: host.path("/tmp/up").read_text() == "up\n", 20, lambda: "the stranger does not listen")
    yield stranger
    host.exec(["kill", "-9", str(stranger)], check=False)
    panel.api("PATCH", f"/nodes/{EQUIPPED}", {"port_first": 20000, "port_last": 20999})


def test_a_port_that_somebody_else_took(panel, lab, one_port):
    host = host_of(lab, EQUIPPED)
    panel.deploy("crowded", **wish(EQUIPPED))
    process = panel.wait_process("crowded", lambda process: process["reason"] == "PORT_IN_USE", 60)
    is_complete(process["error"], "PORT_IN_USE", EQUIPPED)
    assert "20500" in process["error"]["message"]
    on_page(panel, "/deployments/crowded/", process["error"])
    assert api_servers(host) == []
    assert one_port in [p.pid for p in host.processes()]
    host.kill(one_port)
    panel.wait_deployment("crowded", "READY", 90)
    panel.stop_deployment("crowded")


def test_a_flag_that_the_engine_does_not_know_is_not_tried_twice(panel, lab):
    panel.deploy("typo", **wish(EQUIPPED, args=["--no-such-flag", "1"]))
    failed = panel.wait("/deployments/typo", lambda row: row["state"] == "FAILED")
    [process] = failed["processes"]
    assert (process["reason"], process["attempt"]) == ("UNKNOWN_FLAG", 1)
    [problem] = [problem for problem in failed["problems"] if problem["node"]]
    is_complete(problem, "UNKNOWN_FLAG", EQUIPPED)
    assert "unrecognized arguments" in problem["message"]
    assert "--no-such-flag 1" in problem["message"]
    on_page(panel, "/deployments/typo/", problem)
    panel.stop_deployment("typo")


def test_a_changed_host_key_is_refused_until_somebody_accepts_it(panel, lab):
    host = host_of(lab, DOOMED)
    host.stop_sshd(sessions=True)
    host.start_sshd()
    panel.wait_node(DOOMED, "READY")
    host.stop_sshd(sessions=True)
    host.rotate_host_key()
    row = awaited_error(panel, DOOMED, "HOST_KEY_CHANGED")
    assert fingerprint(host.host_key) in str(row["error"])
    [shown] = [row for row in panel.api("GET", "/nodes/fingerprints") if row["node"] == DOOMED]
    assert (shown["changed"], shown["offered"]) == (True, fingerprint(host.host_key))
    panel.deploy("unsure", **wish(DOOMED))
    panel.wait("/deployments/unsure", lambda row: row["problems"])
    assert api_servers(host) == []
    accept(panel, host, DOOMED)
    panel.wait_deployment("unsure", "READY", 120)
    panel.stop_deployment("unsure")


def test_a_machine_that_is_off(panel, lab):
    host = host_of(lab, DOOMED)
    host.power_off()
    try:
        panel.wait_node(DOOMED, "UNREACHABLE", 120)
        awaited_error(panel, DOOMED, "UNREACHABLE")
    finally:
        host.boot()
    panel.wait_node(DOOMED, "READY", 120)
