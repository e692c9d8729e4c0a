"""Predicted memory beside measured, with an empty calibration store: real starts of vLLM 0.26 on one H200."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from deployments.domain.accelerators import parse_gpus
from deployments.domain.activation import GIB, WORKSPACE
from deployments.domain.anatomy import Anatomy, read_anatomy
from deployments.domain.calibration import beside, read_report
from deployments.domain.fleet import Machine, fleet_of
from deployments.domain.memory import Estimate, Learned, Model, Settings, estimate, read_model
from deployments.domain.model_facts import read_config
from deployments.domain.parameters import Sizes, parameter_count
from deployments.domain.plan_subject import KnownModel, PlanWish
from deployments.domain.planner import Plan, plan
from deployments.domain.rules import Arguments
from deployments.domain.specs import ModelFacts

HERE = Path(__file__).parent / "memory"
ROWS = json.loads((HERE / "rows.json").read_text())
NOTES = json.loads((HERE / "notes.json").read_text())
PUBLIC = json.loads((HERE / "parameters.json").read_text())
NAMES = [row["name"] for row in ROWS]
# What a row's tokens of the log are, at most, for a sum of parts that each are printed to 0.01 GiB.
DENSE = [row for row in ROWS if row["model"] != "Mixtral-8x7B" and "fp8" not in row["name"]]


def config_of(row: dict) -> dict:
    return json.loads((HERE / "configs" / f"{row['model']}.json").read_text())


def settings_of(row: dict) -> Settings:
    """The settings of a row's command line."""
    args = Arguments.of(row["args"])
    return Settings(
        quantization=args.word("quantization"),
        max_model_len=args.number("max_model_len"),
        max_num_seqs=args.number("max_num_seqs"),
        max_num_batched_tokens=args.number("max_num_batched_tokens"),
        gpu_memory_utilization=float(args.word("gpu_memory_utilization") or 0.92),
        enforce_eager=bool(args.on("enforce_eager")),
        version=row["vllm"],
    )


def model_of(row: dict) -> Model:
    model = read_model(config_of(row), None, settings_of(row))
    assert isinstance(model, Model), model
    return model


def predicted(row: dict, learned: Learned | None = None) -> Estimate:
    found = estimate(model_of(row), Sizes(), settings_of(row), parse_gpus(row["gpu"]).device, learned)
    assert isinstance(found, Estimate), found
    return found


def test_every_row_is_printed_with_what_was_predicted_for_it():
    print(f"\n{'predicted / measured':28} {'weights GiB':>15} {'activation GiB':>15} {'cache GiB':>17} tokens")
    for row in ROWS:
        found = predicted(row)
        rank = found.ranks[0]
        pairs = (
            f"{rank.weights.likely / GIB:7.2f} /{row['weights_gib']:6.2f}",
            f"{rank.activation.likely / GIB:7.2f} /{row['activation_gib']:6.2f}",
            f"{rank.cache.likely / GIB:8.2f} /{row['kv_gib']:7.2f}",
            f"{found.tokens[1]:9d} /{row['kv_tokens']:8d} {found.tokens[1] / row['kv_tokens'] - 1:+.2%}",
        )
        print(f"{row['name']:28} {' '.join(pairs)}  {NOTES['unexplained'].get(row['name'], '')}")
    assert len(ROWS) == 13


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_weights_are_within_one_percent_or_a_twentieth_of_a_gib(row):
    weights = predicted(row).ranks[0].weights
    assert weights.likely / GIB == pytest.approx(row["weights_gib"], rel=0.01, abs=0.05)
    # The log prints two places.
    assert weights.low / GIB - 0.005 <= row["weights_gib"] <= weights.high / GIB + 0.005


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_tokens_are_within_five_percent_and_the_low_end_is_never_above_the_measured(row):
    low, likely, high = predicted(row).tokens
    assert likely == pytest.approx(row["kv_tokens"], rel=0.05)
    assert low <= row["kv_tokens"] <= high


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_each_other_part_lies_in_its_range(row):
    rank = predicted(row).ranks[0]
    assert rank.activation.low / GIB <= row["activation_gib"] <= rank.activation.high / GIB
    assert rank.graphs.low / GIB <= (row["graph_gib"] or 0) <= rank.graphs.high / GIB
    over = row["process_mib"] / 1024 - rank.budget.likely / GIB
    assert over <= rank.outside.high / GIB


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_tokens_follow_from_the_cache_exactly_as_in_the_log(row):
    """With what the log says of each part the tokens differ by its two places only."""
    spent = row["gpu_total_gib"] * settings_of(row).gpu_memory_utilization - row["kv_gib"]
    said = Learned(weights=0, activation=0, graphs=0, context=int(spent * GIB))
    assert predicted(row, said).tokens[1] == pytest.approx(row["kv_tokens"], rel=0.0005)


def test_what_is_not_explained_is_written_down_for_the_row_that_it_is_about():
    assert set(NOTES["unexplained"]) <= set(NAMES)
    for row in ROWS:
        if abs(predicted(row).ranks[0].weights.likely / GIB - row["weights_gib"]) > 0.01:
            assert row["name"] in NOTES["unexplained"]


def hidden_vectors(rows: list[dict]) -> float:
    """The constant of the dense activation rule, fitted by least squares to these rows."""
    over = under = 0.0
    for row in rows:
        model = model_of(row).anatomy
        unit = tokens_of(row) * 2 * model.hidden / GIB
        rest = row["activation_gib"] - WORKSPACE / GIB - tokens_of(row) * 2 * 3 * model.width / GIB
        over, under = over + unit * rest, under + unit * unit
    return over / under


def tokens_of(row: dict) -> int:
    return settings_of(row).max_num_batched_tokens or 8192


@pytest.mark.parametrize("left_out", sorted({row["model"] for row in DENSE}))
def test_the_activation_rule_holds_for_a_model_that_it_was_not_fitted_on(left_out):
    # The smallest model's peak is its output head, which has no fitted constant.
    fitted_on = [row for row in DENSE if row["model"] not in (left_out, "Qwen3-0.6B")]
    constant = hidden_vectors(fitted_on)
    for row in (row for row in DENSE if row["model"] == left_out):
        model = model_of(row).anatomy
        peak = tokens_of(row) * 2 * (3 * model.width + constant * model.hidden) + WORKSPACE
        found = predicted(row, Learned(activation=int(peak)))
        print(f"\n{row['name']}: fitted without it {constant:.2f} vectors, {peak / GIB:.2f} / {row['activation_gib']}")
        assert peak / GIB == pytest.approx(row["activation_gib"], rel=0.12, abs=0.15)
        assert found.tokens[1] == pytest.approx(row["kv_tokens"], rel=0.05)


def graph_layer(row: dict) -> float:
    """GiB of graphs per layer that a row shows, without the pool."""
    model = model_of(row).anatomy
    return (row["graph_gib"] - 512 * 2 * (3 * model.width + 4 * model.hidden) / GIB) / model.layers


def test_graphs_of_one_model_foretell_those_of_the_other_within_the_range():
    small, large = (next(row for row in ROWS if row["name"] == name) for name in (NAMES[0], NAMES[1]))
    for row, other in ((small, large), (large, small)):
        rank = predicted(row).ranks[0]
        without = row["graph_gib"] + (graph_layer(other) - graph_layer(row)) * model_of(row).anatomy.layers
        print(f"\n{row['name']}: graphs fitted without it {without:.2f} / {row['graph_gib']} GiB")
        assert rank.graphs.low / GIB <= without <= rank.graphs.high / GIB


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_parameters_are_counted_to_the_last_one(name):
    anatomy = read_anatomy(PUBLIC[name]["config"])
    assert isinstance(anatomy, Anatomy), anatomy
    assert parameter_count(anatomy) == PUBLIC[name]["parameters"]


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_no_rule_asks_for_a_models_name(row):
    """A config without its `model_type` and with a name of its own says the same."""
    config = {**config_of(row), "model_type": "something", "_name_or_path": "a/b"}
    model = read_model(config, None, settings_of(row))
    assert isinstance(model, Model)
    found = estimate(model, Sizes(), settings_of(row), parse_gpus(row["gpu"]).device)
    assert isinstance(found, Estimate)
    assert found == predicted(row)


def test_what_a_start_reported_is_used_next_time():
    row = ROWS[1]
    learned = Learned(*(int(row[name] * GIB) for name in ("weights_gib", "activation_gib")), context=int(0.22 * GIB))
    found = predicted(row, learned)
    assert found.ranks[0].weights.measured
    assert found.tokens[1] == pytest.approx(row["kv_tokens"], rel=0.001)
    assert found.tokens[0] > predicted(row).tokens[0]


def test_a_version_whose_profiler_counts_graphs_leaves_less_for_the_cache():
    row = ROWS[1]
    older, newer = (replace(settings_of(row), version=version) for version in ("0.26.0", None))
    device = parse_gpus(row["gpu"]).device
    counted = [estimate(model_of(row), Sizes(), settings, device) for settings in (older, newer)]
    assert counted[0].tokens[1] > counted[1].tokens[1]


@pytest.mark.parametrize("name", sorted(path.stem for path in (HERE / "logs").glob("[A-Z]*.log")))
def test_a_log_gives_back_what_was_measured(name):
    row = next(row for row in ROWS if row["name"] == name)
    said = read_report((HERE / "logs" / f"{name}.log").read_text())
    parts = (said.weights / GIB, said.activation / GIB, said.cache / GIB)
    assert parts == pytest.approx((row["weights_gib"], row["activation_gib"], row["kv_gib"]))
    assert said.tokens == row["kv_tokens"]
    assert all(part.inside or abs(part.error) < 0.01 for part in beside(predicted(row), said))


def failed(length: int, utilization: float, free_mib: int | None = None) -> Plan:
    """The plan of a start that failed for real: Llama-3.1-8B, eager, on one H200."""
    config = json.loads((HERE / "configs" / "Llama-3.1-8B.json").read_text())
    settings = Settings(max_model_len=length, gpu_memory_utilization=utilization, enforce_eager=True, version="0.26.0")
    device = replace(parse_gpus("NVIDIA H200").device, free_mib=free_mib)
    model = KnownModel(ModelFacts(path="/m", **read_config("/m", config)), config)
    return plan(model, fleet_of([Machine("one", (device,))]), PlanWish(settings, keep_utilization=True))


def test_a_start_that_had_no_room_for_its_cache_is_not_planned():
    found = failed(131072, 0.15)
    assert "4.87 GiB" in (HERE / "logs" / "fail_kv_too_small_131k.log").read_text()
    (refusal,) = found.refusals
    assert "16.0 GiB" in refusal.problem.message
    # The engine's own estimate of the longest context, from what it measured.
    assert refusal.problem.values[0] == pytest.approx(39856, rel=0.05)


def test_a_start_that_had_less_than_nothing_left_is_not_planned():
    assert "-2.12 GiB" in (HERE / "logs" / "fail_no_cache_blocks.log").read_text()
    (refusal,) = failed(8192, 0.10).refusals
    assert "budget is 14.0 GiB" in refusal.problem.message


def test_a_start_that_found_less_free_than_its_budget_is_not_planned():
    assert "108.77/139.8 GiB" in (HERE / "logs" / "fail_free_less_u92_hold30.log").read_text()
    (refusal,) = failed(8192, 0.92, free_mib=int(109.28 * 1024)).refusals
    assert refusal.problem.setting == "gpu_memory_utilization"
    assert refusal.problem.values[0] == pytest.approx(108.77 / 139.8, abs=0.02)
