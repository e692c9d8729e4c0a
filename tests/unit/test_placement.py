from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.domain.errors import InvalidInput, InvalidLayout, Unplaceable
from deployments.domain.placement import assign, free_ports, layout_kinds, place, render, unfit
from deployments.domain.plugins import RenderContext, Seat
from deployments.domain.specs import Accelerator, EngineOptions, LayoutSpec, ModelFacts, NodeView
from deployments.domain.states import NodeIntent, NodeState

SINGLE = LayoutSpec("single")
PAIR = LayoutSpec("tensor", tensor_parallel_size=2)


def node(id: int = 1, free: int = 2, **fields) -> NodeView:
    slots = tuple(Accelerator(f"GPU-{id}-{i}", i, "H200", 143771) for i in range(free))
    values = {"environment": "/opt/vllm", "model_path": "/models/m", "port_range": (20000, 20003)} | fields
    return NodeView(id, f"n{id}", f"10.0.0.{id}", accelerators=slots, free_accelerators=slots, **values)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"intent": NodeIntent.CORDONED}, "n1 is cordoned"),
        ({"intent": NodeIntent.DRAINING}, "n1 is draining"),
        ({"state": NodeState.UNREACHABLE}, "n1 is unreachable"),
        ({"state": NodeState.NOT_READY}, "n1 is not ready"),
        ({"environment": None}, "no engine environment"),
        ({"model_path": None}, "does not have the model's files"),
        ({"free": 1}, "1 of 2 accelerators free"),
        ({"used_ports": frozenset(range(20000, 20004))}, "no free port left in 20000-20003"),
    ],
)
def test_a_node_that_does_not_fit_says_why(fields: dict, words: str) -> None:
    assert words in (unfit(node(**fields), Seat(2)) or "")
    with pytest.raises(Unplaceable) as caught:
        place(PAIR, [node(**fields)])
    assert words in caught.value.message
    assert caught.value.detail["reasons"] == [unfit(node(**fields), Seat(2))]
    assert caught.value.remedy


def test_a_node_that_fits_has_nothing_to_say() -> None:
    assert unfit(node(), Seat(2)) is None


def test_no_node_at_all_is_told_too() -> None:
    with pytest.raises(Unplaceable, match="no node to choose from"):
        place(SINGLE, [])
    with pytest.raises(Unplaceable, match="no node to choose from"):
        place(SINGLE, [node(1)], wanted=[2])


def test_the_tightest_node_is_filled_first() -> None:
    (seat,) = place(SINGLE, [node(1, free=8), node(2, free=1), node(3, free=4)])
    assert seat.node_id == 2
    (seat,) = place(PAIR, [node(1, free=8), node(2, free=1), node(3, free=4)])
    assert seat.node_id == 3


def test_only_wanted_nodes_are_chosen_among() -> None:
    (seat,) = place(SINGLE, [node(1), node(2), node(3)], wanted=[3])
    assert seat.node_id == 3


def test_accelerators_are_taken_in_index_order_and_ports_from_the_range() -> None:
    (seat,) = place(PAIR, [node(free=4, used_ports=frozenset({20000}))])
    assert [slot.index for slot in seat.accelerators] == [0, 1]
    assert seat.ports == {"http": 20001}


def test_two_seats_of_one_replica_share_neither_accelerators_nor_ports() -> None:
    first, second = assign([Seat(1), Seat(1)], [node(free=2)])
    assert first.accelerators != second.accelerators
    assert first.ports != second.ports
    with pytest.raises(Unplaceable, match="0 of 1 accelerators free"):
        assign([Seat(1), Seat(1)], [node(free=1)])


def test_an_unknown_layout_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidLayout) as caught:
        place(LayoutSpec("star"), [node()])
    assert caught.value.field == "kind"
    assert all(kind in caught.value.remedy for kind in layout_kinds())


@pytest.mark.parametrize(
    ("served", "path"), [("--trust-remote-code", "/m"), ("-x", "/m"), ("m", "-x"), ("", "/m"), ("m", "")]
)
def test_a_name_is_never_read_as_a_flag(served: str, path: str) -> None:
    seats = place(SINGLE, [node()])
    context = RenderContext(served, ModelFacts(path), SINGLE, {1: node(model_path=path)}, seats, EngineOptions())
    with pytest.raises(InvalidInput):
        render(context)


@given(st.sets(st.integers(20000, 20012)), st.integers(0, 5))
def test_free_ports_are_in_the_range_and_held_by_nobody(used: set[int], count: int) -> None:
    found = free_ports(replace(node(), port_range=(20000, 20009), used_ports=frozenset(used)), count)
    assert len(found) == min(count, 10 - len([port for port in used if port <= 20009]))
    assert len(set(found)) == len(found)
    assert all(20000 <= port <= 20009 and port not in used for port in found)


@given(st.sets(st.integers(20000, 20009)), st.sets(st.integers(20000, 20009)), st.integers(1, 10))
def test_a_port_that_was_listened_on_is_taken_only_when_no_other_is_left(
    used: set[int], heard: set[int], count: int
) -> None:
    view = replace(node(), port_range=(20000, 20009), used_ports=frozenset(used), heard_ports=frozenset(heard))
    found = free_ports(view, count)
    free = set(range(20000, 20010)) - used
    assert len(found) == min(count, len(free))
    assert set(found) <= free
    if set(found) & heard:
        assert free - heard <= set(found)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=6), st.integers(2, 8))
def test_a_placement_fits_or_no_node_could_take_it(free: list[int], size: int) -> None:
    nodes = [node(i + 1, free=count) for i, count in enumerate(free)]
    try:
        (seat,) = place(LayoutSpec("tensor", tensor_parallel_size=size), nodes)
    except Unplaceable:
        assert max(free) < size
    else:
        assert len(seat.accelerators) == size
        assert set(seat.accelerators) <= set(nodes[seat.node_id - 1].free_accelerators)
        assert free[seat.node_id - 1] == min(count for count in free if count >= size)
