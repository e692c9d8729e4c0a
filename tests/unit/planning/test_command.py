"""`manage.py plan`: the planner without database and nodes."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.unit.planning.models import LARGE, SMALL


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LARGE))
    return tmp_path


def test_a_readable_plan_is_printed(folder, capsys):
    call_command("plan", str(folder), "--gpus", "NVIDIA H200:8")
    printed = capsys.readouterr().out
    assert "Recommended: TP2" in printed
    assert "Ruled out:" in printed
    assert "[rule 1]" in printed
    assert "weights" in printed


def test_the_whole_plan_is_json(folder, capsys):
    call_command("plan", str(folder), "--gpus", "NVIDIA H200:4", "--nodes", "2", "--json", "--layout", "tp4xpp2")
    printed = json.loads(capsys.readouterr().out)
    assert [found["layout"] for found in printed["candidates"]] == ["TP4 x PP2 on 2 nodes"]


def test_the_index_says_how_large_the_weights_are(folder, capsys):
    index = {"metadata": {"total_size": 220 * 10**9}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    call_command("plan", str(folder), "--gpus", "NVIDIA H200:8", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert printed["candidates"][0]["accelerators"] > 2


def test_nothing_that_fits_is_code_1(folder, capsys):
    with pytest.raises(SystemExit) as ended:
        call_command("plan", str(folder), "--gpus", "Tesla T4:1")
    assert ended.value.code == 1
    assert "Nothing fits." in capsys.readouterr().out


def test_a_model_without_a_rule_is_code_1_and_says_so(folder, capsys):
    (folder / "config.json").write_text(json.dumps({**SMALL, "architectures": ["NewForCausalLM"]}))
    with pytest.raises(SystemExit) as ended:
        call_command("plan", str(folder), "--gpus", "NVIDIA H200:8")
    assert ended.value.code == 1
    assert "NewForCausalLM" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--gpus", "Nobody's card:2"],
        ["--gpus", "H200:8", "--nodes", "0"],
        ["--gpus", "H200:8", "--layout", "sideways"],
        ["--gpus", "H200:8", "--layout", "tp0"],
        ["--gpus", "H200:8", "--gpu-memory-utilization", "1.5"],
        ["--gpus", "H200:8", "--max-model-len", "-1"],
        ["--gpus", "H200:8", "--max-model-len", "long"],
        [],
    ],
    ids=" ".join,
)
def test_wrong_input_is_code_2_and_says_what_to_write(folder, words):
    with pytest.raises(CommandError) as caught:
        call_command("plan", str(folder), *words)
    assert caught.value.returncode in (1, 2)
    assert str(caught.value)


@pytest.mark.parametrize("content", [None, "", "[]", "{", "\x00"])
def test_a_config_that_cannot_be_read_is_code_2(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(CommandError) as caught:
        call_command("plan", str(tmp_path), "--gpus", "H200:8")
    assert caught.value.returncode == 2
    assert "config.json" in str(caught.value)
