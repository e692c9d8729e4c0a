"""A simulated fleet: nodes that keep the helper's promises, and engines with the habits of real ones.

Truth lives here and moves by `World.now`; the panel only ever sees reports and answers to its calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from deployments.domain.specs import ProcessEvidence
from deployments.domain.states import Reason

NEVER = float("inf")


class Violation(AssertionError):
    """Something happened that must never happen."""


class NotSent(Exception):
    """The node could not be reached; nothing was sent."""


class ReplyLost(Exception):
    """The node may have done it; its answer never came."""


class Refused(Exception):
    """The node answered that it started nothing."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Engine:
    """One process with its tree. `main` runs, `others` are its children; either may outlive the other."""

    id: str
    replica: str
    slots: tuple[str, ...]
    started: float
    openai: bool
    ready_at: float
    dies_at: float = NEVER
    leaves: int = 0
    failure: Reason | None = None
    swallows: bool = False
    sick_until: float = -1.0
    was_sick: bool = False
    main: bool = True
    others: int = 1
    asked: bool = False

    @property
    def members(self) -> int:
        return self.main + self.others

    def kill(self) -> None:
        self.main, self.others = False, 0

    def live(self, now: float) -> None:
        """What happens to it by itself until `now`."""
        if self.main and now >= self.dies_at:
            self.main, self.others = False, self.leaves


@dataclass(slots=True)
class Report:
    """What a node said at one moment, and when that moment was (the world's clock)."""

    at: float
    boot_id: str
    processes: dict[str, ProcessEvidence]


_seen: dict[tuple, ProcessEvidence] = {}


def _evidence(engine: Engine, now: float, boot_id: str, warm: int) -> ProcessEvidence:
    up = engine.main and now >= engine.ready_at
    status = 200 if up and now >= engine.sick_until else None
    key = (engine.main, engine.others, up, status, boot_id, min(warm, 2), engine.failure)
    if key not in _seen:
        _seen[key] = ProcessEvidence(
            known=True,
            alive=engine.main,
            members=engine.members,
            exit_code=None if engine.main else 1,
            health_status=status if warm else None,
            model_listed=True if up and status and warm > 1 else None,
            completion_ok=True if up and status and warm > 1 else None,
            boot_id=boot_id,
            failure=None if engine.main else engine.failure,
            probed=warm > 0,
        )
    return _seen[key]


@dataclass(slots=True)
class Node:
    """A machine with its helper: known ids, tombstones, fences. `warm` counts reports since the last connection."""

    id: int
    slots: tuple[str, ...]
    up: bool = True
    link: bool = True
    boots: int = 1
    warm: int = 2
    delay: float = 0.0
    known: dict[str, Engine] = field(default_factory=dict)
    tombstones: set[str] = field(default_factory=set)
    fences: dict[str, int] = field(default_factory=dict)
    under_way: list[Report] = field(default_factory=list)

    @property
    def boot_id(self) -> str:
        return f"{self.id}.{self.boots}"

    @property
    def reachable(self) -> bool:
        return self.up and self.link

    def die(self) -> None:
        """Power off: nothing survives but the state folder."""
        self.up = False
        for engine in self.known.values():
            engine.kill()

    def boot(self) -> None:
        self.up, self.boots, self.warm = True, self.boots + 1, 0

    def start(self, engine: Engine, attempt: int) -> str:
        """The helper's `start`: a known id does nothing; a tombstone or an older attempt is refused."""
        if engine.id in self.known and engine.id not in self.tombstones:
            return self.boot_id
        if engine.id in self.tombstones or attempt < self.fences.get(engine.replica, 0):
            raise Refused(Reason.FENCED)
        for other in self.known.values():
            if other.members and set(other.slots) & set(engine.slots):
                raise Violation(f"{engine.id} is started on {engine.slots}, which {other.id} still holds")
        self.fences[engine.replica] = attempt
        self.known[engine.id] = engine
        return self.boot_id

    def report(self, now: float) -> Report:
        processes = {}
        for engine in self.known.values():
            engine.live(now)
            processes[engine.id] = _evidence(engine, now, self.boot_id, self.warm)
        self.warm += 1
        return Report(now, self.boot_id, processes)


class World:
    """The fleet and its clock. While `faulty`, engines and answers go wrong at random."""

    def __init__(self, rng: Random, nodes: list[Node]) -> None:
        self.rng = rng
        self.nodes = {node.id: node for node in nodes}
        self.now = 1000.0
        self.faulty = True

    def new_engine(self, process_id: str, replica: str, slots: tuple[str, ...], *, openai: bool) -> Engine:
        """An engine as it comes out of its launch: mostly good, sometimes with a fate."""
        rng = self.rng
        slow = 0.0 if not openai else rng.uniform(0.5, 6.0)
        engine = Engine(process_id, replica, slots, self.now, openai, self.now + slow)
        if not self.faulty:
            return engine
        roll = rng.random()
        if roll < 0.15:
            engine.dies_at = self.now + rng.uniform(0, 12)
            engine.leaves = rng.choice((0, 0, 1, 2))
            engine.failure = rng.choice((None, None, None, Reason.OUT_OF_MEMORY))
        elif roll < 0.22:
            engine.ready_at = NEVER if openai else engine.ready_at
        engine.swallows = rng.random() < 0.3
        return engine

    def speak(self) -> list[tuple[Node, Report]]:
        """Each living node says one more thing; of what has travelled long enough, the newest arrives."""
        arrived = []
        for node in self.nodes.values():
            if not node.up:
                node.under_way.clear()
                continue
            node.under_way.append(node.report(self.now))
            due = [report for report in node.under_way if self.now - report.at >= node.delay]
            if due and node.link:
                del node.under_way[: len(due)]
                arrived.append((node, due[-1]))
        return arrived

    def call_start(self, node: Node, engine: Engine, attempt: int) -> str:
        """The answer is the boot id.

        Raises:
            NotSent, ReplyLost, Refused
        """
        if not node.reachable:
            raise NotSent
        if self.faulty and engine.id not in node.known and self.rng.random() < 0.05:
            raise Refused(self.rng.choice((Reason.PORT_IN_USE, Reason.PORT_IN_USE, Reason.ENGINE_MISSING)))
        boot_id = node.start(engine, attempt)
        if self.faulty and self.rng.random() < 0.12:
            raise ReplyLost
        return boot_id

    def term(self, node: Node, process_id: str) -> bool:
        """The first half of `stop`: a tombstone and TERM. True = something is left that KILL has to end."""
        if not node.reachable:
            raise NotSent
        node.tombstones.add(process_id)
        engine = node.known.get(process_id)
        if engine is None:
            return False
        engine.live(self.now)
        engine.asked = True
        if not engine.swallows or not engine.main:
            engine.kill()
        return engine.members > 0

    def prove(self, node: Node, process_id: str) -> bool:
        """The second half of `stop`: KILL, then the proof, which may fail or be lost on its way."""
        if not node.reachable:
            raise ReplyLost
        engine = node.known.get(process_id)
        if engine is not None:
            engine.kill()
        if self.faulty and self.rng.random() < 0.1:
            raise ReplyLost
        return not (self.faulty and self.rng.random() < 0.1)
