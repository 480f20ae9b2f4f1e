"""The front end in C, and the whole program on an emulated Cortex-M4."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import uma
from keyword_spotter import FOLDER, MODEL, WORDS
from keyword_spotter.features import features
from keyword_spotter.firmware import make
from keyword_spotter.sound import read_wav
from keyword_spotter.spotting import HOST, logits_of

FIRMWARE = FOLDER / "firmware"


def test_the_front_end_in_c_gives_the_features(tmp_path: Path, compilers: tuple[str, ...]) -> None:
    """Up to one step: it computes in float32. Every WAV file, silence, and the loudest square wave."""
    (tmp_path / "front_end_tables.h").write_text(make.tables_header())
    library = tmp_path / "front_end.so"
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-ffp-contract=off"]
    for compiler in compilers:
        command = [compiler, *flags, f"-I{tmp_path}", f"-I{FIRMWARE}", FIRMWARE / "front_end.c", "-lm", "-o", library]
        subprocess.run(command, check=True)
    front_end = ctypes.CDLL(str(library)).front_end_features
    front_end.restype = None
    square = np.where(np.arange(16_000) // 20 % 2, 32767, -32768).astype(np.int16)
    sounds = [np.rint(read_wav(path) * 32768).astype(np.int16) for path in sorted((FOLDER / "wavs").glob("*.wav"))]
    differing = 0
    for samples in [*sounds, np.zeros(16_000, np.int16), square]:
        memory, made = ctypes.create_string_buffer(1 << 15), np.empty((40, 101), np.int8)
        front_end(memory, samples.ctypes.data_as(ctypes.c_void_p), made.ctypes.data_as(ctypes.c_void_p))
        difference = np.abs(made.astype(int) - features(samples / np.float32(32768)))
        assert difference.max() <= 1
        differing += int(difference.sum())
    assert differing < 100


@pytest.mark.soak
@pytest.mark.needs(make.COMPILER, make.EMULATOR)
def test_the_program_hears_what_the_host_hears(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In every WAV file: the features up to one step, every logit where the features are the same, the word."""
    sources = make.write(FOLDER / "wavs" / f"{WORDS[0]}.wav", tmp_path)
    with uma.build(MODEL, HOST).session() as session:
        for word in WORDS:
            path = FOLDER / "wavs" / f"{word}.wav"
            (tmp_path / "clip.h").write_text(make.clip_header(path))
            assert make.run(make.link(sources, tmp_path)) == 0
            said = "".join(capfd.readouterr())
            numbers = {name: [int(n) for n in values.split()] for name, values in re.findall(r"(\w+): ([-\d ]+)", said)}
            wanted = logits_of(session, features(read_wav(path)))
            ((by_one, by_more),) = re.findall(r"features: (\d+) differ by one step, (\d+) by more", said)
            assert by_more == "0" and int(by_one) < 20
            if by_one == "0":
                np.testing.assert_array_equal(numbers["logits"], wanted)
            assert f"word: {WORDS[int(wanted.argmax())]}\n" in said and numbers["cycles"] == [24_030]
            assert numbers["flash"][0] < 200_000 and numbers["RAM"][0] < 200_000 and numbers["stack"][0] < 8_192


def test_without_a_compiler_the_sources_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["make", "-o", str(tmp_path / "out")])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert make.main() == 6
    assert "arm-none-eabi-gcc is not on PATH" in capsys.readouterr().err
    assert (tmp_path / "out" / "model" / "spotter.c").exists() and (tmp_path / "out" / "clip.h").exists()


def test_a_sound_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["make", str(tmp_path / "no.wav"), "-o", str(tmp_path / "out")])
    assert make.main() == 3
    assert "no.wav: No such file" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
