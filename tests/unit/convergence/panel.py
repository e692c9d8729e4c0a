"""The panel in miniature: rows, a lease, and the reconciler's pass as a generator that can die at every step.

The order is the reconciler's: lease, load, plan, rows by compare-and-set, calls, and results only if the lease is still
ours. The panel believes reports and answers only; the rules (`Violation`) are judged against the truth in the world.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from deployments.domain.plan import Collect, CreateReplica, Launch, MoveReplica, Place, Settle, Stop, plan
from deployments.domain.policy import Policy
from deployments.domain.specs import DeploymentView, LayoutSpec, ProcessEvidence, ProcessView, ReplicaView
from deployments.domain.states import (
    PROCESS_EDGES,
    PROCESS_FINAL,
    REPLICA_EDGES,
    DeploymentState,
    ProcessState,
    Reason,
    ReplicaState,
    Wish,
)

from .world import Node, NotSent, Refused, ReplyLost, Report, Violation, World

P, R = ProcessState, ReplicaState
LEASE_S = 30.0
PLACE_AGAIN_S = 5.0
POLICY = Policy(
    start_deadline=60.0,
    launch_deadline=20.0,
    unhealthy_patience=12.0,
    stop_grace=5.0,
    stop_kill=5.0,
    backoff_base=1.0,
    backoff_cap=8.0,
    healthy_reset=40.0,
    max_attempts=4,
)


@dataclass(slots=True)
class ProcessRow:
    id: str
    replica: ReplicaRow
    node: int
    attempt: int
    member: int
    wave: int
    openai: bool
    slots: tuple[str, ...]
    since: float
    state: ProcessState = P.PENDING
    reason: Reason | None = None
    launch_requested: bool = False
    boot_id: str | None = None
    deadline: float | None = None
    confirmed: bool = False
    served: bool = False


@dataclass(slots=True)
class ReplicaRow:
    id: str
    deployment: DeploymentRow
    index: int
    generation: int
    state: ReplicaState = R.PENDING
    reason: Reason | None = None
    attempt: int = 0
    failures: int = 0
    next_attempt_at: float | None = None
    ready_since: float | None = None
    retiring: bool = False
    processes: list[ProcessRow] = field(default_factory=list)

    def current(self) -> list[ProcessRow]:
        return [row for row in self.processes if row.attempt == self.attempt]


@dataclass(slots=True)
class DeploymentRow:
    """A wish and what has become of it. `gang` lists (wave, has an API) of each process; `width` is slots a process."""

    id: int
    gang: tuple[tuple[int, bool], ...]
    width: int
    replicas_wished: int
    wish: Wish = Wish.RUNNING
    generation: int = 1
    state: DeploymentState = DeploymentState.PENDING
    next_look_at: float | None = 0.0
    token: int = 0
    lease_until: float = 0.0
    was_stopped: bool = False
    was_changed: bool = False
    replicas: list[ReplicaRow] = field(default_factory=list)


class Panel:
    """All rows, and the rules that hold whatever happens."""

    def __init__(self, world: World, deployments: list[DeploymentRow]) -> None:
        self.world = world
        self.deployments = deployments
        self.skew = 0.0
        self.jumped_at = 0.0
        self.heard: dict[int, tuple[float, Report]] = {}
        self.claims: dict[tuple[int, str], str] = {}
        self.rows: dict[str, ProcessRow] = {}
        self.edges: set[tuple[ProcessState, ProcessState]] = set()
        self.count = 0

    def clock(self) -> float:
        return self.world.now + self.skew

    def hear(self, node: Node, report: Report) -> None:
        self.heard[node.id] = (self.clock(), report)

    def new_id(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # Loading

    def view(self, row: DeploymentRow) -> DeploymentView:
        replicas = tuple(self._replica_view(r) for r in row.replicas if r.state is not R.STOPPED)
        layout = LayoutSpec("single")
        return DeploymentView(
            row.id, "d", row.wish, row.generation, row.replicas_wished, row.state, layout, None, replicas
        )

    def _replica_view(self, row: ReplicaRow) -> ReplicaView:
        return ReplicaView(
            row.id,
            row.index,
            row.generation,
            row.state,
            row.attempt,
            row.failures,
            row.next_attempt_at,
            row.reason,
            row.ready_since,
            row.retiring,
            tuple(self._process_view(p) for p in row.current()),
        )

    def _process_view(self, row: ProcessRow) -> ProcessView:
        heard_at, report = self.heard.get(row.node, (None, None))
        evidence = None
        if report is not None:
            evidence = report.processes.get(row.id) or ProcessEvidence(known=False, boot_id=report.boot_id)
        return ProcessView(
            id=row.id,
            node_id=row.node,
            role="engine",
            group="main",
            member=row.member,
            rank=row.member,
            wave=row.wave,
            state=row.state,
            reason=row.reason,
            since=row.since,
            probe_kind="openai" if row.openai else "alive",
            launch_requested=row.launch_requested,
            launch_boot_id=row.boot_id,
            deadline=row.deadline,
            evidence=evidence,
            heard_at=heard_at,
            served=row.served,
        )

    # Writing

    def move(self, row: ProcessRow, old: ProcessState, new: ProcessState, reason: Reason) -> bool:
        """Compare-and-set of a process's state."""
        if row.state is not old:
            return False
        if new not in PROCESS_EDGES[old]:
            raise Violation(f"illegal edge {old} -> {new}")
        if new in PROCESS_FINAL:
            self._watch_end(row, new, reason)
            self.claims = {slot: holder for slot, holder in self.claims.items() if holder != row.id}
        self.edges.add((old, new))
        row.state, row.reason, row.since, row.deadline = new, reason, self.clock(), None
        row.confirmed |= new is P.STARTING
        row.served |= new is P.READY
        return True

    def _watch_end(self, row: ProcessRow, new: ProcessState, reason: Reason) -> None:
        engine = self.world.nodes[row.node].known.get(row.id)
        if engine is not None and engine.members:
            raise Violation(f"{row.id} became {new} ({reason}) while {engine.members} of it are alive")

    def watch_stop(self, row: ProcessRow, reason: Reason) -> None:
        """No engine is ended but for a wish, a failure of its own, or one of its gang."""
        engine = self.world.nodes[row.node].known.get(row.id)
        if engine is None or not engine.main:
            return
        deployment = row.replica.deployment
        gang = [p for p in row.replica.processes if p.attempt == row.attempt and p is not row]
        # A clock that jumps makes a start look late, and a report from before the start too young to be that old.
        jumped = not row.served and self.jumped_at >= engine.started
        slow = engine.was_sick or engine.ready_at - engine.started > POLICY.start_deadline
        grounds = {
            Reason.STOPPED_BY_OPERATOR: deployment.was_stopped,
            Reason.SUPERSEDED: deployment.was_changed,
            Reason.PEER_FAILED: any(p.state in (P.STOPPING, *PROCESS_FINAL) for p in gang),
            Reason.UNRESPONSIVE: engine.was_sick,
            Reason.START_TIMEOUT: slow or jumped,
            Reason.EXITED: jumped,
            Reason.NODE_LOST: jumped,
            Reason.UNREACHABLE: not row.confirmed,
            Reason.PORT_IN_USE: not row.confirmed,
            Reason.ENGINE_MISSING: not row.confirmed,
        }
        if not grounds.get(reason, False):
            raise Violation(f"{row.id} runs well and is stopped for {reason}")

    def settle(self, action: Settle) -> bool:
        row = self.rows[action.process_id]
        if action.never_requested and row.launch_requested:
            return False
        if not self.move(row, action.old, action.verdict.state, action.verdict.reason):
            return False
        row.deadline = action.deadline
        row.boot_id = action.boot_id or row.boot_id
        return True

    def create(self, deployment: DeploymentRow, action: CreateReplica, token: int) -> None:
        if deployment.token != token or any(
            r.index == action.index and r.state is not R.STOPPED for r in deployment.replicas
        ):
            return
        deployment.replicas.append(ReplicaRow(self.new_id("r"), deployment, action.index, action.generation))

    def move_replica(self, deployment: DeploymentRow, action: MoveReplica) -> None:
        row = next(r for r in deployment.replicas if r.id == action.replica_id)
        if row.state is not action.old:
            return
        if action.old is not action.new and action.new not in REPLICA_EDGES[action.old]:
            raise Violation(f"illegal edge {action.old} -> {action.new}")
        row.state, row.reason, row.failures = action.new, action.reason, action.failures
        row.next_attempt_at, row.ready_since, row.retiring = action.next_attempt_at, action.ready_since, action.retire

    def place(self, deployment: DeploymentRow, action: Place, token: int) -> None:
        """Rows and claims for the next attempt, all or none."""
        row = next(r for r in deployment.replicas if r.id == action.replica_id)
        if deployment.token != token or row.attempt != action.attempt - 1 or row.state is R.STOPPED:
            return
        seats = self._seats(deployment)
        if seats is None:
            row.reason, row.next_attempt_at = Reason.UNPLACEABLE, self.clock() + PLACE_AGAIN_S
            return
        row.state, row.attempt, row.next_attempt_at = R.PENDING, action.attempt, None
        for member, ((wave, openai), (node, slots)) in enumerate(zip(deployment.gang, seats, strict=True)):
            process = ProcessRow(self.new_id("p"), row, node, action.attempt, member, wave, openai, slots, self.clock())
            self.rows[process.id] = process
            row.processes.append(process)
            for slot in slots:
                if (node, slot) in self.claims:
                    raise Violation(f"{slot} of node {node} is given out twice")
                self.claims[node, slot] = process.id

    def _seats(self, deployment: DeploymentRow) -> list[tuple[int, tuple[str, ...]]] | None:
        free = self.free_seats(deployment.width)
        return free[: len(deployment.gang)] if len(free) >= len(deployment.gang) else None

    def free_seats(self, width: int) -> list[tuple[int, tuple[str, ...]]]:
        """Seats of `width` slots each on nodes that are heard."""
        seats = []
        for node in self.world.nodes.values():
            heard = self.heard.get(node.id)
            if heard is None or self.clock() - heard[0] > POLICY.report_ttl:
                continue
            free = [slot for slot in node.slots if (node.id, slot) not in self.claims]
            seats += [(node.id, tuple(free[i : i + width])) for i in range(0, len(free) - width + 1, width)]
        return seats

    # One pass

    def reconcile(self, deployment: DeploymentRow) -> Iterator[float]:
        """Each yield is a moment at which the panel may die; its value is how long the step takes."""
        if self.clock() < deployment.lease_until:
            return
        token = self.count = self.count + 1
        deployment.token, deployment.lease_until = token, self.clock() + LEASE_S
        step = plan(self.view(deployment), self.clock(), POLICY)
        looked = deployment.next_look_at
        yield 0.0
        moved = False
        for action in step.actions:
            if isinstance(action, Settle):
                if not self.settle(action):
                    moved = True
                    break
            elif isinstance(action, CreateReplica):
                self.create(deployment, action, token)
            elif isinstance(action, MoveReplica):
                self.move_replica(deployment, action)
            elif isinstance(action, Place):
                self.place(deployment, action, token)
            else:
                continue
            moved = True
            yield 0.0
        else:
            moved |= yield from self._act(deployment, step.actions, token)
        if deployment.token == token:
            deployment.state, deployment.lease_until = step.state, 0.0
            if deployment.next_look_at == looked:
                deployment.next_look_at = self.clock() if moved else step.next_look_at

    def _act(self, deployment: DeploymentRow, actions, token: int):
        moved = False
        for action in actions:
            if isinstance(action, Launch):
                moved |= yield from self._launch(deployment, action, token)
            elif isinstance(action, Stop):
                moved |= yield from self._stop(deployment, action, token)
            elif isinstance(action, Collect):
                yield 0.1
        return moved

    def _launch(self, deployment: DeploymentRow, action: Launch, token: int):
        row = self.rows[action.process_id]
        first = not row.launch_requested
        # Whoever lost the lease must send no more: its request could outlive a refusal that the new holder records.
        if row.state is not P.PENDING or deployment.token != token:
            return False
        if first:
            row.launch_requested = True
            row.deadline = row.deadline or self.clock() + POLICY.launch_deadline
        yield 0.0
        verdict = self._start(row)
        yield 0.0
        if deployment.token != token or row.state is not P.PENDING:
            return False
        if isinstance(verdict, str):
            self.move(row, P.PENDING, P.STARTING, Reason.LAUNCHED)
            row.deadline, row.boot_id = self.clock() + POLICY.start_deadline, verdict
        elif isinstance(verdict, Refused):
            # An earlier request may still be under way (its pass lost the lease): then only a stop proves anything.
            self.move(row, P.PENDING, P.FAILED if first else P.STOPPING, verdict.reason)
        elif isinstance(verdict, NotSent) and first:
            row.launch_requested = False
        return True

    def _start(self, row: ProcessRow) -> str | Exception:
        node = self.world.nodes[row.node]
        engine = self.world.new_engine(row.id, row.replica.id, row.slots, openai=row.openai)
        try:
            boot_id = self.world.call_start(node, engine, row.attempt)
        except (NotSent, ReplyLost, Refused) as error:
            return error
        if row.state in PROCESS_FINAL and node.known[row.id] is engine:
            raise Violation(f"{row.id} was started although it is {row.state}")
        return boot_id

    def _stop(self, deployment: DeploymentRow, action: Stop, token: int):
        row = self.rows[action.process_id]
        node = self.world.nodes[row.node]
        self.watch_stop(row, action.reason)
        try:
            if self.world.term(node, row.id):
                yield action.grace_s
            proven = self.world.prove(node, row.id)
        except (NotSent, ReplyLost):
            proven = False
        yield 0.0
        if not proven or deployment.token != token:
            return False
        return self.move(row, P.STOPPING, action.final, action.reason)
