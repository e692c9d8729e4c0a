"""Over random models and fleets: each plan satisfies the rules, each refusal names one that does not hold."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.domain import rules
from deployments.domain.accelerators import KNOWN, device_of
from deployments.domain.anatomy import Anatomy, UnknownModel, read_anatomy
from deployments.domain.fleet import Machine, Pool, fleet_of
from deployments.domain.memory import Model, Settings, estimate, read_model, weights_of
from deployments.domain.parameters import Sizes, stages
from deployments.domain.plan_subject import PlanWish, subject_of
from deployments.domain.planner import LEAST_CONTEXT, plan
from tests.unit.planning.models import LATENT, MIXTURE, SMALL, known

EXAMPLES = 60
KEYS = sorted(
    {*SMALL, *MIXTURE, *LATENT, "rope_scaling", "rope_parameters", "quantization_config", "text_config", "layer_types"}
    | {"head_dim", "sliding_window", "mlp_only_layers", "partial_rotary_factor", "n_routed_experts"}
)
INNER = ["factor", "rope_type", "quant_method", "bits", "group_size", "full_attention", "model_type", "config_groups"]


@st.composite
def configs(draw):
    base = draw(st.sampled_from([SMALL, MIXTURE, LATENT]))
    heads = draw(st.sampled_from([8, 12, 16, 28, 40, 64]))
    return {
        **base,
        "num_attention_heads": heads,
        "num_key_value_heads": heads if base is LATENT else draw(st.sampled_from([1, 2, 4, 8, heads])),
        "hidden_size": heads * 128,
        "intermediate_size": draw(st.sampled_from([11008, 14336, 18944, 29568])),
        "num_hidden_layers": draw(st.integers(1, 96)),
        "vocab_size": draw(st.sampled_from([32000, 50257, 128256, 152064])),
        "max_position_embeddings": draw(st.sampled_from([2048, 8192, 131072])),
    }


@st.composite
def machines(draw):
    name, mib, _ = draw(st.sampled_from(KNOWN))
    device = device_of(name, mib)
    count = draw(st.integers(1, 8))
    return [Machine(f"n{index}", (device,) * count, "0.33.0") for index in range(draw(st.integers(1, 4)))]


@settings(max_examples=EXAMPLES, deadline=None)
@given(config=configs(), nodes=machines(), length=st.sampled_from([None, 2048, 8192]))
def test_each_plan_satisfies_all_rules_and_each_refusal_names_what_it_breaks(config, nodes, length):
    wish, model = PlanWish(Settings(max_model_len=length)), known(config)
    pool = Pool(nodes[0].devices, tuple(machine.name for machine in nodes), "0.33.0")
    found = plan(model, fleet_of(nodes), wish)
    assert found.unknown is None
    for candidate in found.candidates:
        subject = subject_of(model, pool, pool.devices, candidate.sizes, candidate.nodes, wish)
        assert not [problem for problem in rules.check(subject) if problem.severity == "error"]
        assert candidate.sizes.ranks == candidate.nodes * candidate.per_node
        assert candidate.per_node <= len(pool.devices)
        assert candidate.nodes <= len(nodes)
        assert candidate.estimate.concurrency[1] >= 1
    for refusal in found.refusals:
        assert refusal.problem.message
        assert refusal.problem.remedy
        subject = subject_of(model, pool, pool.devices, refusal.sizes, refusal.nodes, wish)
        broken = {problem.rule for problem in rules.check(subject) if problem.severity == "error"}
        assert refusal.rule in broken if refusal.rule else not broken
        assert refusal.rule or not has_room(config, refusal, pool, wish)


def has_room(config, refusal, pool, wish) -> bool:
    """Whether what was refused for memory would hold one request of the shortest useful length."""
    model = read_model(config, None, wish.settings)
    length = wish.settings.max_model_len or min(LEAST_CONTEXT, config["max_position_embeddings"])
    shortest = replace(wish.settings, max_model_len=length, version=pool.engine_version)
    return estimate(model, refusal.sizes, shortest, pool.devices[0]).concurrency[1] >= 1


@settings(max_examples=EXAMPLES, deadline=None)
@given(config=configs(), nodes=machines())
def test_a_refusal_for_memory_is_true_of_the_layout_it_names(config, nodes):
    found = plan(known(config), fleet_of(nodes), PlanWish())
    fitting = {candidate.word for candidate in found.candidates}
    assert not fitting & {refusal.word for refusal in found.refusals}


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    config=configs(),
    gib=st.integers(24, 200),
    length=st.integers(16, 8192),
    tensor=st.sampled_from([1, 2, 4]),
    pipeline=st.integers(1, 4),
)
def test_more_memory_and_shorter_requests_never_hold_fewer(config, gib, length, tensor, pipeline):
    wish = Settings(max_model_len=2 * length, max_num_batched_tokens=2048, max_num_seqs=256)
    model, sizes = read_model(config, None, wish), Sizes(tensor, min(pipeline, config["num_hidden_layers"]))
    here, larger = (estimate(model, sizes, wish, device_of("Card", size * 1024)) for size in (gib, gib + 8))
    shorter = estimate(model, sizes, replace(wish, max_model_len=length), device_of("Card", gib * 1024))
    assert all(less <= more for less, more in zip(here.concurrency, larger.concurrency, strict=True))
    assert all(less <= more for less, more in zip(here.concurrency, shorter.concurrency, strict=True))
    assert here.concurrency == tuple(sorted(here.concurrency))
    assert here.tokens == tuple(sorted(here.tokens))
    assert here.longest == tuple(sorted(here.longest))


@settings(max_examples=EXAMPLES, deadline=None)
@given(config=configs(), pipeline=st.integers(1, 12))
def test_stages_hold_each_layer_once_and_all_weights_together(config, pipeline):
    model = read_model(config, None, Settings())
    assert isinstance(model, Model)
    layers = model.anatomy.layers
    if pipeline > layers:
        return
    cut = stages(layers, pipeline)
    assert [layer for stage in cut for layer in range(stage.first, stage.last)] == list(range(layers))
    parts = [weights_of(model, stage, Sizes(pipeline=pipeline)).low for stage in cut]
    assert sum(parts) == weights_of(model, stages(layers, 1)[0], Sizes()).low


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(KEYS),
        st.recursive(
            st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER), inner, max_size=3),
            max_leaves=5,
        ),
        max_size=6,
    ),
    st.sampled_from([SMALL, MIXTURE, LATENT]),
)
def test_no_config_breaks_the_reading(change, base):
    config = {**base, **change}
    anatomy = read_anatomy(config)
    assert isinstance(anatomy, Anatomy | UnknownModel)
    model = read_model(config, None, Settings())
    assert isinstance(model, Model | UnknownModel)
    if isinstance(model, Model):
        assert weights_of(model, stages(model.anatomy.layers, 1)[0], Sizes()).likely > 0
