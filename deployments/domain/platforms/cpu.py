"""vLLM's CPU build: a slot is a share of the machine's cores and memory."""

from __future__ import annotations

from ..plugins import Platform, RenderContext
from ..specs import Assignment

MIB = 1024 * 1024


def _args(context: RenderContext, seat: Assignment) -> tuple[str, ...]:
    # float32: with bfloat16 the AMX attention kernel dies of an illegal instruction at the first request on some CPUs.
    dtype = ("--dtype", "float32")
    kv = ("--kv-cache-memory-bytes", str(_kv_mib(seat) * MIB))
    if context.layout.pipeline_parallel_size > 1:
        # --enforce-eager breaks pipeline parallelism on the CPU: /health says 200 and the first request answers 500.
        return (*dtype, "--compilation-config", '{"mode":2,"backend":"eager"}', *kv)
    return (*dtype, "--enforce-eager", *kv)


def _kv_mib(seat: Assignment) -> int:
    """KV cache per rank in MiB: 1/32 of the slot's memory, 64 to 4096; all of it is touched at start."""
    memory = min((slot.memory_mib or 0 for slot in seat.accelerators), default=0)
    return max(64, min(4096, memory // 32))


def _env(context: RenderContext, seat: Assignment) -> dict[str, str]:
    # Without nobind a second rank on one NUMA node is refused; one thread a slot keeps neighbours apart.
    return {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}


PLATFORM = Platform(
    name="cpu",
    title="CPU",
    slot_word="CPU slot",
    memory_back="no process of it is left",
    args=_args,
    env=_env,
)
