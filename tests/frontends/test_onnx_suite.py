"""ONNX's own backend tests: what is built of them is right, and what is not is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper
from tests._support import onnx_suite
from tests._support.onnx_suite import Case, load, run, some_nodes
from tests.conformance import shown


def test_some_nodes(record_property: Callable[[str, object], None]) -> None:
    # (What the optimiser does to loops is tested elsewhere, and takes half of the time.)
    outcomes = run(some_nodes(), "c -opt=1")
    record_property("measured", shown(outcomes).splitlines()[0])
    assert outcomes.passed and not outcomes.faults


@pytest.mark.soak
def test_all(record_property: Callable[[str, object], None]) -> None:
    outcomes = run(load())
    record_property("measured", shown(outcomes).splitlines()[0])
    assert outcomes.passed and not outcomes.faults


def case(op: str, wanted: np.ndarray, **attrs: object) -> Case:
    value = np.array([1, -2], np.float32)
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], **attrs)], "test", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return Case(f"test_{op}", model, [([value], [wanted])], 1e-3, 1e-7)


def test_a_wrong_result_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else is in its image."""
    cases = [
        case("Relu", np.array([1, 0], np.float32)),
        case("Neg", np.array([1, 2], np.float32)),
        case("Exp", np.array([1, 2, 3], np.float32)),
        case("Nothing", np.array([1, 2], np.float32)),
    ]
    outcomes = run(cases)
    assert outcomes.passed == ["test_Relu"] and list(outcomes.faults) == ["test_Neg", "test_Exp"]
    assert list(outcomes.refused.values()) == ["'y' (Nothing, opset 17): this operator is not supported"]
    assert "1 of 4 cases pass, 2 are wrong" in shown(outcomes)

    def fail(group: list[object], target: str) -> list[object]:
        raise RuntimeError("no image")

    monkeypatch.setattr(onnx_suite, "_run_one_image", fail)
    assert run(cases[:2]).faults == dict.fromkeys(["test_Relu", "test_Neg"], "RuntimeError: no image")
