"""Accelerators by name or by size."""

from __future__ import annotations

import pytest

from deployments.domain.accelerators import KNOWN, device_of_accelerator, parse_gpus
from deployments.domain.errors import InvalidInput
from deployments.domain.specs import Accelerator


@pytest.mark.parametrize(
    ("text", "name", "mib", "count"),
    [
        ("NVIDIA H200:8", "NVIDIA H200", 143_771, 8),
        ("H200", "NVIDIA H200", 143_771, 1),
        ("h100:2", "NVIDIA H100", 81_559, 2),
        ("A100 80GB PCIe", "NVIDIA A100 80GB PCIe", 81_920, 1),
        ("RTX 3060:1", "NVIDIA GeForce RTX 3060", 12_288, 1),
        ("L4", "NVIDIA L4", 23_034, 1),
        ("Tesla T4: 4", "Tesla T4", 15_360, 4),
        ("Some card=48:2", "Some card", 49_152, 2),
        ("Some card = 7.5 GiB : 2", "Some card", 7_680, 2),
        ("NVIDIA H200=70:1", "NVIDIA H200", 71_680, 1),
    ],
)
def test_accelerators_are_read(text, name, mib, count):
    offer = parse_gpus(text)
    assert (offer.device.name, offer.device.memory_mib, offer.count) == (name, mib, count)


@pytest.mark.parametrize("text", ["", ":8", "Unknown card", "H200:0", "H200:65", "X=0:1", "X=4000", "a:b:c", "H200:-1"])
def test_what_cannot_be_read_is_refused_with_what_to_write(text):
    with pytest.raises(InvalidInput) as caught:
        parse_gpus(text)
    assert caught.value.field == "gpus"
    assert "GiB" in caught.value.remedy


@pytest.mark.parametrize("entry", KNOWN, ids=lambda entry: entry[0])
def test_each_known_accelerator_is_found_by_its_whole_name(entry):
    assert parse_gpus(entry[0]).device.memory_mib == entry[1]
    assert parse_gpus(entry[0]).device.link == entry[2]


def test_what_was_measured_is_exact_and_the_rest_is_wide():
    assert parse_gpus("NVIDIA H200").device.usable_mib == 143_156
    low, likely, high = parse_gpus("NVIDIA L40S").device.reserved_mib
    assert low < likely < high


def test_a_node_s_slot_is_a_device_with_what_is_free_of_it():
    slot = Accelerator("GPU-1", 0, "NVIDIA H200", 143_771, "cuda", "9.0")
    device = device_of_accelerator(slot, 100_000)
    assert device is not None
    assert (device.free_mib, device.link, device.capability) == (100_000, "nvlink", "9.0")
    assert device_of_accelerator(Accelerator("GPU-2", 1, "NVIDIA H200", None)) is None
