"""The frozen nouns that pure code works on. Memory in MiB, times in epoch seconds, unless a name says else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .states import DeploymentState, NodeIntent, NodeState, ProcessState, Reason, ReplicaState, Wish


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One slot an engine rank can own: a CUDA GPU, a MIG instance, or a CPU slot of the `cpu` platform.

    `uuid` identifies it; `index` is its place in PCI bus order, which is what is rendered.
    """

    uuid: str
    index: int
    name: str
    memory_mib: int | None
    platform: str = "cuda"
    compute_capability: str | None = None
    mig: bool = False


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model's `config.json` says, reduced to what placing and rendering need. None = not said."""

    path: str
    architecture: str | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    num_hidden_layers: int | None = None
    hidden_size: int | None = None
    vocab_size: int | None = None
    max_position_embeddings: int | None = None
    torch_dtype: str | None = None
    quantization: str | None = None
    weight_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LayoutSpec:
    """How one copy is split. `kind` names a file in `layouts/`."""

    kind: str
    backend: str = "mp"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1

    @property
    def world_size(self) -> int:
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What people add to the engine's command line: validated argument words, environment, deadlines."""

    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    start_deadline: float | None = None
    stop_grace: float | None = None


@dataclass(frozen=True, slots=True)
class NodeView:
    """What placing and rendering know about a node.

    Attributes:
        address: The cluster address that engines listen on.
        port_range: First and last port (inclusive) that engines may be given.
        used_ports: Ports claimed by live processes.
        heard_ports: Ports that were listened on at the last probe: avoided, but that may be over by now.
        free_accelerators: Accelerators without a claim, in index order.
        environment: Root folder of the engine's Python environment (`<environment>/bin/vllm`), or None.
        boot_id: Kernel boot id of the last report.
        heard_at: Time of the last report, by the panel's clock; None = never.
        env: The node's environment overrides.
    """

    id: int
    name: str
    address: str
    platform: str = "cuda"
    intent: NodeIntent = NodeIntent.ACTIVE
    state: NodeState = NodeState.READY
    interface: str | None = None
    port_range: tuple[int, int] = (20000, 20999)
    used_ports: frozenset[int] = frozenset()
    heard_ports: frozenset[int] = frozenset()
    accelerators: tuple[Accelerator, ...] = ()
    free_accelerators: tuple[Accelerator, ...] = ()
    environment: str | None = None
    engine_version: str | None = None
    model_path: str | None = None
    boot_id: str | None = None
    heard_at: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cache_dir: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which accelerators of which node one process gets, and its ports by name (`http`, `master`, ...)."""

    node_id: int
    accelerators: tuple[Accelerator, ...]
    ports: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Probe:
    """How the node finds out that a process serves.

    kind `openai`: `/health` 200, `/v1/models` lists `model`, a one-token completion; kind `alive`: it runs.
    `api_key_env` names the secret in the process's environment that the requests carry as bearer token.
    """

    kind: str
    base_url: str | None = None
    model: str | None = None
    api_key_env: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        return {"kind": self.kind, "base_url": self.base_url, "model": self.model, "api_key_env": self.api_key_env}


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process to start on one node: everything preview shows and launch sends.

    `secrets` are names only; values are generated at apply time, travel on stdin and are never shown.
    """

    node_id: int
    role: str
    group: str
    member: int
    rank: int
    wave: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    secrets: tuple[str, ...]
    ports: Mapping[str, int]
    accelerators: tuple[str, ...]
    probe: Probe
    stop_signal: str = "TERM"
    stop_grace: float | None = None


@dataclass(frozen=True, slots=True)
class ProcessEvidence:
    """What a node's report says about one process. None = not looked at or not said.

    Attributes:
        known: The node has a directory for this process.
        alive: Its main process runs.
        members: Number of living processes that belong to it, main included.
        exit_code, exit_signal: How main ended, when it did and the supervisor saw it.
        health_status: HTTP status of `/health`; None = refused or not probed.
        model_listed: `/v1/models` names the model.
        completion_ok: A one-token completion came back.
        phase, progress: From the log: a milestone's name and 0 to 100.
        boot_id: Boot id of the report that says so.
        failure: The reason read from the log of an ended process, if one was recognised.
        failure_line: The log line that says so.
        probed: The probe has run on this connection. While it has not, nothing is known about the service.
    """

    known: bool
    alive: bool = False
    members: int = 0
    exit_code: int | None = None
    exit_signal: int | None = None
    health_status: int | None = None
    model_listed: bool | None = None
    completion_ok: bool | None = None
    phase: str | None = None
    progress: int | None = None
    boot_id: str | None = None
    failure: Reason | None = None
    failure_line: str | None = None
    probed: bool = True


@dataclass(frozen=True, slots=True)
class ProcessView:
    """One process row as the planner sees it, with the newest evidence (None = its node has not spoken since).

    `deadline` is what ends its state: PENDING, the launch (set when it is first asked for); STARTING, the start.
    `served` says that it was READY before. `unhealthy_since` is when its probe began to fail, where that is kept.
    """

    id: str
    node_id: int
    role: str
    group: str
    member: int
    rank: int
    wave: int
    state: ProcessState
    reason: Reason | None
    since: float
    probe_kind: str = "alive"
    launch_requested: bool = False
    launch_boot_id: str | None = None
    unhealthy_since: float | None = None
    deadline: float | None = None
    evidence: ProcessEvidence | None = None
    heard_at: float | None = None
    stop_grace: float | None = None
    served: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica row with its current attempt's processes."""

    id: str
    index: int
    generation: int
    state: ReplicaState
    attempt: int
    failures: int
    next_attempt_at: float | None
    reason: Reason | None = None
    ready_since: float | None = None
    retiring: bool = False
    processes: tuple[ProcessView, ...] = ()


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """One deployment as the planner sees it."""

    id: int
    name: str
    wish: Wish
    generation: int
    replicas_wished: int
    state: DeploymentState
    layout: LayoutSpec
    start_deadline: float | None = None
    replicas: tuple[ReplicaView, ...] = ()
