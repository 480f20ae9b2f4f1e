"""Which layers run in one start, and where maps lie: by hand, and for random graphs, which a small model runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uma.relay import Expr, TensorType, Var
from uma_ultratrail.layer import Convolution, Shape
from uma_ultratrail.machine import Machine
from uma_ultratrail.network import Node, Start, plan_starts

MACHINE = Machine(layers=4, wmem_words=8)


def tensor(name: str, frames: int = 5) -> Var:
    return Var(name, TensorType((1, frames, 8), "int8"))


def node(made: Var, data: Var, residual: Var | None = None, taps: int = 1, bias: bool = False) -> Node:
    shape = Shape(data.shape[1], 8, taps, 1, 0, 0, made.shape[1], 8)
    numbers = np.zeros(8, np.int64) if bias else None
    layer = Convolution(shape, np.zeros((taps, 8, 8), np.int64), numbers, None, False)
    return Node(layer, data, residual, made, made.name, (made.name,))


def names(pairs: Sequence[tuple[Expr, int]]) -> list[tuple[str, int]]:
    return [(expr.name, memory) for expr, memory in pairs if isinstance(expr, Var)]


def shown(starts: Sequence[Start]) -> list[str]:
    """What each start does, in one line: loads, layers with memories, stores."""
    lines = []
    for start in starts:
        steps = [f"{n.name}:{start.memories(i)[0]}>{start.memories(i)[1]}" for i, n in enumerate(start.nodes)]
        ends = [" ".join(f"{name}@{memory}" for name, memory in names(pairs)) for pairs in (start.loads, start.stores)]
        lines.append(f"[{ends[0]}] {' '.join(steps)} [{ends[1]}]")
    return lines


X, A, B, C, D, E, F = (tensor(name) for name in "xabcdef")


def test_a_chain_goes_to_and_fro() -> None:
    nodes = [node(A, X), node(B, A), node(C, B), node(D, C)]
    assert shown(plan_starts(nodes, [D], MACHINE)) == ["[x@0] a:0>1 b:1>0 c:0>1 d:1>0 [d@0]"]


def test_a_residual_stays_in_the_third_memory() -> None:
    nodes = [node(A, X), node(B, X), node(C, A, residual=B), node(D, C)]
    assert shown(plan_starts(nodes, [D], MACHINE)) == ["[x@0] a:0>1 b:0>2 c:1>0 d:0>1 [d@1]"]


def test_an_input_may_be_added_to_what_is_made_of_it() -> None:
    """In a block, and at once: then it is loaded twice."""
    block = [node(A, X), node(B, A, residual=X)]
    assert shown(plan_starts(block, [B], MACHINE)) == ["[x@0] a:0>1 b:1>2 [b@2]"]
    assert shown(plan_starts([node(A, X, residual=X)], [A], MACHINE)) == ["[x@0 x@1] a:0>2 [a@2]"]


def test_what_is_made_and_added_to_what_is_made_of_it_at_once_is_loaded_again() -> None:
    nodes = [node(A, X), node(B, A, residual=A), node(C, B)]
    assert shown(plan_starts(nodes, [C], MACHINE)) == ["[x@0] a:0>1 [a@1]", "[a@0 a@1] b:0>2 c:2>0 [c@0]"]


def test_more_layers_than_registers_are_several_starts() -> None:
    made = [X, A, B, C, D, E, F]
    nodes = [node(to, of) for of, to in itertools.pairwise(made)]
    assert [len(start.nodes) for start in plan_starts(nodes, [F], MACHINE)] == [2, 4]


def test_of_as_many_starts_those_are_taken_that_move_least() -> None:
    small = tensor("s", 1)
    nodes = [node(A, X), node(B, A), node(small, B, taps=5), node(D, small), node(E, D)]
    assert shown(plan_starts(nodes, [E], MACHINE)) == [
        "[x@0] a:0>1 b:1>0 s:0>1 [s@1]",
        "[s@0] d:0>1 e:1>0 [e@0]",
    ]


@pytest.mark.parametrize(("taps", "starts"), [(4, [2]), (5, [1, 1])])
def test_weights_of_a_start_fit_their_memory(taps: int, starts: list[int]) -> None:
    a, b = tensor("a", 11 - taps), tensor("b", 12 - 2 * taps)
    nodes = [node(a, tensor("x", 10), taps=taps), node(b, a, taps=taps)]
    assert [len(start.nodes) for start in plan_starts(nodes, [b], MACHINE)] == starts


def test_biases_of_a_start_fit_their_memory() -> None:
    nodes = [node(A, X, bias=True), node(B, A, bias=True)]
    for words, starts in ((2, [2]), (1, [1, 1])):
        machine = Machine(layers=4, bmem_words=words)
        assert [len(start.nodes) for start in plan_starts(nodes, [B], machine)] == starts


def test_several_results_are_stored_at_the_end() -> None:
    nodes = [node(A, X), node(B, A), node(C, B)]
    assert shown(plan_starts(nodes, [A, C], MACHINE)) == ["[x@0] a:0>1 b:1>0 c:0>2 [a@1 c@2]"]


def test_a_fourth_map_needs_another_start() -> None:
    """While c is made of x, a and b would have to stay."""
    nodes = [node(A, X), node(B, X), node(C, X), node(D, A, residual=B)]
    starts = plan_starts(nodes, [C, D], MACHINE)
    assert shown(starts) == ["[x@0] a:0>1 [a@1]", "[x@0] b:0>1 c:0>2 [b@1 c@2]", "[a@0 b@1] d:0>2 [d@2]"]


# --- Any graph ---


def run(nodes: Sequence[Node], wanted: Sequence[Expr], starts: Sequence[Start]) -> None:
    """Moves names of maps through the memories, as a machine would maps."""
    assert [one for start in starts for one in start.nodes] == list(nodes)
    outside: set[Expr] = {node.data for node in nodes} | {node.residual for node in nodes if node.residual is not None}
    outside -= {node.result for node in nodes}
    for start in starts:
        memories: list[Expr | None] = [None] * 3
        for expr, memory in start.loads:
            assert expr in outside and memories[memory] is None
            memories[memory] = expr
        for number, one in enumerate(start.nodes):
            source, destination = start.memories(number)
            third = ({0, 1, 2} - {source, destination}).pop()
            assert source != destination and memories[source] is one.data
            assert one.residual is None or memories[third] is one.residual
            memories[destination] = one.result
        for expr, memory in start.stores:
            assert memories[memory] is expr
            outside.add(expr)
    assert outside.issuperset(wanted)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Node], list[Expr]]:
    inputs: list[Var] = [tensor(f"x{n}") for n in range(draw(st.integers(1, 2)))]
    known, nodes = list(inputs), []
    for number in range(draw(st.integers(1, 12))):
        recent = st.integers(max(0, len(known) - 4), len(known) - 1)
        data = known[draw(recent)]
        residual = known[draw(recent)] if draw(st.booleans()) else None
        made = tensor(f"t{number}")
        nodes.append(node(made, data, residual, bias=draw(st.booleans())))
        known.append(made)
    used = {expr for one in nodes for expr in one.operands}
    wanted = [one.result for one in nodes if one.result not in used or draw(st.integers(0, 7)) == 0]
    return nodes, list(wanted)


@given(graphs(), st.integers(1, 16), st.integers(1, 12))
def test_every_map_is_where_it_is_needed(graph: tuple[list[Node], list[Expr]], layers: int, words: int) -> None:
    nodes, wanted = graph
    machine = Machine(layers=layers, wmem_words=words, bmem_words=words)
    starts = plan_starts(nodes, wanted, machine)
    assert all(len(start.nodes) <= min(layers, words) for start in starts)
    run(nodes, wanted, starts)
