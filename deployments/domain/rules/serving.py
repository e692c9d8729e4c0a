"""Rules 18, 22 and 23: context length, KV transfer, sleep mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packaging.version import InvalidVersion, Version

from ..plugins import Problem
from .rule import Rule, doubtful, wrong
from .subject import Subject

LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
DEVELOPMENT = "VLLM_SERVER_DEV_MODE"
# Kinds of rope scaling whose factor is in the maximum already, or does not count.
SCALED = frozenset({"default", "su", "longrope", "llama3", "deepseek_yarn", "deepseek_llama_scaling"})
ROLES = ("kv_producer", "kv_consumer", "kv_both")
CONNECTORS_SINCE = "0.32"
CONNECTORS = (
    *("NixlConnector", "NixlPullConnector", "NixlPushConnector", "MooncakeConnector", "MooncakeStoreConnector"),
    *("LMCacheConnectorV1", "LMCacheMPConnector", "MultiConnector", "OffloadingConnector"),
    *("SimpleCPUOffloadConnector", "MoRIIOConnector", "HiSparseConnector", "FlexKVConnectorV1", "HF3FSKVConnector"),
    *("ExampleConnector", "ExampleHiddenStatesConnector", "DecodeBenchConnector"),
)
# Connectors that are gone: the first version of ours without them, and what does their work now.
GONE = {
    "PyNcclConnector": ("0.10.2", "NixlConnector"),
    "SharedStorageConnector": ("0.13", "ExampleConnector"),
    "P2pNcclConnector": ("0.24", "NixlConnector"),
}
NIXL = "1.5.0"


def longest(subject: Subject) -> int | None:
    """The longest context that the engine takes from the model's config; None = it does not say."""
    limit = subject.model.max_position_embeddings or subject.whole("max_position_embeddings", "n_positions")
    if limit is None:
        return None
    most = limit
    if "gemma3" not in str(subject.config.get("model_type")) + str(subject.text.get("model_type")):
        for rope in _ropes(subject):
            most = max(most, _scaled(rope, limit))
    return max(most, subject.whole("model_max_length") or 0)


def _ropes(subject: Subject) -> list[dict[str, Any]]:
    """The rope parameters of the config: one set, or one for each kind of layer."""
    found = subject.text.get("rope_parameters") or subject.text.get("rope_scaling")
    if not isinstance(found, dict):
        return []
    return [found] if "factor" in found else [inner for inner in found.values() if isinstance(inner, dict)]


def _scaled(rope: dict[str, Any], limit: int) -> int:
    kind, factor = rope.get("rope_type") or rope.get("type") or "default", rope.get("factor")
    if kind in SCALED or not isinstance(factor, int | float):
        return limit
    original = rope.get("original_max_position_embeddings")
    if kind == "yarn":
        # Some versions multiply the maximum, some the original one, some nothing: the most that any takes.
        limit = original if isinstance(original, int) else limit
    return int(limit * factor)


def context_length(subject: Subject) -> Iterator[Problem]:
    """18: the context length is one that the model was made for."""
    asked, most = subject.args.number("max_model_len"), longest(subject)
    if asked is None or most is None or asked <= most:
        return
    if subject.env.get(LONGER) in ("1", "true", "True"):
        yield doubtful(
            "max_model_len",
            f"--max-model-len {asked} is more than the {most} tokens that the model is made for; {LONGER} allows it, "
            "and answers beyond may be nonsense or end the engine.",
            f"Set --max-model-len to {most} or less.",
            [most],
        )
    else:
        yield wrong(
            "max_model_len",
            f"--max-model-len {asked} is more than the {most} tokens that the model is made for.",
            f"Set --max-model-len to {most} or less.",
            [most],
        )


def kv_transfer(subject: Subject) -> Iterator[Problem]:
    """22: a KV transfer has a connector that exists, a role, and the packages it needs."""
    asked = subject.args.json("kv_transfer_config")
    if asked is None:
        return
    connector, role = asked.get("kv_connector"), asked.get("kv_role")
    if role not in ROLES and (connector or role):
        said = f"The KV transfer has the role {role!r}, which is none." if role else "The KV transfer has no role."
        yield wrong(
            "kv_transfer_config.kv_role",
            said,
            "Set --kv-transfer-config.kv_role to kv_producer on prefill and to kv_consumer on decode.",
            ROLES[:2],
        )
    if role == "kv_both" and str(connector).startswith("Nixl") and subject.at_least("0.33"):
        said = "The role kv_both is on its way out for NIXL."
        cure = "Set --kv-transfer-config.kv_role to kv_producer or kv_consumer."
        yield doubtful("kv_transfer_config.kv_role", said, cure, ROLES[:2])
    yield from _connector(subject, connector, asked)
    if str(connector).startswith("Nixl"):
        yield from _nixl(subject)
    if subject.prefill_context_parallel_size > 1 and role == "kv_consumer":
        yield wrong(
            "prefill_context_parallel_size",
            f"A prefill context parallel size of {subject.prefill_context_parallel_size} is for prefill only.",
            "Set it to 1 on decode.",
            [1],
        )


def _connector(subject: Subject, connector: Any, asked: dict[str, Any]) -> Iterator[Problem]:
    setting = "kv_transfer_config.kv_connector"
    if not connector or connector in CONNECTORS or asked.get("kv_connector_module_path"):
        return
    if connector in GONE:
        without, instead = GONE[connector]
        gone = subject.at_least(without)
        if gone is not False:
            say = wrong if gone else doubtful
            said = f"{connector} is gone from vLLM {without} on."
            yield say(setting, said, f"Use {instead}.", [instead])
        return
    say = wrong if subject.at_least(CONNECTORS_SINCE) else doubtful
    yield say(setting, f"vLLM knows no KV connector {connector!r}.", "Use NixlConnector.", ["NixlConnector"])


def _nixl(subject: Subject) -> Iterator[Problem]:
    for host in subject.hosts:
        if host.packages is None:
            continue
        found = host.packages.get("nixl")
        if found is None or _older(found, NIXL):
            has = f"has nixl {found}" if found else "has no nixl"
            yield wrong(
                "packages",
                f"{host.name} {has}; KV transfer by NIXL needs {NIXL} or newer.",
                f"Install nixl {NIXL} or newer in the engine environment of {host.name}.",
                node=host.name,
            )


def _older(found: str, least: str) -> bool:
    try:
        return Version(found) < Version(least)
    except InvalidVersion:
        return False


def sleep_mode(subject: Subject) -> Iterator[Problem]:
    """23: sleep mode has its endpoints, which are for development only."""
    development = subject.env.get(DEVELOPMENT) in ("1", "true", "True")
    if subject.args.on("enable_sleep_mode") and not development:
        yield doubtful(
            "enable_sleep_mode",
            f"Sleep mode is on, but nobody can put the engine to sleep: its endpoints exist only with {DEVELOPMENT}=1.",
            f"Remove --enable-sleep-mode, or set {DEVELOPMENT}=1 where nobody but you reaches the engine.",
            [False],
        )
    if development:
        yield doubtful(
            DEVELOPMENT,
            f"{DEVELOPMENT}=1 opens endpoints that change and stop the engine to whoever has its key.",
            f"Set {DEVELOPMENT} to 0 in production.",
            ["0"],
        )


RULES = (
    Rule(18, "The context length is one that the model is made for", context_length),
    Rule(22, "A KV transfer has an existing connector, a role and its packages", kv_transfer),
    Rule(23, "Sleep mode has its endpoints, for development only", sleep_mode),
)
