"""Verification: that what is right passes, and that a planted fault is named where it is."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests._support.onnx_builder import OnnxBuilder
from tests._support.partitions import inputs_of
from tests._support.passes import by_host, each_loop, of_loops, of_main, passing
from tests._support.plugins import HOST, entry_of, members_of
from tests._support.regions import CHAIN
from tests._support.small_models import NET, PAIR, Uma
from tests._support.tflite_builder import TFLiteBuilder

from uma.artifact import Artifact
from uma.contract.passes import Pass
from uma.errors import ModelError, VerificationError
from uma.lowering.build_targets import resolve_targets
from uma.pipeline import driver, stages
from uma.pipeline.driver import build_loaded
from uma.pipeline.loading import LoadedModel, load_model
from uma.plugins import PluginHost, default_host
from uma.program import Plan, Program
from uma.program import plan as real_plan
from uma.relay import Call, Expr, GlobalVar, call
from uma.relay.module import IRModule
from uma.relay.op import get_op
from uma.relay.text import parse_module, print_module
from uma.tir import te
from uma.tir.form import nodes as tir
from uma.verification.models import verify
from uma.verification.reference_runtimes import ORACLES, litert
from uma.verification.results import Bound, Difference, OutputChecks, Skipped, Verification, compare

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"

X = {"image:0": np.random.default_rng(0).standard_normal((1, 8, 8, 2)).astype(np.float32)}


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return path


def compiled(model: Any) -> tuple[LoadedModel, Artifact, Any]:
    loaded, target = load_model(model), resolve_targets("c -opt=1", default_host())
    return loaded, build_loaded(loaded, target), target


class TestCompare:
    @given(hnp.arrays(np.float32, st.integers(0, 20), elements=st.floats(width=32)))
    def test_an_array_equals_itself_nan_included(self, array: np.ndarray) -> None:
        assert compare(array, array.copy()) == Difference(None, None, None, 0, array.size, 0.0, scale=ANY)

    def test_floats_may_differ_by_a_part_of_the_largest(self) -> None:
        expected, bound = np.array([0.0, 100.0], np.float32), Bound(1e-5)
        assert compare(np.array([0.0009, 100.0], np.float32), expected, bound).ok
        assert not compare(np.array([0.0009, 100.0], np.float32), expected).ok
        far = compare(np.array([0.0, 100.1], np.float32), expected, bound)
        assert (far.index, far.count, far.size) == ((1,), 1, 2)
        assert far.largest == pytest.approx(0.1, rel=1e-4) and far.tolerance == pytest.approx(1e-3)
        assert str(far).startswith("1 of 2 elements differ, the first at [1]: 100.09")

    def test_the_range_over_all_samples_decides(self) -> None:
        """An element that is off by more than its own sample allows is fine if other samples are larger."""
        small, large = np.array([1.0, 2.0], np.float32), np.array([1.0, 1000.0], np.float32)
        far = np.array([1.005, 2.0001], np.float32)
        for samples, wrong in (((small,), 2), ((small, large), 0), ((large, small), 0), ((small, 30 * small), 1)):
            checks = OutputChecks()
            for sample in samples:
                got = far if sample is small else sample
                checks.add({"y": got}, {"y": sample}, "references", {"y": Bound(1e-5)})
            assert sum(check.difference.count for check in checks.all) == wrong
            assert all(check.difference.tolerance > 0 for check in checks.all)

    def test_noise_is_asked_for_where_it_decides(self) -> None:
        expected, asked = np.array([1.0, 2.0], np.float32), list[float]()

        def noise() -> float:
            asked.append(0.5)
            return 0.5

        assert compare(expected + np.float32(1e-5), expected, Bound(1e-5, noise)).ok and not asked
        assert compare(expected + np.float32(0.4), expected, Bound(1e-5, noise)).ok and asked
        assert not compare(expected + np.float32(0.6), expected, Bound(1e-5, noise)).ok

    @pytest.mark.parametrize("pair", [(math.nan, 0.0), (0.0, math.nan), (math.inf, 1.0), (math.inf, -math.inf)])
    def test_what_is_not_finite_must_be_the_same(self, pair: tuple[float, float]) -> None:
        got, expected = (np.array([value, 1e30], np.float32) for value in pair)
        assert compare(got, expected).index == (0,)
        assert compare(got, expected).largest == math.inf
        assert compare(got, got).ok

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64", "bool"])
    def test_integers_must_be_equal(self, dtype: str) -> None:
        high = 1 if dtype == "bool" else np.iinfo(dtype).max
        expected = np.array([[0, high], [high, high]], dtype)
        got = expected.copy()
        assert str(compare(got, expected)) == "equal"
        got[1, 0] = high - 1
        found = compare(got, expected)
        assert (found.index, found.count) == ((1, 0), 1)
        assert (found.got, found.expected) == (high - 1, high)

    def test_shapes_may_differ_but_not_in_size(self) -> None:
        assert compare(np.zeros((2, 1), np.int8), np.zeros(2, np.int8)).ok
        with pytest.raises(VerificationError, match=r"the result is int8\[2\] instead of int8\[3\]"):
            compare(np.zeros(2, np.int8), np.zeros(3, np.int8))
        with pytest.raises(VerificationError, match=r"the result is int8\[2\] instead of uint8\[2\]") as caught:
            OutputChecks().add({"y": np.zeros(2, np.int8)}, {"y": np.zeros(2, np.uint8)}, "litert", {})
        assert caught.value.where == "output 'y' against litert"


class TestVerify:
    def test_what_is_right(self, net: Path) -> None:
        told: list[str] = []
        found = verify(*compiled(net), X, progress=told.append)
        assert [check.layers for check in found.kernels] == [
            ("block/relu", "block/relu;twice", "block/pool", "block/scale"),
            ("head/mean",),
            ("head/softmax",),
        ]
        assert [(check.name, check.against) for check in found.outputs] == [
            ("scores", "inspected"),
            ("scores", "references"),
            ("scores", "first run"),
        ]
        assert all(check.difference.ok for check in (*found.kernels, *found.outputs))
        assert [check.difference.size for check in found.kernels] == [32, 2, 2]
        assert told == [
            *("compile without reuse of memory", "as given, 1 of 1"),
            *("run the first sample again", "drive each kernel by itself"),
        ]

    def test_copies_are_compared_too(self) -> None:
        inputs = {"a": np.array([1, 2, 3, 4], np.int8), "b": np.array([5, 6, 7, 8], np.int8)}
        found = verify(*compiled(parse_module(PAIR, {})), inputs)
        assert [check.kernel for check in found.kernels] == ["add", "copy", "copy"]
        assert [check.difference.size for check in found.kernels] == [4, 4, 4]

    def test_several_results_of_one_kernel(self) -> None:
        text = """\
@function
def main(x: Tensor[(6,), int8]) -> Tuple[Tensor[(2,), int8], Tensor[(4,), int8], Tensor[(3,), int8]]:
    v0: ('part',) = split(x, indices=(2,), axis=0)
    return (v0[0], v0[1], const([1, 2, 3], int8))
"""
        found = verify(*compiled(parse_module(text, {})), {"x": np.arange(6, dtype=np.int8)})
        assert sorted(check.difference.size for check in found.kernels) == [2, 3, 4]
        assert all(check.difference.ok for check in found.kernels)

    def test_wrong_inputs(self, net: Path) -> None:
        with pytest.raises(ModelError, match="the input 'image:0' is missing"):
            verify(*compiled(net), {})


def swapped(name: str, change: Callable[[Call], Expr]) -> Pass:
    """A pass that puts something else in the place of the calls of loops of that name."""

    def rule(expr: Expr) -> Expr | None:
        if isinstance(expr, Call) and isinstance(expr.op, GlobalVar) and expr.op.name == name:
            return change(expr)
        return None

    return Pass("TIR_0", "swap", of_main(rule))


def through_views(expr: Expr) -> Expr:
    """The same by way of another shape of the result."""
    return call("reshape", call("reshape", expr, newshape=(8,)), newshape=expr.shape)


class TestSkipped:
    """What a pass over the loops put something else in the place of."""

    REASON = "pass plain.swap put something else in its place"

    def found(self, *passes: Pass, ops: tuple[str, ...] = ()) -> Verification:
        members = by_host(*passes, others=(passing("npu", ops=ops),) if ops else ())
        loaded = LoadedModel(CHAIN, "m")
        return verify(loaded, build_loaded(loaded, members), members, inputs_of(CHAIN.main))

    def test_nothing_without_such_a_pass(self) -> None:
        looks = Pass("TIR_0", "look", lambda module: module)
        found = self.found(looks, ops=("add",))
        assert ([check.kernel for check in found.kernels], found.skipped) == (["relu", "npu_0", "multiply"], ())

    @pytest.mark.parametrize("ops", [(), ("add",), ("nn.relu",), ("multiply",)])
    def test_a_call_and_what_is_computed_from_it(self, ops: tuple[str, ...]) -> None:
        name = "npu_0" if ops == ("add",) else "add"
        found = self.found(swapped(name, lambda e: Call(e.op, [through_views(e.args[0]), *e.args[1:]])), ops=ops)
        labels = {op: "npu" if op in ops else None for op in ("nn.relu", "add", "multiply")}
        assert [(check.target, check.layers) for check in found.kernels] == [(labels["nn.relu"], ("first",))]
        assert found.skipped == (
            Skipped(labels["add"], ("second",), self.REASON),
            Skipped(labels["multiply"], ("third",), self.REASON),
        )
        assert [(check.against, check.difference.ok) for check in found.outputs] == [
            ("inspected", True),
            ("references", True),
            ("first run", True),
        ]

    def test_what_the_model_gives_is_compared_all_the_same(self) -> None:
        """The pass is wrong, and no kernel tells."""
        found = self.found(swapped("add", lambda e: e.args[0]))
        assert [check.difference.ok for check in found.kernels] == [True]
        assert len(found.skipped) == 2
        assert [check.difference.ok for check in found.outputs] == [True, False, True]

    def test_several_passes(self) -> None:
        other = Pass("TIR_1", "again", swapped("multiply", through_views).fn)
        found = self.found(swapped("add", through_views), other)
        assert {one.reason for one in found.skipped} == {
            "pass plain.swap and pass plain.again put something else in its place"
        }

    def test_a_pass_within_regions_hides_nothing(self) -> None:
        unroll = each_loop(lambda loop: tir.For(loop.var, loop.extent, loop.body, "unrolled"))
        of_regions = Pass("TIR_1", "unroll", of_loops(unroll), scope="regions")
        members = members_of(passing("npu", of_regions, ops=("add", "nn.relu")))
        loaded = LoadedModel(CHAIN, "m")
        found = verify(loaded, build_loaded(loaded, members), members, inputs_of(CHAIN.main))
        assert ([check.kernel for check in found.kernels], found.skipped) == (["npu_0", "multiply"], ())

    def test_what_the_command_says(self, uma: Uma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "m.py").write_text(print_module(CHAIN)[0])
        entries = [*entry_of(HOST, passes=lambda: [swapped("add", through_views)])]
        monkeypatch.setattr("uma.plugins.default_host", lambda: PluginHost(lambda: entries))
        done = uma("verify", "m.py", "--target", "plain", "-v")
        assert done.code == 0
        assert "  first: equal\n  second: equal\n  third: not compared\n" in done.out
        compared, skipped = [line for line in done.out.splitlines() if "compared" in line][-2:]
        assert compared == "m: 2 results of kernels compared with their references over 8 samples: all agree"
        assert skipped == f"1 kernel could not be compared: {self.REASON}"
        record = uma("verify", "m.py", "--target", "plain", "--json").json
        assert record["equal"] is True
        assert record["skipped"] == [{"target": None, "layers": ["third"], "reason": self.REASON}]
        entries[:] = entry_of(HOST, passes=lambda: [swapped("add", lambda e: e.args[0])])
        done = uma("verify", "m.py", "--target", "plain")
        assert done.code == 7
        assert f"2 kernels could not be compared: {self.REASON}\n" in done.out
        assert "hint: every kernel that could be compared agrees with its reference" in done.err


def wrong_compute(monkeypatch: pytest.MonkeyPatch, op: str, change: Callable[[tir.Expr], tir.Expr]) -> None:
    """Makes the loops of an op compute something else at index 1 of the last axis; the reference stays right."""
    right: Any = get_op(op).compute

    def compute(*arguments: Any) -> te.Tensor:
        made = right(*arguments)
        here = lambda index: tir.Bin("eq", index[-1], tir.const(1))  # noqa: E731 - as short as what it stands for
        return te.compute(made.shape, lambda *i: tir.Select(here(i), change(made[i]), made[i]), "wrong")

    monkeypatch.setitem(vars(get_op(op)), "compute", compute)


@pytest.fixture
def uma(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Uma:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    return Uma(capsys)


class TestPlantedFaults:
    """Each is in the middle of a model, and passes every check of shapes and types."""

    def test_a_kernel_of_integers(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        wrong_compute(monkeypatch, "nn.max_pool2d", lambda value: tir.Bin("bitxor", value, tir.const(1, "int8")))
        done = uma("verify", DIGITS, "--target", "c -opt=1")
        assert done.code == 7
        head, where, hint = done.err.splitlines()
        assert re.fullmatch(
            r"uma: error: layer pool, pool_quantize differs from its reference: 16 of 512 elements differ, "
            r"the first at \[0, 0, 0, 1\]: (-?\d+) instead of (-?\d+); at most by 1",
            head,
        )
        assert where == "  where: kernel max_pool2d, result 6 of 10, sample 'random 0'"
        assert hint == "  hint: --dump DIR writes what it was given, what it gave, and what it should have given"
        assert done.out.splitlines()[0].endswith(
            "10 results of kernels compared with their references over 8 samples: 1 differ"
        )

    def test_a_kernel_of_floats(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        wrong_compute(monkeypatch, "nn.global_avg_pool", lambda value: value * 1.0001)
        done = uma("verify", "net.py", "--target", "c", "--json")
        assert done.code == 7
        assert "layer head/mean differs from its reference: 1 of 2 elements differ" in done.err
        record = done.json
        assert record["equal"] is False and "error" not in record
        wrong = [row for row in record["kernels"] if not row["ok"]]
        assert [(row["kernel"], row["layers"], row["first"]) for row in wrong] == [
            ("global_avg_pool", ["head/mean"], [0, 0, 0, 1])
        ]
        assert wrong[0]["got"] == pytest.approx(wrong[0]["expected"] * 1.0001)

    def test_a_kernel_when_nothing_but_errors_is_wanted(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        wrong_compute(monkeypatch, "nn.global_avg_pool", lambda value: value * 1.0001)
        done = uma("verify", "net.py", "--target", "c", "-q")
        assert (done.code, done.out) == (7, "")
        assert "layer head/mean differs" in done.err

    def test_the_plan_of_memory(self, uma: Uma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        text = """\
@function
def main(x: Tensor[(1, 4), float32]) -> Tensor[(2, 4), float32]:
    v0: ('first',) = nn.softmax(x)
    v1: ('second',) = nn.softmax(v0)
    v2: ('third',) = nn.softmax(v1)
    v3: ('both',) = concatenate(v0, v2, axis=0)
    return v3
"""
        (tmp_path / "m.py").write_text(text)

        def overlapping(program: Program, **options: Any) -> Plan:
            """The results of the first and the third softmax, which are both read by the last step, at one place."""
            plan = real_plan(program, **options)
            first, third = (step.args[1] for step in (program.steps[0], program.steps[2]))
            return replace(plan, offsets={**plan.offsets, third: plan.offsets[first]})

        monkeypatch.setattr(driver, "plan", overlapping)
        monkeypatch.setattr(driver, "verify_plan", lambda *_: None)
        done = uma("verify", "m.py", "--target", "c")
        assert done.code == 7
        assert "output output differs from the same kernels without reuse of memory: " in done.err
        assert "hint: every kernel by itself agrees with its reference" in done.err
        assert done.out.splitlines()[0].endswith("all agree")

    def test_a_pass_before_the_kernels(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        def forgetful(module: IRModule) -> IRModule:
            return parse_module(NET.replace("nn.relu(x)", "add(x, const(0.5, float32))"), {})

        monkeypatch.setattr(stages, "canonicalise", forgetful)
        done = uma("verify", "net.py", "--target", "c")
        assert done.code == 7
        assert "output scores differs from the references of the whole model: 2 of 2 elements differ" in done.err


class TestOtherRuntimes:
    @pytest.fixture(autouse=True)
    def model_files(self, uma: Uma, tmp_path: Path) -> None:
        lite = TFLiteBuilder()
        x = lite.input((1, 4), name="x")
        y = lite.tensor((1, 4), name="y")
        lite.op("LOGISTIC", [x], [y])
        (tmp_path / "m.tflite").write_bytes(lite.finish(y))
        onnx = OnnxBuilder()
        onnx.node("Sigmoid", onnx.input("x", (1, "n")), outputs=["y"])
        (tmp_path / "m.onnx").write_bytes(onnx.build("y"))

    @pytest.mark.parametrize(("file", "against"), [("m.tflite", "litert"), ("m.onnx", "onnxruntime")])
    def test_agreement(self, uma: Uma, file: str, against: str) -> None:
        shape = ["--shape", "x=1,5"] if file == "m.onnx" else []
        record = uma("verify", file, "--target", "c", "--against", against, "--json", *shape).json
        assert record["equal"] is True
        assert [row["against"] for row in record["outputs"]] == ["inspected", "references", against, "first run"]
        assert {row["size"] for row in record["outputs"]} == {5 if shape else 4}

    def test_difference(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        def other(*given: Any) -> Any:
            return lambda inputs: [array + 1 for array in litert(*given)(inputs)]

        monkeypatch.setitem(ORACLES, "litert", other)  # type: ignore[misc]  # what is typed as a mapping is a dict
        done = uma("verify", "m.tflite", "--target", "c", "--against", "litert")
        assert done.code == 7
        assert "output y differs from LiteRT: 4 of 4 elements differ" in done.err

    def test_a_note_on_reading_may_tell_why(self, uma: Uma, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        onnx = OnnxBuilder()
        x = onnx.dequantize(onnx.quantize(onnx.input("x", (1, 4)), 0.1, 3, "int8"), 0.1, 3, "int8")
        y = onnx.dequantize(onnx.quantize(onnx.node("Softmax", x), 0.1, 3, "int8"), 0.1, 3, "int8")
        onnx.node("Identity", y, outputs=["y"])
        (tmp_path / "q.onnx").write_bytes(onnx.build("y"))
        assert load_model(tmp_path / "q.onnx").notes
        monkeypatch.setitem(ORACLES, "onnxruntime", lambda *_: lambda inputs: [np.zeros((1, 4), np.float32)])
        done = uma("verify", "q.onnx", "--target", "c", "--against", "onnxruntime")
        assert done.code == 7
        assert done.err.endswith("; a note on how the model was read may tell why: -v\n")
        assert "there is a note on how the model was read: -v shows it all" in done.out

    def test_another_type(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(ORACLES, "litert", lambda *_: lambda inputs: [np.zeros((1, 4), np.int8)])
        done = uma("verify", "m.tflite", "--target", "c", "--against", "litert")
        assert "the result is float32[1, 4] instead of int8[1, 4]\n  where: output 'y' against litert" in done.error(7)

    @pytest.mark.parametrize(
        ("module", "file", "against", "hint"),
        [
            ("ai_edge_litert.interpreter", "m.tflite", "litert", "pip install ai-edge-litert"),
            ("onnxruntime", "m.onnx", "onnxruntime", "pip install onnxruntime"),
        ],
    )
    def test_what_is_not_installed(
        self, uma: Uma, module: str, file: str, against: str, hint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        arguments = ["verify", file, "--target", "c", "--against", against, "--shape", "x=1,4"]
        assert hint in uma(*(arguments if file == "m.onnx" else arguments[:-2])).error(2)
