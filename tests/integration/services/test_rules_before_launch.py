"""What the numbered rules and the list of retired options say reaches the preview, and apply refuses the same."""

from __future__ import annotations

import pytest

from deployments.domain.errors import InvalidInput, InvalidLayout
from deployments.models import Node
from deployments.remote.stub_facts import h200_host
from deployments.services import deployments, layouts
from deployments.services import nodes as probes
from deployments.services.deployments import DeploymentInput, Preview

from ..panel import advance_all, found_model, ready_node, single_layout

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet(stub, admin) -> list[Node]:
    """Two nodes with eight H200 each and the model's files."""
    nodes = [ready_node(admin, name) for name in ("gpu-1", "gpu-2")]
    for node in nodes:
        stub.node(node.pk, h200_host(node.name))
    Node.objects.update(platform="cuda")
    probes.probe_nodes(admin)
    advance_all()
    found_model(admin)
    single_layout(admin)
    layouts.add_layout(admin, name="three", kind="tensor", tensor_parallel_size=3)
    return [Node.objects.get(pk=node.pk) for node in nodes]


def preview(admin, layout: str = "one", args: str = "", **more) -> Preview:
    wish = DeploymentInput(name="chat", model="qwen", layout=layout, args=args.split(), **more)
    return deployments.preview(admin, wish)


def said(shown: Preview) -> list[tuple[int | None, str, str | None]]:
    return [(problem.rule, problem.severity, problem.node) for problem in shown.problems]


def older(node: Node, capability: str, version: str = "0.33.0") -> None:
    node.accelerators.update(compute_capability=capability)
    node.facts["environment"]["packages"]["vllm"] = version
    node.save(update_fields=["facts"])


def test_a_size_that_does_not_divide_is_told_with_the_sizes_that_do(fleet, admin) -> None:
    shown = preview(admin, "three")
    heads = shown.problems[0]
    assert not shown.ok
    assert (heads.rule, heads.setting, heads.values) == (1, "tensor_parallel_size", (2, 4))
    assert "28 attention heads; they cannot be split over 3 ranks" in heads.message
    with pytest.raises(InvalidLayout) as caught:
        deployments.apply(admin, DeploymentInput(name="chat", model="qwen", layout="three"))
    assert caught.value.message == heads.message


def test_nothing_is_said_twice(fleet, admin) -> None:
    messages = [problem.message for problem in preview(admin, "three", "--max-model-len 999999").problems]
    assert len(messages) == len(set(messages))
    assert sum("attention heads" in message for message in messages) == 1


def test_the_models_config_and_the_arguments_are_held_against_each_other(fleet, admin) -> None:
    shown = preview(admin, args="--max-model-len 99999999")
    assert said(shown) == [(18, "error", None)]
    assert said(preview(admin, args="--max-model-len 4096")) == []
    assert said(preview(admin, args="--quantization awq")) == [(14, "error", None)]


def test_what_no_accelerator_can_do_is_an_error_and_what_some_cannot_a_warning(fleet, admin) -> None:
    older(fleet[0], "7.5")
    shown = preview(admin, args="--dtype bfloat16")
    assert said(shown) == [(15, "warning", "gpu-1")]
    assert [process.node for process in shown.processes] == ["gpu-2"]
    older(fleet[1], "7.5")
    shown = preview(admin, args="--dtype bfloat16")
    assert said(shown) == [(15, "error", "gpu-1")]
    assert shown.problems[0].message.endswith("The same holds for gpu-2.")


def test_the_engines_version_decides_whether_a_rule_applies(fleet, admin) -> None:
    older(fleet[0], "7.0", "0.19.0")
    assert said(preview(admin, nodes=["gpu-1"])) == []
    older(fleet[0], "7.0", "0.33.0")
    assert said(preview(admin, nodes=["gpu-1"])) == [(16, "error", "gpu-1")]


def test_a_retired_flag_is_refused_with_what_to_use_instead(fleet, admin) -> None:
    shown = preview(admin, args="--enable-prefill")
    assert [(problem.code, problem.severity) for problem in shown.problems] == [("UNKNOWN_FLAG", "error")]
    assert "--enable-chunked-prefill" in shown.problems[0].remedy
    with pytest.raises(InvalidInput) as caught:
        deployments.apply(admin, DeploymentInput(name="chat", model="qwen", layout="one", args=["--enable-prefill"]))
    assert caught.value.code == "UNKNOWN_FLAG"
    warned = preview(admin, env={"NCCL_ALGO": "Tree"})
    assert warned.ok
    assert [problem.severity for problem in warned.problems] == ["warning"]
