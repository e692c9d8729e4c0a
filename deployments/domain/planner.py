"""The planner: how a model can be split over a fleet, what that takes, which split to choose and why not the others.

    plan(KnownModel(facts, config), fleet, PlanWish(settings))  ->  Plan

Pure, and the same offline and in the panel. Rules of the engine are asked of `rules`, memory of `memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from . import rules
from .accelerators import Device, weakest
from .anatomy import UnknownModel
from .fleet import Fleet, Pool
from .memory import Estimate, Learned, Model, Settings, estimate, read_model
from .parameters import Sizes
from .plan_subject import KnownModel, PlanWish, subject_of
from .plan_words import (
    Crossing,
    crossings,
    explain,
    kind_of,
    no_such_layout,
    overfilled,
    sizes_word,
    too_few,
    too_full,
    too_long,
    too_small,
)
from .plugins import Problem

# A context below this is of no use to people; a plan that would have to go there is refused.
LEAST_CONTEXT = 2048
# What must be free beyond the budget when the engine looks, and the step in which a utilization is written.
START_MARGIN_MIB = 256
LEAST_UTILIZATION = 0.1
# Members of a data parallel copy that are tried without being asked for.
MOST_DATA = 64
# Rules on the model's shape against the tensor parallel size alone: heads, widths, vocabulary, quantisation groups.
SHAPE_RULES = frozenset((1, 2, 3, 4, 10))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A layout that fits.

    Attributes:
        nodes, per_node: Machines of one copy, and accelerators on each.
        copies: How many copies of it the fleet's like machines have room for.
        utilization, max_model_len: What to start it with; `shortened` = less than the model's own length.
    """

    kind: str
    sizes: Sizes
    nodes: int
    per_node: int
    device: Device
    machines: tuple[str, ...]
    copies: int
    utilization: float
    max_model_len: int
    shortened: bool
    estimate: Estimate
    crossings: tuple[Crossing, ...]
    reasons: tuple[str, ...]
    warnings: tuple[Problem, ...] = ()

    @property
    def gpus(self) -> int:
        return self.nodes * self.per_node

    @property
    def is_sure(self) -> bool:
        """It takes what was asked for even if each part is at its highest."""
        return not self.shortened and self.estimate.concurrency[0] >= 1

    @property
    def word(self) -> str:
        return sizes_word(self.sizes, self.nodes)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A layout that is ruled out, and by what: `rule` is the number of the rule, None = memory or machines.

    One of several that the same reason rules out stands for all of them. `sizes` None = no layout was tried.
    """

    word: str
    device: str
    problem: Problem
    sizes: Sizes | None = None
    nodes: int = 1

    @property
    def rule(self) -> int | None:
        return self.problem.rule


@dataclass(frozen=True, slots=True)
class Plan:
    """What fits, best first, and what does not. `unknown` says why nothing can be said at all."""

    candidates: tuple[Candidate, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    unknown: UnknownModel | None = None
    held: tuple[str, ...] = ()

    @property
    def recommendation(self) -> Candidate | None:
        return self.candidates[0] if self.candidates else None


# What a start of this model reported earlier on such a device with such sizes; the calibration store answers it.
Recall = Callable[[Device, Sizes, Settings], Learned | None]


def plan(model: KnownModel, fleet: Fleet, wish: PlanWish, recall: Recall | None = None) -> Plan:
    """All layouts of one copy of a model on a fleet.

    Args:
        model: What is known of it.
        fleet: Where it may go.
        wish: What is asked for.
        recall: Figures of earlier starts; None = there are none.
    """
    read = read_model(model.config, model.facts.weight_bytes, wish.settings)
    if isinstance(read, UnknownModel):
        return Plan(unknown=read, held=fleet.held)
    found: list[Candidate] = []
    refused: dict[tuple[str, str], Refusal] = {}
    known: dict[Any, Estimate | UnknownModel] = {}
    rulings: dict[Any, list[Problem]] = {}
    shapes: set[int] = set()
    # The largest pools first: what a model's shape rules out is said once, with the widest choice beside it.
    for pool in sorted(fleet.pools, key=lambda pool: -len(pool.devices)):
        planner = _Planner(model, read, pool, wish, recall, known, rulings, shapes)
        for answer in planner.answers():
            if isinstance(answer, UnknownModel):
                return Plan(unknown=answer, held=fleet.held)
            if isinstance(answer, Candidate):
                found.append(answer)
            else:
                refused.setdefault((answer.device, answer.problem.message), answer)
    if not found and not refused:
        nothing = Refusal(wish.kind or "any layout", "", no_such_layout(wish.kind, bool(fleet.pools)))
        return Plan(refusals=(nothing,), held=fleet.held)
    return Plan(tuple(sorted(found, key=_rank)), tuple(refused.values()), held=fleet.held)


def _rank(candidate: Candidate) -> tuple[Any, ...]:
    """Surely before perhaps, whole context before less, one machine before several, few accelerators before many.

    Accelerators are counted in powers of two: a machine's are rarely put to use in threes or sixes, and a cheaper split
    over eight is better than an odd one over six.
    """
    return (
        candidate.estimate.concurrency[0] < 1,
        candidate.shortened,
        candidate.nodes > 1,
        (candidate.gpus - 1).bit_length(),
        sum(crossing.cost for crossing in candidate.crossings),
        candidate.gpus,
        -candidate.estimate.concurrency[1],
        candidate.device.name,
    )


@dataclass(frozen=True, slots=True)
class _Planner:
    """One pool's layouts. Sizes are tried one after the other; each gives a candidate or the reason against it.

    `known`, `rulings` and `shapes` (tensor sizes that the model's shape rules out) are shared by all pools, which
    often differ only in how many devices are free.
    """

    source: KnownModel
    model: Model
    pool: Pool
    wish: PlanWish
    recall: Recall | None
    known: dict[Any, Estimate | UnknownModel]
    rulings: dict[Any, list[Problem]]
    shapes: set[int]

    def answers(self) -> Iterator[Candidate | Refusal | UnknownModel]:
        """More machines are tried only while fewer do not surely take the whole context."""
        if self.wish.nodes is not None and self.wish.nodes > len(self.pool.machines):
            few = too_few(self.wish.nodes, len(self.pool.machines))
            yield Refusal(f"{self.wish.nodes} nodes", self.pool.name, few)
            return
        refused: set[tuple[int, int]] = set()
        for nodes in self._node_counts():
            found = False
            for sizes in _splits(len(self.pool.devices), nodes, self.wish):
                if sizes.tensor in self.shapes or (sizes.tensor, sizes.pipeline) in refused:
                    continue
                if self._is_other_kind(sizes, nodes):
                    continue
                answer = self._answer(sizes, nodes)
                yield answer
                if isinstance(answer, Refusal) and answer.rule is None and not self.model.anatomy.is_mixture:
                    # Copies take no less. Members of a mixture share its experts, so more may fit where one does not.
                    refused.add((sizes.tensor, sizes.pipeline))
                elif isinstance(answer, Refusal) and answer.rule in SHAPE_RULES:
                    self.shapes.add(sizes.tensor)
                found = found or (isinstance(answer, Candidate) and answer.is_sure)
            if found:
                return

    def _is_other_kind(self, sizes: Sizes, nodes: int) -> bool:
        return self.wish.kind is not None and kind_of(sizes, nodes) != self.wish.kind

    def _node_counts(self) -> list[int]:
        there = len(self.pool.machines)
        if self.wish.nodes is not None:
            return [self.wish.nodes]
        powers = [1 << power for power in range(there.bit_length()) if 1 << power <= there]
        return sorted({*powers, there})

    def _answer(self, sizes: Sizes, nodes: int) -> Candidate | Refusal | UnknownModel:
        problems = self._problems(sizes, nodes)
        if any(problem.severity == "error" for problem in problems):
            return self._refused(sizes, nodes, self._worst(sizes, nodes, problems))
        per_node = sizes.ranks // nodes
        device = weakest(self.pool.devices[:per_node])
        settings = self._settings(device)
        if settings is None:
            return self._refused(sizes, nodes, too_full(device, self.wish.settings.gpu_memory_utilization))
        figures = self._estimate(sizes, settings, device)
        if isinstance(figures, UnknownModel):
            return figures
        beyond = overfilled(figures, settings, device)
        if beyond is not None:
            return self._refused(sizes, nodes, beyond)
        shortened = None if self._enough(figures) else self._shorter(figures, sizes, settings, device)
        if shortened is None and not self._enough(figures):
            return self._refused(sizes, nodes, self._why_not(figures, settings, device))
        return self._candidate(sizes, nodes, device, settings, shortened or figures, problems)

    def _estimate(self, sizes: Sizes, settings: Settings, device: Device) -> Estimate | UnknownModel:
        key = (sizes, settings, device)
        if key not in self.known:
            learned = self.recall(device, sizes, settings) if self.recall else None
            self.known[key] = estimate(self.model, sizes, settings, device, learned)
        return self.known[key]

    def _problems(self, sizes: Sizes, nodes: int) -> list[Problem]:
        """What the rules say; of a machine only as many devices matter as a copy takes there."""
        here = self.pool.devices[: max(1, -(-sizes.ranks // nodes))]
        key = (sizes, nodes, len(here), here[0].name, self.pool.engine_version, self.pool.rdma)
        if key not in self.rulings:
            self.rulings[key] = rules.check(subject_of(self.source, self.pool, here, sizes, nodes, self.wish))
        return self.rulings[key]

    def _worst(self, sizes: Sizes, nodes: int, problems: list[Problem]) -> Problem:
        """The first error, with the sizes beside it that whole machines allow."""
        whole = rules.check(subject_of(self.source, self.pool, self.pool.devices, sizes, nodes, self.wish))
        return next(problem for problem in (*whole, *problems) if problem.severity == "error")

    def _enough(self, figures: Estimate) -> bool:
        return figures.concurrency[1] >= self.wish.concurrency

    def _shorter(self, figures: Estimate, sizes: Sizes, settings: Settings, device: Device) -> Estimate | None:
        """The figures for the longest context that fits, where the wish leaves it open."""
        longest = figures.longest[0] if figures.longest[0] >= LEAST_CONTEXT else figures.longest[1]
        length = longest // 1024 * 1024 if longest > 1024 else longest
        if self.wish.settings.max_model_len is not None or length < LEAST_CONTEXT:
            return None
        again = self._estimate(sizes, replace(settings, max_model_len=length), device)
        return again if isinstance(again, Estimate) and self._enough(again) else None

    def _settings(self, device: Device) -> Settings | None:
        """The settings with a utilization that what is free allows; None = there is none."""
        settings = replace(self.wish.settings, version=self.wish.settings.version or self.pool.engine_version)
        if device.free_mib is None:
            return settings
        left = device.free_mib - device.context_mib - START_MARGIN_MIB
        most = int(left / device.usable_mib * 100) / 100
        if most >= settings.gpu_memory_utilization:
            return settings
        if self.wish.keep_utilization or most < LEAST_UTILIZATION:
            return None
        return replace(settings, gpu_memory_utilization=most)

    def _candidate(
        self,
        sizes: Sizes,
        nodes: int,
        device: Device,
        settings: Settings,
        figures: Estimate,
        problems: Iterable[Problem],
    ) -> Candidate:
        per_node = sizes.ranks // nodes
        there = len(self.pool.machines)
        copies = there * (len(self.pool.devices) // per_node) if nodes == 1 else there // nodes
        crossed = crossings(sizes, nodes, device, rdma=self.pool.rdma)
        shortened = figures.length < self.model.anatomy.max_length and self.wish.settings.max_model_len is None
        lowered = settings.gpu_memory_utilization != self.wish.settings.gpu_memory_utilization
        return Candidate(
            kind=kind_of(sizes, nodes),
            sizes=sizes,
            nodes=nodes,
            per_node=per_node,
            device=device,
            machines=self.pool.machines[:nodes],
            copies=copies,
            utilization=settings.gpu_memory_utilization,
            max_model_len=figures.length,
            shortened=shortened,
            estimate=figures,
            crossings=crossed,
            reasons=explain(figures, device, crossed, shortened=shortened, lowered=lowered, copies=copies),
            warnings=tuple(problem for problem in problems if problem.severity != "error"),
        )

    def _why_not(self, figures: Estimate, settings: Settings, device: Device) -> Problem:
        fullest = min(figures.ranks, key=lambda rank: rank.cache.likely)
        if fullest.cache.likely <= 0:
            return too_small(fullest, settings)
        return too_long(figures, fullest, settings, self.wish.concurrency)

    def _refused(self, sizes: Sizes, nodes: int, problem: Problem) -> Refusal:
        return Refusal(sizes_word(sizes, nodes), self.pool.name, problem, sizes, nodes)


def _splits(devices: int, nodes: int, wish: PlanWish) -> Iterator[Sizes]:
    """Sizes to try on `nodes` machines of `devices` each: any that fit one machine, whole machines if several."""
    total = devices * nodes
    for tensor in _sizes(wish.tensor, total if wish.tensor else devices):
        for pipeline in _sizes(wish.pipeline, total // tensor):
            for data in _sizes(wish.data, min(total // (tensor * pipeline), MOST_DATA)):
                ranks = tensor * pipeline * data
                if nodes > 1 and (ranks % nodes or (ranks != total and not _fixed(wish))):
                    continue
                if data == 1 or wish.data or (pipeline == 1 and ranks == total):
                    yield Sizes(tensor, pipeline, data, wish.expert_parallel, wish.decode_context)


def _fixed(wish: PlanWish) -> bool:
    return wish.tensor is not None and wish.pipeline is not None


def _sizes(fixed: int | None, most: int) -> Iterable[int]:
    return (fixed,) if fixed is not None else range(1, most + 1)
