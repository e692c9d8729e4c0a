"""The lab by hand: `python -m tests.lab up N`, `panel`, `engine`, `down --stale`, `needs`."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from types import FrameType
from typing import NoReturn

from tests.lab import by_hand, engine, folder, needs
from tests.lab.client import ApiError
from tests.lab.hosts import Host, Lab


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        return options.run(options)
    except (needs.LabUnavailable, engine.EngineUnavailable) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description="Hosts to try Pilothouse on.")
    commands = parser.add_subparsers(required=True)
    up = commands.add_parser("up", help="start hosts and keep them until Ctrl-C")
    up.add_argument("count", type=int, nargs="?", default=2)
    up.add_argument("--hidden", type=int, default=0, metavar="N", help="hosts that only the first one reaches")
    up.add_argument("--json", action="store_true", help="one line of JSON a host")
    up.set_defaults(run=_up)
    panel = commands.add_parser("panel", help="start hosts, registered in a running panel, until Ctrl-C")
    panel.add_argument("count", type=int, nargs="?", default=2)
    panel.set_defaults(run=_panel)
    make = commands.add_parser("engine", help="make the engine environment and the tiny model, print their paths")
    make.add_argument("--json", action="store_true")
    make.set_defaults(run=_engine)
    down = commands.add_parser("down", help="remove what labs left behind")
    down.add_argument("--stale", action="store_true", required=True, help="only of owners that are dead")
    down.set_defaults(run=_down)
    commands.add_parser("needs", help="say what this machine lacks").set_defaults(run=_needs)
    return parser


def _up(options: argparse.Namespace) -> int:
    _end_in_order()
    with contextlib.suppress(KeyboardInterrupt), Lab(options.count, hidden=options.hidden, binds=engine.binds()) as lab:
        for host in lab.hosts:
            print(json.dumps(describe(host)) if options.json else _line(host), flush=True)
        if not options.json:
            print(f"The machine is {lab.machine_address} to them. Ctrl-C ends the lab.", flush=True)
        while True:
            signal.pause()
    return 0


def _panel(options: argparse.Namespace) -> int:
    _end_in_order()
    try:
        by_hand.run(options.count)
    except KeyboardInterrupt:
        return 0
    except (ApiError, RuntimeError, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _end_in_order() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def describe(host: Host) -> dict[str, object]:
    """What a client needs to log in."""
    return {
        "name": host.name,
        "address": host.address,
        "port": host.port,
        "user": host.user,
        "key_path": str(host.key_path),
        "host_key": host.host_key,
        "jump": host.jump.name if host.jump else None,
    }


def _line(host: Host) -> str:
    jump = f"  (through {host.jump.name})" if host.jump else ""
    return f"{host.name}  {host.user}@{host.address}:{host.port}  key {host.key_path}{jump}"


def _engine(options: argparse.Namespace) -> int:
    made = engine.build()
    paths = {"environment": str(made.root), "model": str(made.model)}
    print(json.dumps(paths) if options.json else f"environment {made.root}\nmodel {made.model}")
    return 0


def _down(options: argparse.Namespace) -> int:
    for removed in folder.sweep():
        print(f"removed {removed}")
    return 0


def _needs(options: argparse.Namespace) -> int:
    missing = needs.missing()
    for reason in missing:
        print(f"missing: {reason}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
