"""The helper's reading of `nvidia-smi -q -x`: real output, and each way in which a figure may be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deployments.remote.helper.inventory import Inventory
from deployments.remote.helper.smi import read_xml
from monitoring.domain.samples import Gpu

HERE = Path(__file__).parent / "gpu"
NAMES = sorted(path.stem for path in (HERE / "samples").glob("*.json"))


def devices(name: str) -> list[dict[str, Any]]:
    """What the helper makes of an output, without what is None."""
    folder = HERE / "samples" if (HERE / "samples" / f"{name}.xml").exists() else HERE
    found = Inventory().complete(read_xml((folder / f"{name}.xml").read_text()))
    assert [msgspec.convert(device, Gpu).index for device in found] == [device["index"] for device in found]
    return [{key: value for key, value in device.items() if value is not None} for device in found]


@pytest.mark.parametrize("name", NAMES)
def test_an_output_is_read_as_written_down(name):
    assert devices(name) == json.loads((HERE / "samples" / f"{name}.json").read_text())


@pytest.mark.parametrize("name", ["cut-short", "handle-unknown", "library-mismatch"])
def test_an_output_without_figures_has_no_devices(name):
    assert devices(name) == []


def test_unified_memory_is_the_hosts():
    (device,) = devices("unified-memory")
    total = int(next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line).split()[1])
    assert (device["unified"], device["memory_total"]) == (True, total * 1024)
    assert "memory_used" not in device


def test_an_output_made_to_blow_up_the_parser_is_not_read():
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa">]><nvidia_smi_log><gpu id="&a;"><uuid>GPU-1</uuid></gpu></nvidia_smi_log>'
    assert read_xml(bomb) == []
