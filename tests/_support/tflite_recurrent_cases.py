"""Random TFLite models of layers that keep what they computed."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests._support.tflite_cases import RELUS, Case, Drawer, case


@case("SVDF")
def _svdf(d: Drawer, name: str) -> Case:
    dtype = d.one("float32", "int8")
    batch, features, units, rank, memory = (d.integer(1, 4) for _ in range(5))
    filters, wide = units * rank, "int16" if dtype == "int8" else dtype

    def scaled(low: float, high: float, zero_point: int = 0) -> dict[str, Any]:
        return {} if dtype == "float32" else {"scale": d.scale(low, high), "zero_point": zero_point}

    x = d.builder.input([batch, features], dtype, **scaled(1e-2, 0.5, d.integer(-128, 127)))
    feature = d.builder.constant(d.array([filters, features], dtype), **scaled(1e-2, 0.5))
    time = d.builder.constant(d.array([filters, memory], wide), **scaled(1e-5, 1e-3))
    bias = -1
    if d.boolean():
        bias = d.builder.constant(d.array([units], "int32" if dtype == "int8" else dtype), **scaled(1e-3, 1e-2))
    state = d.builder.tensor([batch, filters * memory], wide, variable=True, **scaled(1e-3, 1e-1))
    y = d.builder.tensor([batch, units], dtype, **scaled(1e-2, 1.0, d.integer(-128, 127)))
    activation = 1 if dtype == "int8" else d.one(*RELUS)
    operands = [x, feature, time, bias, state]
    return d.finish(name, operands, [y], rank=rank, fusedActivationFunction=activation)


@case("UNIDIRECTIONAL_SEQUENCE_LSTM")
def _lstm(d: Drawer, name: str) -> Case:
    dtype = d.one("float32", "int8")
    in_floats, time_major = dtype == "float32", d.boolean()
    time, batch, features, units = (d.integer(1, 4) for _ in range(4))
    b = d.builder

    def scaled(low: float, high: float, zero_point: int = 0) -> dict[str, Any]:
        return {} if in_floats else {"scale": d.scale(low, high), "zero_point": zero_point}

    def weights(shape: list[int]) -> int:
        array = d.array(shape, dtype)
        return b.constant(array * np.float32(0.2) if in_floats else array, **scaled(1e-3, 2e-2))

    shape = [time, batch] if time_major else [batch, time]
    kept = scaled(4e-3, 1e-2, d.integer(-20, 20))
    x = b.input([*shape, features], dtype, **scaled(4e-3, 5e-2, d.integer(-128, 127)))
    operands = [x, *(weights([units, features]) for _ in range(4)), *(weights([units, units]) for _ in range(4))]
    has_peepholes = in_floats and d.boolean()
    operands += [b.constant(d.array([units], dtype)) if has_peepholes else -1 for _ in range(3)]
    bias = [d.array([units], "float32" if in_floats else "int32") for _ in range(4)]
    operands += [b.constant(own, **scaled(1e-5, 1e-4)) for own in bias]
    cell = {} if in_floats else {"scale": 2.0 ** d.integer(-15, -11)}
    hidden_state = b.tensor([batch, units], dtype, variable=True, **kept)
    cell_state = b.tensor([batch, units], "float32" if in_floats else "int16", variable=True, **cell)
    operands += [-1, -1, hidden_state, cell_state, *[-1] * 4]
    y = b.tensor([*shape, units], dtype, **kept)
    inner = [b.tensor([], "int16", scale=2.0**-12) for _ in range(4)] if not in_floats else []
    inner += [b.tensor([], "int8", **kept)] if not in_floats else []
    clip = d.one(0.0, d.one(0.3, 2.0))
    activation = d.one(4, 4, 1) if in_floats else 4
    options = {"cellClip": clip, "timeMajor": time_major, "fusedActivationFunction": activation}
    return d.finish(name, operands, [y], intermediates=inner, **options)


@case("BIDIRECTIONAL_SEQUENCE_LSTM")
def _bidirectional(d: Drawer, name: str) -> Case:
    time_major, merged, has_peepholes, auxiliary = (d.boolean() for _ in range(4))
    time, batch, features, units = (d.integer(1, 4) for _ in range(4))  # LiteRT wants as many units of both
    batch = 1 if merged and not time_major else batch  # beyond which LiteRT writes outside of its states
    b = d.builder

    def weights(*shape: int) -> int:
        return b.constant(d.array(shape, "float32") * np.float32(0.2))

    shape = [time, batch] if time_major else [batch, time]
    x = b.input([*shape, features])
    operands, states = [x], []
    for _ in range(2):
        operands += [weights(units, features) for _ in range(4)] + [weights(units, units) for _ in range(4)]
        operands += [weights(units) if has_peepholes else -1 for _ in range(3)]
        operands += [weights(units) for _ in range(4)] + [-1, -1]
        states += [b.tensor([batch, units], variable=True) for _ in range(2)]
    operands += [*states, b.input([*shape, features]) if auxiliary else -1, *[-1] * 8]
    widths = [2 * units] if merged else [units, units]
    results = [b.tensor([*shape, width]) for width in widths]
    options = {"cellClip": d.one(0.0, d.one(0.3, 2.0)), "timeMajor": time_major, "fusedActivationFunction": 4}
    return d.finish(name, operands, results, mergeOutputs=merged, **options)
