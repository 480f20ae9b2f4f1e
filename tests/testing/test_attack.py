"""Layers that are made up and varied: an honest plugin passes, one with a mistake is found out, with its part named."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests._support.planted import Edit, planted, subject_of

from uma.errors import ModelError, UsageError
from uma.relay import FixedPoint, Function, GlobalVar, IRModule, TensorType, Var, call, const
from uma.relay.expr import Call
from uma.relay.extern import Extern
from uma.relay.module import func_type
from uma.testing import CheckResult, Finding
from uma.testing.fuzz import check_graphs, check_layers, repeat
from uma.testing.fuzz.interpreter_runs import NotLoops, interpreted
from uma.testing.fuzz.layer import Layer
from uma.testing.fuzz.reproducers import read_file, write_file
from uma.testing.fuzz.triage import LayerFailure, difference
from uma.testing.record import Part
from uma.testing.subject import Subject
from uma.tir.form.nodes import Buffer, Param

DENSE: Edit = (
    "supported.py",
    '        _pattern("matrix_unit.conv2d", conv2d, [windows, *clauses], machine),\n'
    '        _pattern("matrix_unit.conv1d", conv1d, [windows, *clauses], machine),\n',
    "",
)
"""Only dense layers, so that a test is quick."""


def quiet(step: str) -> None:
    """Progress that nobody looks at."""


def checked(
    folder: Path, *edits: Edit, package: str = "uma_matrix_unit", layers: int = 60
) -> tuple[Subject, CheckResult]:
    host = planted(folder / "plugin", package, edits)
    subject = subject_of(host, package.replace("_", "-"), folder / "found", layers)
    return subject, check_layers(subject, quiet)


def ops_of(finding: Finding) -> int:
    return len(re.findall(r"^ +v[0-9]+ = ", finding.layer, re.MULTILINE))


@pytest.mark.soak  # the conformance of examples/uma-mac-array is a quick one
def test_an_honest_plugin_has_no_finding_and_its_clauses_are_counted(tmp_path: Path) -> None:
    _, result = checked(tmp_path, DENSE, layers=6)
    assert result.findings == ()
    counted = {count.clause: count for count in result.clauses}
    assert counted["rounding"].decisive > 0 and counted["rounding"].accepted > 0
    assert any("of them on the accelerator" in note for note in result.notes)
    assert not (tmp_path / "found").exists()


@pytest.mark.soak
def test_a_mistake_is_found_named_shrunk_and_repeated(tmp_path: Path) -> None:
    edit = ("layer.py", "records = np.stack([layer.bias,", "records = np.stack([layer.bias + 1,")
    subject, result = checked(tmp_path, DENSE, edit, layers=6)
    assert {finding.part for finding in result.findings} == {"lowering"}
    finding = result.findings[0]
    assert ops_of(finding) <= 3 and "matrix_unit.dense" in finding.where
    (path,) = (path for path in (tmp_path / "found").iterdir() if str(path) in finding.repeat)
    assert finding.repeat == f"uma check uma-matrix-unit --repeat {path}"
    written = read_file(path)
    assert (
        written.part == "lowering"
        and written.arrays
        and any((one != other).any() for one, other in zip(written.expected, written.got, strict=True))
    )
    again = repeat(path, subject, quiet)
    assert [one.part for one in again.findings] == ["lowering"]
    honest = subject_of(planted(tmp_path / "honest", "uma_matrix_unit", []), "uma-matrix-unit", tmp_path / "none")
    assert repeat(path, honest, quiet).findings == ()


def test_what_was_found_is_written_and_repeated(tmp_path: Path) -> None:
    x = Var("x", TensorType((2, 8), "int8"))
    product = call("qnn.dense", x, const(np.ones((8, 8), np.int8)))
    body = call("qnn.requantize", product, scale=FixedPoint((2**30,), (0,), "up"), dtype="int8")
    edit = ("layer.py", "records = np.stack([layer.bias,", "records = np.stack([layer.bias + 2,")
    wrong, honest = (
        subject_of(planted(tmp_path / name, "uma_matrix_unit", edits), "uma-matrix-unit", tmp_path / "found")
        for name, edits in (("wrong", [edit]), ("honest", []))
    )
    fault = LayerFailure(Layer(Function([x], body), "matrix_unit.dense"), "lowering", "bias", "it differs")
    path = write_file(fault, wrong, "layers")
    assert list((tmp_path / "found").iterdir()) == [path]
    assert [one.part for one in repeat(path, wrong, quiet).findings] == ["lowering"]
    assert repeat(path, honest, quiet).findings == ()


def test_files_that_are_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file that repeats"):
        read_file(tmp_path / "missing.json")
    (tmp_path / "other.json").write_text('{"schema_version": 1}')
    with pytest.raises(ModelError, match="is none that repeats"):
        read_file(tmp_path / "other.json")
    (tmp_path / "newer.json").write_text('{"schema_version": 2}')
    with pytest.raises(ModelError, match="version 2"):
        read_file(tmp_path / "newer.json")


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "found").write_text("no folder")
    subject = subject_of(planted(tmp_path / "plugin", "uma_matrix_unit", []), "uma-matrix-unit", tmp_path / "found")
    x = Var("x", TensorType((2, 2), "int8"))
    layer = Layer(Function([x], call("nn.relu", x)), "matrix_unit.dense")
    with pytest.raises(UsageError, match="cannot be written"):
        write_file(LayerFailure(layer, "machine", "other", "it differs"), subject, "layers")


def test_what_is_no_loops_has_no_interpreter() -> None:
    x = Var("x", TensorType((2,), "int8"))
    body = call("clip", call("nn.relu", x), a_min=0.0, a_max=3.0)
    module = IRModule.from_functions({"main": Function([x], body)})
    (got,) = interpreted(module, [body], {"x": np.array([-5, 7], np.int8)})
    assert got.tolist() == [0, 3]
    stream = Extern((Param(Buffer("x", (2,), "int8"), "input"), Param(Buffer("y", (2,), "int8"), "output")), "run")
    var = GlobalVar("stream", func_type(stream))
    streamed = IRModule.from_functions({"main": Function([x], Call(var, [x])), "stream": stream})
    with pytest.raises(NotLoops):
        interpreted(streamed, [streamed.main.body], {"x": np.array([1, 2], np.int8)})


SCALED = "uma_scaled(sum, multiplier, shift, (int32_t)rounding)"
STORE = "    return transfer(device, MXU_CMD_STORE{}, to, to_stride, from, from_stride, rows, row_bytes);"
BEYOND = "    ((unsigned char *)to)[(int64_t)to_stride * (rows - 1) + row_bytes] = 0;\n"

_LARGER = "Machine(machine.activation_bytes + 1, machine.weight_bytes, machine.accumulator_bytes)"
MISTAKES: dict[str, tuple[Part, list[Edit]]] = {
    "padding": (
        "lowering",
        [
            (
                "lower.py",
                "top, left = shape.padding[0], shape.padding[1]",
                "top, left = shape.padding[1], shape.padding[0]",
            )
        ],
    ),
    "dilation": (
        "lowering",
        [("supported.py", "strides=any_, padding=any_)", "strides=any_, padding=any_, dilation=any_)")],
    ),
    "zero point": (
        "lowering",
        [("layer.py", "output_zero_point=layer.output_zero_point", "output_zero_point=-layer.output_zero_point")],
    ),
    "an attribute opened and ignored": (
        "pattern",
        [("supported.py", "strides=any_, padding=any_)", "strides=any_, padding=any_, kernel_zero_point=any_)")],
    ),
    "negative ties": (
        "machine",
        [
            (
                "csrc/mxu_sim.c",
                SCALED,
                f"(sum < 0 && rounding == 1u ? -uma_scaled(-sum, multiplier, shift, 1) : {SCALED})",
            )
        ],
    ),
    "nudge off by one": (
        "machine",
        [
            (
                "csrc/mxu_sim.c",
                SCALED,
                "(rounding == 1u ? ((int64_t)sum * multiplier + ((int64_t)1 << (30 - shift)) - 1) >> (31 - shift) : "
                f"{SCALED})",
            )
        ],
    ),
    "shift at its limit": (
        "machine",
        [("csrc/mxu_sim.c", SCALED, SCALED.replace(" shift,", " shift < -15 ? -15 : shift,"))],
    ),
    "channels not a multiple of the array": (
        "machine",
        [
            (
                "csrc/mxu_sim.c",
                "for (n = 0; n < channels; n++) {\n                const int32_t multiplier",
                "for (n = 0; n + (channels < MXU_LANES) < channels; n++) {\n                const int32_t multiplier",
            )
        ],
    ),
    "writes beyond its rows": (
        "driver",
        [("csrc/mxu_driver.c", STORE.format(way), BEYOND + STORE.format(way)) for way in ("", " + MXU_START")],
    ),
    "missing wait": (
        "driver",
        [
            (
                "csrc/mxu_driver.c",
                "    uma_write32(device, MXU_PENDING, pending);\n    return run(device, MXU_CMD_WAIT);",
                "    (void)device;\n    (void)pending;\n    return 0;",
            )
        ],
    ),
    "state kept between runs": (
        "driver",
        [
            (
                "csrc/mxu_driver.c",
                "    uma_write32(device, MXU_ROUNDING, rounding);",
                "    static int32_t kept = -1;\n"
                "    if (kept < 0) kept = rounding;\n"
                "    uma_write32(device, MXU_ROUNDING, kept);",
            )
        ],
    ),
    "a scratchpad that overflows by one": (
        "lowering",
        [
            (
                "tiling.py",
                f"{call}(_nest(shape, machine), machine.tir,",
                f"{call}(_nest(shape, machine), {_LARGER}.tir,",
            )
            for call in ("find_misfit", "choose_tiles")
        ],
    ),
    "a stride of two read as one": (
        "lowering",
        [("lower.py", '"STEP_Y": shape.strides[0]', '"STEP_Y": min(shape.strides[0], 1)')],
    ),
    "scales per channel read as one": (
        "lowering",
        [
            (
                "layer.py",
                "np.array(scale.multiplier), np.array(scale.shift)",
                "np.full(len(scale.multiplier), scale.multiplier[0]), np.array(scale.shift)",
            )
        ],
    ),
}
"""Of the mistakes that authors make in the matrix unit."""


@pytest.mark.soak
@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found_and_its_part_named(name: str, tmp_path: Path) -> None:
    part, edits = MISTAKES[name]
    _, result = checked(tmp_path, *edits, layers=30)
    assert {finding.part for finding in result.findings} == {part}
    # What a driver keeps is told by which layers run before, so that a chain of them may be the smallest.
    assert min(map(ops_of, result.findings)) <= (5 if name == "state kept between runs" else 3)


DRIVER, SIMULATOR = "csrc/mac_array_driver.c", "csrc/mac_array_sim.c"
MAC_SCALED = "uma_scaled(sum, multiplier, shift, rounding)"

OTHERS: dict[str, tuple[Part, list[Edit]]] = {
    "a nudge of one more": (
        "machine",
        [
            (
                SIMULATOR,
                MAC_SCALED,
                "(rounding == 1 ? uma_shift_right((int64_t)sum * multiplier + ((int64_t)1 << (30 - shift)) + 1, "
                f"31 - shift) : {MAC_SCALED})",
            )
        ],
    ),
    "a height of 64 in 6 bits": (
        "machine",
        [(DRIVER, "set(device, MAC_ARRAY_HEIGHT, height)", "set(device, MAC_ARRAY_HEIGHT, height & 0x3f)")],
    ),
    "limits kept between layers": (
        "driver",
        [
            (
                DRIVER,
                "    set(device, MAC_ARRAY_LOW, low);",
                "    static int32_t first = -1000;\n    if (first == -1000) first = low;\n"
                "    set(device, MAC_ARRAY_LOW, first);",
            )
        ],
    ),
}
"""Of mistakes in the array of multipliers."""


@pytest.mark.soak
@pytest.mark.parametrize("name", OTHERS)
def test_a_mistake_planted_in_another_plugin_is_found(name: str, tmp_path: Path) -> None:
    part, edits = OTHERS[name]
    _, result = checked(tmp_path, *edits, package="uma_mac_array", layers=30)
    assert {finding.part for finding in result.findings} == {part}


def test_special_values_between_ops_are_exact_without_a_tolerance_only() -> None:
    x = Var("x", TensorType((2,), "float32"))
    quotient = call("divide", x, x)
    alone, rectified = Layer(Function([x], quotient), ""), Layer(Function([x], call("nn.relu", quotient)), "")
    zero, finite = {"x": np.float32([0, 1])}, {"x": np.float32([1, 1])}
    nan, wrong = [np.float32([np.nan, 1])], [np.float32([0, 1])]
    assert not difference(rectified, nan, nan, zero, 0.0)
    assert difference(rectified, wrong, nan, zero, 0.0)
    assert not difference(rectified, wrong, nan, zero, 1e-5)
    assert difference(alone, wrong, nan, zero, 1e-5)
    assert difference(rectified, wrong, [np.float32([1, 1])], finite, 1e-5)


@pytest.mark.soak
@pytest.mark.parametrize("package", ["uma_matrix_unit", "uma_stream_machine", "uma_ultratrail", "uma_ethosu_like"])
def test_plugins_of_the_repository_have_no_finding(package: str, tmp_path: Path) -> None:
    subject, result = checked(tmp_path, package=package)
    assert result.findings == ()
    assert check_graphs(subject, quiet).findings == ()
