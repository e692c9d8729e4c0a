"""The lab itself: its hosts are machines apart, can be harmed and healed, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import folder, needs
from tests.lab.fixtures import give_up
from tests.lab.host import Host
from tests.lab.namespace import LabError
from tests.lab.spec import SHELLS, HostSpec, Login

pytestmark = pytest.mark.lab
CHECKOUT = Path(__file__).parents[3]


def until(condition: Callable[[], object], within_s: float = 15) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def reaches(host: Host, address: str) -> bool:
    return host.exec(["ping", "-c", "1", "-W", "1", address], check=False).returncode == 0


def answers(host: Host) -> bool:
    return host.ssh("true", timeout=30).returncode == 0


def traces_on_the_machine(lab) -> list[str]:
    """Whatever the machine itself shows of a lab: its folder, its link, its mounts, its processes."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.splitlines()
    found = [line for line in [*mounts, *links] if lab.network.uplink in line or str(lab.folder) in line]
    found += [line for line in namespaces if "phl" in line]
    found += [str(path) for path in Path("/proc").glob("[0-9]*") if works_in(path, lab.folder)]
    return [*found, str(lab.folder)] if lab.folder.exists() else found


def works_in(process: Path, place: Path) -> bool:
    try:
        return os.readlink(process / "cwd").startswith(str(place))
    except OSError:
        return False


def test_each_host_has_its_own_name_address_identity_and_folders(lab_hosts):
    one, two = lab_hosts(2).hosts
    said = [
        host.ssh("hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id").stdout.split() for host in (one, two)
    ]
    assert said[0][0] == "node1"
    assert said[1][0] == "node2"
    assert len({*said[0], *said[1]}) == 6
    for where in ("/root", "/home", "/tmp", "/var/tmp", "/dev/shm", "/var/lib/pilothouse", "/run", "/usr/local/bin"):
        one.ssh(f"touch {where}/only-here")
        assert one.ssh(f"ls {where}/only-here").returncode == 0
        assert two.ssh(f"ls {where}/only-here").returncode != 0
        assert not Path(where, "only-here").exists()


def test_a_host_resolves_its_own_name_to_its_own_address_and_has_a_default_route(lab_hosts):
    one, two = lab_hosts(2).hosts
    assert one.ssh("getent ahostsv4 $(hostname)").stdout.split()[0] == one.address
    assert two.address in one.ssh(f"getent hosts {two.name}").stdout
    assert "default via" in one.ssh("ip route").stdout


def test_a_host_does_not_see_the_processes_of_another(lab_hosts):
    one, two = lab_hosts(2).hosts
    one.ssh("sleep 4711 >/dev/null 2>&1 &")
    until(lambda: [process for process in one.processes() if process.command == "sleep 4711"])
    assert not [process for process in two.processes() if "4711" in process.command]
    assert {process.name for process in two.processes()} <= {"python3", "sshd"}


def test_an_orphan_is_buried_and_can_be_killed_by_its_number_inside(lab_hosts):
    [host] = lab_hosts(1).hosts
    host.ssh("setsid sleep 4712 >/dev/null 2>&1 & sleep 0.1 >/dev/null 2>&1 &")
    until(lambda: {process.name for process in host.processes()} == {"python3", "sshd", "sleep"})
    [orphan] = [process for process in host.processes() if process.command == "sleep 4712"]
    assert orphan.ppid == 1
    host.kill(orphan.pid, signal.SIGTERM)
    until(lambda: {process.name for process in host.processes()} == {"python3", "sshd"})


def test_a_port_is_listed_with_its_process(lab_hosts):
    [host] = lab_hosts(1).hosts
    assert [(port.port, port.name) for port in host.listening()] == [(22, "sshd")]


def test_nothing_of_the_machine_can_be_written_by_a_host(lab_hosts):
    [host] = lab_hosts(1).hosts
    for path in ("/usr/written-by-a-host", "/etc/written-by-a-host", str(CHECKOUT / "written-by-a-host")):
        assert host.ssh(f"touch {path}").returncode != 0
        assert not Path(path).exists()


def test_no_host_reaches_the_world(lab_hosts):
    [host] = lab_hosts(1).hosts
    assert not reaches(host, "192.0.2.1")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_user_logs_in_with_every_shell_and_its_noise(lab_hosts, shell):
    login = Login("worker", shell, noisy=True)
    [host] = lab_hosts(1, spec=HostSpec(logins=(login,), banner="Authorised use only.\n")).hosts
    said = host.ssh("id -un; echo $HOME", user="worker")
    assert said.stdout.endswith("worker\n/home/worker\n")
    assert "Authorised use only." in said.stderr
    if shell != "sh":  # it reads no rc file for a command
        assert said.stdout.startswith("Welcome")


def test_a_pulled_cable_cuts_the_host_off_until_it_is_healed(lab_hosts):
    one, two = lab_hosts(2).hosts
    assert reaches(two, one.address)
    one.cut()
    assert not reaches(two, one.address)
    one.heal()
    until(lambda: reaches(two, one.address))
    assert answers(one)


def test_one_direction_or_one_peer_alone_can_be_cut(lab_hosts):
    lab = lab_hosts(2)
    one, two = lab.hosts
    one.cut("in")
    assert not reaches(two, one.address)
    assert not reaches(one, two.address)
    one.heal()
    one.cut(peer=two.address)
    assert not reaches(one, two.address)
    assert answers(one)
    one.heal()
    assert reaches(one, two.address)


def test_a_slow_link_is_slow_until_it_is_healed(lab_hosts):
    [host] = lab_hosts(1).hosts
    try:
        host.slow("64kbit")
    except needs.LabUnavailable as missing:
        give_up(str(missing))
    shown = host.lab.network.shape_of(host.place)
    assert "tbf" in shown
    assert "64Kbit" in shown
    assert answers(host)
    host.heal()
    assert "tbf" not in host.lab.network.shape_of(host.place)


def test_a_hidden_host_is_reached_through_the_first_host_alone(lab_hosts):
    lab = lab_hosts(2, hidden=1)
    one, two, hidden = lab.hosts
    assert hidden.jump is one
    assert hidden.ssh("hostname").stdout == "node3\n"
    assert reaches(one, hidden.address)
    assert not reaches(two, hidden.address)
    direct = subprocess.run(["ping", "-c", "1", "-W", "1", hidden.address], capture_output=True, check=False)
    assert direct.returncode != 0


def test_a_changed_host_key_is_noticed_by_ssh(lab_hosts):
    [host] = lab_hosts(1).hosts
    before = host.host_key
    assert host.rotate_host_key() != before
    refused = host.ssh("true")
    assert refused.returncode == 255
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in refused.stderr


def test_the_ssh_server_stops_and_starts_while_the_host_lives_on(lab_hosts):
    [host] = lab_hosts(1).hosts
    host.ssh("setsid sleep 4713 >/dev/null 2>&1 &")
    host.stop_sshd(sessions=True)
    assert host.ssh("true").returncode == 255
    assert [process for process in host.processes() if process.command == "sleep 4713"]
    host.start_sshd()
    assert answers(host)


def test_a_reboot_keeps_the_disk_and_the_address_but_no_process(lab_hosts):
    lab = lab_hosts(1, hidden=1)
    for host in lab.hosts:
        host.ssh("echo kept > /var/lib/pilothouse/file; touch /dev/shm/lost; setsid sleep 4714 >/dev/null 2>&1 &")
        boot_id = host.ssh("cat /proc/sys/kernel/random/boot_id").stdout
    for host in lab.hosts:
        host.reboot()
    for host in lab.hosts:
        assert host.ssh("cat /var/lib/pilothouse/file; ls /dev/shm").stdout == "kept\n"
        assert host.ssh("cat /proc/sys/kernel/random/boot_id").stdout != boot_id
        assert not [process for process in host.processes() if "4714" in process.command]


def test_a_host_that_is_off_does_not_answer_and_says_so_when_asked_inside(lab_hosts):
    [host] = lab_hosts(1).hosts
    host.power_off()
    assert host.ssh("true").returncode == 255
    with pytest.raises(LabError, match="node1 is off"):
        host.processes()


def test_a_host_can_have_its_own_programs_a_small_disk_and_no_python(lab_hosts):
    spec = HostSpec(scripts={"nvidia-smi": "#!/bin/sh\necho fake\n"}, state_mb=1, masked=(needs.HOST_PYTHON,))
    [host] = lab_hosts(1, spec=spec).hosts
    assert host.ssh("nvidia-smi").stdout == "fake\n"
    assert host.ssh("python3 -V").returncode != 0
    assert "No space left" in host.ssh("head -c 2000000 /dev/zero > /var/lib/pilothouse/big").stderr
    assert not Path("/usr/local/bin/nvidia-smi").exists()


def test_hosts_can_share_their_homes(lab_hosts):
    one, two = lab_hosts(2, shared_home=True).hosts
    one.ssh("echo seen > ~/file")
    assert two.ssh("cat ~/file").stdout == "seen\n"


def test_two_labs_live_side_by_side(lab_hosts):
    first, second = lab_hosts(1), lab_hosts(1)
    assert first.hosts[0].address != second.hosts[0].address
    assert answers(first.hosts[0])
    assert answers(second.hosts[0])
    second.down()
    assert answers(first.hosts[0])


def test_nothing_is_left_behind_after_down(lab_hosts):
    lab = lab_hosts(2, hidden=1)
    lab.hosts[0].ssh("setsid sleep 4715 >/dev/null 2>&1 &")
    assert traces_on_the_machine(lab)
    lab.down()
    until(lambda: not traces_on_the_machine(lab))


def test_a_start_that_fails_leaves_nothing_behind(lab_hosts):
    lab_hosts(1).down()
    before = {path.name for path in folder.base().glob("*")}
    with pytest.raises(LabError):
        lab_hosts(1, spec=HostSpec(masked=("/no/such/file",)))
    assert {path.name for path in folder.base().glob("*")} == before


def test_a_killed_owner_takes_its_hosts_along_and_its_folder_is_swept(lab_hosts):
    survivor = lab_hosts(1)
    argv = [sys.executable, "-m", "tests.lab", "up", "1", "--json"]
    with subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as owner:
        place = json.loads(owner.stdout.readline())
        owner.send_signal(signal.SIGKILL)
    left = Path(place["key_path"]).parent
    until(lambda: not [path for path in Path("/proc").glob("[0-9]*") if works_in(path, left)])
    swept = subprocess.run([*argv[:3], "down", "--stale"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert f"removed {left}" in swept.stdout
    assert not left.exists()
    assert answers(survivor.hosts[0])


def test_an_interrupt_ends_a_lab_that_was_started_by_hand(lab_hosts):
    argv = [sys.executable, "-m", "tests.lab", "up", "1", "--json"]
    with subprocess.Popen(argv, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as owner:
        place = json.loads(owner.stdout.readline())
        owner.send_signal(signal.SIGINT)
        assert owner.wait(timeout=30) == 0
    assert not Path(place["key_path"]).parent.exists()
