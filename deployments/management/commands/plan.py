from __future__ import annotations

import json
import re
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from deployments.domain.accelerators import parse_gpus
from deployments.domain.errors import InvalidInput, PilothouseError
from deployments.domain.fleet import Fleet, Pool
from deployments.domain.memory import Settings
from deployments.domain.model_facts import read_config
from deployments.domain.plan_subject import KnownModel, PlanWish
from deployments.domain.plan_view import plan_dict
from deployments.domain.planner import plan
from deployments.domain.specs import ModelFacts
from deployments.management.plan_table import lines

KINDS = ("single", "tensor", "pipeline", "tensor_pipeline", "multinode", "data_parallel")
SIZES = {"tp": "tensor", "pp": "pipeline", "dp": "data"}
# A config is a page or two; a file beyond this is something else.
MOST_BYTES = 64 * 1024 * 1024
NOTHING_FITS, WRONG_INPUT = 1, 2


class Command(BaseCommand):
    help = (
        "Says which layouts of a model fit which accelerators and why, without database or nodes. "
        "Exit code: 0 something fits, 1 nothing does or nothing can be said, 2 the input is wrong."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("model_dir", help="folder with the model's config.json; the weights need not be there")
        parser.add_argument(
            "--gpus",
            action="append",
            required=True,
            metavar="NAME[=GiB][:COUNT]",
            help='accelerators of each node: "NVIDIA H200:8" or, for one that is not known, "NAME=48:2"; repeat it for '
            "nodes of another kind",
        )
        parser.add_argument("--nodes", type=int, default=1, help="how many such nodes there are (default 1)")
        parser.add_argument("--layout", help=f"only this: {', '.join(KINDS)}, or sizes such as tp4xpp2")
        parser.add_argument("--concurrency", type=float, default=1.0, help="requests of full length at once")
        parser.add_argument("--json", action="store_true", help="the whole plan as JSON")
        _engine_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Prints the plan to standard output, what is wrong with the input to standard error."""
        try:
            model = read_model_dir(Path(options["model_dir"]))
            found = plan(model, _fleet(options), _wish(options))
        except PilothouseError as error:
            raise CommandError(f"{error.message} {error.remedy}".strip(), returncode=WRONG_INPUT) from error
        if options["json"]:
            self.stdout.write(json.dumps(plan_dict(found), indent=2))
        else:
            for line in lines(found):
                self.stdout.write(line)
        if found.recommendation is None:
            raise SystemExit(NOTHING_FITS)


def _engine_arguments(parser: ArgumentParser) -> None:
    engine = parser.add_argument_group("settings of the engine, by its own names")
    engine.add_argument("--max-model-len", type=int)
    engine.add_argument("--max-num-seqs", type=int)
    engine.add_argument("--max-num-batched-tokens", type=int)
    engine.add_argument("--gpu-memory-utilization", type=float, default=0.92)
    engine.add_argument("--kv-cache-memory-bytes", type=int)
    engine.add_argument("--quantization", help="quantise while loading; a quantised checkpoint says so itself")
    engine.add_argument("--kv-cache-dtype", default="auto")
    engine.add_argument("--dtype", default="auto")
    engine.add_argument("--enforce-eager", action="store_true")
    engine.add_argument("--enable-expert-parallel", action="store_true")
    engine.add_argument("--decode-context-parallel-size", type=int, default=1)
    engine.add_argument("--engine-version", help="vLLM's version (default: the newest)")


def read_model_dir(folder: Path) -> KnownModel:
    """The model in a folder: its config and the size of its weights, from their index or from the files.

    Raises:
        InvalidInput: There is no config that can be read.
    """
    config = _read_json(folder / "config.json")
    facts = read_config(str(folder), config, _weight_bytes(folder))
    return KnownModel(ModelFacts(path=str(folder), **facts), config)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _unread(path, "is too large")
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _unread(path, "is not there") from error
    except (OSError, ValueError) as error:
        raise _unread(path, "cannot be read as JSON") from error
    if not isinstance(value, dict):
        raise _unread(path, "is not a JSON object")
    return value


def _unread(path: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"{path} {what}.", remedy="Name the folder that holds the model's config.json.", field="model_dir"
    )


def _weight_bytes(folder: Path) -> int | None:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        metadata = _read_json(index).get("metadata")
        total = metadata.get("total_size") if isinstance(metadata, dict) else None
        if isinstance(total, int | float) and total > 0:
            return int(total)
    return sum(path.stat().st_size for path in folder.glob("*.safetensors")) or None


def _fleet(options: dict[str, Any]) -> Fleet:
    nodes = options["nodes"]
    if not 1 <= nodes <= 10_000:
        raise InvalidInput(f"{nodes} is not a number of nodes.", remedy="Give 1 or more.", field="nodes")
    pools = []
    for number, text in enumerate(options["gpus"]):
        offer = parse_gpus(text)
        names = tuple(f"node {number * nodes + index + 1}" for index in range(nodes))
        pools.append(Pool((offer.device,) * offer.count, names, options["engine_version"]))
    return Fleet(tuple(pools))


def _wish(options: dict[str, Any]) -> PlanWish:
    _positive(options, "max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_memory_bytes")
    _positive(options, "decode_context_parallel_size", "concurrency")
    utilization = options["gpu_memory_utilization"]
    if not 0 < utilization <= 1:
        raise InvalidInput(
            f"{utilization:g} is not a share of a device's memory.",
            remedy="Give --gpu-memory-utilization above 0 and at most 1, such as 0.92.",
            field="gpu_memory_utilization",
        )
    settings = Settings(
        dtype=options["dtype"],
        quantization=options["quantization"],
        kv_cache_dtype=options["kv_cache_dtype"],
        max_model_len=options["max_model_len"],
        max_num_seqs=options["max_num_seqs"],
        max_num_batched_tokens=options["max_num_batched_tokens"],
        gpu_memory_utilization=utilization,
        kv_cache_memory_bytes=options["kv_cache_memory_bytes"],
        enforce_eager=options["enforce_eager"],
        version=options["engine_version"],
    )
    return PlanWish(
        settings=settings,
        **_layout(options["layout"]),
        concurrency=options["concurrency"],
        expert_parallel=options["enable_expert_parallel"],
        decode_context=options["decode_context_parallel_size"],
        keep_utilization=True,
    )


def _positive(options: dict[str, Any], *names: str) -> None:
    for name in names:
        value = options[name]
        if value is not None and value <= 0:
            flag = f"--{name.replace('_', '-')}"
            raise InvalidInput(f"{flag} is {value}.", remedy="Give a number above 0.", field=name)


def _layout(text: str | None) -> dict[str, Any]:
    """A kind, or sizes: `tp4`, `tp4xpp2`, `tp2-dp2`. Sizes that are not named are 1."""
    if text is None:
        return {}
    word = text.lower().replace("-", "_")
    if word in KINDS:
        return {"kind": word}
    found = dict(re.findall(r"(tp|pp|dp)(\d{1,4})", word))
    if not found or re.sub(r"(tp|pp|dp)\d{1,4}|[x_*, ]", "", word) or "0" in found.values():
        raise InvalidInput(
            f"{text!r} is not a layout.",
            remedy=f"Choose one of {', '.join(KINDS)}, or write sizes such as tp4xpp2.",
            field="layout",
        )
    return {SIZES[name]: int(found.get(name, 1)) for name in SIZES}
