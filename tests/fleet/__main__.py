"""`python -m tests.fleet [--nodes N] [--gpus N] [--control]`: a simulated fleet until Ctrl-C.

Prints one JSON object: `port`, `host_key`, `private_key`, `nodes`, `gpus`. With --control every line of stdin is a
command (see `Control`), answered by a line, and the end of stdin is the end of the fleet.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from typing import Any

from tests.fleet.busy import engine
from tests.fleet.server import Fleet

SWITCHES = ("driver_blocked", "lost_gpu", "foreign", "garbage", "stubborn", "ready_after")


class Control:
    """Does to a node what one command says: `{"node": name, "do": ..., ...}`.

    `exit` takes `process`, `code` and `signal`; `engine` takes `process` and starts one on all GPUs, behind the panel's
    back; `silence` takes `silent`; `set` takes `values`, a StubNode's switches; `reboot` takes nothing.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def obey(self, node: str, do: str, **args: Any) -> dict[str, Any]:
        machine = self._fleet.machines[node]
        if do == "exit":
            return {"at": self._fleet.exit(node, **args)}
        if do == "silence":
            self._fleet.silence(node, **args)
        elif do == "engine":
            machine.node.start(engine(args["process"], machine.node))
        elif do == "reboot":
            machine.node.reboot()
            machine.ring()
        elif do == "set":
            self._set(machine.node, args["values"])
        else:
            raise ValueError(f"there is nothing like {do!r} to do")
        return {}

    @staticmethod
    def _set(node: Any, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if name not in SWITCHES:
                raise ValueError(f"a node has no switch {name!r}")
            setattr(node, name, value)


async def serve(nodes: int, gpus: int, control: bool) -> None:
    async with Fleet(nodes, gpus) as fleet:
        _say({"port": fleet.port, "host_key": fleet.host_key, "private_key": fleet.private_key} | _size(fleet))
        if not control:
            await asyncio.Event().wait()
        obey = Control(fleet).obey
        async for line in _lines():
            try:
                _say({"ok": True, **obey(**json.loads(line))})
            except Exception as error:
                _say({"ok": False, "error": f"{type(error).__name__}: {error}"})


def _size(fleet: Fleet) -> dict[str, int]:
    return {"nodes": len(fleet.machines), "gpus": fleet.gpus}


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


async def _lines() -> Any:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description="A simulated fleet on loopback.")
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--gpus", type=int, default=8, help="H200s of each node; 0 = CPU hosts")
    parser.add_argument("--control", action="store_true", help="take commands from stdin, end with it")
    given = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(given.nodes, given.gpus, given.control))


if __name__ == "__main__":
    main()
