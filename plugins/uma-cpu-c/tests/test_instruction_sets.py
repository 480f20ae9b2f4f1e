"""The same results by every instruction set, by gcc and by clang: integers to the bit, floats to 1e-5. What this
machine's CPU lacks is skipped, which says so; those of AArch64 run in an emulator, as a CPU that has no others.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS, SETS, check, layers, same, target_for
from tests._support.real_models import FILES

import uma

FORMS = {
    "avx2": r"UMA_DOT2",
    "avx_vnni": r"UMA_DOT4",
    "avx512_vnni": r"UMA_DOT4_i32x16",
    "asimd": r"UMA_SDOT2",
    "asimddp": r"UMA_SDOT4",
}
"""What kernels of bytes are made of."""

LAYERS = int(os.environ.get("UMA_LAYERS", "200"))
"""How many random layers each instruction set and compiler get in a soak; a multiple of 200."""

COMPILERS = pytest.mark.parametrize("cc", ["gcc", "clang"])


@pytest.mark.parametrize("name", ["asimd", "asimddp"])
def test_two_layers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_for(name, "gcc", monkeypatch)
    assert re.search(FORMS[name], check(*layers(57, 2, target), target))


@pytest.mark.soak
@COMPILERS
@pytest.mark.parametrize("seed", range(100, 100 + LAYERS // 20, 10))
@pytest.mark.parametrize("name", SETS)
def test_many_layers(name: str, seed: int, cc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_for(name, cc, monkeypatch)
    for number in range(4):
        text = check(*layers(seed + number, 50, SETS[name]), target)
        assert name not in FORMS or re.search(FORMS[name], text)


@cache
def by_default(path: Path) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Values for a model's inputs, and its outputs by the loops of the default lowering."""
    artifact = uma.build(path, "c -mcpu=x86-64 -opt=2", name="net", plugins=PLUGINS)
    rng = np.random.default_rng(1)
    values: dict[str, Any] = {}
    for row in artifact.metadata["inputs"]:
        if row["dtype"] == "float32":
            values[row["name"]] = rng.uniform(-1, 1, row["shape"]).astype(np.float32)
        else:
            info = np.iinfo(row["dtype"])
            values[row["name"]] = rng.integers(info.min, info.max + 1, row["shape"], row["dtype"])
    return values, list(artifact.run(values).values())


@pytest.mark.soak
@COMPILERS
@pytest.mark.parametrize("name", [name for name in SETS if name != "x86-64"])
def test_models(name: str, cc: str, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_for(name, cc, monkeypatch)
    for path in FILES.values():
        values, wanted = by_default(models / path)
        same(uma.build(models / path, target, name="net", plugins=PLUGINS).run(values), wanted)
