"""What is asked of the planner, and how it is put to the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import rules
from .accelerators import Device
from .fleet import Pool
from .memory import Settings
from .parameters import Sizes
from .rules.subject import oldest
from .specs import Accelerator, ModelFacts


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model to plan: its facts (with the size of its files, if known) and its whole `config.json`."""

    facts: ModelFacts
    config: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class PlanWish:
    """What is asked for. None = the planner chooses.

    Attributes:
        settings: The engine's settings; without `max_model_len` the model's own length is wished, less is accepted.
        kind, tensor, pipeline, data: Fixed parts of the layout.
        nodes: Machines of one copy: as many as given, if given.
        concurrency: Requests of full length that must fit at once.
        keep_utilization: The utilization is a person's own and is not lowered to what is free.
        args: Further engine arguments, for the rules.
    """

    settings: Settings = field(default_factory=Settings)
    kind: str | None = None
    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    nodes: int | None = None
    concurrency: float = 1.0
    expert_parallel: bool = False
    decode_context: int = 1
    keep_utilization: bool = False
    args: tuple[str, ...] = ()


def subject_of(
    model: KnownModel, pool: Pool, devices: Sequence[Device], sizes: Sizes, nodes: int, wish: PlanWish
) -> rules.Subject:
    """A split as the rules look at it; one machine of the pool stands for all that it takes."""
    slots = tuple(
        Accelerator(str(index), index, device.name, device.memory_mib, device.platform, device.capability)
        for index, device in enumerate(devices)
    )
    version = wish.settings.version or pool.engine_version
    local = sizes.data // nodes if sizes.data > 1 and nodes > 1 and sizes.data % nodes == 0 else None
    return rules.Subject(
        model=model.facts,
        config=model.config,
        tensor_parallel_size=sizes.tensor,
        pipeline_parallel_size=sizes.pipeline,
        data_parallel_size=sizes.data,
        data_parallel_size_local=local,
        decode_context_parallel_size=sizes.decode_context,
        nodes=nodes,
        hosts=(rules.Host(pool.machines[0], slots, version, rdma=pool.rdma),),
        args=_arguments(wish),
        version=oldest([version]),
        platform=devices[0].platform,
    )


def _arguments(wish: PlanWish) -> rules.Arguments:
    """The wish as the engine's settings, for rules that look at them."""
    settings, found = wish.settings, rules.Arguments.of(wish.args)
    given = {
        "dtype": None if settings.dtype == "auto" else settings.dtype,
        "kv_cache_dtype": None if settings.kv_cache_dtype == "auto" else settings.kv_cache_dtype,
        "quantization": settings.quantization,
        "max_model_len": settings.max_model_len,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "enable_expert_parallel": wish.expert_parallel or None,
    }
    for name, value in given.items():
        found = found.changed(name, value) if value is not None else found
    return found
