"""Calls that run row by row, as a user sees them: verified, run, timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.row_programs import interpret_rows, residual, row_forms
from tests._support.small_models import Uma

from uma.program import by_rows, print_program


@pytest.mark.parametrize("executor", ["aot", "graph"])
def test_a_program_with_rows(
    executor: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = by_rows(residual(), [(0, 8)], row_forms(residual()))
    Path("rows.py").write_text(print_program(program)[0])
    uma, target = Uma(capsys), f"c -opt=1 -executor={executor}"

    x = np.arange(16, dtype=np.int32).reshape(8, 2)
    np.savez("in.npz", x=x)
    done = uma("run", "rows.py", "--target", target, "--inputs", "in.npz", "--outputs", "out.npz", "-q")
    assert done.code == 0, done.err
    with np.load("out.npz") as outputs:
        assert (outputs["y0"] == interpret_rows(residual(), {"x": x})["y0"]).all()

    done = uma("run", "rows.py", "--target", target, "--inputs", "in.npz", "--profile", "--repeat", 3, "--json")
    assert done.code == 0, done.err
    rows = done.json["profile"]
    assert [row["kernel"] for row in rows] == ["rows", *(step.function for _, step in program.calls), "rows_end"]
    assert all(row["median_us"] > 0 for row in rows[1:-1]), "the rows of each layer add up"

    if executor == "aot":  # every value is whole then, and compared
        done = uma("verify", "rows.py", "--target", target, "--samples", 1, "--json")
        assert done.code == 0, done.err
        assert done.json["equal"] is True and len(done.json["kernels"]) == 9
        assert {row["against"] for row in done.json["outputs"]} == {"inspected"}
