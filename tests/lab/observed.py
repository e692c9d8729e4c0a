"""What a host's own `ps` and `ss` say, as values."""

from __future__ import annotations

from dataclasses import dataclass

PS_FIELDS = "pid=,ppid=,pgid=,sid=,stat=,user:32=,comm:32=,args="


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the host's own `ps`."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    state: str
    user: str
    name: str
    command: str


@dataclass(frozen=True, slots=True)
class Listener:
    """One TCP port that is listened on, from the host's own `ss`; `pid` is None for a process that `ss` cannot name."""

    address: str
    port: int
    pid: int | None
    name: str | None


def parse_ps(text: str) -> list[Process]:
    """The output of `ps -ewwo PS_FIELDS`, without that ps itself."""
    found = []
    for line in text.splitlines():
        pid, ppid, pgid, sid, state, user, name, *command = line.split(None, 7)
        process = Process(int(pid), int(ppid), int(pgid), int(sid), state, user, name, command[0] if command else "")
        if PS_FIELDS not in process.command:
            found.append(process)
    return found


def parse_ss(text: str) -> list[Listener]:
    """The output of `ss -Hltnp`."""
    found = []
    for line in text.splitlines():
        words = line.split()
        address, _, port = words[3].rpartition(":")
        name, pid = _owner(words[5]) if len(words) > 5 else (None, None)
        found.append(Listener(address.strip("[]"), int(port), pid, name))
    return found


def _owner(users: str) -> tuple[str | None, int | None]:
    """Name and pid out of ss's `users:(("sshd",pid=7,fd=3))`, the first if several."""
    name = users.split('"')[1] if '"' in users else None
    pid = users.partition("pid=")[2].partition(",")[0]
    return name, int(pid) if pid.isdigit() else None
