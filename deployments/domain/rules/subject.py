"""What a rule may look at: one copy of a model, how it is split, on which machines, with which settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

from packaging.version import InvalidVersion, Version

from ..specs import Accelerator, EngineOptions, LayoutSpec, ModelFacts, NodeView
from .arguments import Arguments


@dataclass(frozen=True, slots=True)
class Host:
    """One machine of the copy. None = not known.

    Attributes:
        accelerators: Those that the launch may use there (the seat's, or all that could be), in index order.
        rank, headless: What its process is told, when it is one of several nodes.
        packages: Versions of what is installed beside the engine, by name.
        shm_mib: Size of /dev/shm. ram_mib: Memory of the machine.
        open_files: Limit of open files. memlock_unlimited: Whether locked memory has no limit.
        rdma: Whether it reaches the other machines by RDMA.
    """

    name: str
    accelerators: tuple[Accelerator, ...] | None = None
    engine_version: str | None = None
    model_path: str | None = None
    rank: int | None = None
    headless: bool | None = None
    packages: Mapping[str, str] | None = None
    shm_mib: int | None = None
    ram_mib: int | None = None
    open_files: int | None = None
    memlock_unlimited: bool | None = None
    rdma: bool | None = None

    @classmethod
    def of(cls, node: NodeView, accelerators: Iterable[Accelerator] | None = None) -> Host:
        """A node of the fleet, with all of its accelerators unless some are named."""
        slots = tuple(node.accelerators if accelerators is None else accelerators)
        return cls(node.name, slots or None, node.engine_version, node.model_path)

    def changed(self, setting: str, value: Any) -> Host:
        """The same with one fact changed; `compute_capability` is that of all accelerators."""
        if setting == "compute_capability":
            slots = tuple(replace(slot, compute_capability=value) for slot in self.accelerators or ())
            return replace(self, accelerators=slots)
        return replace(self, **{setting: value})


@dataclass(frozen=True, slots=True)
class Subject:
    """One copy of a model as it would be started. None and empty = not known.

    Attributes:
        config: The model's whole `config.json`.
        data_parallel_size_local: Data parallel ranks on one machine; None = all of them.
        load_balancers: The data parallel modes that are asked for: internal, hybrid, external.
        backend: mp, ray, uni, external_launcher; None = the engine chooses.
        nodes: Number of machines; `hosts` may name fewer while they are not chosen.
        args: The engine's settings, environment `env`.
        version: vLLM's, oldest of the hosts.
    """

    model: ModelFacts
    config: Mapping[str, Any] = field(default_factory=dict)
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    data_parallel_size_local: int | None = None
    prefill_context_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    load_balancers: tuple[str, ...] = ()
    backend: str | None = None
    nodes: int = 1
    hosts: tuple[Host, ...] = ()
    args: Arguments = field(default_factory=Arguments)
    env: Mapping[str, str] = field(default_factory=dict)
    version: Version | None = None
    platform: str = "cuda"

    @classmethod
    def of(
        cls,
        layout: LayoutSpec,
        model: ModelFacts,
        *,
        config: Mapping[str, Any] | None = None,
        options: EngineOptions | None = None,
        hosts: Iterable[Host] = (),
        nodes: int | None = None,
        platform: str = "cuda",
        **more: Any,
    ) -> Subject:
        """The subject of a layout: sizes from it, settings from `options`, version from the hosts.

        `more` are further attributes, such as `decode_context_parallel_size`.
        """
        machines, wanted = tuple(hosts), options or EngineOptions()
        args = Arguments.of(wanted.args)
        context = {name: args.number(name) or 1 for name in _CONTEXT}
        values: dict[str, Any] = {
            **{name: getattr(layout, name) for name in _SIZES},
            **context,
            "backend": layout.backend,
            "nodes": nodes or max(1, len(machines)),
            "version": oldest(host.engine_version for host in machines),
            "args": args,
            "env": wanted.env,
        }
        return cls(model=model, config=config or {}, hosts=machines, platform=platform, **{**values, **more})

    def changed(self, setting: str, value: Any, node: str | None = None) -> Subject:
        """The same with one number or setting changed, as a Problem names it.

        `setting` is an attribute of this class, of the host `node`, an environment variable, else an engine setting;
        None takes a setting away.
        """
        if node is not None and setting in _HOST_SETTINGS:
            hosts = tuple(host.changed(setting, value) if host.name == node else host for host in self.hosts)
            return replace(self, hosts=hosts, version=oldest(host.engine_version for host in hosts))
        if setting in _SETTINGS:
            return replace(self, **{setting: value})
        if setting.isupper():
            env = {key: old for key, old in self.env.items() if key != setting}
            return replace(self, env=env if value is None else {**env, setting: str(value)})
        return replace(self, args=self.args.changed(setting, value))

    def at_least(self, version: str) -> bool | None:
        """Whether the engine is `version` or newer; None = its version is not known."""
        return None if self.version is None else self.version.release >= _release(version)

    @property
    def text(self) -> Mapping[str, Any]:
        """The part of the config that is about the language model."""
        nested = self.config.get("text_config")
        return nested if isinstance(nested, dict) else self.config

    @property
    def ranks_per_copy(self) -> int:
        """Ranks that one data parallel member has: TP x PP x PCP."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.prefill_context_parallel_size

    @property
    def world_size(self) -> int:
        """All ranks of all members."""
        return self.ranks_per_copy * self.data_parallel_size

    @property
    def expert_parallel(self) -> bool:
        """Whether experts are spread over the ranks instead of split."""
        return bool(self.args.on("enable_expert_parallel"))

    @property
    def experts(self) -> int | None:
        """Number of routed experts; None = none, or not known."""
        return self.whole("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")

    def whole(self, *names: str) -> int | None:
        """The first of these positive whole numbers that the model's config has."""
        for name in names:
            value = self.text.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return None


_SETTINGS = frozenset(item.name for item in fields(Subject))
_HOST_SETTINGS = frozenset(item.name for item in fields(Host)) | {"compute_capability"}
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
_CONTEXT = ("prefill_context_parallel_size", "decode_context_parallel_size")


@cache
def _release(version: str) -> tuple[int, ...]:
    return Version(version).release


def oldest(versions: Iterable[str | None]) -> Version | None:
    """The lowest of the versions that can be read; None = there is none."""
    found = []
    for text in versions:
        try:
            found.append(Version(text or ""))
        except InvalidVersion:
            continue
    return min(found, default=None)
