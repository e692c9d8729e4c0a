"""`python -m benchmarks [names] [--quick] [...]`: tables on stdout, JSON in build/bench/."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from types import FrameType
from typing import NoReturn

from benchmarks.live import PARTS
from benchmarks.report import Options, save
from tests.lab.needs import LabUnavailable

NAMES = ("fanout", "make_run", "footprint", "live")


def main() -> int:
    options = _options()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    for name in options.names:
        print(f"== {name}", flush=True)
        try:
            result = importlib.import_module(f"benchmarks.{name}").run(options)
        except LabUnavailable as error:
            print(f"error: {name}: {error}", file=sys.stderr)
            return 1
        print(f"\nwritten to {save(name, result, options)}\n", flush=True)
    return 0


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure Pilothouse on this machine.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}; all when none is given")
    parser.add_argument("--quick", action="store_true", help="few repetitions and short waits: to see that it works")
    parser.add_argument("--hosts", type=_numbers, default=None, metavar="N,N", help="fan-out widths (1,4,16,32)")
    parser.add_argument("--reps", type=int, default=None, metavar="N", help="repetitions, one more is dropped")
    parser.add_argument("--fresh-clone", action="store_true", help="make_run: once from a new clone, packages too")
    parser.add_argument("--no-ansible", action="store_true", help="fanout: leave ansible out")
    parser.add_argument("--parts", type=_words, default=(), metavar="A,B", help=f"live: of {','.join(PARTS)}")
    given = parser.parse_args()
    if wrong := [name for name in given.names if name not in NAMES]:
        parser.error(f"there is no benchmark {', '.join(wrong)}")
    if wrong := [part for part in given.parts if part not in PARTS]:
        parser.error(f"live has no part {', '.join(wrong)}")
    return Options(
        names=tuple(given.names or NAMES),
        quick=given.quick,
        hosts=given.hosts or ((1, 4) if given.quick else (1, 4, 16, 32)),
        reps=given.reps or (2 if given.quick else 7),
        fresh_clone=given.fresh_clone,
        ansible=not given.no_ansible,
        parts=given.parts,
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(word) for word in text.split(",")}))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
