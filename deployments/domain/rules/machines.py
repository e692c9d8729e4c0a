"""Rules 7 to 9 and 24 to 26: ranks on machines, and what the machines must have."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from packaging.version import Version

from ..plugins import Problem
from .capability import ranks_on
from .rule import Rule, doubtful, listed, wrong
from .shape import PP, TP
from .split import good_sizes
from .subject import Host, Subject, oldest

NODES_SINCE = "0.11.1"
ENOUGH_FILES = 65536
ENOUGH_SHM_MIB = 2048
MIB = 1024 * 1024
# The executors that take ranks on several machines without Ray.
OWN = ("mp", "uni", "external_launcher")


def room(subject: Subject) -> int | None:
    """Accelerators of the smallest machine that is known; None = none is."""
    return min((len(host.accelerators) for host in subject.hosts if host.accelerators is not None), default=None)


def world(subject: Subject) -> Iterator[Problem]:
    """7: the ranks divide over the machines and fit each of them; machines agree on who is which rank."""
    yield from _divides(subject)
    yield from _fits(subject)
    yield from _ranks(subject)
    yield from _versions(subject)


def _divides(subject: Subject) -> Iterator[Problem]:
    total, nodes = subject.world_size, subject.nodes
    if nodes > 1 and subject.backend != "ray" and subject.data_parallel_size_local is None and total % nodes:
        fits = [n for n in range(1, min(total, 64) + 1) if total % n == 0]
        yield wrong(
            "nodes",
            f"{_product(subject)} = {total} ranks cannot be spread evenly over {nodes} machines.",
            f"Choose a number of machines that divides {total} ({listed(fits)}), or other sizes.",
            fits,
        )


def _product(subject: Subject) -> str:
    parts = [
        ("tensor", subject.tensor_parallel_size),
        ("pipeline", subject.pipeline_parallel_size),
        ("prefill context", subject.prefill_context_parallel_size),
        ("data", subject.data_parallel_size),
    ]
    said = [f"{name} {size}" for name, size in parts if size > 1 or name == "tensor"]
    return " x ".join(said)


def _free_choice(subject: Subject) -> bool:
    # Rule 26 speaks where people left the executor to the engine.
    return subject.backend is None and subject.nodes == 1


def _fits(subject: Subject) -> Iterator[Problem]:
    if _free_choice(subject) or subject.world_size % subject.nodes or not overfull(subject):
        return
    if subject.backend == "ray":
        has = sum(len(host.accelerators or ()) for host in subject.hosts)
        said = f"asks for {subject.world_size} accelerators; all machines together have {has}."
    else:
        each = "each machine" if subject.nodes > 1 else "one machine"
        said = f"asks for {ranks_on(subject)} accelerators on {each}; the smallest has {room(subject)}."
    setting, fits = _smaller(subject)
    yield wrong(
        setting,
        f"{_product(subject)} {said}",
        f"Set {setting.replace('_', ' ')} to {listed(fits)}, or use more machines."
        if fits
        else "Choose smaller sizes, or machines with more accelerators.",
        fits,
    )


def overfull(subject: Subject) -> bool:
    """Whether the ranks are more than the accelerators that are known; unknown machines have room."""
    if subject.backend == "ray":
        whole = len(subject.hosts) >= subject.nodes and all(host.accelerators is not None for host in subject.hosts)
        return whole and subject.world_size > sum(len(host.accelerators or ()) for host in subject.hosts)
    has = room(subject)
    return has is not None and ranks_on(subject) > has


def _smaller(subject: Subject) -> tuple[str, tuple[int, ...]]:
    """The first size whose smaller values make everything fit, and those values."""
    local = "data_parallel_size_local" if subject.data_parallel_size_local else "data_parallel_size"
    for setting in (local, PP, TP, "prefill_context_parallel_size"):
        now = getattr(subject, setting)
        sizes = (1, *good_sizes(subject)) if setting == TP else range(1, now)
        fits = tuple(n for n in dict.fromkeys(sizes) if n < now and _would_fit(subject.changed(setting, n)))
        if fits:
            return setting, fits
    return TP, ()


def _would_fit(subject: Subject) -> bool:
    return not overfull(subject) and not any(_divides(subject))


def _ranks(subject: Subject) -> Iterator[Problem]:
    known = {host.name: host.rank for host in subject.hosts if host.rank is not None}
    if subject.nodes == 1 or subject.backend == "ray":
        return
    taken: set[int] = set()
    for name, rank in known.items():
        free = [n for n in range(subject.nodes) if n not in known.values()]
        if not 0 <= rank < subject.nodes:
            said = f"{name} is told rank {rank}; with {subject.nodes} machines ranks go from 0 to {subject.nodes - 1}."
            yield wrong("rank", said, f"Give it rank {listed(free)}.", free, node=name)
        elif rank in taken:
            said = f"{name} is told rank {rank}, which another machine has."
            yield wrong("rank", said, f"Give it rank {listed(free)}.", free, node=name)
        taken.add(rank)


def _versions(subject: Subject) -> Iterator[Problem]:
    known = {host.name: found for host in subject.hosts if (found := oldest([host.engine_version])) is not None}
    if subject.nodes == 1 or not known:
        return
    newest = max(known, key=lambda name: known[name])
    least = Version("0" if subject.backend == "ray" else NODES_SINCE)
    target = max(known[newest], least)
    for name, has in known.items():
        if has < least:
            said = f"{name} has vLLM {has}, which cannot spread one engine over machines without Ray; {least} can."
            yield wrong("engine_version", said, f"Install {target} on {name}, or use Ray.", [str(target)], node=name)
        elif has != target:
            said = f"{name} has vLLM {has}, {newest} has {target}; all machines of one engine need the same."
            cure = f"Install {target} on {name}, or choose machines that agree."
            yield wrong("engine_version", said, cure, [str(target)], node=name)


def across_machines(subject: Subject) -> Iterator[Problem]:
    """8: several machines are started by an executor that can, one with the API and the others headless."""
    told = subject.args.number("nnodes") or 1
    if told > 1 and subject.backend == "ray":
        yield wrong(
            "nnodes",
            f"--nnodes {told} is for the mp executor; Ray finds its machines itself.",
            "Remove --nnodes, or set the backend to mp.",
            [1],
        )
    if subject.nodes == 1 or subject.backend == "ray":
        return
    if subject.backend not in (None, *OWN):
        yield wrong(
            "backend",
            f"The executor {subject.backend!r} does not take ranks on {subject.nodes} machines.",
            "Set the backend to mp (or ray, with a Ray cluster).",
            ["mp", "ray"],
        )
    for host in subject.hosts:
        yield from _headless(host)


def _headless(host: Host) -> Iterator[Problem]:
    if host.rank is None or host.headless is None or host.headless == (host.rank > 0):
        return
    if host.rank > 0:
        said = f"{host.name} has rank {host.rank} and is not headless; it dies, and rank 0 waits for ever."
        yield wrong("headless", said, "Start every rank but 0 with --headless.", [True], node=host.name)
    else:
        said = f"{host.name} has rank 0 and is headless; nobody would serve the API."
        yield wrong("headless", said, "Start rank 0 without --headless.", [False], node=host.name)


def fast_links(subject: Subject) -> Iterator[Problem]:
    """9: a tensor parallel group stays inside a machine, or its machines have fast links."""
    size, nodes = subject.tensor_parallel_size, subject.nodes
    if nodes == 1 or subject.world_size % nodes or not crosses(subject):
        return
    rdma = [host.rdma for host in subject.hosts]
    if rdma and all(rdma):
        return
    said = "have no RDMA between them" if False in rdma else "are not known to have RDMA between them"
    step = nodes // gcd(nodes, subject.prefill_context_parallel_size * subject.data_parallel_size)
    fits = [step * n for n in (1, 2, 4)]
    yield doubtful(
        PP,
        f"A tensor parallel group of {size} spans machines that {said}; every layer waits for the network.",
        "Set the tensor parallel size to the accelerators of one machine and the pipeline parallel size to "
        f"{listed(fits)}.",
        fits,
    )


def crosses(subject: Subject) -> bool:
    """Whether a tensor parallel group has ranks on two machines, ranks being dealt out in blocks."""
    each = max(1, subject.world_size // subject.nodes)
    return subject.tensor_parallel_size > 1 and each % subject.tensor_parallel_size != 0


def host_limits(subject: Subject) -> Iterator[Problem]:
    """24: shared memory, open files, locked memory and RAM of each machine."""
    ranks = ranks_on(subject)
    for host in subject.hosts:
        if ranks > 1 and host.shm_mib is not None and host.shm_mib < ENOUGH_SHM_MIB:
            said = f"/dev/shm of {host.name} has {host.shm_mib} MiB; {ranks} ranks exchange messages through it."
            cure = f"Give it {ENOUGH_SHM_MIB} MiB or more (in a container: --ipc=host or --shm-size)."
            yield doubtful("shm_mib", said, cure, [ENOUGH_SHM_MIB], node=host.name)
        if host.open_files is not None and host.open_files < ENOUGH_FILES:
            said = f"Processes on {host.name} may open {host.open_files} files; a busy engine needs {ENOUGH_FILES}."
            cure = f"Raise the limit of open files to {ENOUGH_FILES}."
            yield doubtful("open_files", said, cure, [ENOUGH_FILES], node=host.name)
        if host.rdma and host.memlock_unlimited is False:
            said = f"Locked memory is limited on {host.name}; RDMA needs it unlimited."
            yield doubtful("memlock_unlimited", said, "Set the memlock limit to unlimited.", [True], node=host.name)
        yield from _ram(subject, host, ranks)


def _ram(subject: Subject, host: Host, ranks: int) -> Iterator[Problem]:
    weights = subject.model.weight_bytes
    if weights is None or host.ram_mib is None:
        return
    shard = weights / (subject.tensor_parallel_size * subject.pipeline_parallel_size)
    needs = -(-int(shard * ranks) // MIB)
    if host.ram_mib < needs:
        said = f"{host.name} has {host.ram_mib} MiB of RAM; its {ranks} ranks may hold {needs} MiB while they load."
        cure = f"Choose a machine with {needs} MiB or more, or fewer ranks on it."
        yield doubtful("ram_mib", said, cure, [needs], node=host.name)


def same_path(subject: Subject) -> Iterator[Problem]:
    """25: the model has the same path on all machines."""
    known = [host for host in subject.hosts if host.model_path]
    for host in known[1:]:
        if subject.nodes > 1 and host.model_path != known[0].model_path:
            yield wrong(
                "model_path",
                f"The model is at {host.model_path} on {host.name} and at {known[0].model_path} on {known[0].name}; "
                "one engine needs one path.",
                f"Put it (or a link to it) at {known[0].model_path} on {host.name}.",
                [known[0].model_path or ""],
                node=host.name,
            )


def executor(subject: Subject) -> Iterator[Problem]:
    """26: the executor can start that many ranks; left out, the engine finds one."""
    ranks = subject.ranks_per_copy
    if subject.backend == "uni" and ranks > 1:
        said = f"The uni executor runs 1 rank; {_product(subject)} has {ranks}."
        yield wrong("backend", said, "Set the backend to mp.", ["mp"])
    if (
        _free_choice(subject)
        and ranks > 1
        and overfull(subject)
        and subject.args.word("data_parallel_backend") != "ray"
    ):
        has = room(subject)
        yield wrong(
            "backend",
            f"{_product(subject)} has {ranks_on(subject)} ranks, the machine has {has} accelerators, and the "
            "engine does not go over to Ray by itself.",
            "Set the backend to ray with a Ray cluster, give more machines, or choose smaller sizes.",
            ["ray"],
        )


RULES = (
    Rule(7, "The ranks divide over the machines and fit each of them", world),
    Rule(8, "Several machines: an executor that can, and headless ranks", across_machines),
    Rule(9, "Tensor parallel groups stay inside a machine or have fast links", fast_links),
    Rule(24, "Machines have shared memory, open files, locked memory and RAM", host_limits),
    Rule(25, "The model's path is the same on all machines", same_path),
    Rule(26, "The executor can start that many ranks", executor),
)
