"""Layers by the loops of cores without vectors, run on this machine: small integers to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS, check, layers

import uma
from uma.relay import Function, IRModule, TensorType, Var, call, const

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


def test_where_flash_counts_all_tiles_are_alike() -> None:
    x = Var("x", TensorType((1, 6, 8, 4), "int8"))
    weight = const(np.arange(-72, 72, dtype=np.int8).reshape(3, 3, 4, 4))
    module = IRModule.of({"main": Function((x,), call("qnn.conv2d", x, weight, padding=(1, 1, 1, 1)))})
    made = {opt: uma.build(module, f"c -mcpu=cortex-m3 -opt={opt}", name="m", plugins=PLUGINS) for opt in "3s"}
    peeled, alike = (made[opt].files["m.c"].decode().count("/* reduce0") for opt in "3s")
    assert peeled == 2 * alike


@pytest.mark.soak
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("seed", range(4))
def test_many_random_layers(core: str, seed: int) -> None:
    check(*layers(seed, 60, CORES[core]), "c -opt=1")
