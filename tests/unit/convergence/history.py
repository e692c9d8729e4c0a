"""One random life of a panel and its fleet, from a seed: wishes change, things break, then all faults end."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from deployments.domain.states import PROCESS_FINAL, DeploymentState, ProcessState, Reason, ReplicaState, Wish

from .panel import DeploymentRow, Panel, ProcessRow, ReplicaRow
from .world import NEVER, Engine, Node, Violation, World

P, R = ProcessState, ReplicaState
GANGS = (
    ((0, True),),
    ((0, True),),
    ((0, True), (0, False)),
    ((0, False), (1, True)),
    ((0, False), (1, False), (2, True)),
)
FAULTY_STEPS = 100
QUIET_STEPS = 400


class History:
    """Everything that happens, by one random generator."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        width = rng.choice((1, 1, 2))
        nodes = [Node(i, tuple(f"s{n}" for n in range(rng.randint(1, 4)))) for i in range(rng.randint(1, 3))]
        self.world = World(rng, nodes)
        many = 1 if rng.random() < 0.6 else 2
        rows = [DeploymentRow(i, rng.choice(GANGS), width, rng.choice((1, 1, 2))) for i in range(many)]
        self.panel = Panel(self.world, rows)
        self.passes: list[tuple[float, Iterator[float]]] = []

    def run(self) -> None:
        """The whole life.

        Raises:
            Violation: A rule was broken, or it did not converge.
        """
        for _ in range(FAULTY_STEPS):
            self._pass_time(self.rng.choice((0.2, 0.5, 1.0, 1.0, 2.0, 5.0)))
            self._disturb()
            self._ring()
            self._advance(self.rng.randint(1, 12))
        self._heal()
        self._settle_down()

    def _pass_time(self, seconds: float) -> None:
        self.world.now += seconds
        for node, report in self.world.speak():
            self.panel.hear(node, report)

    # What goes wrong, and what people do

    def _disturb(self) -> None:
        rng = self.rng
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            rng.choice((*self.FAULTS, *self.WISHES))(self)

    def _node(self) -> Node:
        return self.rng.choice(list(self.world.nodes.values()))

    def _engine(self, *, openai: bool = False) -> Engine | None:
        engines = [engine for node in self.world.nodes.values() if node.up for engine in node.known.values()]
        alive = [engine for engine in engines if engine.main and engine.openai >= openai]
        return self.rng.choice(alive) if alive else None

    def _cut_or_mend(self) -> None:
        node = self._node()
        node.link = not node.link
        node.warm = 0

    def _long_silence(self) -> None:
        node = self._node()
        node.link = False
        for _ in range(self.rng.randint(2, 5)):
            self._pass_time(5.0)
            self._ring()
            self._advance(6)
        node.link, node.warm = True, 0

    def _power(self) -> None:
        node = self._node()
        node.die() if node.up else node.boot()

    def _reboot(self) -> None:
        node = self._node()
        node.die()
        node.boot()

    def _slow_reports(self) -> None:
        self._node().delay = self.rng.choice((0.0, 2.0, 5.0, 9.0))

    def _crash(self) -> None:
        engine = self._engine()
        if engine is not None:
            engine.dies_at, engine.leaves = self.world.now, self.rng.choice((0, 0, 1))

    def _sicken(self) -> None:
        engine = self._engine(openai=True)
        if engine is not None:
            engine.sick_until = self.world.now + self.rng.choice((1.0, 4.0, NEVER))
            engine.was_sick = True

    def _restart_panel(self) -> None:
        self.passes.clear()
        for node in self.world.nodes.values():
            node.warm = 0

    def _jump_clock(self) -> None:
        self.panel.skew += self.rng.choice((2.0, 20.0, 400.0))
        self.panel.jumped_at = self.world.now

    def _hang_panel(self) -> None:
        """The worker stands still for longer than its lease while the world goes on."""
        self.passes = [(self.world.now + self.rng.uniform(20, 60), step) for _, step in self.passes]

    def _double(self) -> None:
        for row in self.panel.deployments:
            self.passes.append((self.world.now, self.panel.reconcile(row)))

    def _stop_or_run(self) -> None:
        row = self.rng.choice(self.panel.deployments)
        row.wish = self.rng.choice((Wish.STOPPED, Wish.RUNNING, Wish.RUNNING))
        row.was_stopped |= row.wish is Wish.STOPPED
        row.next_look_at = self.panel.clock()

    def _pause(self) -> None:
        row = self.rng.choice(self.panel.deployments)
        row.wish = self.rng.choice((Wish.PAUSED, Wish.RUNNING))
        row.next_look_at = self.panel.clock()

    def _change(self) -> None:
        row = self.rng.choice(self.panel.deployments)
        row.generation += 1
        row.was_changed = True
        row.next_look_at = self.panel.clock()

    def _scale(self) -> None:
        row = self.rng.choice(self.panel.deployments)
        row.replicas_wished = self.rng.randint(0, 3)
        row.was_changed = True
        row.next_look_at = self.panel.clock()

    FAULTS = (
        _cut_or_mend,
        _long_silence,
        _power,
        _reboot,
        _slow_reports,
        _crash,
        _crash,
        _sicken,
        _sicken,
        _restart_panel,
        _jump_clock,
        _hang_panel,
        _double,
    )
    WISHES = (_stop_or_run, _stop_or_run, _pause, _change, _scale)

    # The panel at work

    def _ring(self) -> None:
        for row in self.panel.deployments:
            clock = self.panel.clock()
            if row.next_look_at is not None and clock >= row.next_look_at and clock >= row.lease_until:
                self.passes.append((self.world.now, self.panel.reconcile(row)))

    def _advance(self, steps: int) -> None:
        """A number of single steps of the passes under way, in random order."""
        for _ in range(steps):
            ready = [item for item in self.passes if item[0] <= self.world.now]
            if not ready:
                return
            item = self.rng.choice(ready)
            self.passes.remove(item)
            took = next(item[1], None)
            if took is not None:
                self.passes.append((self.world.now + took, item[1]))

    # The end

    def _heal(self) -> None:
        """All faults end. An operator applies again what had used up its attempts."""
        self.world.faulty = False
        for node in self.world.nodes.values():
            if not node.up:
                node.boot()
            node.link, node.delay = True, 0.0
        for row in self.panel.deployments:
            if row.wish is not Wish.STOPPED:
                row.replicas_wished = max(1, min(2, row.replicas_wished))
                row.wish = self.rng.choice((Wish.RUNNING, Wish.RUNNING, Wish.RUNNING, Wish.PAUSED))
            row.was_changed = True
            row.next_look_at = self.panel.clock()

    def _settle_down(self) -> None:
        calm, wrong = 0, None
        for _ in range(QUIET_STEPS):
            self._pass_time(2.0)
            self._ring()
            self._advance(60)
            for row in self.panel.deployments:
                if any(replica.state is R.FAILED and not replica.retiring for replica in row.replicas):
                    row.generation += 1
                    row.next_look_at = self.panel.clock()
            wrong = self._wrong()
            calm = 0 if wrong else calm + 1
            if calm == 3:
                return
        raise Violation(f"it did not converge: {wrong}")

    def _wrong(self) -> str | None:
        """What is not yet as wished, in words."""
        for row in self.panel.deployments:
            problem = self._deployment_wrong(row)
            if problem:
                return f"deployment {row.id}: {problem}"
        for node in self.world.nodes.values():
            for engine in node.known.values():
                if engine.members and self.panel.rows[engine.id].state in PROCESS_FINAL:
                    raise Violation(f"orphan: {engine.id} lives on node {node.id}")
        return None

    def _deployment_wrong(self, row: DeploymentRow) -> str | None:
        live = [replica for replica in row.replicas if replica.state is not R.STOPPED]
        if row.wish is Wish.STOPPED:
            return None if not live and row.state is DeploymentState.STOPPED else f"{len(live)} replicas are left"
        processes = [process for replica in live for process in replica.current() if process.state not in PROCESS_FINAL]
        bad = [process for process in processes if not self._good(row, process)]
        if bad:
            return f"{bad[0].id} is {bad[0].state}"
        if any(replica.generation != row.generation or replica.index >= row.replicas_wished for replica in live):
            return "an old replica is left"
        if row.wish is Wish.PAUSED:
            return None
        if len(live) < row.replicas_wished:
            return "a replica is missing"
        waiting = [replica for replica in live if replica.state is not R.READY]
        if not waiting:
            return None if row.state is DeploymentState.READY else f"all replicas are ready, it is {row.state}"
        return self._waits_for_seats(row, waiting)

    def _waits_for_seats(self, row: DeploymentRow, waiting: list[ReplicaRow]) -> str | None:
        """Replicas may only wait where there is no room for one more of them."""
        for replica in waiting:
            alive = any(process.state not in PROCESS_FINAL for process in replica.current())
            if alive or replica.reason is not Reason.UNPLACEABLE:
                return f"{replica.id} is {replica.state}"
        if len(self.panel.free_seats(row.width)) >= len(row.gang):
            return f"{waiting[0].id} has room and is not placed"
        return None if row.state is not DeploymentState.READY else "it says READY and is not"

    def _good(self, row: DeploymentRow, process: ProcessRow) -> bool:
        if process.state is P.READY:
            engine = self.world.nodes[process.node].known[process.id]
            return engine.main and self.world.now >= engine.ready_at and self.world.now >= engine.sick_until
        return row.wish is Wish.PAUSED and process.state is P.PENDING and not process.launch_requested
