"""Layers by register tiles: int8 to the bit, floats to 1e-5, by gcc and by clang; and where today's loops stay."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests._support.random_layers import Layers, reference

import uma
from uma.plugins import PluginEntry, PluginHost
from uma.relay import IRModule

PLUGINS = PluginHost(lambda: [PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0")])
KINDS = ("conv2d", "conv2d", "conv1d", "dense", "matmul", "transpose", "transpose")


@cache
def layers(seed: int, count: int, target: str = "c -opt=2") -> tuple[IRModule, dict[str, np.ndarray], list[np.ndarray]]:
    made = Layers(seed)
    for number in range(count):
        made.add(KINDS[number % len(KINDS)], number % 2 == 0)
    values = made.values()
    loops = uma.build(made.module, target, plugins=PLUGINS, stop_after="flatten")
    assert isinstance(loops, IRModule)
    return loops, values, reference(made.module, values)


def check(module: IRModule, values: dict[str, np.ndarray], wanted: list[np.ndarray], target: str) -> str:
    """Builds and runs; gives the C."""
    artifact = uma.build(module, target, name="layers", plugins=PLUGINS)
    for number, (found, right) in enumerate(zip(artifact.run(values).values(), wanted, strict=True)):
        if right.dtype == np.float32:
            np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5, err_msg=f"layer {number}")
        else:
            np.testing.assert_array_equal(found, right, err_msg=f"layer {number}")
    return artifact.files["layers.c"].decode()


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_random_layers(cc: str) -> None:
    text = check(*layers(3, 11), f"c -cc={cc} -opt=2")
    if "avx2" in PLUGINS.kind("c").features(PLUGINS.target("c")):  # type: ignore[misc]
        assert "UMA_FMA_f32x8" in text and "UMA_DOT" in text and "uma_transpose_8" in text


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_many_random_layers(cc: str, seed: int) -> None:
    check(*layers(100 + seed, 50), f"c -cc={cc} -opt=2")


@pytest.mark.soak
@pytest.mark.parametrize("cc", ["gcc", "clang"])
@pytest.mark.parametrize("mcpu", ["x86-64-v3", "x86-64-v4", "alderlake", "icelake-server"])
def test_loops_for_other_cpus_in_the_portable_forms(mcpu: str, cc: str) -> None:
    """The loops of a CPU that this machine may not be, with what it has of the instructions."""
    loops = layers(7, 40, f"c -mtriple=x86_64-linux-gnu -mcpu={mcpu} -opt=2")
    text = check(*loops, f"c -cc={cc} -opt=2")
    assert ("UMA_DOT4" if mcpu in ("alderlake", "icelake-server") else "UMA_DOT2") in text


@pytest.mark.parametrize(
    "target",
    [
        "c -mtriple=x86_64-linux-gnu",
        "c -mtriple=x86_64-linux-gnu -mcpu=x86-64-v4 -opt=s",
        "c -mcpu=cortex-m7f",
    ],
)
def test_elsewhere_todays_loops_stay(target: str) -> None:
    made = Layers(1)
    made.add("conv2d", True)
    made.add("dense", False)
    assert "uma_vectors.h" not in uma.build(made.module, target, plugins=PLUGINS).files
