"""What pages are sent: all of it at first, then what changed, in the reader's language."""

from __future__ import annotations

import re

import msgspec
import pytest

from monitoring.domain.figures import EngineFigures, NodeFigures
from monitoring.domain.samples import Gpu, Gpus, Host
from monitoring.sinks.fragments import Renderer, Scene

NOW = 1_800_000_000.0


def node(pk: int, heard_at: float = NOW, utilization: float = 10.0, **columns) -> NodeFigures:
    gpu = Gpu(uuid=f"GPU-{pk}", index=0, utilization=utilization, memory_used=1, memory_total=2)
    gpus = Gpus(source="nvml", at=heard_at, devices=(gpu,))
    return NodeFigures(node=pk, heard_at=heard_at, host=Host(cpu=5.0), gpu=gpus, **columns)


def scene(*nodes: NodeFigures, deployments: dict | None = None) -> Scene:
    return Scene({one.node: one for one in nodes}, deployments or {}, deployments or {})


def changes(renderer: Renderer, audiences: list[str], shown: Scene) -> dict[str, list[str]]:
    return dict(renderer.changes(audiences, shown))


def ids(elements: list[str]) -> list[str]:
    return [element.partition('id="')[2].partition('"')[0] for element in elements]


def test_a_new_audience_is_shown_everything_and_then_what_changed():
    renderer, one, two = Renderer(), node(1), node(2)
    first = changes(renderer, ["fleet.en"], scene(one, two))["fleet.en"]
    assert ids(first) == ["cell-1-0", "line-1", "cell-2-0", "line-2"]
    assert changes(renderer, ["fleet.en"], scene(one, two)) == {"fleet.en": []}
    later = changes(renderer, ["fleet.en"], scene(one, node(2, NOW + 1, utilization=90.0)))["fleet.en"]
    assert ids(later) == ["cell-2-0", "line-2"]


def test_a_cell_whose_gpu_did_not_change_is_not_sent_again():
    renderer = Renderer()
    changes(renderer, ["fleet.en"], scene(node(1)))
    assert ids(changes(renderer, ["fleet.en"], scene(node(1, NOW + 1)))["fleet.en"]) == ["line-1"]


def test_who_joins_late_is_shown_everything_and_the_others_are_not_bothered():
    renderer, one = Renderer(), node(1)
    changes(renderer, ["fleet.en"], scene(one))
    both = changes(renderer, ["fleet.en", "node-1.en"], scene(one))
    assert both["fleet.en"] == []
    assert ids(both["node-1.en"]) == ["host-1", "gpus-1"]


def test_who_left_and_comes_back_is_shown_everything():
    renderer, one = Renderer(), node(1)
    changes(renderer, ["fleet.en"], scene(one))
    changes(renderer, [], scene(one))
    assert ids(changes(renderer, ["fleet.en"], scene(one))["fleet.en"]) == ["cell-1-0", "line-1"]


def test_each_language_has_its_own_words():
    engine = EngineFigures(at=NOW, running=3.0)
    found = changes(Renderer(), ["deployment-5.en", "deployment-5.zh-hans"], scene(deployments={5: {"abc": engine}}))
    assert [ids(elements) for elements in found.values()] == [["engine-abc", "totals-5"]] * 2
    assert "running" in found["deployment-5.en"][0]
    assert "运行中" in found["deployment-5.zh-hans"][0]
    assert "running" not in found["deployment-5.zh-hans"][0]
    assert "首 token 延迟" in found["deployment-5.zh-hans"][1]


def test_every_fragment_for_a_chinese_reader_is_chinese():
    blocked = msgspec.structs.replace(node(1).gpu, problem="DRIVER_BLOCKED")
    lost = msgspec.structs.replace(blocked.devices[0], lost="Unknown Error", throttle=("sw_power_cap",))
    one = msgspec.structs.replace(
        node(1), gpu=msgspec.structs.replace(blocked, devices=(lost,)), engines={"abc": EngineFigures(at=NOW)}
    )
    topics = ["fleet.zh-hans", "node-1.zh-hans", "deployment-5.zh-hans"]
    found = changes(Renderer(), topics, scene(one, deployments={5: one.engines}))
    shown = [element for elements in found.values() for element in elements]
    assert len(shown) == 7
    for element in shown:
        assert re.search("[\u4e00-\u9fff]", element), element
        assert english(element) == set(), element


def english(element: str) -> set[str]:
    """English words of a fragment's text, names that are the same in every language left out."""
    words = re.findall(r"[A-Za-z][a-z]{2,}", re.sub(r"<[^>]*>", " ", element))
    return set(words) - {"token", "tok", "req", "Unknown", "Error", "nvml", "MHz", "KiB", "UTC", "Xid"}


def test_an_engine_is_shown_on_its_nodes_page_and_its_deployments():
    engine = EngineFigures(at=NOW, running=3.0)
    one = msgspec.structs.replace(node(1), engines={"abc": engine})
    found = changes(Renderer(), ["node-1.en", "deployment-5.en"], scene(one, deployments={5: {"abc": engine}}))
    assert found["node-1.en"][2] == found["deployment-5.en"][0]


@pytest.mark.parametrize("topic", ["node-9", "deployment-9", "node-", "nonsense", "", "node-x", "deployment--1"])
def test_what_is_not_known_shows_nothing(topic):
    assert changes(Renderer(), [f"{topic}.en"], scene(node(1))) == {f"{topic}.en": []}


def test_every_element_says_what_it_replaces():
    found = changes(Renderer(), ["fleet.en", "node-1.en"], scene(node(1)))
    for elements in found.values():
        for element in elements:
            assert 'hx-swap-oob="true"' in element.partition(">")[0]
            assert "style=" not in element
