"""Operators of TFLite, compiled, many as one image, against LiteRT's kernels: integers the same, floats within 1e-5."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from tests._support.tflite_builder import litert
from tests._support.tflite_cases import Case
from tests.frontends.test_tflite_kernels import CASES, NO_REFERENCE

import uma
from uma.errors import ModelError
from uma.frontends.tflite import from_tflite
from uma.relay import Function, IRModule, Tuple
from uma.relay.expr import Expr, Var
from uma.relay.visit import substitute

IMAGE_CASES = 120
"""Cases that are compiled together."""


def drawn(data: st.DataObject, names: Sequence[str]) -> list[tuple[str, Case, IRModule]]:
    """A case of each operator that is imported, of three that are tried."""
    made = []
    for name in names:
        for _ in range(3):
            case = data.draw(CASES[name])
            try:
                made.append((name, case, from_tflite(case[0]).module))
                break
            except ModelError:
                continue
    return made


def run(cases: Sequence[tuple[str, Case, IRModule]]) -> list[list[np.ndarray]]:
    """The outputs of each model, all of them built as one; states begin as the models say."""
    params: list[Var] = []
    results: list[Expr] = []
    fed: dict[str, np.ndarray] = {}
    counts = []
    for number, (_, (_, arrays), module) in enumerate(cases):
        renamed = {old: Var(f"x{number}_{i}", old.tensor) for i, old in enumerate(module.main.params)}
        params += renamed.values()
        body = substitute(module.main.body, dict(renamed))
        fields = body.fields if isinstance(body, Tuple) else (body,)
        results += fields
        counts.append(len(fields))
        assert module.signature is not None
        fed.update({f"x{number}_{i}": array for i, array in enumerate(arrays)})
        for state in module.signature.states:
            param = module.main.params[state.input]
            initial = np.frombuffer(state.initial, param.dtype).reshape(param.shape)
            fed[f"x{number}_{state.input}"] = initial
    main = Function(params, Tuple(results))
    artifact = uma.build(IRModule.from_functions({"main": main}), "c -opt=1", name="operators")
    values = list(artifact.run(fed).values())
    found = []
    for count in counts:
        found.append(values[:count])
        del values[:count]
    return found


def check(data: st.DataObject) -> None:
    """Build a case of each operator, and compare."""
    assume(data.draw(st.integers(0, 2**16)))  # what comes first is the simplest of all
    names = sorted(CASES)
    for first in range(0, len(names), IMAGE_CASES):
        cases = drawn(data, names[first : first + IMAGE_CASES])
        assert len(cases) > len(names[first : first + IMAGE_CASES]) * 0.9
        for (name, (model, arrays), _), outputs in zip(cases, run(cases), strict=True):
            wanted = litert(model, *arrays, reference=name not in NO_REFERENCE)
            for got, expected in zip(outputs, wanted, strict=False):  # states follow
                assert (got.shape, got.dtype) == (expected.shape, expected.dtype), name
                if expected.dtype.kind == "f":
                    most = 1e-5 * max(1, float(np.abs(expected).max()))
                    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=most, err_msg=name)
                else:
                    np.testing.assert_array_equal(got, expected, err_msg=name)


PHASES = [Phase.generate]  # shrinking whole C programs takes minutes


@settings(max_examples=1, phases=PHASES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_one_case_of_each(data: st.DataObject) -> None:
    check(data)


@pytest.mark.soak
@settings(max_examples=40, phases=PHASES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data())
def test_forty_cases_of_each(data: st.DataObject) -> None:
    check(data)
