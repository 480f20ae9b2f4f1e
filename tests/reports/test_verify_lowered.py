"""Forms that were lowered already: each step of the compiled program beside the interpreter of loops."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests._support.small_models import NET, Uma

from uma.codegen import kernel
from uma.codegen.expressions import Printer
from uma.errors import UsageError
from uma.program import Program
from uma.verification import lowered
from uma.verification.models import verify

STREAM = """\
signature(inputs=[tensor('x'), tensor('before')], outputs=[tensor('y'), tensor('after')])

@function
def main(x: Tensor[(4,), int32], before: Tensor[(4,), int32]) -> Tuple[Tensor[(4,), int32], Tensor[(4,), int32]]:
    v0: ('sum',) = add(x, before)
    v1: ('twice',) = multiply(v0, const(2, int32))
    return (v1, v0)
"""


@pytest.fixture
def uma(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Uma:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    made = Uma(capsys)
    assert made("build", "net.py", "--target", "c -opt=1", "-o", "out", "--dump", "stages", "-q").code == 0
    return made


@pytest.mark.parametrize("stage", ["5-lower", "9-sequence"])
def test_what_is_right(uma: Uma, stage: str) -> None:
    done = uma("verify", f"stages/{stage}.py", "--target", "c -opt=1", "--samples", 2, "--json")
    assert done.code == 0, done.err
    record = done.json
    assert record["equal"] is True and record["skipped"] == []
    assert {row["compared"] for row in record["kernels"]} == {2}
    assert [row["layers"] for row in record["kernels"]][-1] == ["head/softmax"]
    assert {row["against"] for row in record["outputs"]} == {"inspected", "first run"}


def test_c_that_is_not_what_the_loops_mean(uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Printer._helper
    swapped = {"max": "min"}
    monkeypatch.setattr(Printer, "_helper", lambda self, name, *args: right(self, swapped.get(name, name), *args))
    monkeypatch.setattr(kernel, "_alone", lambda func: kernel._body(func, None))  # the fixture has written the right C
    done = uma("verify", "stages/8-flatten.py", "--target", "c -opt=1", "--samples", 1)
    assert done.code == 7
    assert "layer block/relu, block/relu;twice, block/pool, block/scale differs from its reference" in done.err


def test_what_the_interpreter_has_no_time_for(uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowered, "_MAX_WORK", 0)
    done = uma("verify", "stages/9-sequence.py", "--target", "c -opt=1", "--samples", 1)
    assert done.code == 0, done.err
    assert "could not be compared: its loops take the interpreter too long" in done.out


def test_another_runtime_does_not_run_it(uma: Uma) -> None:
    done = uma("verify", "stages/9-sequence.py", "--target", "c -opt=1", "--against", "onnxruntime")
    assert done.code == 2
    assert "onnxruntime does not run a form that was lowered already" in done.err


def test_an_emulator_does_not_run_single_steps() -> None:
    artifact: Any = SimpleNamespace(is_native=False)
    loaded: Any = SimpleNamespace(form=Program.__new__(Program))
    members: Any = None
    with pytest.raises(UsageError, match="a form that was lowered already is compared on this machine only"):
        verify(loaded, artifact, members, {})


def test_states(uma: Uma, tmp_path: Path) -> None:
    (tmp_path / "sum.py").write_text(STREAM)
    built = uma(
        "build", "sum.py", "--target", "c -opt=1", "--state", "before=after", "-o", "s", "--dump", "texts", "-q"
    )
    assert built.code == 0, built.err
    done = uma("verify", "texts/9-sequence.py", "--target", "c -opt=1", "--samples", 3, "--json")
    assert done.code == 0, done.err
    assert {row["compared"] for row in done.json["kernels"]} == {3}
    states = [(row["name"], row["against"]) for row in done.json["outputs"] if row["role"] == "state"]
    assert states == [("before", "inspected"), ("before", "first run")]
