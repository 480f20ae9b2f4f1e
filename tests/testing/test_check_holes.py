"""Mistakes of plugins that a check once passed over: clauses that raise, layers that never reach the device, attributes
that are opened and not looked at, and loops that read what they never wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.planted import planted, stand_in, subject_of
from tests._support.plugins import accelerator
from tests._support.te_lowerings import as_declared, lowered

import uma.testing
from uma.cli import main
from uma.hookspecs import Clause, LoweredKernel, Pattern, Refuse
from uma.relay import FixedPoint, Function, TensorType, Var, call, const
from uma.relay.expr import Call
from uma.relay.op import Op
from uma.relay.pattern import Match, any_, any_of, op, optional, where, wildcard
from uma.relay.pattern.terms import Term
from uma.runtime.model_process import Isolation
from uma.support.json_schema import first_error
from uma.targets import Target
from uma.testing import CheckResult, Conformance
from uma.testing.fuzz import triage
from uma.testing.fuzz.layer import Layer
from uma.testing.fuzz.layers import findings_of, run_layers
from uma.testing.fuzz.reach import Reach
from uma.testing.output.html import as_html
from uma.testing.output.junit import as_junit
from uma.testing.output.text import summary, text_lines
from uma.testing.record import conformance_record, conformance_schema
from uma.tir import te
from uma.tir.form.interp import TooLong, interpret


def checked(patterns: Sequence[Pattern], folder: Path, *only: str, **hooks: Any) -> Conformance:
    """What is found of an accelerator with these patterns, whose loops run on the host."""
    host = stand_in(accelerator("npu"), patterns=lambda: list(patterns), **hooks)
    [one] = uma.testing.check(
        "npu", plugins=host, only=only or ("layers",), target="npu -host=c", folder=folder / "found", layers=6
    )
    return one


def taken(name: str, term: Term, predicate: Any = None, lower: Callable[..., Any] | None = None) -> Pattern:
    """A pattern ``npu.NAME``, lowered as its ops are declared."""
    return Pattern(f"npu.{name}", term, predicate, lower or (lambda match, target: lowered(match.function)))


def relu(predicate: Any = None, lower: Callable[..., Any] | None = None) -> Pattern:
    return taken("relu", op("nn.relu")(wildcard(("int8", "int16")).named("x")), predicate, lower)


def pool(**attrs: Any) -> Term:
    return op("nn.max_pool2d")(wildcard("float32").named("x"), **{"pool_size": any_, "strides": any_, **attrs})


# --- clauses that raise ---


def only_int16(match: Match) -> bool:
    """Raises for one dtype of two."""
    return match["x"].dtype == "int8" or bool(match["x"].tensor.nothing_of_the_kind)  # type: ignore[attr-defined]


def only_biased(match: Match) -> bool:
    """Raises where an optional part is there."""
    return "bias" not in match or bool(match["offset"])


def biased() -> Term:
    x = wildcard("float32").named("x")
    return optional(op("nn.relu")(x), lambda value: op("add")(value, wildcard("float32").named("bias")))


RAISING: dict[str, tuple[Pattern, str, str]] = {
    "a clause, for an optional part": (
        taken("relu", biased(), [Clause("biased", only_biased, "a bias")]),
        "names no part 'offset'",
        "clause 'biased'",
    ),
    "a clause, for one dtype": (
        relu([Clause("known", only_int16, "the type is known")]),
        "AttributeError",
        "clause 'known'",
    ),
    "a predicate of the whole match": (relu(only_int16), "AttributeError", "predicate 'only_int16'"),
    "a test of an attribute": (
        taken("pool", pool(strides=where(lambda strides: strides[0] == 1 or strides[4] > 0, "known strides"))),
        "IndexError",
        "test 'known strides'",
    ),
    "a test of an extent": (
        taken("relu", op("nn.relu")(wildcard("int8", shape=(any_, where(lambda n: 60 // (n - 3) < 99, "an extent"))))),
        "ZeroDivisionError",
        "test 'an extent'",
    ),
    "an answer that is none": (relu(lambda match: None), "gave None", "predicate '<lambda>'"),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", RAISING)
def test_a_clause_that_raises_is_found_with_its_place(name: str, tmp_path: Path) -> None:
    pattern, said, where_ = RAISING[name]
    findings = [one for one in checked([pattern], tmp_path).findings if "a clause fails" in one.what]
    assert [finding.part for finding in findings] == ["pattern"]
    assert said in findings[0].what and where_ in findings[0].what and findings[0].layer
    assert findings[0].repeat == "uma check uma-npu --only layers --target npu"


@pytest.mark.soak
def test_a_clause_that_raises_is_told_by_whichever_check_comes_first(tmp_path: Path) -> None:
    one = checked([relu([Clause("known", only_int16, "the type is known")])], tmp_path, "graphs", "layers")
    assert [finding.check for finding in one.findings] == ["layers"]
    one = checked([relu([Clause("known", only_int16, "the type is known")])], tmp_path, "graphs")
    assert [(finding.part, finding.check) for finding in one.findings] == [("pattern", "graphs")]


@pytest.mark.soak
def test_a_clause_that_fails_on_the_layers_of_another_pattern_is_the_patterns_fault(tmp_path: Path) -> None:
    """Both match at the same op; the first takes it, and a build asks the second as well."""
    second = taken("again", op("nn.relu")(wildcard(any_, rank=3).named("x")), only_int16)
    findings = checked([relu(), second], tmp_path).findings
    assert {finding.part for finding in findings} == {"pattern"}


# --- layers that do not reach the device ---


def refusing(refuses: Callable[[Match], bool]) -> Callable[[Match, Target], LoweredKernel]:
    def lower(match: Match, target: Target) -> LoweredKernel:
        if refuses(match):
            raise Refuse("not today")
        return lowered(match.function)

    return lower


REFUSING: dict[str, tuple[list[Pattern], str]] = {
    "everything": ([relu(lower=refusing(lambda match: True))], "pattern npu.relu takes layers, and none"),
    "one pattern of two": (
        [relu(), taken("abs", op("abs")(wildcard("float32")), lower=refusing(lambda match: True))],
        "pattern npu.abs takes layers, and none",
    ),
    "one dtype of two": (
        [relu(lower=refusing(lambda match: match["x"].dtype == "int16"))],
        "pattern npu.relu takes layers of dtype int16, and none",
    ),
    "an optional part": (
        [taken("relu", biased(), lower=refusing(lambda match: "bias" in match))],
        "pattern npu.relu takes layers of ops nn.relu, add, and none",
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", REFUSING)
def test_layers_that_never_reach_the_device_are_found(name: str, tmp_path: Path) -> None:
    patterns, what = REFUSING[name]
    [finding] = checked(patterns, tmp_path).findings
    assert (finding.part, finding.check) == ("lowering", "layers")
    assert finding.what.startswith(what) and "the lowering refuses it: not today" in finding.what
    assert "nn.relu" in finding.layer or "abs" in finding.layer


@pytest.mark.soak
def test_a_pattern_behind_one_that_takes_all_its_layers_is_found(tmp_path: Path) -> None:
    first = taken("any", op("nn.relu")(wildcard(("int8", "int16", "float32")).named("x")))
    [finding] = checked([first, relu()], tmp_path).findings
    assert finding.part == "pattern" and "it goes to pattern npu.any instead" in finding.what


def test_ops_that_the_compiler_removes_need_not_reach_the_device(tmp_path: Path) -> None:
    """A clip to the whole of int8 changes nothing: it is not a finding, unless the pattern takes nothing else."""
    x = Var("x", TensorType((1, 4), "int8"))
    data = wildcard("int8").named("x")
    limited = taken("limited", any_of(op("nn.relu")(data), op("clip")(data, a_min=any_, a_max=any_)))
    subject = subject_of(stand_in(accelerator("npu"), patterns=lambda: [limited]), "npu", tmp_path / "found")
    layers = [Layer(Function([x], call(name, x)), "npu.limited") for name in ("nn.relu", "clip")]
    for built, number in ((layers, 0), (layers[1:], 1)):
        reach = Reach(subject.member)
        with Isolation(10.0) as isolation:
            assert run_layers(subject, built, isolation, quiet, [], reach=reach) == []
        findings = list(reach.findings(["npu.limited"]))
        assert len(findings) == number
    assert findings[0].part == "pattern" and "the compiler removes it" in findings[0].what


def dense_layer() -> Layer:
    """A dense layer of one weight that the matrix unit takes."""
    x = Var("x", TensorType((1, 1), "int8"))
    product = call("qnn.dense", x, const(np.ones((1, 1), np.int8)))
    body = call("qnn.requantize", product, scale=FixedPoint((2**30,), (0,), "up"), dtype="int8")
    return Layer(Function([x], body), "matrix_unit.dense")


@pytest.mark.soak
def test_loops_that_use_nothing_of_a_device_are_found(tmp_path: Path) -> None:
    """All that a layer is lowered to runs on the host, although there is a driver."""
    edits = [
        ("lower.py", "_scheduled(_plain(layer, out, inputs, has_residual), layer, tiles, machine)", PLAIN),
        ("supported.py", CONVOLUTIONS, ""),
    ]
    host = planted(tmp_path / "plugin", "uma_matrix_unit", edits)
    subject = subject_of(host, "uma-matrix-unit", tmp_path / "found")
    reach = Reach(subject.member)
    with Isolation(10.0) as isolation:
        assert run_layers(subject, [dense_layer()], isolation, quiet, [], reach=reach) == []
    [finding] = reach.findings(["matrix_unit.dense"])
    assert finding.part == "lowering" and "runs on the host and uses nothing of the device" in finding.what
    [one] = uma.testing.check("uma-matrix-unit", plugins=host, only=["faults"], target="matrix_unit")
    assert one.results[0].verdict == "nothing was checked"
    assert one.results[0].unchecked == "no layer was found that reaches the device"


PLAIN = "_plain(layer, out, inputs, has_residual)"
CONVOLUTIONS = (
    '        _pattern("matrix_unit.conv2d", conv2d, [windows, *clauses], machine),\n'
    '        _pattern("matrix_unit.conv1d", conv1d, [windows, *clauses], machine),\n'
)


def test_a_check_that_had_nothing_to_do_says_so_everywhere(tmp_path: Path) -> None:
    one = checked([relu(lower=refusing(lambda match: True))], tmp_path, "graphs")
    [result] = one.results
    assert (result.verdict, result.passed) == ("nothing was checked", True)
    assert "  nothing was checked  graphs: no part of a graph ran on the target" in list(text_lines(one))
    assert summary([one]) == "1 target: no findings, nothing was checked by 1"
    record = json.loads(json.dumps(conformance_record(one)))
    assert first_error(record, conformance_schema()) is None
    assert record["results"][0]["unchecked"] == "no part of a graph ran on the target"
    assert ">nothing was checked<" in as_html([one]) and ">ok<" not in as_html([one])
    assert 'skipped message="nothing was checked: no part' in as_junit([one])


def test_verdicts() -> None:
    assert CheckResult("c", "C").verdict == "ok"
    assert CheckResult("c", "C", skipped="no compiler").verdict == "skipped"
    assert CheckResult("c", "C", unchecked="no layer").verdict == "nothing was checked"


# --- attributes that are opened ---


def ignoring(change: Callable[[Call], dict[str, Any]]) -> Callable[[Match, Target], LoweredKernel]:
    """A lowering that looks at other attributes than a call has."""

    def compute(one: Call, args: Sequence[te.Tensor]) -> te.Tensor | tuple[te.Tensor, ...]:
        assert isinstance(one.op, Op) and one.op.compute is not None
        if not (changes := change(one)):
            return as_declared(one, args)
        return one.op.compute(one.op.make_attrs(one.attrs.replace(**changes)), one.tensor, *args)

    return lambda match, target: lowered(match.function, compute)


def one_axis(one: Call) -> dict[str, Any]:
    """The scales of all axes are laid along the last one."""
    scale = one.attrs.scale
    if len(scale) == 1 or one.attrs.axis % len(one.shape) == len(one.shape) - 1:
        return {}
    at = [number % len(scale) for number in range(one.shape[-1])]
    along = FixedPoint(tuple(scale.multiplier[i] for i in at), tuple(scale.shift[i] for i in at), scale.rounding)
    return {"axis": -1, "scale": along}


def only(name: str, value: Any, instead: Any) -> Callable[[Call], dict[str, Any]]:
    return lambda one: {name: instead} if getattr(one.attrs, name) == value else {}


def requantised() -> Term:
    given = {"scale": where(lambda scale: isinstance(scale, FixedPoint), "fixed points"), "axis": any_}
    return op("qnn.requantize")(wildcard("int32"), output_zero_point=any_, dtype="int8", **given)


def mean_pool(name: str, **attrs: Any) -> Term:
    opened = dict.fromkeys(("pool_size", "strides", "padding", "count_include_pad"), any_)
    return op(name)(wildcard("int8" if name.startswith("qnn") else "float32"), **opened, **attrs)


IGNORING: dict[str, Pattern] = {
    "the axis of scales per channel": taken("scaled", requantised(), None, ignoring(one_axis)),
    "one zero point of a result": taken("scaled", requantised(), None, ignoring(only("output_zero_point", 1, 0))),
    "one axis of four": taken(
        "softmax", op("nn.softmax")(wildcard("float32"), axis=any_), None, ignoring(only("axis", 2, 1))
    ),
    "one of two strides": taken("pool", pool(padding=any_), None, ignoring(only("strides", (2, 1), (1, 1)))),
    "padding on one side": taken(
        "mean", mean_pool("nn.avg_pool2d"), None, ignoring(only("padding", (0, 0, 0, 1), (0, 1, 0, 0)))
    ),
    "what counts of padding": taken(
        "mean", mean_pool("nn.avg_pool2d"), None, ignoring(lambda one: {"count_include_pad": False})
    ),
    "one layout": taken(
        "moved",
        op("layout_transform")(wildcard("int8"), src_layout=any_, dst_layout=any_),
        None,
        ignoring(only("dst_layout", "NWHC", "NHWC")),
    ),
    "the zero point of data": taken(
        "mean",
        mean_pool("qnn.avg_pool2d", zero_point=any_, rounding=any_),
        None,
        ignoring(only("zero_point", -128, -127)),
    ),
    "how a mean is rounded": taken(
        "mean",
        mean_pool("qnn.avg_pool2d", zero_point=any_, rounding=any_),
        None,
        ignoring(lambda one: {"rounding": "away"}),
    ),
    "whether sums begin with 0": taken(
        "sums",
        op("cumsum")(wildcard("int32"), axis=any_, exclusive=any_, reverse=any_),
        None,
        ignoring(lambda one: {"exclusive": False} if one.attrs.reverse else {}),
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", IGNORING)
def test_each_value_of_an_opened_attribute_runs(name: str, tmp_path: Path) -> None:
    one = checked([IGNORING[name]], tmp_path)
    assert {finding.part for finding in one.findings} <= {"pattern", "lowering"} and one.findings


# --- which part is named ---

DROP = '''
def _without_load(func: PrimFunc) -> PrimFunc:
    """The function without the copies of weights."""
    from dataclasses import replace

    from uma.tir.form.fields import map_fields
    from uma.tir.form.nodes import Copy, Seq, Stmt, seq

    def walk(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Seq):
            return seq(*map(walk, stmt.stmts))
        if isinstance(stmt, Copy) and stmt.to.buffer.name.startswith("weight"):
            return seq()
        return map_fields(stmt, body=walk)

    return replace(func, body=walk(func.body))


def _plain('''


def test_loops_that_read_what_they_never_wrote_are_the_lowerings_however_large_they_seem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device ends the run with a fault. It is said to be the machine's only after the layer was interpreted."""
    monkeypatch.setattr(triage, "_MOST_WORK", 0)
    edits = [
        ("lower.py", "def _plain(", DROP),
        ("lower.py", "func = _scheduled(_plain(", "func = _without_load(_scheduled(_plain("),
        ("lower.py", "layer, tiles, machine)\n    return", "layer, tiles, machine))\n    return"),
    ]
    subject = subject_of(planted(tmp_path / "plugin", "uma_matrix_unit", edits), "uma-matrix-unit", tmp_path / "found")
    with Isolation(10.0) as isolation:
        faults = run_layers(subject, [dense_layer()], isolation, quiet, [])
        assert [fault.way for fault in faults] == [triage.LARGE]
        [finding] = findings_of(subject, None, faults, isolation, quiet, [], "layers")
    assert finding.part == "lowering" and "is read before it is written" in finding.what


def quiet(step: str) -> None:
    """Progress that nobody looks at."""


def test_the_command_counts_what_was_not_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = (CheckResult("cost", "costs", unchecked="no layer was placed on the target"),)
    found = Conformance("uma-npu", "1.0", "npu", uma.testing.Claims(), results, "c")
    monkeypatch.setattr("uma.testing.runner.check", lambda *_, **__: (found,))
    assert main(["check", "npu"]) == 0
    said = capsys.readouterr().out
    assert "nothing was checked  cost: no layer was placed on the target" in said
    assert "1 target: no findings, nothing was checked by 1" in said


def test_the_interpreter_stops_behind_so_many_iterations() -> None:
    x = te.placeholder((8,), "int8", "x")
    function = te.prim_func([x], [te.compute((8,), lambda i: x[i] + x[i], "y")]).func
    given = {function.buffers("input")[0].name: np.arange(8, dtype=np.int8)}
    [result] = interpret(function, given, max_iterations=8).values()
    assert result.tolist() == [2 * n for n in range(8)]
    with pytest.raises(TooLong):
        interpret(function, given, max_iterations=7)
