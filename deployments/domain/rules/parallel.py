"""Rules 19 to 21: experts, context parallelism, data parallelism."""

from __future__ import annotations

from collections.abc import Iterator

from ..plugins import Problem
from . import split
from .rule import Rule, doubtful, listed, wrong
from .subject import Subject

REDUNDANT = "eplb_config.num_redundant_experts"
DCP = "decode_context_parallel_size"
PCP = "prefill_context_parallel_size"
DP = "data_parallel_size"
LOCAL = "data_parallel_size_local"
DCP_SINCE, PCP_SINCE = "0.10.2", "0.12"
ALL2ALL, GONE_BACKENDS = "allgather_reducescatter", ("pplx", "naive")


def expert_ranks(subject: Subject) -> int:
    """Ranks that experts are spread over."""
    return subject.tensor_parallel_size * subject.prefill_context_parallel_size * subject.data_parallel_size


def redundant(subject: Subject) -> int:
    """Redundant experts that are asked for."""
    inner = (subject.args.json("eplb_config") or {}).get("num_redundant_experts", 0)
    asked = inner if str(inner).isdigit() else 0
    return int(asked) or subject.args.number("num_redundant_experts") or 0


def balanced(subject: Subject) -> bool:
    """Whether expert load balancing is on."""
    return subject.args.on("enable_eplb") is True


def experts(subject: Subject) -> Iterator[Problem]:
    """19: experts exist where they are to be spread, and divide evenly where they are balanced."""
    if subject.expert_parallel and subject.config and subject.experts is None:
        say = doubtful if "expert" in str(subject.text).lower() else wrong
        yield say(
            "enable_expert_parallel",
            "The model's config names no experts that could be spread over ranks.",
            "Remove --enable-expert-parallel.",
            [False],
        )
    asked = subject.args.word("all2all_backend")
    if asked in GONE_BACKENDS and subject.at_least("0.28") is not False:
        said = f"'--all2all-backend {asked}' is gone; the engine takes {ALL2ALL} for it."
        yield doubtful("all2all_backend", said, "Remove it.", [ALL2ALL])
    count, ranks = subject.experts, expert_ranks(subject)
    total = (count or 0) + redundant(subject)
    if balanced(subject) and subject.expert_parallel and count and total % ranks:
        fits = [n - count for n in range(-(-count // ranks) * ranks, count + 4 * ranks, ranks)]
        yield wrong(
            REDUNDANT,
            f"{count} experts and {redundant(subject)} redundant ones cannot be balanced evenly over {ranks} ranks.",
            f"Set --eplb-config.num_redundant_experts to {listed(fits)}.",
            fits,
        )


def context(subject: Subject) -> Iterator[Problem]:
    """20: sizes of context parallelism fit TP and the heads; expert balancing has ranks to balance."""
    yield from _context_versions(subject)
    yield from _decode_context(subject)
    yield from _balancing(subject)


def _context_versions(subject: Subject) -> Iterator[Problem]:
    for setting, since in ((DCP, DCP_SINCE), (PCP, PCP_SINCE)):
        if getattr(subject, setting) > 1 and subject.at_least(since) is False:
            said = f"vLLM {subject.version} has no {setting.replace('_', ' ')}; it came with {since}."
            yield wrong(setting, said, f"Set it to 1, or install vLLM {since} or newer.", [1])


def _decode_context(subject: Subject) -> Iterator[Problem]:
    now, tp, pcp = (
        subject.decode_context_parallel_size,
        subject.tensor_parallel_size,
        subject.prefill_context_parallel_size,
    )
    fits = decode_context_sizes(subject)
    if now in fits:
        return
    kv = split.kv_heads(subject)
    if pcp > 1:
        why = f"with a prefill context parallel size of {pcp} and {tp} tensor ranks it can only be {listed(fits)}"
    elif tp % now:
        why = f"it does not divide the tensor parallel size {tp}"
    else:
        why = (
            f"{kv} key/value heads over {tp} ranks are held {max(1, tp // (kv or 1))} times, and only copies of a head "
            "(and the queries that use it) can share the context"
        )
    yield wrong(
        DCP,
        f"The decode context parallel size is {now}: {why}.",
        f"Set --decode-context-parallel-size to {listed(fits)}.",
        fits,
    )


def decode_context_sizes(subject: Subject) -> tuple[int, ...]:
    """Sizes of decode context parallelism that work here."""
    tp, pcp = subject.tensor_parallel_size, subject.prefill_context_parallel_size
    among = (n for n in range(1, tp + 1) if tp % n == 0) if pcp == 1 else sorted({1, pcp, tp * pcp})
    return tuple(size for size in among if _heads_share(subject, size))


def _heads_share(subject: Subject, size: int) -> bool:
    kv, heads = split.kv_heads(subject), split.heads(subject)
    if size == 1 or not kv or not heads:
        return True
    tp = subject.tensor_parallel_size
    return tp > kv and size <= tp // kv and (heads // kv) % size == 0


def _balancing(subject: Subject) -> Iterator[Problem]:
    if not balanced(subject):
        if redundant(subject):
            said = f"{redundant(subject)} redundant experts are asked for without expert load balancing."
            setting = "num_redundant_experts" if subject.args.given("num_redundant_experts") else REDUNDANT
            yield wrong(setting, said, "Remove them, or add --enable-eplb and --enable-expert-parallel.", [0])
        return
    if not subject.expert_parallel:
        said = "Expert load balancing needs expert parallelism."
        yield wrong("enable_eplb", said, "Add --enable-expert-parallel, or remove --enable-eplb.", [False])
    elif expert_ranks(subject) == 1:
        said = "Expert load balancing needs more than 1 rank of tensor, prefill context or data parallelism."
        yield wrong("enable_eplb", said, "Remove --enable-eplb, or choose larger sizes.", [False])


def data_parallel(subject: Subject) -> Iterator[Problem]:
    """21: local ranks are part of all, and there is one way of balancing, which the model and the ranks allow."""
    total, local = subject.data_parallel_size, subject.data_parallel_size_local
    if local is not None and local > total:
        fits = [n for n in range(1, total + 1) if total % n == 0]
        said = f"{local} data parallel ranks on one machine are more than the {total} of all machines."
        yield wrong(LOCAL, said, f"Set data parallel size local to at most {total} ({listed(fits)}).", fits)
    modes = subject.load_balancers
    if len(set(modes)) > 1:
        said = f"{len(set(modes))} ways of balancing data parallel ranks are asked for: {listed(modes, 'and')}."
        yield wrong("load_balancers", said, "Choose 1 of them.")
    if "external" in modes and total > 1:
        yield from _external(subject, total, local)
    for host in subject.hosts:
        if "hybrid" in modes and host.headless:
            said = f"{host.name} is headless, but with hybrid balancing each of the {total} ranks serves an API."
            yield wrong("headless", said, "Start it without --headless.", [False], node=host.name)


def _external(subject: Subject, total: int, local: int | None) -> Iterator[Problem]:
    if subject.config and subject.experts is None:
        yield wrong(
            DP,
            f"{total} data parallel ranks can be balanced from outside only for a model with experts; this has none.",
            "Set the data parallel size to 1 and run that many replicas behind a router.",
            [1],
        )
    if local not in (None, 1):
        said = f"Balanced from outside, each process has 1 data parallel rank, not {local}."
        yield wrong(LOCAL, said, "Set data parallel size local to 1.", [1])


RULES = (
    Rule(19, "Experts exist where they are spread, and divide evenly where they are balanced", experts),
    Rule(20, "Context parallel sizes fit the heads; expert balancing has ranks to balance", context),
    Rule(21, "Data parallel ranks are balanced in one way that the model allows", data_parallel),
)
