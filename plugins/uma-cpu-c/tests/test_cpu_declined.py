"""Why layers of small integers have no better loops on small cores: each reason with the value that shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uma.hookspecs import Fusion
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.stages import Build
from uma.plugins import default_host
from uma.relay import Expr, FixedPoint, Function, IRModule, TensorType, Var, call, const
from uma_cpu_c.mve import mve

M3, M55 = "c -mcpu=cortex-m3", "c -mcpu=cortex-m55"
MVE, TILES = "no form for vectors (MVE): ", "no tiles whose sums stay in registers: "
PLANES = "no planes of channels: "


def layer(
    shape: tuple[int, ...], weights: np.ndarray | TensorType, data: str = "int8", is_int8: bool = True, **attrs: Any
) -> IRModule:
    x = Var("x", TensorType(shape, data))
    w: Expr = Var("w", weights) if isinstance(weights, TensorType) else const(weights)
    body = call("qnn.conv2d", x, w, **attrs)
    if is_int8:
        body = call("qnn.requantize", body, scale=FixedPoint((1 << 30,), (-8,), "double"), dtype="int8")
    return IRModule.from_functions({"main": Function([one for one in (x, w) if isinstance(one, Var)], body)})


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.int8)


def least(*shape: int) -> np.ndarray:
    return np.full(shape, -128, np.int8)


SAID = {
    M55: {
        MVE + "a weight is -128, and two products with bytes do not fit 16 bits": layer(
            (1, 4, 4, 16), least(3, 3, 1, 16), groups=16
        ),
        MVE + "its 131 channels go 1 at a time, which is not 16 to 128": layer((1, 4, 4, 8), ones(1, 1, 8, 131)),
        MVE + "its 17 channels go 1 at a time, which is not 5 to 16": layer(
            (1, 4, 4, 17), ones(3, 3, 1, 17), groups=17
        ),
        MVE + "its channels are in 2 groups": layer((1, 4, 4, 4), ones(1, 1, 2, 4), groups=2),
        MVE + "its weights are not known when the model is built": layer(
            (1, 4, 4, 4), TensorType((1, 1, 4, 16), "int8")
        ),
        MVE + "its data is int16, its weights are int8 around 0; not int8 around 0": layer(
            (1, 4, 4, 4), ones(1, 1, 4, 16), "int16"
        ),
        MVE + "its data is int8, its weights are int8 around 3; not int8 around 0": layer(
            (1, 4, 4, 4), ones(1, 1, 4, 16), kernel_zero_point=3
        ),
        MVE + "what follows it is not one requantisation to int8 that has a form": layer(
            (1, 4, 4, 16), ones(3, 3, 1, 16), is_int8=False, groups=16
        ),
    },
    M3: {
        TILES + "its channels are in 2 groups": layer((1, 4, 4, 4), ones(1, 1, 2, 4), groups=2),
        TILES + "its weights are not known when the model is built": layer(
            (1, 4, 4, 4), TensorType((1, 1, 4, 16), "int8")
        ),
        PLANES + "its weights are around 3, not 0": layer(
            (1, 4, 4, 16), ones(3, 3, 1, 16), groups=16, kernel_zero_point=3
        ),
    },
}


@pytest.mark.parametrize(("target", "reason"), [(target, reason) for target, told in SAID.items() for reason in told])
def test_what_is_said(target: str, reason: str) -> None:
    build = Build("m", resolve_targets(target, default_host()))
    build.run(SAID[target][reason], "lower")
    assert reason in [one.reason for one in build.facts.declined]
    assert {one.by for one in build.facts.declined} == {"strategy 'qnn.conv2d'"}


def test_layers_that_have_a_form_say_nothing() -> None:
    for target in (M3, M55):
        build = Build("m", resolve_targets(target, default_host()))
        build.run(layer((1, 4, 4, 16), ones(1, 1, 16, 16)), "lower")
        assert build.facts.declined == ()


def test_vectors_of_integers_alone() -> None:
    module = layer((1, 4, 4, 16), ones(1, 1, 16, 16))
    found: Any = mve(Fusion(Function(module.main.params, module.main.body.args[0])), ("mve",))  # type: ignore[attr-defined]  # its body is a call
    assert found.reason == MVE + "the CPU has no floats of 32 bits"
