"""Run as a script between the supervisor and a child: ties the child's life to the supervisor, drops root, execs.

    python -I -S spawn.py PARENT_PID DEATH_SIGNAL IDENTITY PROGRAM [ARGUMENT...]

IDENTITY is `same`, `userns:UID:GID` (a user namespace in which the caller appears as UID), or `uid:UID:GID`.
The kernel forgets a parent-death signal when the ids change, so it is set last; a parent that was gone before that
is noticed by the id of the parent now. Standard library only, and nothing of this project is imported.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
CLONE_NEWUSER = 0x10000000
libc = ctypes.CDLL(None, use_errno=True)


def enter_user_namespace(uid: int, gid: int) -> None:
    """From inside, the caller is `uid`; from outside it keeps its id, so that its files and folders stay its own."""
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    check(libc.unshare(CLONE_NEWUSER), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {outer_uid} 1"), ("gid_map", f"{gid} {outer_gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def become(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main(parent: int, death_signal: int, identity: str, argv: list[str]) -> None:
    kind, _, ids = identity.partition(":")
    if kind != "same":
        uid, gid = map(int, ids.split(":"))
        {"userns": enter_user_namespace, "uid": become}[kind](uid, gid)
    check(libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0), "prctl")
    if os.getppid() != parent:
        raise SystemExit("the supervisor is gone")
    # The supervisor blocks the signals that it waits for; blocked signals would stay blocked across exec.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.execv(argv[0], argv)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
    except OSError as error:
        raise SystemExit(f"{sys.argv[4]}: {error}") from None
