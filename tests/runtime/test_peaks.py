"""What a core of this machine does at most: it is measured once, and kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests._support.scale_artifact import FILES, METADATA, artifact_of

from uma.errors import ToolchainError
from uma.runtime import peaks
from uma.runtime.peaks import Peaks, measured_peaks
from uma.toolchain.cache import Cache
from uma.toolchain.discovery import find_compiler


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def replaced(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    source = folder / "uma_peak.c"
    source.write_text(f"#include <stdio.h>\nint main(void) {{ {body} }}\n")
    monkeypatch.setattr(peaks, "_SOURCE", source)


def test_every_compiler_measures_this_machine(compilers: tuple[str, ...]) -> None:
    """With warnings as errors, as models are compiled; a vector takes more floats, and more bytes than floats."""
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror"]
    for name in compilers:
        found = measured_peaks(find_compiler(name), [*strict, "-O0"])
        assert found.float32_gops is None or 0.01 < found.float32_gops < 10_000
        assert found.int8_gops is None or 0.01 < found.int8_gops < 100_000


def test_it_is_measured_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(folder, monkeypatch, 'printf("5000000000 20000000000\\n"); return 0;')
    artifact = artifact_of(FILES, METADATA)
    assert artifact.peaks() == {"c": Peaks(10.0, 40.0)}
    assert len(Cache().entries()) == 1
    with monkeypatch.context() as patch:
        patch.setattr(peaks, "run", lambda *_, **__: pytest.fail("measured again"))
        assert artifact.peaks() == {"c": Peaks(10.0, 40.0)}
    monkeypatch.setattr(peaks, "host_cpu_id", lambda: "another CPU")
    assert artifact.peaks() == {"c": Peaks(10.0, 40.0)}
    assert len(Cache().entries()) == 2


def test_a_machine_of_which_nothing_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(folder, monkeypatch, 'printf("0 0\\n"); return 0;')
    assert measured_peaks(find_compiler(), []) == Peaks(None, None)


@pytest.mark.parametrize("body", ['printf("1 2\\n"); return 3;', 'printf("many\\n"); return 0;'])
def test_what_fails_is_not_kept(body: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(folder, monkeypatch, body)
    with pytest.raises(ToolchainError, match=r"what measures the peak of this machine failed \(exit status [03]\)"):
        measured_peaks(find_compiler(), [])
    assert not Cache().entries()
