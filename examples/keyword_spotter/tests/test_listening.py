"""Sound in files: what is read, what is refused, what is heard."""

from __future__ import annotations

import os
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from keyword_spotter import FOLDER, SILENCE, WORDS
from keyword_spotter.__main__ import main
from keyword_spotter.features import CLIP_SAMPLES, features
from keyword_spotter.sound import SoundError, read_wav, resampled, windows
from keyword_spotter.spotting import detections

ALL = sorted((FOLDER / "wavs").glob("*.wav"))


def write(path: Path, data: bytes, *, channels: int = 1, width: int = 2, rate_hz: int = 16_000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate_hz, 0, "NONE", ""))
        file.writeframes(data)
    return path


def header(data_bytes: int, *, kind: int = 1, channels: int = 1, width: int = 2, rate_hz: int = 16_000) -> bytes:
    """Of a WAV file, with claims that the module `wave` writes to no file."""
    frame = channels * width
    about = struct.pack("<HHLLHH", kind, channels, rate_hz, rate_hz * frame % 2**32, frame % 2**16, 8 * width)
    whole = b"WAVEfmt " + struct.pack("<L", len(about)) + about + b"data" + struct.pack("<L", data_bytes)
    return b"RIFF" + struct.pack("<L", 0xFFFFFFFF) + whole


def tone(rate_hz: int, seconds: float) -> np.ndarray:
    return np.sin(2 * np.pi * 440 * np.arange(int(rate_hz * seconds)) / rate_hz)


# --- Reading ---


@pytest.mark.parametrize("rate_hz", [7_999, 8_000, 11_025, 12_345, 22_050, 44_100, 48_000])
def test_any_rate_becomes_16_khz(rate_hz: int) -> None:
    made = resampled(tone(rate_hz, 0.5).astype(np.float32), rate_hz)
    wanted = tone(16_000, 0.5)[: len(made)]
    assert abs(len(made) - 8_000) <= 2
    np.testing.assert_allclose(made[200:-200], wanted[200:-200], atol=2e-4)


def test_what_is_above_half_the_rate_is_gone() -> None:
    high = np.sin(2 * np.pi * 11_000 * np.arange(48_000) / 48_000).astype(np.float32)
    assert np.abs(resampled(high, 48_000)[200:-200]).max() < 1e-3


@pytest.mark.parametrize("rate_hz", [1_000, 767_999])
def test_the_lowest_and_the_highest_rate(rate_hz: int) -> None:
    made = resampled(np.ones(rate_hz // 16, np.float32), rate_hz)
    assert abs(len(made) - 1_000) <= 16
    np.testing.assert_allclose(made[400:-400], 1, atol=1e-3)


def test_two_channels_become_their_mean(tmp_path: Path) -> None:
    data = struct.pack("<4h", 1000, 3000, -2000, 0)
    found = read_wav(write(tmp_path / "a.wav", data, channels=2))
    np.testing.assert_array_equal(found * 32768, [2000, -1000])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"a\.wav: No such file or directory"),
        (b"", r"a\.wav: no WAV file of 16-bit PCM: it ends before its sound begins\n  hint: ffmpeg -i .*a\.wav "),
        (b"RIFF1234", r"a\.wav: no WAV file of 16-bit PCM: .*\n  hint: "),
        (b"<html><body>not found</body></html>", r"a\.wav: no WAV file of 16-bit PCM: .*RIFF.*\n  hint: "),
        (header(64, kind=3, width=4) + bytes(64), r"a\.wav: no WAV file of 16-bit PCM: unknown format: 3\n  hint: "),
        (header(64, channels=0) + bytes(64), r"a\.wav: no WAV file of 16-bit PCM: bad # of channels\n  hint: "),
        (header(64, width=0) + bytes(64), r"a\.wav: no WAV file of 16-bit PCM: bad sample width\n  hint: "),
        (header(64, rate_hz=0) + bytes(64), r"a\.wav: the rate is 0 Hz, not 1000 to 768000\n  hint: "),
        (header(64, rate_hz=2**32 - 1) + bytes(64), r"a\.wav: the rate is 4294967295 Hz, not"),
        (header(64, channels=2**16 - 1) + bytes(64), r"a\.wav: samples have 16 bits and 65535 channels, not"),
        (header(2**32 - 2) + bytes(64), r"a\.wav: truncated: 32 of 2147483647 samples are there\n  hint: "),
        (header(64)[:36] + b"LIST" + struct.pack("<L", 2**31) + bytes(9), r"a\.wav: no WAV file of 16-bit PCM: "),
        ({"width": 1}, r"a\.wav: samples have 8 bits and 1 channel, not 16 and 1 or 2\n  hint: "),
        ({"width": 3}, r"a\.wav: samples have 24 bits and 1 channel, not"),
        ({"width": 4}, r"a\.wav: samples have 32 bits and 1 channel, not"),
        ({"channels": 8}, r"a\.wav: samples have 16 bits and 8 channels, not"),
        ({"rate_hz": 999}, r"a\.wav: the rate is 999 Hz, not 1000 to 768000"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: bytes | dict[str, int] | None, message: str) -> None:
    path = tmp_path / "a.wav"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        write(path, bytes(144), **content)
    with pytest.raises(SoundError, match=message):
        read_wav(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SoundError, match=r": Is a directory$"):
        read_wav(tmp_path)


def test_no_header_is_too_strange(tmp_path: Path) -> None:
    """Bytes of a header are changed at random: a sound or a clear refusal, and no more memory than the file has."""
    draw, path = np.random.default_rng(0), tmp_path / "a.wav"
    whole, refused = header(2_000) + bytes(2_000), 0
    for _ in range(100):
        made = bytearray(whole)
        for at in draw.integers(0, 44, draw.integers(1, 6)):
            made[at] = draw.choice([0, 1, 2, 255, draw.integers(256)])
        path.write_bytes(made)
        try:
            assert read_wav(path).ndim == 1
        except SoundError:
            refused += 1
    assert refused > 70


def test_an_empty_sound_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SoundError, match=r"a\.wav: there are no samples in it"):
        read_wav(write(tmp_path / "a.wav", b""))


@pytest.mark.parametrize("channels", [1, 2])
def test_a_truncated_file_is_refused(tmp_path: Path, channels: int) -> None:
    path = write(tmp_path / "a.wav", bytes(4_000 * channels), channels=channels)
    path.write_bytes(path.read_bytes()[: -1_000 * channels])
    with pytest.raises(SoundError, match=r"a\.wav: truncated: 1500 of 2000 samples are there"):
        read_wav(path)


def test_features_are_of_one_second() -> None:
    with pytest.raises(ValueError, match=r"a clip has 16000 samples; this one has shape \[15999\]"):
        features(np.zeros(CLIP_SAMPLES - 1))


def test_features_of_nothing_are_finite() -> None:
    assert np.array_equal(features(np.zeros(CLIP_SAMPLES))[1:], np.zeros((39, 101), np.int8))


# --- Windows and detections ---


@pytest.mark.parametrize(
    ("samples", "starts"), [(1, [0]), (16_000, [0]), (16_001, [0, 1 / 16_000]), (19_200, [0, 0.1, 0.2])]
)
def test_windows_cover_the_sound(samples: int, starts: list[float]) -> None:
    sound = np.ones(samples, np.float32)
    found = list(windows(sound))
    assert [start for start, _ in found] == starts
    assert {clip.shape for _, clip in found} == {(CLIP_SAMPLES,)}
    assert sum(clip.sum() for _, clip in found[:1]) == min(samples, CLIP_SAMPLES)


def rows(words: list[tuple[str, float]]) -> list[tuple[float, np.ndarray]]:
    made = []
    for number, (word, share) in enumerate(words):
        shares = np.full(len(WORDS), (1 - share) / (len(WORDS) - 1))
        shares[WORDS.index(word)] = share
        made.append((number / 10, shares))
    return made


def test_windows_in_a_row_are_one_word() -> None:
    (found,) = detections(rows([("silence", 0.9), ("two", 0.7), ("two", 0.9), ("two", 0.8), ("unknown", 0.9)]))
    assert (found.word, found.start_s, round(found.confidence, 6)) == ("two", 0.2, 0.9)


def test_one_window_of_many_is_no_word_and_one_of_one_is() -> None:
    assert list(detections(rows([("two", 0.9), ("silence", 0.9)]))) == []
    assert len(list(detections(rows([("two", 0.9)]), least_windows=1))) == 1


@pytest.mark.parametrize(("between", "words"), [(0, ["two"]), (5, ["two"]), (6, ["six", "two"]), (9, ["six", "two"])])
def test_of_words_in_one_window_the_surest_is_one(between: int, words: list[str]) -> None:
    """Whichever comes first."""
    parts = [("six", 0.8)] * 2 + [("unknown", 0.9)] * between + [("two", 0.9)] * 2
    assert [one.word for one in detections(rows(parts))] == words
    assert [one.word for one in detections(rows(parts[::-1]))] == words[::-1]


def test_what_is_not_sure_is_no_word() -> None:
    assert list(detections(rows([("two", 0.5), ("two", 0.55)]))) == []


# --- The command ---


def test_a_recording_is_heard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stereo of 44.1 kHz: three words with a second between them."""
    silent = np.zeros(CLIP_SAMPLES, np.float32)
    parts = [silent]
    for word in ("three", "seven", "six"):
        parts += [read_wav(FOLDER / "wavs" / f"{word}.wav"), silent]
    sound = np.interp(np.arange(7 * 44_100) / 44_100, np.arange(7 * 16_000) / 16_000, np.concatenate(parts))
    both = np.repeat(np.rint(sound * 32767).astype("<i2"), 2)
    path = write(tmp_path / "long.wav", both.tobytes(), channels=2, rate_hz=44_100)
    assert main(["--target", "c -opt=s", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("long.wav: 7.0 s")
    found = [(line.split()[4], float(line.split()[0])) for line in lines[1:]]
    assert [word for word, _ in found] == ["three", "seven", "six"]
    assert all(abs(start - at) < 0.6 for (_, start), at in zip(found, (1, 3, 5), strict=True))


def test_a_bad_file_does_not_keep_the_others_from_being_heard(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = write(tmp_path / "silent.wav", bytes(32_000))
    assert main(["--target", "c -opt=s", str(silent), str(tmp_path / "none.wav"), str(ALL[0])]) == 3
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        f"error: {silent}: silent: every sample is 0",
        f"error: {tmp_path / 'none.wav'}: No such file or directory",
    ]
    assert said.out.startswith(f"{ALL[0]}: 1.0 s\n")


def test_a_name_that_is_no_text_and_a_sound_without_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / os.fsdecode(b"\xff.wav")
    path.write_bytes((FOLDER / "wavs" / "silence.wav").read_bytes())
    assert main(["--target", "c -opt=s", str(path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/\\udcff.wav: 1.0 s\n  no digit\n"


def test_a_target_that_there_is_not_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "nothing", str(ALL[0])]) == 2
    assert "nothing" in capsys.readouterr().err


def test_silence_is_no_word() -> None:
    assert list(detections(rows([(WORDS[SILENCE], 0.99)] * 3))) == []
