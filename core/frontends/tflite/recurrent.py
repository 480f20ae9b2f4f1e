"""Layers that keep what they computed: SVDF, and the long short-term memory that goes over a sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ModelError
from ...relay.expr import Constant, Expr, TupleGetItem, call, const
from ...relay.fixed_point import fixed_point
from ...relay.op import FixedPoint
from ...relay.ops.int16_activations import near_log2
from .hybrid import dense_sums, is_hybrid
from .layer import Importer, Layer, quantisation

__all__ = ["RECURRENT"]


def _expect(role: str, value: Expr, shape: tuple[int, ...], dtype: str) -> Expr:
    if value.shape != shape or value.dtype != dtype:
        raise ModelError(f"its {role} is {value.type}, not {shape} {dtype}")
    return value


def _fits(role: str, value: Expr, shape: tuple[int, ...], dtype: str) -> Expr:
    """A state under the shape that is computed with, of as many elements."""
    if value.tensor.size != math.prod(shape):
        raise ModelError(f"its {role} is {value.type}, not {shape} {dtype}")
    return _expect(role, value if value.shape == shape else call("reshape", value, newshape=shape), shape, dtype)


# --- SVDF ------------------------------------------------------------------------------------------------------------


def _svdf(layer: Layer) -> Expr:
    """Features of the data are remembered for some steps, and weighted by how long ago they were.

    Operands: data (batch, in), weights of features (filters, in) and of time (filters, memory), perhaps a bias
    (units,), and the state (batch, filters * memory), the latest last. Each unit is the sum of ``rank`` filters.
    """
    ordered = layer.reordered(0, 1, 2, 4, 3)
    dtype = layer.tensor(0).dtype
    if dtype not in ("float32", "int8") or layer.output().dtype != dtype:
        raise ModelError(f"it turns {dtype} into {layer.output().dtype}", hint="supported: float32, int8")
    in_floats, hybrid = dtype == "float32", is_hybrid(layer)
    data = layer.value(0)
    if hybrid:
        # The state is of floats, and so is what becomes of it.
        feature, time = layer.value(1), layer.dequantised(2)
    else:
        feature, time = (layer.float_weight(i) if in_floats else layer.value(i) for i in (1, 2))
    rank = layer.options["rank"]
    if len(data.shape) != 2 or len(feature.shape) != 2 or len(time.shape) != 2:
        raise ModelError("its data and weights must have 2 dimensions")
    batch, filters, memory = data.shape[0], feature.shape[0], time.shape[1]
    if rank < 1 or filters % rank:
        raise ModelError(f"its rank {rank} does not divide its {filters} filters")
    units = filters // rank
    _expect("weight of features", feature, (filters, data.shape[1]), "int8" if hybrid else dtype)
    # TFLite Micro accepts int8 for int16 (``EvalIntegerSvdfReference``).
    state_dtype = "float32" if in_floats else "int8" if time.dtype == "int8" else "int16"
    _expect("weight of time", time, (filters, memory), state_dtype)
    state = _fits("state", ordered.value(3), (batch, filters, memory), state_dtype)
    state_zero = quantisation(ordered.tensor(3))[1] if state_dtype == "int8" else 0
    if hybrid:
        features = dense_sums(layer, data, feature)
    else:
        features = call("nn.dense", data, feature) if in_floats else _features(layer, data, feature, state_dtype)
    if state_zero:  # which the kernel adds to what is saturated already
        features = call(
            "cast", call("add", call("cast", features, dtype="int32"), const(state_zero, "int32")), dtype="int8"
        )
    features = call("reshape", features, newshape=(batch, filters, 1))
    if memory > 1:
        later = call("strided_slice", state, begin=(0, 0, 1), end=(batch, filters, memory), strides=(1, 1, 1))
        features = call("concatenate", later, features, axis=2)
    ordered.keep(3, features)
    wide = features if in_floats else call("cast", features, dtype="int32")
    wide = call("subtract", wide, const(state_zero, "int32")) if state_zero else wide
    weights = time if in_floats else call("cast", time, dtype="int32")
    product = call("multiply", wide, weights)
    sums = call("sum", call("reshape", product, newshape=(batch, units, rank * memory)), axis=(2,))
    if ordered.has(4):
        sums = call("add", sums, _expect("bias", ordered.value(4), (units,), "float32" if in_floats else "int32"))
    if in_floats:
        return layer.activated(sums)
    if layer.options["activation"] != 1:
        raise ModelError(f"its fused activation has the number {layer.options['activation']}", hint="supported: RELU")
    (state_scale, _), (time_scale, _) = quantisation(ordered.tensor(3)), quantisation(layer.tensor(2))
    out_scale, out_zero = quantisation(layer.output())
    scale = fixed_point([_float32(state_scale, time_scale, out_scale)], "double")
    # (The kernel has no activation but what the zero point makes of the least number.)
    return call("qnn.requantize", sums, scale=scale, output_zero_point=out_zero, dtype="int8")


def _features(layer: Layer, data: Expr, weight: Expr, dtype: str) -> Expr:
    (in_scale, in_zero), (weight_scale, weight_zero) = quantisation(layer.tensor(0)), quantisation(layer.tensor(1))
    if weight_zero:
        raise ModelError("its int8 weight has a zero point that is not 0")
    state_scale, _ = quantisation(layer.tensor(4))
    scale = fixed_point([_float32(in_scale, weight_scale, state_scale)], "double")
    sums = call("qnn.dense", data, weight, input_zero_point=in_zero)
    return call("qnn.requantize", sums, scale=scale, dtype=dtype)


def _float32(a: float, b: float, c: float) -> float:
    """``a * b / c``, each step rounded to float32."""
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(a) * np.float32(b) / np.float32(c))


# --- LSTM ------------------------------------------------------------------------------------------------------------

# Operands. Of the four gates those of the op: input, output, forget, candidate.
_OF_INPUT, _OF_STATE, _BIAS = (1, 4, 2, 3), (5, 8, 6, 7), (12, 15, 13, 14)
_PEEPHOLE = (9, 11, 10)
_HIDDEN, _CELL = 18, 19
_OTHERS = {16: "a projection", 17: "a bias of a projection", **dict.fromkeys(range(20, 24), "layer normalisation")}

_GATE_SCALE = 2.0**-12
"""Of int16 gates before their activations."""


@dataclass(frozen=True)
class _Sizes:
    """Of a layer: ``leading`` are time and batch in the order of the data, or batch alone where there is one step."""

    time: int
    batch: int
    features: int
    units: int
    by_batch: bool

    @staticmethod
    def from_layer(layer: Layer) -> _Sizes:
        """Those of a layer, after a look at what it has."""
        for position, role in _OTHERS.items():
            if layer.has(position):
                raise ModelError(f"it has {role}", hint="supported: four gates, peepholes of floats")
        for position in (*_OF_INPUT, *_OF_STATE):
            if not layer.has(position):
                raise ModelError(f"operand {position} is missing", hint="supported: four gates with weights of each")
        if not layer.options["cell_clip"] >= 0:
            raise ModelError(f"its cell is kept within {layer.options['cell_clip']}")
        shape, weight = layer.value(0).shape, layer.value(_OF_INPUT[0]).shape
        if len(shape) != 3 or len(weight) != 2:
            raise ModelError(f"its data has the shape {shape}, its weight {weight}", hint="data: batch, time, features")
        by_batch = not layer.options["time_major"]
        batch, time = shape[:2] if by_batch else shape[1::-1]
        return _Sizes(time, batch, shape[2], weight[0], by_batch)

    def in_time(self, value: Expr) -> Expr:
        """Data as (time, batch, features), and outputs back: one is the other's inverse."""
        return call("transpose", value, axes=(1, 0, 2)) if self.by_batch else value


def _lstm(layer: Layer) -> Expr:
    sizes = _Sizes.from_layer(layer)
    dtype = layer.tensor(0).dtype
    if dtype not in ("float32", "int8") or layer.output().dtype != dtype:
        raise ModelError(f"it turns {dtype} into {layer.output().dtype}", hint="supported: float32, int8")
    return _keep_states(layer, sizes, _float_lstm(layer, sizes) if dtype == "float32" else _int8_lstm(layer, sizes))


def _bidirectional(layer: Layer) -> Sequence[Expr]:
    """Two LSTMs, the second of which goes from the last step to the first, over the data or over operand 39."""
    if layer.tensor(0).dtype != "float32" or any(layer.output(i).dtype != "float32" for i in range(layer.outputs)):
        raise ModelError(f"it turns {layer.tensor(0).dtype} into {layer.output().dtype}", hint="supported: float32")
    if any(layer.has(position) for position in range(40, 48)):
        raise ModelError(
            "it has weights of auxiliary data", hint="supported: auxiliary data that the second LSTM takes"
        )
    ways = []
    for reverse, positions in enumerate(
        ((0, *range(1, 18), 35, 36), (39 if layer.has(39) else 0, *range(18, 35), 37, 38))
    ):
        way = layer.reordered(*positions)
        sizes = _Sizes.from_layer(way)
        ways.append(_keep_states(way, sizes, _float_lstm(way, sizes, reverse=bool(reverse))))
    return [call("concatenate", *ways, axis=2)] if layer.options["merge_outputs"] else ways


def _keep_states(layer: Layer, sizes: _Sizes, parts: Expr) -> Expr:
    """Return the outputs of an LSTM, whose states are kept."""
    layer.keep(_HIDDEN, TupleGetItem(parts, 1))
    layer.keep(_CELL, TupleGetItem(parts, 2))
    return sizes.in_time(TupleGetItem(parts, 0))


def _joined(values: Sequence[Expr], axis: int) -> Expr:
    """Constants are joined now."""
    import numpy as np

    arrays = [value.data for value in values if isinstance(value, Constant)]
    if len(arrays) == len(values):
        return const(np.concatenate(arrays, axis))
    return call("concatenate", *values, axis=axis)


def _turned(value: Expr) -> Expr:
    return const(value.data.T) if isinstance(value, Constant) else call("transpose", value, axes=(1, 0))


_ACTIVATIONS = {1: "relu", 4: "tanh"}
"""Those of the candidate and of the output, by the numbers of the schema."""


def _float_lstm(layer: Layer, sizes: _Sizes, reverse: bool = False) -> Expr:
    import numpy as np

    code = layer.options["activation"]
    if code not in _ACTIVATIONS:
        raise ModelError(f"its fused activation has the number {code}", hint="supported: RELU, TANH")
    name = _ACTIVATIONS[code]
    units, square = sizes.units, (sizes.units, sizes.units)
    weights = (_expect("weight", layer.float_weight(i), (units, sizes.features), "float32") for i in _OF_INPUT)
    recurrent = (_expect("recurrent weight", layer.float_weight(i), square, "float32") for i in _OF_STATE)
    bias = (_expect("bias", layer.value(i), (units,), "float32") for i in _BIAS)
    zeros = const(np.zeros(units, np.float32))
    peepholes = [
        _expect("peephole", layer.float_weight(i), (units,), "float32") if layer.has(i) else zeros for i in _PEEPHOLE
    ]
    peephole = call("reshape", _joined(peepholes, 0), newshape=(3, units))
    rows = call("reshape", sizes.in_time(layer.value(0)), newshape=(sizes.time * sizes.batch, sizes.features))
    gates = call("add", call("nn.dense", rows, _joined(list(weights), 0)), _joined(list(bias), 0))
    limit = layer.options["cell_clip"]
    return call(
        "nn.lstm",
        call("reshape", gates, newshape=(sizes.time, sizes.batch, 4 * units)),
        _turned(_joined(list(recurrent), 0)),
        peephole,
        *(_fits("state", layer.value(i), (sizes.batch, units), "float32") for i in (_HIDDEN, _CELL)),
        const(np.full(sizes.batch, sizes.time, np.int32)),
        candidate=name,
        output=name,
        cell_clip=limit if limit > 0 else math.inf,
        reverse=reverse,
    )


def _int8_lstm(layer: Layer, sizes: _Sizes) -> Expr:
    """With int16 inside: TFLite's ``LstmStepInteger8x8_16``."""
    import numpy as np

    if any(layer.has(position) for position in _PEEPHOLE):
        raise ModelError("it has peepholes and is of int8", hint="supported: four gates")
    if layer.options["activation"] != 4:
        raise ModelError(f"its fused activation has the number {layer.options['activation']}", hint="supported: TANH")
    units, square = sizes.units, (sizes.units, sizes.units)
    weights = [_expect("weight", layer.value(i), (units, sizes.features), "int8") for i in _OF_INPUT]
    recurrent = [_expect("recurrent weight", layer.value(i), square, "int8") for i in _OF_STATE]
    bias = [_expect("bias", layer.value(i), (units,), "int32") for i in _BIAS]
    joined = _joined(recurrent, 0)
    if not isinstance(joined, Constant):
        raise ModelError("its recurrent weight is not a constant")
    (in_scale, in_zero), (state_scale, state_zero) = (quantisation(layer.tensor(i)) for i in (0, _HIDDEN))
    if quantisation(layer.output()) != (state_scale, state_zero):
        raise ModelError("its result and its state have different scales or zero points")
    exponent = near_log2(quantisation(layer.tensor(_CELL))[0])
    if exponent is None or quantisation(layer.tensor(_CELL))[1]:
        raise ModelError("its cell has a scale that is not a power of two, or a zero point")
    rows = call("reshape", sizes.in_time(layer.value(0)), newshape=(sizes.time * sizes.batch, sizes.features))
    sums = call("add", call("qnn.dense", rows, _joined(weights, 0), input_zero_point=in_zero), _joined(bias, 0))
    by_channel = _scales(layer, _OF_INPUT, in_scale, units)
    gates = call("qnn.requantize", sums, scale=by_channel, dtype="int16")
    hidden_scale, hidden_zero = quantisation(layer.intermediate(4))
    product = fixed_point([_float32(2.0**-15, 1.0, hidden_scale) * 2.0**-15], "double")
    clip = layer.options["cell_clip"]
    offset = -state_zero * joined.data.astype(np.int64).sum(axis=1)
    return call(
        "qnn.lstm",
        call("reshape", gates, newshape=(sizes.time, sizes.batch, 4 * units)),
        _turned(joined),
        const(offset.astype(np.int32)),
        _fits("state", layer.value(_HIDDEN), (sizes.batch, units), "int8"),
        _fits("cell", layer.value(_CELL), (sizes.batch, units), "int16"),
        scale=_scales(layer, _OF_STATE, state_scale, 1),
        hidden_scale=product,
        cell_exponent=exponent,
        cell_clip=int(min(_float32(clip, 1.0, quantisation(layer.tensor(_CELL))[0]), 32767.0)) if clip > 0 else 0,
        output_zero_point=hidden_zero,
    )


def _scales(layer: Layer, positions: Sequence[int], scale: float, times: int) -> FixedPoint:
    """Those of the sums of each gate, each repeated."""
    factors = []
    for position in positions:
        weight_scale, zero_point = quantisation(layer.tensor(position))
        if zero_point:
            raise ModelError("its int8 weight has a zero point that is not 0")
        factors += [_float32(weight_scale, scale, _GATE_SCALE)] * times
    return fixed_point(factors, "double")


RECURRENT: dict[str, Importer] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": _bidirectional,
    "SVDF": _svdf,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
}
