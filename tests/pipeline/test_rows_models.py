"""Real models row by row on emulated microcontrollers: each way to run vww, and kws on a micro:bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.real_models import FILES, artifact_of

import uma
from uma.artifact import Artifact
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import finish_build, start_build
from uma.pipeline.loading import load_model
from uma.plugins import default_host

pytestmark = [
    pytest.mark.soak,
    pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm"),
]


def pictures(artifact: Artifact, count: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    [row] = artifact.record.inputs
    return [rng.integers(-128, 128, row.shape, np.int8) for _ in range(count)]


def outputs(artifact: Artifact, data: list[np.ndarray]) -> np.ndarray:
    with artifact.session() as session:
        return np.stack([next(iter(session.run(one).values())) for one in data])


def test_each_way_to_run_vww(models: Path) -> None:
    """At least five, of which the last takes half the RAM of the first and is taken without being asked for."""
    path, target = models / FILES["vww_int8_tflite"], "c -mcpu=cortex-m4f -opt=2 -runner=qemu-mps2-an386"
    members = resolve_targets(target, default_host())
    loaded = load_model(path, members)
    asked = finish_build(start_build(loaded, members), loaded)
    rows = asked.record.rows
    assert rows is not None and len(rows.points) >= 5 and rows.chosen == len(rows.points) - 1
    here = artifact_of(models, "vww_int8_tflite")
    data = pictures(here)
    expected = outputs(here, data)
    for point in rows.points:
        made = uma.build(path, target, max_ram=point.ram_bytes)
        assert made.record.arena_bytes == point.arena_bytes
        assert (outputs(made, data) == expected).all()


def test_kws_on_a_microbit(models: Path) -> None:
    """16 kB of RAM, of which it takes 9 with all layers at once, and 5.4 by rows."""
    path, target = models / FILES["kws_int8_tflite"], "c -mcpu=cortex-m0 -opt=s -runner=qemu-microbit"
    here = artifact_of(models, "kws_int8_tflite")
    data = pictures(here, 3)
    expected = outputs(here, data)
    taken = []
    for limit in ("1G", "5500"):
        made = uma.build(path, target, max_ram=limit)
        assert (outputs(made, data) == expected).all()
        taken.append(made.footprint().ram_bytes)
    assert taken[0] < 9_500 and taken[1] < 5_500
