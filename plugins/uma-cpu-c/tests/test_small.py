"""Layers by the loops of cores without vectors, run on this machine: small integers to the bit."""

from __future__ import annotations

import pytest
from tests._support.built_layers import check, layers

CORES = {
    "thumb1": "c -mcpu=cortex-m0",
    "thumb2": "c -mcpu=cortex-m3",
    "riscv": "c -mtriple=riscv32-unknown-elf -mcpu=generic -cflags=-march=rv32imc",
}


@pytest.mark.parametrize("core", CORES)
def test_random_layers(core: str) -> None:
    text = check(*layers(5, 7, CORES[core]), "c -opt=1")
    assert "register_0" in text


@pytest.mark.soak
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("seed", range(4))
def test_many_random_layers(core: str, seed: int) -> None:
    check(*layers(seed, 60, CORES[core]), "c -opt=1")
