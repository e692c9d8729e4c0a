"""Nodes that send garbage, far too much, or without end: a typed error, bounded memory, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deployments.remote.launcher import HelperFailed, NodeTarget, StartRequest, StopRequest
from deployments.remote.node_launcher import NodeLauncher
from tests.integration.remote.garbage import WAYS
from tests.integration.remote.sshd import INSTALLATION

ROOT = Path(__file__).parents[3]
HERE = NodeTarget(1, "here", INSTALLATION)
# A connection may hold a frame, its decoded form and the pipe's buffers; garbage must not add to that (KiB).
ROOM_KIB = 200 * 1024
DEADLINE_S = 30.0

STREAMS = {
    "noise_without_newline": "256 KiB",
    "lines_of_ten_megabytes": "256 KiB",
    "a_hello_of_another_shape": "does not say who it is",
    "log_lines_instead_of_frames": "not a frame",
    "a_frame_of_four_gigabytes": "4 MiB is the most",
    "a_report_of_five_megabytes": "4 MiB is the most",
    "tiny_events_without_end": "more than 50000 messages",
    "late_replies_without_end": "more than 50000 messages",
    "a_report_of_another_shape": "makes no sense",
}


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("PILOTHOUSE_STATE_ROOT", str(tmp_path / "state"))


@pytest.fixture
def broken(tmp_path: Path) -> Callable[[str], NodeTarget]:
    """A target on this machine whose interpreter answers in one of the ways of `garbage`."""

    def make(way: str) -> NodeTarget:
        program = tmp_path / way
        program.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            f"from tests.integration.remote.garbage import main\nmain({way!r})\n"
        )
        program.chmod(0o755)
        return NodeTarget(2 + list(WAYS).index(way), way, INSTALLATION, interpreter=str(program))

    return make


async def watched(launcher: NodeLauncher, target: NodeTarget) -> HelperFailed:
    """The error that a watch ends with."""

    async def watch() -> None:
        async with contextlib.aclosing(launcher.watch(target, 0.2)) as reports:
            async for _ in reports:
                pass

    with pytest.raises(HelperFailed) as caught:
        await asyncio.wait_for(watch(), DEADLINE_S)
    return caught.value


@pytest.mark.parametrize(("way", "words"), STREAMS.items(), ids=STREAMS.keys())
async def test_a_stream_of_garbage_ends_with_a_typed_error(node_launcher, broken, way, words):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = await watched(node_launcher, broken(way))
    assert words in error.message
    assert error.code == ("BAD_REPORT" if way == "a_report_of_another_shape" else "PROTOCOL")
    assert error.node == way
    assert error.remedy
    assert len(str(error.as_dict())) < 8000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < ROOM_KIB


@pytest.mark.parametrize("way", ["lines_of_ten_megabytes", "tiny_events_without_end", "log_lines_instead_of_frames"])
async def test_a_flood_over_ssh_ends_with_the_same_error(sshd, node_launcher, broken, way):
    error = await watched(node_launcher, sshd.target(interpreter=broken(way).interpreter))
    assert STREAMS[way] in error.message
    assert error.code == "PROTOCOL"


async def test_good_nodes_are_watched_on_while_others_flood(node_launcher, broken):
    """All broken ones on one loop with a good one, which is heard until each of them has ended."""
    async with contextlib.aclosing(node_launcher.watch(HERE, 0.2)) as reports:
        await anext(reports)
        broken_ones = asyncio.gather(*(watched(node_launcher, broken(way)) for way in STREAMS))
        heard = 0
        while not broken_ones.done():
            async with asyncio.timeout(DEADLINE_S):
                await anext(reports)
            heard += 1
        assert heard > 0
        assert len(await broken_ones) == len(STREAMS)
        await anext(reports)


def test_answers_of_another_shape_are_typed_errors(node_launcher, broken):
    target = broken("answers_of_another_shape")
    calls = {
        "BAD_REPORT": [lambda: node_launcher.report(target)],
        "BAD_ANSWER": [
            lambda: node_launcher.start(target, StartRequest("p", "r", 1, "engine")),
            lambda: node_launcher.stop(target, StopRequest("p")),
            lambda: node_launcher.logs(target, "p", 0),
            lambda: node_launcher.probe(target, None),
            lambda: node_launcher.collect(target, "p"),
            lambda: node_launcher.read_model(target, "/models/m"),
        ],
    }
    for code, asked in calls.items():
        for call in asked:
            with pytest.raises(HelperFailed) as caught:
                call()
            assert (caught.value.code, caught.value.node) == (code, target.name)


def test_a_kept_connection_that_is_flooded_ends_and_the_next_node_is_asked(node_launcher, broken):
    with pytest.raises(HelperFailed, match="more than 50000 messages"):
        node_launcher.report(broken("late_replies_without_end"))
    assert node_launcher.report(HERE)["processes"] == {}
