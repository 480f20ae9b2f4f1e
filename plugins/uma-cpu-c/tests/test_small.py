"""Layers by the loops of cores without vectors, run on this machine: small integers to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests._support.asked_by_rows import asked_by_rows
from tests._support.built_layers import PLUGINS, check, layers

import uma
from uma.relay import Function, IRModule, TensorType, Var, call, const
from uma.tir import For, Imm, PrimFunc, walk

CORES = {
    "thumb1": "c -mcpu=cortex-m0",
    "thumb2": "c -mcpu=cortex-m3",
    "brief": "c -mcpu=cortex-m3 -opt=s",
    "riscv": "c -mtriple=riscv32-unknown-elf -mcpu=generic -cflags=-march=rv32imc",
}


@pytest.mark.parametrize("core", CORES)
def test_random_layers(core: str) -> None:
    text = check(*layers(5, 7, CORES[core]), "c -opt=1")
    assert "register_0" in text


@pytest.mark.few(1)
@pytest.mark.parametrize("core", CORES)
def test_random_layers_by_rows(core: str) -> None:
    with asked_by_rows():
        text = check(*layers(6, 7, CORES[core]), "c -opt=1")
    assert "register_0" in text


@pytest.mark.parametrize(
    ("attrs", "shape"), [({}, (1, 1, 4, 8)), ({"groups": 4, "padding": (1, 1, 1, 1)}, (3, 3, 1, 4))]
)
def test_by_rows_the_outermost_loop_is_over_rows(attrs: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Not over all pixels, and not over channels."""
    x = Var("x", TensorType((1, 6, 5, 4), "int8"))
    module = IRModule.from_functions(
        {"main": Function((x,), call("qnn.conv2d", x, const(np.ones(shape, np.int8)), **attrs))}
    )

    def outermost() -> int:
        loops = uma.build(module, CORES["thumb1"], plugins=PLUGINS, stop_after="lower")
        assert isinstance(loops, IRModule)
        (func,) = (one for one in loops.functions.values() if isinstance(one, PrimFunc))
        extent = next(part.extent for part in walk(func.body) if isinstance(part, For))
        assert isinstance(extent, Imm)
        return int(extent.value)

    assert outermost() in (30, 4)
    with asked_by_rows():
        assert outermost() == 6


def test_where_flash_counts_all_tiles_are_alike() -> None:
    x = Var("x", TensorType((1, 6, 8, 4), "int8"))
    weight = const(np.arange(-72, 72, dtype=np.int8).reshape(3, 3, 4, 4))
    module = IRModule.from_functions({"main": Function((x,), call("qnn.conv2d", x, weight, padding=(1, 1, 1, 1)))})
    made = {opt: uma.build(module, f"c -mcpu=cortex-m3 -opt={opt}", name="m", plugins=PLUGINS) for opt in "3s"}
    peeled, alike = (made[opt].files["m.c"].decode().count("/* reduce0") for opt in "3s")
    assert peeled == 2 * alike


@pytest.mark.soak
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("seed", range(4))
def test_many_random_layers(core: str, seed: int) -> None:
    check(*layers(seed, 60, CORES[core]), "c -opt=1")
