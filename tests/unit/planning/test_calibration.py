"""Figures of earlier starts: read from their logs, used where they hold, shown beside what was predicted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deployments.domain.accelerators import parse_gpus
from deployments.domain.activation import GIB
from deployments.domain.calibration import Record, Reported, beside, digest, read_report, recall_of
from deployments.domain.memory import Learned, Settings, estimate, read_model
from deployments.domain.parameters import Sizes
from deployments.domain.plan_subject import PlanWish
from deployments.domain.planner import plan
from tests.unit.planning.models import LARGE, SMALL, fleet, known

H200 = parse_gpus("NVIDIA H200").device
NEWER = """\
(Worker_TP0 pid=1) INFO 10-06 17:00:00 [model_runner.py:1] Model loading took 15.0 GiB memory and 3.1 seconds
(Worker_TP1 pid=2) INFO 10-06 17:00:00 [model_runner.py:1] Model loading took 15.02 GiB memory and 3.1 seconds
(Worker_TP0 pid=1) INFO 10-06 17:00:01 [model_runner.py:2] Estimated CUDA graph memory: 1.15 GiB total
(Worker_TP0 pid=1) INFO 10-06 17:00:02 [gpu_worker.py:1] Available KV cache memory: 56.21 GiB
(Worker_TP1 pid=2) INFO 10-06 17:00:02 [gpu_worker.py:1] Available KV cache memory: 56.11 GiB
(EngineCore pid=3) INFO 10-06 17:00:02 [kv.py:1] GPU KV cache size: 460,496 tokens, Maximum concurrency for 131,072 x
(Worker_TP0 pid=1) INFO 10-06 17:00:09 [gpu_worker.py:2] Actual usage is 15.26 GiB for consumed memory (weights + \
non-torch), 1.44 GiB for peak activation, and 0.23 GiB for CUDAGraph memory.
"""
REPORTED = Reported(weights=15 * GIB, activation=GIB, context=GIB // 4, graphs=GIB)


def record(**change) -> Record:
    start = Record(digest(SMALL), "NVIDIA H200", Sizes(), Settings(version="0.33.0"), REPORTED)
    return replace(start, **change)


def test_a_newer_log_is_read_by_its_fullest_rank():
    found = read_report(NEWER)
    assert found.weights == round(15.02 * GIB)
    assert found.cache == round(56.11 * GIB)
    assert found.tokens == 460_496
    assert found.context == pytest.approx(0.24 * GIB, rel=0.01)
    assert found.activation == pytest.approx(0.29 * GIB, rel=0.01)
    assert found.graphs == round(1.15 * GIB)


def test_a_log_without_figures_reports_nothing():
    assert read_report("") == Reported()
    assert read_report("Model loading took ages\n\x1b[31mAvailable KV cache memory: much") == Reported()


def test_a_start_like_the_one_that_is_planned_is_recalled():
    recall = recall_of([record()], digest(SMALL))
    assert recall(H200, Sizes(), Settings(version="0.33.0")) == Learned(15 * GIB, GIB, GIB // 4, GIB)


@pytest.mark.parametrize(
    "change",
    [
        {"model": digest(LARGE)},
        {"device": "NVIDIA L4"},
        {"sizes": Sizes(tensor=2)},
        {"settings": Settings(version="0.26.0")},
        {"settings": Settings(version="0.33.0", quantization="fp8")},
    ],
)
def test_what_was_started_otherwise_is_not_recalled(change):
    recall = recall_of([record(**change)], digest(SMALL))
    assert recall(H200, Sizes(), Settings(version="0.33.0")) is None


def test_another_batch_leaves_only_what_does_not_depend_on_it():
    recall = recall_of([record()], digest(SMALL))
    found = recall(H200, Sizes(), Settings(version="0.33.0", max_num_batched_tokens=2048, enforce_eager=True))
    assert found == Learned(weights=15 * GIB, context=GIB // 4)


def test_the_newest_start_wins():
    newest = record(reported=Reported(weights=16 * GIB))
    found = recall_of([record(), newest], digest(SMALL))(H200, Sizes(), Settings(version="0.33.0"))
    assert (found.weights, found.activation) == (16 * GIB, GIB)


def test_a_model_is_known_by_what_its_config_says():
    assert digest({**SMALL, "_name_or_path": "x", "transformers_version": "9"}) == digest(SMALL)
    assert digest({**SMALL, "hidden_size": 1}) != digest(SMALL)


def test_a_plan_uses_what_was_learned_and_says_so():
    wish = PlanWish(Settings(version="0.33.0"))
    found = plan(known(SMALL), fleet("NVIDIA H200"), wish, recall_of([record()], digest(SMALL)))
    rank = found.recommendation.estimate.ranks[0]
    assert rank.weights.measured
    assert rank.activation.likely == GIB
    assert "earlier start" in rank.weights.reason


def test_predicted_stands_beside_measured():
    settings = Settings(version="0.26.0", enforce_eager=True)
    figures = estimate(read_model(SMALL, None, settings), Sizes(), settings, H200)
    compared = {part.part: part for part in beside(figures, Reported(weights=15 * GIB, cache=200 * GIB, tokens=0))}
    assert set(compared) == {"weights", "cache", "tokens"}
    assert compared["weights"].inside
    assert abs(compared["weights"].error) < 0.01
    assert not compared["cache"].inside
    assert compared["tokens"].error == 0
