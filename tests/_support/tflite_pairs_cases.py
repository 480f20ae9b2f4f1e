"""Random TFLite models of two quantised operands that are neither added nor multiplied, and of sums and casts."""

from __future__ import annotations

import numpy as np
from tests._support.tflite_cases import QUANTISED, Case, Drawer, case


def _shapes(d: Drawer) -> tuple[list[int], list[int], list[int]]:
    """Two that broadcast, and that of the result."""
    lhs = d.shape()
    rhs = [extent if d.boolean() else 1 for extent in lhs][d.integer(0, len(lhs) - 1) :]
    return *d.one((lhs, rhs), (rhs, lhs)), lhs


@case("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")
def _comparison(d: Drawer, name: str) -> Case:
    dtype = d.one(*QUANTISED, "float32", "int32", "int64")
    first, second, result = _shapes(d)
    common = d.quantisation(dtype)
    given = [common, d.one(common, d.quantisation(dtype))]
    inputs = [d.builder.input(shape, dtype, **own) for shape, own in zip((first, second), given, strict=True)]
    return d.finish(name, inputs, [d.builder.tensor(result, "bool")])


@case("SQUARED_DIFFERENCE")
def _squared_difference(d: Drawer, name: str) -> Case:
    dtype = d.one("int8", "float32", "int32")
    first, second, result = _shapes(d)
    inputs = [d.builder.input(shape, dtype, **d.quantisation(dtype)) for shape in (first, second)]
    return d.finish(name, inputs, [d.builder.tensor(result, dtype, **d.quantisation(dtype))])


@case("PRELU")
def _prelu(d: Drawer, name: str) -> Case:
    dtype, shape = d.one(*QUANTISED, "float32"), d.shape()
    slopes = [extent if d.boolean() else 1 for extent in shape]
    x = d.builder.input(shape, dtype, **d.quantisation(dtype))
    slope = d.builder.constant(d.array(slopes, dtype), **d.quantisation(dtype))
    return d.finish(name, [x, slope], [d.builder.tensor(shape, dtype, **d.quantisation(dtype))])


@case("SELECT", "SELECT_V2")
def _select(d: Drawer, name: str) -> Case:
    dtype, shape = d.one(*QUANTISED, "int16", "float32", "int32", "int64", "bool"), d.shape()
    common = d.quantisation(dtype)
    condition = shape
    if name == "SELECT_V2":
        condition = [extent if d.boolean() else 1 for extent in shape]
    elif d.boolean():
        condition = shape[:1]
    inputs = [d.builder.input(condition, "bool"), *(d.builder.input(shape, dtype, **common) for _ in range(2))]
    return d.finish(name, inputs, [d.builder.tensor(shape, dtype, **common)])


@case("DIV")
def _div(d: Drawer, name: str) -> Case:
    dtype = d.one("float32", "int32")
    first, second, result = _shapes(d)
    inputs = [d.builder.input(shape, dtype) for shape in (first, second)]
    activation = 0 if dtype == "int32" else d.one(0, 1, 3)
    data, arrays = d.finish(name, inputs, [d.builder.tensor(result, dtype)], fusedActivationFunction=activation)
    arrays[1][arrays[1] == 0] = 5
    return data, arrays


@case("NEG")
def _neg(d: Drawer, name: str) -> Case:
    dtype, shape = d.one("float32", "int32", "int64", "int16", "int8"), d.shape()
    common = {"scale": d.scale()} if dtype == "int8" else {}
    return d.finish(name, [d.builder.input(shape, dtype, **common)], [d.builder.tensor(shape, dtype, **common)])


@case("ADD_N")
def _add_n(d: Drawer, name: str) -> Case:
    dtype, shape = d.one("float32", "int32"), d.shape()
    inputs = [d.builder.input(shape, dtype, **d.quantisation(dtype)) for _ in range(d.integer(2, 4))]
    return d.finish(name, inputs, [d.builder.tensor(shape, dtype, **d.quantisation(dtype))])


@case("FLOOR_DIV", "FLOOR_MOD")
def _floor(d: Drawer, name: str) -> Case:
    dtype = d.one("float32", "int32", "int8", "int16")
    first, second, result = _shapes(d)
    inputs = [d.builder.input(shape, dtype) for shape in (first, second)]
    data, arrays = d.finish(name, inputs, [d.builder.tensor(result, dtype)])
    arrays[1][arrays[1] == 0] = 3
    return data, arrays


@case("SQUARE", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "POW", "LOGICAL_NOT", "LOGICAL_AND", "LOGICAL_OR")
def _numbers(d: Drawer, name: str) -> Case:
    """Of floats, or truths."""
    dtype, shape = "bool" if name.startswith("LOGICAL") else "float32", d.shape()
    count = 2 if name in ("POW", "LOGICAL_AND", "LOGICAL_OR") else 1
    inputs = [d.builder.input(shape, dtype) for _ in range(count)]
    data, arrays = d.finish(name, inputs, [d.builder.tensor(shape, dtype)])
    return data, [np.abs(array) % 5 for array in arrays] if name == "POW" else arrays
