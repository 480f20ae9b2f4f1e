"""Readers of files: an `UmaError` that addresses the user, or success, in bounded time and memory, for any bytes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.fuzz import Excess, edited, try_input
from tests.fuzzing import guided
from tests.fuzzing.mutants import main, run
from tests.fuzzing.readers import READERS, Reader

from uma.errors import InternalError, ModelError

QUICK = ("archive", "extern", "trace")
"""Readers whose seeds take no time to make."""


def check(name: str, cases: range) -> None:
    report = run(READERS[name], cases)
    assert not report.faults, report.faults
    # Neither are all files refused at the door, nor do the mutations do nothing.
    assert report.outcomes["read"] and report.outcomes["refused"]
    assert sum(report.outcomes.values()) == len(cases)


@pytest.mark.parametrize("name", QUICK)
def test_mutants_of_small_files(name: str) -> None:
    check(name, range(100))


@pytest.mark.soak
@pytest.mark.parametrize("name", READERS)
def test_many_mutants(name: str) -> None:
    reader = READERS[name]
    for seed in reader.seeds():
        trial = try_input(reader.load, seed)
        assert trial.fault is None, trial.fault
    check(name, range(10_000, 13_000))


@pytest.mark.soak
@pytest.mark.parametrize("name", READERS)
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason=guided.MISSING)
def test_guided_by_coverage(name: str) -> None:
    command = [sys.executable, "-m", "tests.fuzzing.guided", name, "--seconds", "10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
    assert "nothing is at fault" in done.stdout


# --- the oracle ------------------------------------------------------------------------------------------------------


def spin(data: bytes) -> None:
    until = time.process_time() + 60
    while time.process_time() < until:
        pass


def refuse(data: bytes) -> None:
    raise ModelError("the file is wrong")


def fail(data: bytes) -> None:
    raise InternalError("an invariant does not hold")


@pytest.mark.skipif(sys.platform != "linux", reason="limits on memory and CPU time are those of Linux")
@pytest.mark.parametrize(
    ("load", "fault"),
    [
        (bytes, None),
        (refuse, None),
        (fail, InternalError),
        (lambda data: data.index(b"nothing"), ValueError),
        (lambda data: np.ones(1 << 28), MemoryError),
        (spin, Excess),
    ],
)
def test_what_is_a_fault(load: Callable[[bytes], Any], fault: type | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests._support.fuzz.CPU_SECONDS", 0.2)
    found = try_input(load, b"").fault
    assert found is None if fault is None else isinstance(found, fault)


def test_a_case_that_ends_its_process_is_a_fault_and_the_others_go_on() -> None:
    def load(data: bytes) -> None:
        if data == b"3":
            sys.stderr.close()
            raise SystemExit(7)

    reader = Reader(lambda: [b""], load, (lambda seeds, case: b"%d" % case,))
    report = run(reader, range(6))
    assert report.outcomes == {"read": 2, "fault": 1}, "those before it went with its process"
    assert report.faults["the process ended with 7"][0] == 3


def test_a_text_is_edited_in_the_same_way_everywhere() -> None:
    seeds = [b"def f(x: In[int8, (4,)]):\n    pass\n"]
    assert [edited(seeds, case) for case in range(50)] == [edited(seeds, case) for case in range(50)]
    assert len({edited(seeds, case) for case in range(50)}) > 40


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--count", "20"]) == 0
    assert capsys.readouterr().out.startswith("trace 0 .. 19: ")
    file = tmp_path / "case"
    assert main(["trace", "--first", "5", "--save", str(file)]) == 0
    assert file.read_bytes() == READERS["trace"].mutant(READERS["trace"].seeds(), 5)
    with pytest.raises(SystemExit):
        main(["nonesuch"])
    assert "unknown reader 'nonesuch'" in capsys.readouterr().err
