"""Which layouts a plan has, in which order, and what it says about the others."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from deployments.domain.accelerators import parse_gpus
from deployments.domain.fleet import Machine, fleet_of, machine_of
from deployments.domain.memory import Learned, Settings
from deployments.domain.plan_subject import PlanWish
from deployments.domain.plan_view import plan_dict
from deployments.domain.planner import plan
from deployments.domain.specs import Accelerator, NodeView
from tests.unit.planning.models import LARGE, MIXTURE, SMALL, fleet, known

GIB_MIB = 1024


def words(found):
    return [candidate.word for candidate in found.candidates]


def test_a_model_that_fits_one_accelerator_goes_there():
    found = plan(known(SMALL), fleet("NVIDIA H200:8"), PlanWish())
    assert found.recommendation.word == "single"
    assert found.recommendation.copies == 8


def test_a_large_model_is_split_over_the_fewest_that_hold_it_and_by_tensors_where_the_link_is_fast():
    found = plan(known(LARGE), fleet("NVIDIA H200:8"), PlanWish())
    assert words(found)[:2] == ["TP2", "PP2"]
    assert found.recommendation.crossings[0].link == "nvlink"


def test_without_a_fast_link_stages_come_before_tensors():
    found = plan(known(SMALL), fleet("NVIDIA L4:4"), PlanWish())
    assert words(found)[0].startswith("PP")


def test_several_machines_are_used_only_when_one_does_not_hold_it():
    one = plan(known(LARGE), fleet("NVIDIA H200:8", nodes=4), PlanWish())
    assert all(candidate.nodes == 1 for candidate in one.candidates)
    many = plan(known(LARGE), fleet("NVIDIA L40S:2", nodes=4), PlanWish())
    assert many.recommendation.nodes > 1
    assert any(crossing.link == "network" for crossing in many.recommendation.crossings)


def test_the_ranks_of_one_tensor_group_stay_on_one_machine_unless_asked_for():
    found = plan(known(LARGE), fleet("NVIDIA L40S:2", nodes=8), PlanWish())
    assert all(candidate.sizes.tensor <= 2 for candidate in found.candidates)
    asked = plan(known(LARGE), fleet("NVIDIA L40S:2", nodes=4), PlanWish(tensor=8, pipeline=1, data=1))
    assert asked.recommendation.crossings[0].link == "network"
    assert any(warning.rule == 9 for warning in asked.recommendation.warnings)


def test_what_is_ruled_out_names_its_rule_or_the_gib_that_are_missing():
    found = plan(known(LARGE), fleet("NVIDIA H200:8"), PlanWish())
    by_word = {refusal.word: refusal for refusal in found.refusals}
    assert by_word["TP3"].rule == 1
    assert by_word["single"].rule is None
    assert "GiB" in by_word["single"].problem.message
    assert all(refusal.problem.remedy for refusal in found.refusals)


def test_a_length_that_does_not_fit_is_shortened_unless_it_was_asked_for():
    open_wish = plan(known(SMALL), fleet("NVIDIA L4"), PlanWish())
    assert open_wish.recommendation.shortened
    assert open_wish.recommendation.estimate.concurrency[1] >= 1
    asked = plan(known(SMALL), fleet("NVIDIA L4"), PlanWish(Settings(max_model_len=131072)))
    assert asked.recommendation is None
    problem = asked.refusals[0].problem
    assert problem.setting == "max_model_len"
    again = plan(known(SMALL), fleet("NVIDIA L4"), PlanWish(Settings(max_model_len=problem.values[0] // 16 * 16)))
    assert again.recommendation is not None


def test_more_requests_at_once_need_more_accelerators():
    few, many = (plan(known(SMALL), fleet("NVIDIA H200:8"), PlanWish(concurrency=count)) for count in (1, 40))
    assert many.recommendation.gpus > few.recommendation.gpus


def test_a_model_longer_than_it_can_be_is_refused_by_its_rule():
    found = plan(known(SMALL), fleet("NVIDIA H200"), PlanWish(Settings(max_model_len=262144)))
    assert found.recommendation is None
    assert found.refusals[0].rule == 18


@pytest.mark.parametrize("kind", ["single", "tensor", "pipeline", "tensor_pipeline", "data_parallel"])
def test_only_the_kind_that_was_asked_for_is_planned(kind):
    found = plan(known(SMALL), fleet("NVIDIA H200:8"), PlanWish(kind=kind))
    assert {candidate.kind for candidate in found.candidates} == {kind}


def test_members_of_a_mixture_share_its_experts():
    found = plan(known(MIXTURE), fleet("NVIDIA A100-SXM4-40GB:8"), PlanWish(kind="data_parallel", expert_parallel=True))
    assert found.recommendation is not None


def test_memory_that_others_hold_lowers_the_utilization_or_rules_the_machine_out():
    device = parse_gpus("NVIDIA H200").device
    busy = replace(device, free_mib=70 * GIB_MIB)
    lowered = plan(known(SMALL), fleet_of([Machine("a", (busy,))]), PlanWish())
    assert 0.4 < lowered.recommendation.utilization < 0.5
    kept = plan(known(SMALL), fleet_of([Machine("a", (busy,))]), PlanWish(keep_utilization=True))
    assert kept.recommendation is None
    problem = kept.refusals[0].problem
    assert problem.setting == "gpu_memory_utilization"
    again = PlanWish(Settings(gpu_memory_utilization=problem.values[0]), keep_utilization=True)
    assert plan(known(SMALL), fleet_of([Machine("a", (busy,))]), again).recommendation is not None


def test_who_holds_memory_is_said():
    slot = Accelerator("GPU-1", 0, "NVIDIA H200", 143_771)
    node = NodeView(1, "alpha", "10.0.0.1", accelerators=(slot,), free_accelerators=(slot,), engine_version="0.33.0")
    machine = machine_of(node, {"GPU-1": 100_000}, {"GPU-1": "40 GiB by process 77 (python)"})
    found = plan(known(SMALL), fleet_of([machine]), PlanWish())
    assert found.held == ("alpha, accelerator 0: 40 GiB by process 77 (python)",)
    assert found.recommendation.machines == ("alpha",)
    assert found.recommendation.utilization < 0.92


def test_like_machines_are_planned_once():
    device = parse_gpus("NVIDIA H200").device
    machines = [Machine(f"n{number}", (device,) * 8, "0.33.0") for number in range(100)]
    found = fleet_of(machines)
    assert len(found.pools) == 1
    assert len(found.pools[0].machines) == 100


def test_a_machine_with_two_kinds_is_in_two_pools():
    kinds = tuple(parse_gpus(name).device for name in ("NVIDIA H200", "NVIDIA L4", "NVIDIA H200"))
    found = plan(known(SMALL), fleet_of([Machine("mixed", kinds)]), PlanWish(Settings(max_model_len=8192)))
    assert {candidate.device.name for candidate in found.candidates} == {"NVIDIA H200", "NVIDIA L4"}
    assert max(candidate.gpus for candidate in found.candidates) == 2


def test_an_unknown_architecture_is_said_instead_of_a_plan():
    found = plan(known({**SMALL, "architectures": ["NewForCausalLM"]}), fleet("NVIDIA H200"), PlanWish())
    assert found.unknown.what == "architecture"
    assert found.recommendation is None


def test_figures_of_an_earlier_start_are_used():
    asked = []

    def recall(device, sizes, settings):
        asked.append((device.name, sizes, settings.version))
        return Learned(weights=60 * 2**30)

    found = plan(known(SMALL), fleet("NVIDIA H200"), PlanWish(), recall)
    rank = found.recommendation.estimate.ranks[0]
    assert rank.weights.measured
    assert rank.weights.likely == 60 * 2**30
    assert asked


@pytest.mark.parametrize("machines", [[], [Machine("bare", ())]])
def test_a_fleet_without_accelerators_fits_nothing_and_says_why(machines):
    found = plan(known(SMALL), fleet_of(machines), PlanWish())
    assert found.candidates == ()
    assert "no accelerator" in found.refusals[0].problem.message


def test_a_kind_that_cannot_be_made_is_said():
    found = plan(known(SMALL), fleet("NVIDIA H200"), PlanWish(kind="tensor"))
    assert found.candidates == ()
    assert "tensor" in found.refusals[0].problem.message


def test_more_nodes_than_there_are_is_said():
    found = plan(known(SMALL), fleet("NVIDIA H200:8", nodes=2), PlanWish(nodes=3))
    assert found.refusals[0].problem.values == (2,)
    assert plan(known(SMALL), fleet("NVIDIA H200:8", nodes=2), PlanWish(nodes=2)).recommendation.nodes == 2


def test_a_cache_that_was_set_too_large_is_refused_with_the_size_that_fits():
    asked = Settings(kv_cache_memory_bytes=135 * 2**30)
    found = plan(known(SMALL), fleet("NVIDIA H200"), PlanWish(asked))
    problem = found.refusals[0].problem
    assert problem.setting == "kv_cache_memory_bytes"
    again = PlanWish(Settings(kv_cache_memory_bytes=problem.values[0]))
    assert plan(known(SMALL), fleet("NVIDIA H200"), again).recommendation is not None


def test_slots_of_a_cpu_machine_are_planned_without_graphs():
    slots = tuple(Accelerator(f"cpu-{index}", index, "Some CPU", 32 * 1024, "cpu") for index in range(2))
    node = NodeView(1, "cpu", "10.0.0.1", platform="cpu", accelerators=slots, free_accelerators=slots)
    found = plan(known(SMALL), fleet_of([machine_of(node)]), PlanWish(Settings(max_model_len=4096)))
    assert found.recommendation.estimate.ranks[0].graphs.high == 0
    assert found.recommendation.device.platform == "cpu"


def test_a_usual_split_over_eight_comes_before_an_odd_one_over_six():
    found = plan(known({**LARGE, "num_hidden_layers": 400}), fleet("NVIDIA H200:8"), PlanWish())
    assert found.recommendation.word == "TP8"
    assert any(candidate.gpus in (6, 7) for candidate in found.candidates)


def test_a_plan_is_plain_data():
    found = plan_dict(plan(known(LARGE), fleet("NVIDIA H200:8", nodes=2), PlanWish()))
    again = json.loads(json.dumps(found))
    assert again["recommendation"] == 0
    assert again["candidates"][0]["layout"] == "TP2"
    assert {"weights", "activation", "context", "graphs", "cache"} <= set(again["candidates"][0]["ranks"][0])
