"""Contraction without cycles, against a check of the whole graph."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uma.partition import contracted_dag as module
from uma.partition.contracted_dag import ContractedDag, Contraction

Edges = list[set[int]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Edges, list[list[int]]]:
    """The predecessors of each node, and sets of nodes to contract."""
    count = draw(st.integers(2, 14))
    edges: Edges = [set(draw(st.lists(st.integers(0, n - 1), max_size=3))) if n else set() for n in range(count)]
    node = st.integers(0, count - 1)
    return edges, draw(st.lists(st.lists(node, min_size=1, max_size=4), max_size=12))


def acyclic(edges: Edges, group: list[int]) -> bool:
    """Whether the graph has no cycle in which node n is ``group[n]``."""
    before = {g: {group[b] for n, g2 in enumerate(group) if g2 == g for b in edges[n]} - {g} for g in group}
    while ready := [g for g, needs in before.items() if not needs]:
        for g in ready:
            del before[g]
        for needs in before.values():
            needs.difference_update(ready)
    return not before


@given(graphs(), st.booleans())
def test_what_makes_a_cycle_is_refused_and_nothing_else(case: tuple[Edges, list[list[int]]], tight: bool) -> None:
    edges, steps = case
    with pytest.MonkeyPatch.context() as patch:
        if tight:  # labels run out all the time
            patch.setattr(module, "_GAP", 2)
        quotient = ContractedDag(edges)
        group = list(range(len(edges)))
        for nodes in steps:
            members = {group[node] for node in nodes}
            made = quotient.contract(nodes)
            merged = [min(members) if g in members else g for g in group]
            assert (made is not None) == acyclic(edges, merged)
            if made is not None:
                group = merged
                assert {quotient.find(node) for node in nodes} == {made.node}
            for one in range(len(edges)):
                for other in range(len(edges)):
                    assert (group[one] == group[other]) == (quotient.find(one) == quotient.find(other))
            order = quotient.order()
            assert sorted(order) == sorted({quotient.find(node) for node in range(len(edges))})
            place = {node: position for position, node in enumerate(order)}
            found = {(quotient.find(b), quotient.find(n)) for n, before in enumerate(edges) for b in before}
            assert all(place[b] < place[n] for b, n in found if b != n)
            assert {(b, n) for n in order for b in quotient.predecessors[n]} == {(b, n) for b, n in found if b != n}
            assert {(b, n) for b in order for n in quotient.successors[b]} == {(b, n) for b, n in found if b != n}


def test_neighbours_of_both_are_shared() -> None:
    quotient = ContractedDag([[], [0], [0], [1, 2], [3]])
    assert quotient.contract([1, 2]) == Contraction(1, (3, 0))
    assert quotient.contract([1, 4]) is None
    assert quotient.contract([3, 3]) == Contraction(3, ())


def test_patience_comes_to_an_end() -> None:
    """Two ways of ten nodes each that do not meet: it takes about ten steps to see that."""

    def ladder() -> ContractedDag:
        # 0 -> 2 -> 4 .. and 1 -> 3 -> 5 ..: the first of one and the last of the other may be one node.
        return ContractedDag([[], []] + [[n - 2] for n in range(2, 24)])

    assert ladder().contract([0, 23], patience=6) is None
    assert ladder().contract([0, 23], patience=60) is not None
    assert ladder().contract([0, 23]) is not None


def test_an_empty_graph() -> None:
    assert ContractedDag([]).order() == []
