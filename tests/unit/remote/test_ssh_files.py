"""Reading keys, configs and known hosts.

The expected answers are OpenSSH's own: `ssh -G -F config ALIAS`, `ssh-keygen -l -F NAME -f known_hosts`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.domain.errors import InvalidInput
from deployments.remote.ssh_files import (
    generate_key,
    host_key,
    known_keys,
    parse_known_hosts,
    parse_ssh_config,
    read_private_key,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "ssh"
ED25519 = "SHA256:gYUdH00cIy11ccHiP+418run36mTnRzc/aj9tVcBN3M"
RSA = "SHA256:IRRKnZ+9TRQByTXbaCLO0dinVR07ceu8ZdJ6SFMkznM"
ECDSA = "SHA256:/wTWjV+YimQoOVXalfDlLBcIIlQ32CwPBVf+QBzcdO4"


def test_a_config_gives_each_alias_what_openssh_would_use():
    hosts = parse_ssh_config((GOLDEN / "config").read_text())
    assert [asdict(host) for host in hosts] == json.loads((GOLDEN / "config.json").read_text())


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("Host a\n  ProxyCommand nc %h %p\n", 2, "ProxyCommand"),
        ("Host a\n\nproxycommand=nc\n", 3, "ProxyCommand"),
        ("Match exec true\n", 1, "Match exec"),
        ('Match host a exec "rm -rf /"\n', 1, "Match exec"),
        ("Match !exec true\n", 1, "Match exec"),
        ("Match exec=true\n", 1, "Match exec"),
    ],
)
def test_a_config_that_would_run_a_program_is_refused_with_its_line(text, line, what):
    with pytest.raises(InvalidInput, match=what) as caught:
        parse_ssh_config(text)
    assert f"Line {line} " in caught.value.message
    assert caught.value.field == "ssh_config"
    assert caught.value.remedy


@pytest.mark.parametrize(
    "text", ['Host "a\n', "Host\n", "Host a\n Port 99999\n", "Host a\n Port ²\n", "Host a\n User b c\n"]
)
def test_a_config_line_that_makes_no_sense_is_named(text):
    with pytest.raises(InvalidInput, match=r"Line \d"):
        parse_ssh_config(text)


def test_an_include_is_not_followed(tmp_path):
    (tmp_path / "more").write_text("Host hidden\n")
    assert parse_ssh_config(f"Include {tmp_path}/more\nHost seen\n")[0].alias == "seen"
    assert len(parse_ssh_config(f"Include {tmp_path}/more\nHost seen\n")) == 1


@given(st.text())
def test_any_text_is_a_config_or_a_typed_error(text):
    with contextlib.suppress(InvalidInput):
        parse_ssh_config(text)


@pytest.mark.parametrize(
    ("address", "port", "fingerprints"),
    [
        ("gpu-a", 22, [ED25519]),
        ("GPU-A", 22, [ED25519]),
        ("10.0.0.11", 22, [ED25519]),
        ("gpu-b", 2222, [RSA]),
        ("gpu-b", 22, []),
        ("x.cluster.example", 22, [ECDSA]),
        ("bad.cluster.example", 22, []),
        ("gpu-r", 22, []),
        ("x.ca.example", 22, []),
        ("hashed.example", 22, [ED25519]),
        ("192.0.2.7", 22, [ED25519]),
        ("hashed.example", 2222, [ECDSA]),
    ],
)
def test_known_hosts_gives_the_keys_that_openssh_finds(address, port, fingerprints):
    entries = parse_known_hosts((GOLDEN / "known_hosts").read_text())
    assert [key.fingerprint for key in known_keys(entries, address, port)] == fingerprints


def test_known_hosts_keeps_lines_markers_and_types():
    entries = parse_known_hosts((GOLDEN / "known_hosts").read_text())
    assert [entry.line for entry in entries] == [3, 4, 5, 6, 7, 8, 9, 10, 11]
    assert [entry.marker for entry in entries][3:6] == ["revoked", None, "cert-authority"]
    assert entries[1].key.type == "ssh-rsa"
    assert entries[1].key.public.count(" ") == 1


@pytest.mark.parametrize("line", ["gpu-a", "gpu-a ssh-ed25519", "gpu-a ssh-ed25519 !!!", "@strange a ssh-rsa AAAA"])
def test_a_known_hosts_line_that_is_no_entry_is_named(line):
    with pytest.raises(InvalidInput, match="Line 2 of known_hosts"):
        parse_known_hosts(f"# first\n{line}\n")


@given(st.text())
def test_any_text_is_known_hosts_or_a_typed_error(text):
    with contextlib.suppress(InvalidInput):
        parse_known_hosts(text)


def test_a_key_that_lies_about_its_type_is_refused():
    _, public = generate_key()
    with pytest.raises(InvalidInput, match="something else"):
        host_key(public.replace("ssh-ed25519", "ssh-rsa", 1))


def test_a_generated_key_reads_back_as_ssh_keygen_sees_it(tmp_path):
    private, public = generate_key("panel@example")
    assert public.endswith(" panel@example")
    (tmp_path / "key.pub").write_text(public + "\n")
    said = subprocess.run(
        ["ssh-keygen", "-lf", tmp_path / "key.pub"], capture_output=True, text=True, check=True
    ).stdout
    line, fingerprint = read_private_key(private)
    assert line == public
    assert fingerprint == said.split()[1]


def test_a_pasted_key_may_have_space_around_it():
    private, public = generate_key()
    assert read_private_key(f"\n  {private}\n\n")[0] == public


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no private key"),
        ("hello", "not a private key"),
        ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAID+b1Fs/hiT90Kiiu3Md6tZLyjLIKNvj4NYOGT2lnI2T", "public key"),
        ("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n", "PuTTY"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n", "not a private key"),
    ],
)
def test_what_is_no_private_key_is_told_apart(text, words):
    with pytest.raises(InvalidInput, match=words) as caught:
        read_private_key(text)
    assert caught.value.field == "private_key"
    assert caught.value.remedy


@pytest.mark.parametrize("form", ["RFC4716", "PEM"])
def test_a_key_with_a_passphrase_is_told_as_such(tmp_path, form):
    kind = ["-t", "rsa", "-b", "2048"] if form == "PEM" else ["-t", "ed25519"]
    command = ["ssh-keygen", "-q", *kind, "-m", form, "-N", "a passphrase", "-f", tmp_path / "key"]
    subprocess.run(command, check=True)
    with pytest.raises(InvalidInput, match="passphrase"):
        read_private_key((tmp_path / "key").read_text())


@given(st.text())
def test_any_text_is_a_private_key_or_a_typed_error(text):
    with contextlib.suppress(InvalidInput):
        read_private_key(text)
