"""What machines and models say about themselves, read from real output and from the ways it breaks."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from deployments.domain.facts import accelerators_of, cpu_slots, gpu_facts, read_facts, read_gpus
from deployments.domain.model_facts import read_config

HERE = Path(__file__).parent
GPUS = sorted(path.stem for path in (HERE / "gpu").glob("*.json"))
MODELS = sorted(path.name.removesuffix(".config.json") for path in (HERE / "models").glob("*.config.json"))
CPU = {"cpu": {"cores": 2, "model": "A CPU"}, "memory": {"total": 8 << 30}}


def answer(xml: str | None, **fields) -> dict:
    return {"found": "/usr/bin/nvidia-smi", "xml": xml, "rc": 0, "stderr": "", "timed_out": False, **fields}


@pytest.mark.parametrize("name", GPUS)
def test_the_output_of_nvidia_smi_is_read_as_written_down(name):
    said = answer((HERE / "gpu" / f"{name}.xml").read_text())
    expected = json.loads((HERE / "gpu" / f"{name}.json").read_text())
    assert gpu_facts(said) == expected["gpu"]
    found = [asdict(slot) for slot in accelerators_of({"nvidia_smi": said, **CPU})]
    assert [{**slot, "platform": "cuda"} for slot in expected["accelerators"]] == found


def test_a_gpu_machine_whose_driver_does_not_answer_has_no_cpu_slots():
    """Else it would be taken for a CPU node for good, and engines would be placed on its cores."""
    for said in (answer(None, timed_out=True), answer(None, rc=9, stderr="No devices"), answer("", rc=18)):
        assert accelerators_of({"nvidia_smi": said, **CPU}) == ()
        assert gpu_facts(said)["problem"]
    assert gpu_facts(answer(None, timed_out=True))["problem"] == "nvidia-smi did not answer in time"


def test_a_machine_without_nvidia_smi_has_cpu_slots_and_so_has_one_that_is_meant_to():
    none = {"found": None, "xml": None, "rc": None, "stderr": None, "timed_out": False}
    assert [slot.uuid for slot in accelerators_of({"nvidia_smi": none, **CPU})] == ["cpu-0", "cpu-1"]
    assert gpu_facts(none) == {"found": False, "driver": None, "cuda": None, "problem": None}
    h200 = answer((HERE / "gpu" / "h200-idle.xml").read_text())
    assert [slot.platform for slot in accelerators_of({"nvidia_smi": h200, **CPU}, "cpu")] == ["cpu", "cpu"]
    assert accelerators_of({"nvidia_smi": none, **CPU}, "cuda") == ()


def test_cpu_slots_share_the_memory_and_are_no_more_than_eight():
    many = cpu_slots({"cpu": {"cores": 64, "model": None}, "memory": {"total": 64 << 30}})
    assert (len(many), {slot.memory_mib for slot in many}, many[0].name) == (8, {8192}, "CPU")
    assert [slot.memory_mib for slot in cpu_slots({})] == [None]


def test_what_the_driver_says_of_the_capability_is_believed_before_the_name():
    said = answer((HERE / "gpu" / "unified-memory.xml").read_text(), compute_capabilities={"GPU-eeee": "12.1"})
    assert [slot.compute_capability for slot in accelerators_of({"nvidia_smi": said})] == ["12.1"]
    said["compute_capabilities"] = {"GPU-eeee": "[N/A]"}
    assert [slot.compute_capability for slot in accelerators_of({"nvidia_smi": said})] == [None]


def test_an_output_made_to_blow_up_the_parser_is_not_parsed():
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><nvidia_smi_log><gpu id="&b;"/></nvidia_smi_log>'
    assert read_gpus(bomb) == ()


def test_facts_that_were_not_found_are_null():
    facts = read_facts({"hostname": "h"})
    assert facts["hostname"] == "h"
    assert facts["memory"] is None
    assert facts["gpu"] == {"found": False, "driver": None, "cuda": None, "problem": None}


@pytest.mark.parametrize("name", MODELS)
def test_a_config_is_read_as_written_down(name):
    config = json.loads((HERE / "models" / f"{name}.config.json").read_text())
    expected = json.loads((HERE / "models" / f"{name}.facts.json").read_text())
    assert read_config("/m", config, 123) == {**expected, "quantization": None, "weight_bytes": 123}


def test_a_multimodal_config_is_read_by_its_text_part():
    text = {"num_attention_heads": 8, "hidden_size": 2048, "torch_dtype": "bfloat16"}
    facts = read_config("/m", {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text})
    assert (facts["architecture"], facts["num_attention_heads"]) == ("Gemma3ForConditionalGeneration", 8)
    assert (facts["num_key_value_heads"], facts["torch_dtype"]) == (8, "bfloat16")


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"architectures": []},
        {"architectures": None, "text_config": None, "quantization_config": None},
        {"architectures": "OPTForCausalLM", "num_attention_heads": "12", "hidden_size": True, "vocab_size": -1},
        {"text_config": [], "quantization_config": "fp8", "torch_dtype": 7},
    ],
)
def test_a_config_that_says_little_or_nonsense_is_read_all_the_same(config):
    facts = read_config("/m", config)
    assert facts["num_attention_heads"] is None
    assert facts["quantization"] is None
    assert all(value is None or isinstance(value, str) for value in facts.values())


def test_a_quantized_config_says_how():
    assert read_config("/m", {"quantization_config": {"quant_method": "fp8"}})["quantization"] == "fp8"
