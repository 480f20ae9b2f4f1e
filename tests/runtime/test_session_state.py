"""States of sessions in files: written whole, read as hostile data."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uma.errors import ModelError, UsageError
from uma.runtime.state import SessionState

ARRAYS = {
    "stream_1/states": np.arange(6, dtype=np.int8).reshape(1, 2, 3),
    "a\0b ../'ü\ud800": np.array(0.5, np.float32),
    "bool": np.array([True, False]),
}
STATE = SessionState("0f" * 32, ARRAYS)


def write(path: Path, about: Any = None, **arrays: Any) -> Path:
    """A file like one that `SessionState.write` writes."""
    about = {"format": 1, "model": None, "names": ["h"]} if about is None else about
    raw = about if isinstance(about, np.ndarray) else np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(path, **{"about": raw, "state0": np.zeros(3, np.int8), **arrays})
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    for _ in range(2):  # over an older one, too
        STATE.write(str(path))
        found = SessionState.read(path)
        assert found.model == STATE.model
        assert list(found.arrays) == list(ARRAYS)
        for name, array in ARRAYS.items():
            assert (found.arrays[name].dtype, found.arrays[name].shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(found.arrays[name], array)
    assert [item.name for item in tmp_path.iterdir()] == ["state.npz"]


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.npz", "two.npz"):
        STATE.write(tmp_path / name)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


def test_a_state_of_nothing(tmp_path: Path) -> None:
    SessionState(None, {}).write(tmp_path / "state.npz")
    found = SessionState.read(tmp_path / "state.npz")
    assert found.model is None and not found.arrays


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write the state"):
        STATE.write(tmp_path / "none" / "state.npz")
    with pytest.raises(UsageError, match="there is no file"):
        SessionState.read(tmp_path / "none.npz")


@pytest.mark.parametrize(
    "about",
    [
        [],
        3,
        {},
        {"format": 2, "model": None, "names": ["h"]},
        {"format": 1, "model": 3, "names": ["h"]},
        {"format": 1, "model": None, "names": [3]},
        {"format": 1, "model": None, "names": 3},
        {"format": 1, "model": None, "names": []},
        {"format": 1, "model": None, "names": ["h", "g"]},
        {"format": 1, "names": ["h"]},
    ],
)
def test_a_file_of_something_else(about: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "state.npz", about)
    with pytest.raises(ModelError, match="the file holds no state of a session") as caught:
        SessionState.read(path)
    assert caught.value.where == str(path)


def test_one_name_twice(tmp_path: Path) -> None:
    about = {"format": 1, "model": None, "names": ["h", "h"]}
    with pytest.raises(ModelError, match="it has one name twice"):
        SessionState.read(write(tmp_path / "state.npz", about, state1=np.zeros(1)))


@pytest.mark.parametrize(
    "raw",
    [np.zeros(3, np.int8), np.zeros((1, 1), np.uint8), np.full(1, ord("{"), np.uint8), np.full(99_999, 91, np.uint8)],
    ids=["dtype", "rank", "text", "depth"],
)
def test_nothing_that_says_what_it_is(raw: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the file holds no state of a session"):
        SessionState.read(write(tmp_path / "state.npz", about=raw))


def test_arrays_of_another_origin(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=np.zeros(3))
    with pytest.raises(ModelError, match="nothing in it says what it is"):
        SessionState.read(tmp_path / "inputs.npz")
    (tmp_path / "text").write_text("state")
    with pytest.raises(ModelError, match="the file does not hold arrays"):
        SessionState.read(tmp_path / "text")


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    STATE.write(path)
    whole = path.read_bytes()
    at = whole.index(bytes([0, 1, 2, 3, 4, 5]))
    path.write_bytes(whole[:at] + b"\x07" + whole[at + 1 :])
    with pytest.raises(ModelError, match="the file does not hold arrays: Bad CRC-32"):
        SessionState.read(path)
    path.write_bytes(whole[:-30])
    with pytest.raises(ModelError, match="the file does not hold arrays"):
        SessionState.read(path)


def test_sizes_are_no_promise(tmp_path: Path) -> None:
    """A header that asks for more memory than there is."""
    path = write(tmp_path / "state.npz")
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776, 1024), }".ljust(117) + b"\n"
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("state1.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(ModelError, match="the file does not hold arrays"):
        SessionState.read(path)
