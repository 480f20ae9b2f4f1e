"""Layers that are made up and varied: an honest plugin passes, one with a mistake is found out, with its part named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests._support.planted import Edit, planted, subject_of

from uma.errors import ModelError, UsageError
from uma.testing import CheckResult, Finding
from uma.testing.attack import check_layers, repeat
from uma.testing.attack.files import read_file
from uma.testing.record import Part
from uma.testing.subject import Subject

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


def test_an_honest_plugin_has_no_finding_and_its_clauses_are_counted(tmp_path: Path) -> None:
    _, result = checked(tmp_path, DENSE, layers=6)
    assert result.findings == ()
    counted = {count.clause: count for count in result.clauses}
    assert counted["rounding"].decisive > 0 and counted["rounding"].accepted > 0
    assert any("of them on the accelerator" in note for note in result.notes)
    assert not (tmp_path / "found").exists()


def test_a_mistake_is_found_named_shrunk_and_repeated(tmp_path: Path) -> None:
    edit = ("layer.py", "records = np.stack([found.bias,", "records = np.stack([found.bias + 1,")
    subject, result = checked(tmp_path, DENSE, edit, layers=6)
    assert {finding.part for finding in result.findings} == {"lowering"}
    finding = result.findings[0]
    assert ops_of(finding) <= 3 and "matrix_unit.dense" in finding.where
    (path, *_) = sorted((tmp_path / "found").iterdir())
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


def test_files_that_are_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file that repeats"):
        read_file(tmp_path / "missing.json")
    (tmp_path / "other.json").write_text('{"schema_version": 1}')
    with pytest.raises(ModelError, match="is none that repeats"):
        read_file(tmp_path / "other.json")
    (tmp_path / "newer.json").write_text('{"schema_version": 2}')
    with pytest.raises(ModelError, match="version 2"):
        read_file(tmp_path / "newer.json")


MISTAKES: dict[str, tuple[Part, list[Edit]]] = {
    "padding": ("lowering", [("lower.py", "else int8({layer.input_zero_point})", "else int8(0)")]),
    "wait": (
        "driver",
        [
            (
                "csrc/mxu_driver.c",
                "    uma_write32(device, MXU_PENDING, pending);\n    return run(device, MXU_CMD_WAIT);",
                "    (void)device;\n    (void)pending;\n    return 0;",
            )
        ],
    ),
}


@pytest.mark.soak
@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found_and_its_part_named(name: str, tmp_path: Path) -> None:
    part, edits = MISTAKES[name]
    _, result = checked(tmp_path, *edits)
    assert {finding.part for finding in result.findings} == {part}
    assert all(ops_of(finding) <= 3 for finding in result.findings)
