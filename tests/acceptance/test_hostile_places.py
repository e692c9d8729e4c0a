"""Odd logins, odd names, no direct way: each still serves, and nothing that a name says is ever done."""

from __future__ import annotations

import pytest

from tests.acceptance.serving import Asker, api_servers
from tests.lab import fake_engine
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.lab.remains import engine_remains
from tests.lab.spec import HostSpec, Login

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
MARK = "/tmp/it-was-done"
NAMES = {
    "spaces": "with  two spaces ",
    "quotes": 'it\'s "quoted" \\ `touch ' + MARK + "`",
    "substitution": "$(touch " + MARK + ");touch " + MARK + "&&*?~{a,b}!#%$HOME",
    "newlines": "first\nsecond; touch " + MARK + "\n\tthird",
    "a dash": "-rf",
    "no ascii": "模型 ünïcode",
}.items()
SHELLS = {
    "csh": HostSpec(root=Login("root", "csh", noisy=True)),
    "fish": HostSpec(root=Login("root", "fish", noisy=True)),
    "bash": HostSpec(root=Login("root", "bash", noisy=True), banner="PHBOOT Welcome\nPHF1 0 00000000\n"),
}


@pytest.fixture(scope="module")
def lab(module_lab, panel) -> Lab:
    """Hosts with noisy logins, and one that only the first of them reaches."""
    lab = module_lab(len(SHELLS), hidden=1, specs=list(SHELLS.values()))
    for host in lab.hosts:
        fake_engine.install(host)
        fake_engine.put_model(host)
    panel.add_hosts(lab.hosts, "/home/engine")
    panel.add_model("toy", "/home/model", nodes=[host.name for host in lab.hosts])
    panel.add_layout("single", "single")
    panel.add_layout("tp2", "tensor", tensor_parallel_size=2)
    return lab


def serves_and_leaves_nothing(panel, host: Host, name: str, model: str = "toy", **wish) -> None:
    panel.deploy(name, model=model, layout="single", nodes=[host.name], **wish)
    panel.wait_deployment(name, "READY")
    assert api_servers(host) == [panel.only_process(name)["pid"]]
    if host.jump is None:
        with Asker(panel, name) as asker:
            asker.wait_for_answers(1)
    panel.stop_deployment(name)
    assert engine_remains(host) == []
    assert not host.path(MARK).exists()


@pytest.mark.parametrize("place", range(len(SHELLS)), ids=list(SHELLS))
def test_a_noisy_login_shell_is_no_obstacle(panel, lab, place):
    serves_and_leaves_nothing(panel, lab.hosts[place], f"shell-{place}")


def test_a_machine_behind_a_jump_host_is_served_like_any_other(panel, lab):
    [hidden] = [host for host in lab.hosts if host.jump is not None]
    serves_and_leaves_nothing(panel, hidden, "hidden")


@pytest.mark.parametrize(("kind", "name"), NAMES, ids=[kind for kind, _ in NAMES])
def test_a_model_and_an_environment_with_a_hostile_name_are_served(panel, lab, kind, name):
    host = lab.hosts[0]
    word = kind.replace(" ", "-")
    model = fake_engine.put_model(host, f"/home/models/{word}/{name}".rstrip())
    environment = fake_engine.install(host, f"/home/engines/{word}/{name}".rstrip())
    found = panel.add_model(word, model, nodes=[host.name])
    assert [(copy["path"], copy["present"]) for copy in found["copies"]] == [(model, True)]
    panel.api("PATCH", f"/nodes/{host.name}", {"environment": environment})
    panel.wait(f"/nodes/{host.name}", lambda node: (node["facts"]["environment"] or {}).get("path") == environment)
    panel.deploy(word, model=word, layout="single", nodes=[host.name], served_name=served_as(name))
    panel.wait_deployment(word, "READY")
    [program, serve, served_from] = command_of(host, panel.only_process(word)["pid"])[1:4]
    assert (program, serve, served_from) == (f"{environment}/bin/vllm", "serve", model)
    panel.stop_deployment(word)
    assert engine_remains(host) == []
    assert not host.path(MARK).exists()


def served_as(name: str) -> str:
    """The name as far as one may be served under it: a line of text that is no flag."""
    return " ".join(name.split()).lstrip("-")


@pytest.mark.parametrize("name", ["-rf", "first\nsecond", "x" * 129])
def test_a_name_that_an_engine_could_not_be_told_is_refused(panel, lab, name):
    wish = {"model": "toy", "layout": "single", "served_name": name}
    status, body = panel.ask("PUT", "/deployments/odd", wish)
    assert (status, body["error"]["code"], body["error"]["field"]) == (422, "INVALID_INPUT", "served_name")
    assert body["error"]["remedy"]


def command_of(host: Host, pid: int) -> list[str]:
    """A process's words as the kernel has them."""
    return host.exec(["cat", f"/proc/{pid}/cmdline"]).stdout.split("\0")[:-1]
