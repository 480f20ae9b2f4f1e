"""Random layers as built by the C plugin, and the instruction sets that it has loops for, as far as they run here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from tests._support.random_layers import Layers, reference
from tests._support.tools import skip_without

import uma
from uma.plugins import PluginEntry, PluginHost
from uma.relay import IRModule
from uma.support.machines import cpu_features

PLUGINS = PluginHost(lambda: [PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0")])
KINDS = ("conv2d", "conv2d", "conv1d", "dense", "matmul", "transpose", "transpose")

_AARCH64 = "c -mtriple=aarch64-linux-gnu -opt=2 -runner=qemu-aarch64 -mcpu="
SETS = {
    "x86-64": "c -opt=2 -mcpu=x86-64",
    "avx2": "c -opt=2 -mcpu=x86-64-v3",
    "avx_vnni": "c -opt=2 -mcpu=alderlake",
    "avx512_vnni": "c -opt=2 -mcpu=icelake-server",
    "asimd": f"{_AARCH64}cortex-a53",
    "asimddp": f"{_AARCH64}cortex-a76",
}
"""A target for each instruction set; plain x86-64 has the loops of the default lowering."""

Values = dict[str, np.ndarray]


def features(target: str = "c") -> frozenset[str]:
    """What the CPU of a target of the C plugin can do."""
    known = PLUGINS.kind("c").features
    assert known is not None
    return frozenset(known(PLUGINS.target(target)))


def target_for(name: str, cc: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The target of `SETS` with that compiler, gcc or clang, where this machine or its emulator runs it; skips where
    not. The emulator has that CPU's instructions and no others.
    """
    target = SETS[name]
    tools = [cc]
    if "aarch64" in target:
        tools = ["aarch64-linux-gnu-gcc", "qemu-aarch64", *(["clang"] if cc == "clang" else [])]
        monkeypatch.setenv("QEMU_CPU", target.rpartition("=")[2])
    elif os.uname().machine != "x86_64":
        pytest.skip(f"this machine is not a x86-64, which {name} belongs to")
    else:
        if lacking := features(target) - cpu_features() - {"float32", "float64"}:
            pytest.skip(f"this machine's CPU has no {', '.join(sorted(lacking))}")
    skip_without(*tools)
    return target if tools[0].startswith("aarch64") and cc == "gcc" else f"{target} -cc={cc}"


@lru_cache(maxsize=4)
def layers(seed: int, count: int, target: str = "c -opt=2") -> tuple[IRModule, Values, list[np.ndarray]]:
    """Loops of random layers for a target, values for their inputs, and what the ops' references give for these."""
    made = Layers(seed)
    for number in range(count):
        made.add(KINDS[number % len(KINDS)], number % 2 == 0)
    for _ in range(1 + count // 10):
        made.add("depthwise", False)
        made.add("grouped", made.pick(True, False))
        made.add("pool", made.pick(True, False))
    values = made.values()
    loops = uma.build(made.module, target, plugins=PLUGINS, stop_after="flatten")
    assert isinstance(loops, IRModule)
    return loops, values, reference(made.module, values)


def check(module: IRModule, values: Values, wanted: Sequence[np.ndarray], target: str) -> str:
    """Builds and runs; gives the C."""
    artifact = uma.build(module, target, name="layers", plugins=PLUGINS)
    same(artifact.run(values), wanted)
    return artifact.files["layers.c"].decode()


def same(found: dict[str, Any], wanted: Sequence[np.ndarray]) -> None:
    """Integers are equal to the bit, floats to 1e-5."""
    for number, (output, right) in enumerate(zip(found.values(), wanted, strict=True)):
        if right.dtype.kind == "f":
            np.testing.assert_allclose(output, right, rtol=1e-5, atol=1e-5, err_msg=f"output {number}")
        else:
            np.testing.assert_array_equal(output, right, err_msg=f"output {number}")
