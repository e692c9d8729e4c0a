"""What all layouts write alike: the engine's command line and its environment."""

from __future__ import annotations

from ipaddress import ip_address

from . import platforms
from .errors import InvalidInput
from .options import flags_of
from .plugins import Platform, RenderContext, discover
from .specs import Assignment, Probe, ProcessSpec

API_KEY_ENV = "VLLM_API_KEY"


def platform_of(name: str) -> Platform:
    """The platform plug-in called `name`."""
    plugin: Platform = discover(platforms, "PLATFORM", "name")[name]
    return plugin


def engine_argv(context: RenderContext, seat: Assignment, layout_args: tuple[str, ...]) -> tuple[str, ...]:
    """The words that start one engine: program, model, identity, layout, platform defaults, then people's own.

    Raises:
        InvalidInput: A name or path that the engine would read as a flag.
    """
    node = context.nodes[seat.node_id]
    program = f"{node.environment}/bin/vllm" if node.environment else "vllm"
    identity = ("--served-model-name", context.served_name, "--host", node.address, "--port", str(seat.ports["http"]))
    defaults = platform_of(node.platform).args(context, seat)
    model = node.model_path or context.model.path
    _no_flag(model, "path")
    _no_flag(context.served_name, "served_name")
    return (
        program,
        "serve",
        model,
        *identity,
        *layout_args,
        *_without(defaults, context.options.args),
        *context.options.args,
    )


def _no_flag(word: str, field: str) -> None:
    if not word or word.startswith("-"):
        raise InvalidInput(f"{word!r} would be read as a flag.", remedy="Begin with another letter.", field=field)


def engine_env(context: RenderContext, seat: Assignment) -> dict[str, str]:
    """The environment of one engine: quiet and offline, then platform, node and people's own, the last one wins."""
    node = context.nodes[seat.node_id]
    env = {
        "PYTHONUNBUFFERED": "1",
        "VLLM_LOGGING_COLOR": "0",
        "VLLM_NO_USAGE_STATS": "1",
    }
    if _is_ip(node.address):
        env["VLLM_HOST_IP"] = node.address
    if (node.model_path or context.model.path).startswith("/"):
        env["HF_HUB_OFFLINE"] = "1"
    if node.interface:
        env["GLOO_SOCKET_IFNAME"] = node.interface
    if node.cache_dir:
        env["VLLM_CACHE_ROOT"] = f"{node.cache_dir}/vllm"
        env["HF_HOME"] = f"{node.cache_dir}/huggingface"
    return {**env, **platform_of(node.platform).env(context, seat), **node.env, **context.options.env}


def _is_ip(address: str) -> bool:
    """Whether an address may be VLLM_HOST_IP; of a name the engine would make nonsense."""
    try:
        ip_address(address)
    except ValueError:
        return False
    return True


def engine_probe(context: RenderContext, seat: Assignment) -> Probe:
    """How to see that this engine serves."""
    node = context.nodes[seat.node_id]
    host = f"[{node.address}]" if ":" in node.address else node.address
    return Probe("openai", f"http://{host}:{seat.ports['http']}", context.served_name, API_KEY_ENV)


def engine_process(context: RenderContext, seat: Assignment, layout_args: tuple[str, ...] = ()) -> ProcessSpec:
    """The one process of a layout that is a single engine on a single node."""
    return ProcessSpec(
        node_id=seat.node_id,
        role="engine",
        group="main",
        member=0,
        rank=0,
        wave=0,
        argv=engine_argv(context, seat, layout_args),
        env=engine_env(context, seat),
        secrets=(API_KEY_ENV,),
        ports=dict(seat.ports),
        accelerators=tuple(slot.uuid for slot in seat.accelerators),
        probe=engine_probe(context, seat),
        stop_grace=context.options.stop_grace,
    )


def _without(defaults: tuple[str, ...], own: tuple[str, ...]) -> tuple[str, ...]:
    """The defaults (flag, value or lone flag) whose flag, or its `--no-` form, people did not give themselves."""
    taken = set(flags_of(own))
    kept: list[str] = []
    words = list(defaults)
    while words:
        flag = words.pop(0)
        value = [words.pop(0)] if words and not words[0].startswith("--") else []
        if flag not in taken and f"--no-{flag[2:]}" not in taken:
            kept += [flag, *value]
    return tuple(kept)
