"""The formula for cycles against the simulator that counts them by doing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uma_ultratrail.cost import layer_cycles
from uma_ultratrail.image import Image, Transfer
from uma_ultratrail.layer import Convolution, Shape
from uma_ultratrail.machine import Machine
from uma_ultratrail.packing import bias_words, weight_words
from uma_ultratrail.registers import Layer

LAYERS = 120


def random_shape(rng: np.random.Generator, machine: Machine) -> Shape:
    taps, stride = int(rng.integers(1, 16)), int(rng.integers(1, 8))
    pad = (taps - 1) // 2 if taps % 2 and rng.random() < 0.5 else 0
    frames = int(rng.integers(max(1, taps - 2 * pad), 41))
    channels, out = (int(rng.integers(1, 4 * machine.array_dim)) for _ in range(2))
    return Shape(frames, channels, taps, stride, pad, pad, (frames + 2 * pad - taps) // stride + 1, out)


def random_layer(rng: np.random.Generator, machine: Machine) -> Convolution:
    shape = random_shape(rng, machine)
    weights = rng.integers(-1, 2, (shape.taps, shape.channels, shape.out_channels))
    bias = rng.integers(-9, 9, shape.out_channels) if rng.random() < 0.5 else None
    pool = (shape.conv_frames - 1).bit_length() if rng.random() < 0.3 else None
    return Convolution(shape, weights, bias, pool, bool(rng.integers(2)))


def image_of(layer: Convolution, machine: Machine) -> Image:
    shape = layer.shape
    register = Layer(
        source=0,
        destination=1,
        residual=False,
        frames_in=shape.frames,
        blocks_in=machine.blocks(shape.channels),
        frames_out=shape.conv_frames,
        blocks_out=machine.blocks(shape.out_channels),
        taps=shape.taps,
        stride=shape.stride,
        pool_exp=layer.pool or 0,
        pad=shape.before > 0,
        relu=layer.relu,
        bias=layer.bias is not None,
        avg=layer.pool is not None,
        last=True,
    )
    return Image(
        [(register, "layer")],
        weight_words(layer.weights, machine),
        b"" if layer.bias is None else bias_words(layer.bias, machine),
        [Transfer("x", 0, shape.frames, shape.channels)],
        [Transfer("y", 1, shape.conv_frames if layer.pool is None else 1, shape.out_channels)],
    )


@pytest.mark.soak
def test_the_formula_is_within_two_percent(simulators: Any, record_property: Any) -> None:
    rng, cases, estimates = np.random.default_rng(0), [], []
    for _ in range(LAYERS):
        machine = Machine(array_dim=int(rng.choice([4, 8, 16])), fmem_words=2048, wmem_words=65536, bmem_words=256)
        layer = random_layer(rng, machine)
        maps = [rng.integers(-128, 128, (layer.shape.frames, layer.shape.channels))]
        cases.append(simulators.case(machine, image_of(layer, machine), maps))
        estimates.append(layer_cycles(layer, machine))
    ended = simulators.run(cases)
    assert all(one.fault == 0 for one in ended)
    counted = np.array([one.counters["cycles"] for one in ended])
    errors = np.abs(counted - estimates) / counted
    assert counted.min() < 60 and counted.max() > 1000 and errors.max() <= 0.02
    record_property(
        "measured", f"ultra_trail: cycles by formula are off by at most {errors.max():.2%}, {LAYERS} layers"
    )
