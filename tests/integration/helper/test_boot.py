"""Every interpreter that a node may have: it runs the helper, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .client import BootFailed, Client, until
from .conftest import FAKE, interpreters

FOUND = interpreters()
USABLE = {version: path for version, path in FOUND.items() if tuple(map(int, version.split("."))) >= (3, 8)}
OLD = {version: path for version, path in FOUND.items() if version not in USABLE}
Connect = Callable[..., Client]


@pytest.mark.parametrize("version", sorted(USABLE))
def test_an_interpreter_starts_reports_and_stops_an_engine(connect: Connect, version: str, port: int) -> None:
    client = connect(interpreter=USABLE[version])
    assert client.hello["python"].startswith(version)
    process, started = client.start(
        argv=[USABLE[version], str(FAKE), "serve", "m", "--host", "127.0.0.1", "--port", str(port)],
        ports=[port],
        probe={"kind": "openai", "base_url": f"http://127.0.0.1:{port}", "model": "m"},
    )
    until(lambda: ((client.process(process)["probe"] or {}).get("completion") or {}).get("ok"), "a token came")
    report = client.process(process)
    assert (report["pid"], report["alive"], report["supervised"]) == (started["pid"], True, True)
    assert len(report["members"]) == 3
    proof = client.stop(process)
    assert proof["proven"]
    assert proof["exit"]["code"] == 0


@pytest.mark.parametrize("version", sorted(USABLE))
def test_an_interpreter_finds_the_facts_of_its_machine(connect: Connect, version: str) -> None:
    facts = connect(interpreter=USABLE[version]).call("probe", environment=None, paths=["/nowhere/at/all"])
    assert facts["python"]["version"].startswith(version)
    assert facts["cpu"]["threads"] >= 1
    assert facts["memory"]["total"] > facts["memory"]["available"] > 0
    assert any("127.0.0.1/8" in nic["addresses"] for nic in facts["nics"])
    assert facts["paths"]["/nowhere/at/all"]["exists"] is False
    assert any(disk["size"] for disk in facts["disks"])


@pytest.mark.parametrize("version", sorted(OLD))
def test_an_interpreter_that_is_too_old_says_so(connect: Connect, version: str) -> None:
    with pytest.raises(BootFailed, match=rf"PHFAIL [0-9a-f]{{32}} INTERPRETER_TOO_OLD {version}\."):
        connect(interpreter=OLD[version])


def test_a_missing_interpreter_is_named(connect: Connect) -> None:
    with pytest.raises(BootFailed, match="INTERPRETER_MISSING /opt/my engine/bin/python"):
        connect(interpreter="/opt/my engine/bin/python")


def test_an_interpreter_may_have_quotes_and_spaces_in_its_path(connect: Connect, tmp_path: Path) -> None:
    wrapper = tmp_path / "it's a $HOME; python"
    wrapper.write_text(f'#!/bin/sh\nexec {next(iter(USABLE.values()))} "$@"\n')
    wrapper.chmod(0o755)
    assert connect(interpreter=str(wrapper)).hello["schema"] == 1


def test_what_the_login_prints_before_is_skipped(connect: Connect) -> None:
    noisy = "echo 'welcome'; echo 'PHBOOT 00000000000000000000000000000000 3.11.2'; printf 'no newline'; exec /bin/sh"
    client = connect(command=("/bin/sh", "-c", noisy))
    assert b"welcome" in client.noise
    assert client.call("report")["schema"] == 1


def test_a_module_in_the_login_folder_does_not_shadow_the_library(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "zlib", "os", "threading"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    assert connect(env={"PYTHONPATH": str(tmp_path)}).hello["schema"] == 1
