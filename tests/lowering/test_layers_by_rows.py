"""Layers as hosts lower them, in the form of one row: the same bytes, with no more rows in memory than are touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.built_layers import PLUGINS
from tests._support.c_programs import SANITIZED, Run, run_compiled
from tests._support.int8_layers import Random
from tests._support.rows import by_least_rows

import uma
from uma.relay import Function, IRModule, TensorType, Var, call
from uma.tir import NoRows, PrimFunc, interpret, row_form

HOSTS = ["c -opt=2 -mcpu=x86-64", "c -mcpu=cortex-m3"]
"""Whose loops are C without instructions of their own."""

KINDS = ["conv", "depthwise", "max_pool", "average_pool", "global_max", "mean", "add", "table", "slice", "concatenate"]


def _lowered(function: Function, host: str) -> list[PrimFunc]:
    module = uma.build(IRModule.from_functions({"main": function}), host, plugins=PLUGINS, stop_after="flatten")
    assert isinstance(module, IRModule)
    return [found for found in module.functions.values() if isinstance(found, PrimFunc)]


def _heights(func: PrimFunc, function: Function) -> dict[str, int] | None:
    """Rows of the parameters of a layer that is one function; None where it has several pictures."""
    result = function.body.type
    assert isinstance(result, TensorType)
    types = [*(param.type for param in function.params), result]
    buffers = [*func.buffers("input"), *func.buffers("output")]
    heights = {}
    for buffer, type_ in zip(buffers, types, strict=False):
        assert isinstance(type_, TensorType)
        shape = (1, 1, 1, 1, *type_.shape)[-4:]
        if shape[0] > 1 or buffer.size != int(np.prod(shape)):
            return None
        heights[buffer.name] = shape[1]
    return heights


def _compare(functions: list[Function], host: str, folder: Path) -> list[NoRows | PrimFunc]:
    runs: list[Run] = []
    expected = []
    forms: list[NoRows | PrimFunc] = []
    rng = np.random.default_rng(0)
    for function in functions:
        lowered = _lowered(function, host)
        heights = _heights(lowered[0], function) if len(lowered) == 1 else None
        if heights is None:
            continue
        (func,) = lowered
        made = row_form(func, heights)
        forms.append(made)
        if isinstance(made, NoRows):
            continue
        given = [param.buffer for param in func.params if param.role in ("input", "constant")]
        arrays = {b.name: rng.integers(1, 24, b.shape).astype(b.dtype) for b in given}
        wanted = interpret(func, arrays)
        for name, array in by_least_rows(made, arrays).items():
            np.testing.assert_array_equal(array, wanted[name], str(function))
        runs.append(Run(made, arrays))
        expected.append(wanted)
    if runs:
        for found, wanted in zip(run_compiled(runs, "gcc", SANITIZED, folder), expected, strict=True):
            for name, array in wanted.items():
                np.testing.assert_array_equal(found[name], array)
    return forms


@pytest.mark.few(1)
@pytest.mark.parametrize(("seed", "host"), [(seed, HOSTS[seed % 2 == 0]) for seed in range(200)])
def test_random_layers_by_rows(seed: int, host: str, tmp_path: Path) -> None:
    draws = Random([seed, 21])
    _compare([draws.draw(kind) for kind in KINDS], host, tmp_path)


def test_the_usual_layers_have_rows(tmp_path: Path) -> None:
    draws = Random([1])
    x, z = (Var(name, TensorType((1, 6, 5, 4), "int8")) for name in "xz")
    scales = {"lhs_scale": draws.scale(-2, 0), "rhs_scale": draws.scale(-2, 0), "output_scale": draws.scale(-20, -16)}
    real = Var("x", TensorType((1, 6, 5, 4), "float32"))
    layers = [
        Function([x], draws.conv_of(x, 6)),
        Function([x], draws.conv_of(x, 3, stride=2)),
        Function([x], draws.conv_of(x, 4, groups=4)),
        Function([x], call("nn.max_pool2d", x, pool_size=(2, 2), strides=(2, 2))),
        Function([x], call("qnn.avg_pool2d", x, pool_size=(3, 3), padding=(1, 1, 1, 1))),
        Function([x], call("qnn.avg_pool2d", x, pool_size=(6, 5))),
        Function([x], call("max", x, axis=(1, 2))),
        Function([x, z], call("qnn.add", x, z, left_shift=20, **scales)),
        Function([x], call("nn.pad", x, pad_width=(0, 1, 0, 0, 0, 2, 1, 0), pad_value=-5.0)),
        Function([real], call("sum", real, axis=(1, 2))),
        Function([real], call("mean", real, axis=(1, 2), keepdims=True)),
        Function([real], call("nn.relu", real)),
    ]
    forms = _compare(layers, HOSTS[0], tmp_path)
    assert [form for form in forms if isinstance(form, NoRows)] == []
    assert len(forms) == len(layers)
    softmax = Function([real], call("nn.softmax", real, axis=-1))
    (func,) = _lowered(softmax, HOSTS[0])
    assert isinstance(row_form(func, {"x0": 6, "out0": 6}), PrimFunc)
