from __future__ import annotations

import pytest

from deployments.domain.errors import InvalidInput, NotPermitted
from deployments.services.access import Actor
from deployments.services.joining import Candidate, name_from, read_machines, split_login

pytestmark = pytest.mark.django_db


def test_a_list_names_machines_in_every_form(admin: Actor) -> None:
    text = """
        # two racks
        gpu-1 ubuntu@10.0.0.1:2222
        node.cluster.example      # named after itself
        10.0.0.3
        v6, root@[fd00::1]:22
    """
    assert read_machines(admin, text, "list").candidates == (
        Candidate("gpu-1", "10.0.0.1", 2222, "ubuntu"),
        Candidate("node", "node.cluster.example"),
        Candidate("10-0-0-3", "10.0.0.3"),
        Candidate("v6", "fd00::1", 22, "root"),
    )


def test_known_hosts_names_what_it_can_and_counts_what_it_cannot(admin: Actor) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAID+b1Fs/hiT90Kiiu3Md6tZLyjLIKNvj4NYOGT2lnI2T"
    text = (
        f"gpu-a,10.0.0.1 {key}\n[gpu-b]:2222 {key}\n*.example {key}\n|1|c2FsdA==|aGFzaA== {key}\n@revoked gpu-r {key}\n"
    )
    found = read_machines(admin, text, "known_hosts")
    assert [(c.name, c.address, c.port) for c in found.candidates] == [("gpu-a", "gpu-a", 22), ("gpu-b", "gpu-b", 2222)]
    assert found.notes == ("1 entries are hashed, so their names cannot be read.",)


@pytest.mark.parametrize("text", ["a b c", "x@y:port", "", "# nothing"])
def test_what_names_no_machine_is_refused(admin: Actor, text: str) -> None:
    with pytest.raises(InvalidInput):
        read_machines(admin, text, "list")


def test_only_admins_read_machines(operator: Actor) -> None:
    with pytest.raises(NotPermitted):
        read_machines(operator, "a", "list")


def test_a_login_is_split_where_ssh_would() -> None:
    assert split_login("a@b@host:22", "x") == ("a@b", "host", 22)
    assert split_login("fd00::1", "x") == ("", "fd00::1", 22)


def test_a_proposed_name_can_be_one() -> None:
    assert name_from("GPU_1.Example.ORG") == "gpu-1"
    assert name_from("-x-") == "x"
