"""Stands for `pynvml` on machines without a driver: answers from a file what a real NVML answered, or would raise.

The file, named by FAKE_NVML, is read again at each call: {"calls": {call: answer}, "handles": {name: {call: answer}}}.
A call is written `nvmlDeviceGetClockInfo(1)`, without its handle. An answer `NVMLError_GpuIsLost: words` is raised,
{"handle": name} is a handle, {"blocks": path} waits in the kernel until somebody opens that pipe for writing.
"""

import json
import os
import sys
import types

nvmlMemory_v2 = 33554472

_CODES = {
    "Uninitialized": 1,
    "NotSupported": 3,
    "NoPermission": 4,
    "NotFound": 6,
    "DriverNotLoaded": 9,
    "LibraryNotFound": 12,
    "FunctionNotFound": 13,
    "GpuIsLost": 15,
    "LibRmVersionMismatch": 18,
    "Unknown": 999,
}


class NVMLError(Exception):
    value = 0


# As the real one does: whoever runs it has to have put it into sys.modules before.
for _name, _code in _CODES.items():
    setattr(sys.modules[__name__], "NVMLError_" + _name, type("NVMLError_" + _name, (NVMLError,), {"value": _code}))


class Handle:
    def __init__(self, name):
        self.name = name


def __getattr__(name):
    if not name.startswith("nvml"):
        raise AttributeError(name)

    def call(*args):
        with open(os.environ["FAKE_NVML"], encoding="utf-8") as file:
            machine = json.load(file)
        said = machine["calls"]
        if args and isinstance(args[0], Handle):
            said, args = machine["handles"][args[0].name], args[1:]
        key = f"{name}({', '.join(map(repr, args))})"
        return _answer(said.get(key, "NVMLError_FunctionNotFound: Function Not Found"))

    return call


def _answer(value):
    if isinstance(value, str) and value.startswith("NVMLError_"):
        kind, _, words = value.partition(": ")
        raise getattr(sys.modules[__name__], kind)(words)
    if isinstance(value, list):
        return [_answer(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "handle" in value:
        return Handle(value["handle"])
    if "blocks" in value:
        with open(value["blocks"], encoding="utf-8"):
            return _answer(value["answer"])
    return types.SimpleNamespace(**{name: _answer(each) for name, each in value.items()})
