"""What one rank takes: splits, number formats, caches, what is unknown."""

from __future__ import annotations

import pytest

from deployments.domain.accelerators import device_of, parse_gpus
from deployments.domain.activation import GIB
from deployments.domain.anatomy import UnknownModel
from deployments.domain.memory import Estimate, Model, Settings, estimate, read_model, stored_bytes, weights_of
from deployments.domain.parameters import Sizes, Stage, stages
from tests.unit.planning.models import LARGE, LATENT, MIXTURE, SMALL

H200 = parse_gpus("NVIDIA H200").device


def model(config, file_bytes=None, **settings) -> Model:
    found = read_model(config, file_bytes, Settings(**settings))
    assert isinstance(found, Model), found
    return found


def figures(config, sizes=None, device=H200, **settings) -> Estimate:
    found = estimate(model(config, **settings), sizes or Sizes(), Settings(**settings), device)
    assert isinstance(found, Estimate), found
    return found


def weights(config, sizes=None, file_bytes=None, **settings) -> float:
    found = model(config, file_bytes, **settings)
    return weights_of(found, Stage(0, found.anatomy.layers), sizes or Sizes()).likely / GIB


def test_tensor_parallel_ranks_share_weights_and_cache():
    one, two = figures(SMALL), figures(SMALL, Sizes(tensor=2))
    assert two.ranks[0].weights.likely == pytest.approx(one.ranks[0].weights.likely / 2, rel=0.01)
    assert two.ranks[0].token_bytes * 2 == one.ranks[0].token_bytes


def test_more_ranks_than_key_value_heads_keep_a_copy_each():
    eight, sixteen = figures(LARGE, Sizes(tensor=8)), figures(LARGE, Sizes(tensor=16))
    assert eight.ranks[0].token_bytes == sixteen.ranks[0].token_bytes


def test_a_latent_cache_is_whole_on_each_rank():
    one, four = figures(LATENT), figures(LATENT, Sizes(tensor=4))
    assert one.ranks[0].token_bytes == four.ranks[0].token_bytes == 32 * (512 + 64) * 2


def test_decode_context_ranks_share_the_tokens_of_a_latent_cache():
    alone, shared = figures(LATENT, Sizes(tensor=4)), figures(LATENT, Sizes(tensor=4, decode_context=4))
    assert shared.tokens[1] == pytest.approx(4 * alone.tokens[1], rel=0.001)


def test_layers_that_do_not_divide_go_before_the_last_stage():
    assert [stage.last - stage.first for stage in stages(10, 4)] == [2, 3, 3, 2]
    assert [stage.last - stage.first for stage in stages(32, 4)] == [8, 8, 8, 8]


def test_only_the_ends_of_a_pipeline_hold_the_vocabulary():
    first, *middle, last = figures(LARGE, Sizes(pipeline=4)).ranks
    vocabulary = 128256 * 8192 * 2
    assert first.weights.likely - middle[0].weights.likely == pytest.approx(vocabulary, rel=0.01)
    assert last.weights.likely - middle[0].weights.likely == pytest.approx(vocabulary, rel=0.01)


def test_experts_are_shared_by_all_members_whole_or_in_slices():
    whole, slices = weights(MIXTURE, Sizes(data=4, expert_parallel=True)), weights(MIXTURE, Sizes(data=4))
    assert whole == pytest.approx(slices, rel=0.001)
    assert whole < weights(MIXTURE) / 3


def test_members_of_a_dense_model_are_whole():
    assert weights(SMALL, Sizes(data=4)) == weights(SMALL)


@pytest.mark.parametrize(
    ("quantization", "gigabytes"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 39.77),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 39.5),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 72.68),
        (
            {
                "quant_method": "compressed-tensors",
                "ignore": ["lm_head"],
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
            },
            72.69,
        ),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 42.7),
    ],
    ids=lambda value: value["quant_method"] if isinstance(value, dict) else None,
)
def test_a_quantised_checkpoint_weighs_what_its_bits_and_groups_make(quantization, gigabytes):
    found = model({**LARGE, "quantization_config": quantization})
    assert stored_bytes(found) / 1e9 == pytest.approx(gigabytes, rel=0.01)


def test_parts_that_a_checkpoint_leaves_alone_weigh_what_they_did():
    said = {"quant_method": "awq", "bits": 4, "group_size": 128}
    some = {**said, "modules_to_not_convert": ["model.layers.0.self_attn"]}
    assert weights({**SMALL, "quantization_config": some}) > weights({**SMALL, "quantization_config": said}) + 1


def test_weights_can_be_quantised_while_they_are_loaded_but_not_by_awq():
    assert weights(SMALL, quantization="fp8") == pytest.approx(8.5, abs=0.05)
    refused = read_model(SMALL, None, Settings(quantization="awq"))
    assert isinstance(refused, UnknownModel)
    assert refused.what == "quantization"
    assert "fp8" in refused.remedy


def test_files_that_are_much_larger_than_the_config_says_are_believed():
    plain = stored_bytes(model(SMALL))
    assert weights(SMALL, file_bytes=int(plain * 1.3)) == pytest.approx(weights(SMALL) * 1.3, rel=0.01)
    assert weights(SMALL, file_bytes=int(plain * 1.01)) == weights(SMALL)


def test_files_in_double_width_weigh_what_the_engine_loads():
    plain = stored_bytes(model(SMALL))
    assert weights({**SMALL, "torch_dtype": "float32"}, file_bytes=int(2 * plain)) == weights(SMALL)


def test_a_model_with_pictures_needs_the_size_of_its_files():
    config = {
        "architectures": ["SomeForConditionalGeneration"],
        "model_type": "some",
        "text_config": {**SMALL, "architectures": None, "model_type": "llama"},
    }
    refused = read_model(config, None, Settings())
    assert isinstance(refused, UnknownModel)
    plain = stored_bytes(model(SMALL))
    assert weights(config, file_bytes=int(plain) + GIB) == pytest.approx(weights(SMALL) + 1, abs=0.01)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"architectures": ["SomethingNewForCausalLM"]}, "architecture"),
        ({"architectures": None}, "architecture"),
        ({"layer_types": ["linear_attention"] * 32}, "attention"),
        ({"attention_chunk_size": 8192}, "attention"),
        ({"mamba_d_state": 16}, "attention"),
        ({"num_attention_heads": None}, "config"),
        ({"num_attention_heads": 10_000}, "config"),
        ({"num_hidden_layers": 10**8}, "config"),
        ({"torch_dtype": "float8_e4m3fn"}, "config"),
        ({"quantization_config": {"quant_method": "brand_new"}}, "quantization"),
    ],
)
def test_what_is_not_known_is_said_and_not_guessed(change, what):
    refused = read_model({**SMALL, **change}, None, Settings())
    assert isinstance(refused, UnknownModel)
    assert refused.what == what
    assert refused.message
    assert refused.remedy


def test_a_cache_type_without_a_rule_is_said():
    refused = estimate(model(SMALL), Sizes(), Settings(kv_cache_dtype="turboquant_x"), H200)
    assert isinstance(refused, UnknownModel)
    assert "fp8" in refused.remedy


def test_half_the_bytes_hold_twice_the_tokens():
    wide, narrow = figures(SMALL), figures(SMALL, kv_cache_dtype="fp8")
    assert narrow.tokens[1] == pytest.approx(2 * wide.tokens[1], rel=0.001)


def test_a_window_holds_no_more_than_itself_and_the_batches_in_flight():
    windows = {**SMALL, "architectures": ["MistralForCausalLM"], "sliding_window": 4096}
    short, long = figures(windows, max_model_len=32768), figures(windows, max_model_len=131072)
    assert long.needed == short.needed
    assert figures(SMALL, max_model_len=131072).needed > long.needed


def test_the_longest_request_is_the_one_that_just_fits():
    card = device_of("Card", 24 * 1024)
    found = figures(SMALL, device=card, version="0.26.0", max_model_len=131072)
    again = figures(SMALL, device=card, version="0.26.0", max_model_len=found.longest[1], max_num_batched_tokens=2048)
    assert found.fits == "no"
    assert again.concurrency[1] >= 1
    assert figures(SMALL, device=card, version="0.26.0", max_model_len=found.longest[1] + 16).concurrency[1] < 1


def test_a_fixed_cache_is_what_was_asked_for_whatever_the_utilization():
    found = figures(SMALL, kv_cache_memory_bytes=8 * GIB, gpu_memory_utilization=0.3)
    assert found.ranks[0].cache.low == found.ranks[0].cache.high == 8 * GIB


def test_graphs_cost_nothing_when_none_are_captured():
    assert figures(SMALL, enforce_eager=True).ranks[0].graphs.high == 0


def test_every_part_has_its_reason_and_its_ends_in_order():
    for config in (SMALL, LARGE, MIXTURE, LATENT):
        for rank in figures(config, Sizes(tensor=2, pipeline=2)).ranks:
            for part in (
                rank.budget,
                rank.weights,
                rank.activation,
                rank.context,
                rank.graphs,
                rank.cache,
                rank.outside,
            ):
                assert part.low <= part.likely <= part.high
                assert part.reason


def test_an_engine_takes_its_batch_by_the_size_of_the_device():
    small, large = device_of("Card", 24 * 1024), H200
    assert "2048 tokens" in figures(SMALL, device=small).ranks[0].activation.reason
    assert "8192 tokens" in figures(SMALL, device=large).ranks[0].activation.reason
    assert "4096 tokens" in figures(SMALL, max_num_batched_tokens=4096).ranks[0].activation.reason
