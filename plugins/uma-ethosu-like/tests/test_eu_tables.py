"""Tables behind what gives their input: no pass of their own, and the same results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests._support.int8_layers import Random
from tests._support.npu_regions import Planned, check, planned

from uma.relay import Expr, Function, TensorType, Tuple, Var, call
from uma_ethosu_like.cost import Work, stream_cycles
from uma_ethosu_like.machine import Machine

KINDS = ("conv", "depthwise", "dense", "mean", "max_pool", "average_pool", "add", "concatenate", "resize", "softmax")
MACS = (32, 64, 128, 256)


def kernels(one: Planned, machine: Machine) -> list[bool]:
    """Of each kernel of its stream, whether it has a table."""
    works = one.stream(machine).works
    return [event.step.operation.table is not None for event in works if isinstance(event, Work)]


def looked_up(value: Expr, draw: Random, times: int) -> Expr:
    for _ in range(times):
        value = draw.unary(value)
    return value


def check_tables(npu: Any, seeds: Sequence[int]) -> list[str]:
    """Runs layers with more ops behind them than one table takes. Gives those that take as many kernels alone."""
    runs, behind = [], []
    for number, kind in enumerate(KINDS):
        for seed in seeds:
            draw, machine = Random([seed, *kind.encode()]), Machine(macs=MACS[(seed + number) % 4])
            layer = draw.draw(kind)
            [alone] = planned(layer)
            [one] = planned(Function(layer.params, looked_up(layer.body, draw, 6)))
            assert kernels(one, machine)[-1]
            if len(kernels(one, machine)) == len(kernels(alone, machine)):
                behind.append(f"{kind} {seed}")
            inputs = one.inputs(draw.rng)
            runs.append((f"{kind} {seed}", one, machine, inputs, one.expected(inputs)))
    check(npu, runs)
    return behind


def test_a_table_is_looked_up_behind_what_gives_its_input(npu: Any) -> None:
    assert check_tables(npu, [1]) == [f"{kind} 1" for kind in KINDS]


@pytest.mark.soak
def test_many_tables_are_looked_up_behind_what_gives_their_input(npu: Any) -> None:
    assert len(check_tables(npu, range(2, 30))) > 25 * len(KINDS)


def test_what_others_need_as_well_is_looked_up_apart(npu: Any) -> None:
    draw, runs = Random([3]), []
    x = Var("x", TensorType((1, 6, 5, 20), "int8"))
    value = draw.conv_of(x, 9)
    behind = looked_up(value, draw, 2)
    more = call("nn.max_pool2d", value, pool_size=(2, 2))
    for result in (Tuple([behind, value]), Tuple([behind, more]), looked_up(x, draw, 2)):
        [one] = planned(Function([x], result))
        assert kernels(one, Machine()).count(True) == 1
        inputs = one.inputs(draw.rng)
        runs.append(("apart", one, Machine(), inputs, one.expected(inputs)))
    assert kernels(runs[0][1], Machine()) == [False, True]
    check(npu, runs)


def test_a_table_is_looked_up_apart_where_its_banks_cost_more_than_a_pass() -> None:
    draw = Random([4])

    def behind_conv(*shape: int) -> Planned:
        x = Var("x", TensorType(shape, "int8"))
        [one] = planned(Function([x], looked_up(draw.conv_of(x, shape[-1]), draw, 2)))
        return one

    deep, flat = behind_conv(1, 12, 12, 64), behind_conv(1, 24, 24, 16)
    assert kernels(deep, Machine(macs=32)) == [False, True]
    assert kernels(deep, Machine(macs=128)) == kernels(flat, Machine(macs=32)) == [True]


def test_a_table_of_its_own_takes_more_cycles() -> None:
    draw = Random([4])
    x = Var("x", TensorType((1, 24, 24, 16), "int8"))
    [one] = planned(Function([x], looked_up(draw.conv_of(x, 16), draw, 2)))
    [conv] = planned(Function([x], draw.conv_of(x, 16)))
    [table] = planned(Function([x], looked_up(x, draw, 2)))
    cycles = [stream_cycles(each.stream(Machine()).works, Machine()) for each in (one, conv, table)]
    assert cycles[0] < 0.8 * (cycles[1] + cycles[2])
