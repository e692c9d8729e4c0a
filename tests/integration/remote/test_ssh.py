"""Logging in to a real OpenSSH server: what works, and the one word for each way it can fail."""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import subprocess
import threading

import pytest

from deployments.remote import ssh
from deployments.remote.launcher import (
    AuthFailed,
    HelperFailed,
    HostKeyChanged,
    HostKeyUnknown,
    RemoteError,
    TimedOut,
    Unreachable,
)
from deployments.remote.ssh_files import generate_key, host_key
from tests.integration.remote.sshd import free_port
from tests.lab.fixtures import give_up


def test_a_node_is_reached_and_its_helper_answers(sshd, ask):
    assert ask(sshd.target())["uid"] == os.getuid()


def test_a_kept_connection_is_used_again(sshd, ask):
    assert ask(sshd.target())["pid"] == ask(sshd.target())["pid"]


def test_many_callers_at_once_share_one_opening(sshd, ask):
    pids = []
    threads = [threading.Thread(target=lambda: pids.append(ask(sshd.target())["pid"])) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pids) == 12
    assert len(set(pids)) == 1


def test_a_key_the_node_does_not_know_is_refused(sshd, ask):
    private, public = generate_key()
    with pytest.raises(AuthFailed) as caught:
        ask(sshd.target(private_key=private))
    assert caught.value.node == "node-a"
    assert caught.value.detail["public_key"].split()[1] == public.split()[1]
    assert not caught.value.retryable


def test_a_user_the_node_does_not_know_is_refused(sshd, ask):
    with pytest.raises(AuthFailed, match="nobody-like-this"):
        ask(sshd.target(user="nobody-like-this"))


def test_a_locked_private_key_is_told_as_such(sshd, ask, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", tmp_path / "key"], check=True)
    with pytest.raises(AuthFailed, match="passphrase"):
        ask(sshd.target(private_key=(tmp_path / "key").read_text()))


def test_a_port_where_nobody_listens_is_unreachable(sshd, ask):
    with pytest.raises(Unreachable) as caught:
        ask(sshd.target(port=free_port()))
    assert type(caught.value) is Unreachable
    assert caught.value.retryable


@pytest.mark.parametrize("address", ["no-such-host.invalid", "a" * 70, "bad host", ""])
def test_a_name_that_leads_nowhere_is_unreachable(sshd, ask, address):
    with pytest.raises(Unreachable):
        ask(sshd.target(address=address, port=free_port()))


def test_a_changed_host_key_is_refused_with_both_fingerprints(sshd, ask):
    target, old = sshd.target(), sshd.host_key
    sshd.stop()
    new = sshd.new_host_key()
    sshd.start()
    with pytest.raises(HostKeyChanged) as caught:
        ask(target)
    assert caught.value.detail["accepted"] == [{"type": old.type, "fingerprint": old.fingerprint}]
    assert caught.value.detail["offered"]["fingerprint"] == new.fingerprint
    assert caught.value.detail["jump"] is False
    assert caught.value.detail["offered_key"] == new.public


def test_a_host_key_of_another_type_is_a_change_too(sshd, ask):
    target, old = sshd.target(), sshd.host_key
    sshd.stop()
    new = sshd.new_host_key("ecdsa")
    sshd.start()
    with pytest.raises(HostKeyChanged) as caught:
        ask(target)
    assert caught.value.detail["accepted"][0]["fingerprint"] == old.fingerprint
    assert caught.value.detail["offered"]["fingerprint"] == new.fingerprint


@pytest.mark.parametrize("accepted", [(), ("not a key",)])
def test_a_host_key_nobody_accepted_is_unknown(sshd, ask, accepted):
    with pytest.raises(HostKeyUnknown) as caught:
        ask(sshd.target(host_keys=accepted))
    assert caught.value.detail["offered"]["fingerprint"] == sshd.host_key.fingerprint


@pytest.mark.parametrize("key_type", ["ssh-rsa", "ecdsa"])
def test_host_keys_of_other_types_can_be_accepted(make_sshd, ask, key_type):
    server = make_sshd(key_type=key_type)
    assert ask(server.target())["pid"]


def test_the_panels_own_known_hosts_and_config_are_not_read(sshd, ask, tmp_path, monkeypatch):
    folder = tmp_path / "home" / ".ssh"
    folder.mkdir(parents=True)
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{sshd.port} {sshd.host_key.public}\n")
    (folder / "config").write_text("Host *\n  Port 1\n  HostName 192.0.2.1\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert ask(sshd.target())["pid"]
    with pytest.raises(HostKeyUnknown):
        ask(sshd.target(host_keys=()))


def test_a_scan_tells_the_offered_key_without_a_login(sshd, node_launcher):
    found = node_launcher.scan(sshd.target(host_keys=(), private_key="no key at all"))
    assert found.host == sshd.host_key
    assert found.jump is None


def test_a_scan_asks_for_the_accepted_type_first(make_sshd, node_launcher, tmp_path):
    server = make_sshd(start=False, key_type="ssh-rsa")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "second"], check=True)
    server.settings = (f"HostKey {tmp_path / 'second'}",)
    server.start()
    assert node_launcher.scan(server.target()).host == server.host_key
    assert node_launcher.scan(server.target(host_keys=())).host.type == "ssh-ed25519"


def test_a_killed_connection_is_replaced_unseen(sshd, ask):
    before = ask(sshd.target())["pid"]
    sshd.kill_sessions()
    assert ask(sshd.target())["pid"] != before


def test_a_node_that_went_away_is_unreachable_and_comes_back(sshd, ask):
    ask(sshd.target())
    sshd.stop()
    with pytest.raises(Unreachable):
        ask(sshd.target())
    sshd.start()
    assert ask(sshd.target())["pid"]


def test_a_changed_address_opens_a_new_connection(make_sshd, ask):
    first, second = make_sshd(), make_sshd()
    before = ask(first.target(id=7))
    assert ask(second.target(id=7))["state_dir"] != before["state_dir"]


@pytest.fixture
def silent_port():
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def black_hole_port():
    """A port whose backlog is full, so that the kernel drops every further attempt to connect."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(2):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        yield listener.getsockname()[1]
        for filler in fillers:
            filler.close()


def test_a_server_that_says_nothing_times_out(sshd, ask, silent_port, monkeypatch):
    monkeypatch.setattr(ssh, "LOGIN_TIMEOUT_S", 0.3)
    with pytest.raises(TimedOut):
        ask(sshd.target(port=silent_port))


def test_an_address_that_swallows_packets_is_unreachable(sshd, ask, black_hole_port, monkeypatch):
    monkeypatch.setattr(ssh, "CONNECT_TIMEOUT_S", 0.3)
    with pytest.raises(Unreachable):
        ask(sshd.target(port=black_hole_port))


def test_a_server_that_speaks_no_ssh_is_unreachable(sshd, ask, silent_port):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 2000)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Unreachable):
            ask(sshd.target(port=listener.getsockname()[1]))
        thread.join()


class TestJumpHost:
    @pytest.fixture
    def jump(self, make_sshd):
        return make_sshd()

    def test_a_node_is_reached_through_a_jump_host(self, sshd, jump, ask):
        assert ask(sshd.target(jump=jump.endpoint()))["state_dir"].startswith(str(sshd.folder))

    def test_the_jump_hosts_key_is_pinned_too(self, sshd, jump, ask):
        with pytest.raises(HostKeyUnknown, match="Jump host") as caught:
            ask(sshd.target(jump=jump.endpoint(host_keys=())))
        assert caught.value.detail["jump"] is True
        assert caught.value.detail["offered"]["fingerprint"] == jump.host_key.fingerprint
        with pytest.raises(HostKeyChanged, match="Jump host"):
            ask(sshd.target(jump=jump.endpoint(host_keys=(sshd.host_key.public,))))

    def test_a_jump_host_that_refuses_us_is_named(self, sshd, jump, ask):
        with pytest.raises(AuthFailed, match="Jump host"):
            ask(sshd.target(jump=jump.endpoint(private_key=sshd.private_key)))

    def test_a_node_that_the_jump_host_cannot_reach_is_unreachable(self, sshd, jump, ask):
        with pytest.raises(Unreachable):
            ask(sshd.target(jump=jump.endpoint(), port=free_port()))

    def test_a_jump_host_that_died_is_opened_again(self, sshd, jump, ask):
        before = ask(sshd.target(jump=jump.endpoint()))["pid"]
        jump.kill_sessions()
        assert ask(sshd.target(jump=jump.endpoint()))["pid"] != before

    def test_a_scan_stops_at_a_jump_host_nobody_accepted(self, sshd, jump, node_launcher):
        found = node_launcher.scan(sshd.target(host_keys=(), jump=jump.endpoint(host_keys=())))
        assert found.jump == jump.host_key
        assert found.host is None

    def test_a_scan_goes_through_an_accepted_jump_host(self, sshd, jump, node_launcher):
        found = node_launcher.scan(sshd.target(host_keys=(), jump=jump.endpoint()))
        assert (found.host, found.jump) == (sshd.host_key, jump.host_key)


class TestShells:
    """The login shell is told `/bin/sh` and nothing else; a forced command stands in for other login shells."""

    @pytest.mark.parametrize("shell", ["/bin/csh", "/usr/bin/fish", "/bin/bash", "/bin/dash"])
    def test_every_login_shell_takes_the_command(self, make_sshd, ask, shell):
        if not shutil.which(shell):
            give_up(f"{shell} is missing: install tcsh, fish, bash and dash")
        server = make_sshd(f'ForceCommand exec {shell} -c "$SSH_ORIGINAL_COMMAND"')
        assert ask(server.target())["pid"]

    def test_the_command_never_holds_anything_of_the_user(self, make_sshd, ask, tmp_path):
        server = make_sshd(f'ForceCommand printf %s "$SSH_ORIGINAL_COMMAND" > {tmp_path}/told; exec /bin/sh')
        interpreter = tmp_path / "a 'path' $(touch boo)\n; é"
        interpreter.symlink_to("/usr/bin/python3")
        assert ask(server.target(interpreter=str(interpreter)))["pid"]
        assert (tmp_path / "told").read_text() == "/bin/sh"

    @pytest.mark.parametrize(
        "noise",
        [
            "echo Welcome; echo warning >&2",
            "printf 'PHF1 00000000000000000000000000000000 00000002\\n{}\\n'",
            "printf '\\nPHBOOT 00000000000000000000000000000000 3.11.2\\n'",
            "head -c 200000 /dev/urandom; head -c 300000 /dev/zero >&2",
        ],
    )
    def test_what_startup_files_print_does_no_harm(self, make_sshd, ask, noise):
        server = make_sshd(f"ForceCommand {noise}; exec /bin/sh")
        assert ask(server.target())["pid"]

    def test_a_shell_that_never_stops_talking_is_given_up(self, make_sshd, ask):
        server = make_sshd("ForceCommand yes | head -c 400000; exec /bin/sh")
        with pytest.raises(HelperFailed) as caught:
            ask(server.target())
        assert caught.value.code == "PROTOCOL"
        assert caught.value.detail["noise"].startswith("y\ny\n")

    def test_a_login_that_only_says_goodbye_is_told_with_its_words(self, make_sshd, ask):
        server = make_sshd("ForceCommand echo This account is not available.; echo Bye >&2; exit 1")
        with pytest.raises(HelperFailed) as caught:
            ask(server.target())
        assert caught.value.code == "BOOT_FAILED"
        assert "not available" in caught.value.detail["noise"]
        assert "Bye" in caught.value.detail["stderr"]

    def test_a_missing_interpreter_is_typed_and_named(self, sshd, ask):
        with pytest.raises(HelperFailed) as caught:
            ask(sshd.target(interpreter="/opt/no such/python3"))
        assert caught.value.code == "INTERPRETER_MISSING"
        assert "/opt/no such/python3" in caught.value.message
        assert caught.value.remedy

    def test_an_interpreter_that_is_too_old_is_typed(self, sshd, ask, tmp_path):
        old = tmp_path / "python3"
        old.write_text(
            "#!/bin/sh\nfor last; do :; done\n"
            "case $last in *version_info*) exit 1;; esac\n"
            'printf "\\nPHFAIL %s INTERPRETER_TOO_OLD 3.6.15\\n" "$last"\n'
        )
        old.chmod(0o755)
        with pytest.raises(HelperFailed) as caught:
            ask(sshd.target(interpreter=str(old)))
        assert caught.value.code == "INTERPRETER_TOO_OLD"
        assert "3.6.15" in caught.value.message


def test_a_helper_that_hangs_at_start_times_out_with_what_was_said(make_sshd, monkeypatch):
    import asyncio

    from deployments.remote.channel import open_channel

    server = make_sshd("ForceCommand echo Please wait; exec cat > /dev/null")

    async def attempt():
        jumps = ssh.JumpHosts()
        link = await ssh.open_link(server.target(), jumps)
        await open_channel(link, node="node-a", installation="x", deadline_s=1.0)

    with pytest.raises(TimedOut) as caught:
        asyncio.run(attempt())
    assert caught.value.detail["noise"] == "Please wait\n"


def test_every_error_names_the_node(sshd, ask):
    for changes in ({"port": free_port()}, {"host_keys": ()}, {"user": "nobody-like-this"}):
        with pytest.raises(RemoteError) as caught:
            ask(sshd.target(**changes))
        assert caught.value.node == "node-a"


def test_secrets_do_not_show_in_a_targets_text(sshd):
    assert sshd.private_key.splitlines()[1] not in repr(sshd.target())
    assert dataclasses.replace(sshd.endpoint(), port=22).port == 22
    assert host_key(sshd.host_key.public) == sshd.host_key
