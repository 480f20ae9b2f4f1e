"""What plugins change of the process is put back, and said."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests._support.plugins import accelerator, entry_of

from uma.plugins import PluginHost
from uma.plugins.guard import guarded


def chdir(folder: Path) -> None:
    os.chdir(folder)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "folder": (chdir, "the current folder"),
    "signal": (lambda _: signal.signal(signal.SIGUSR1, signal.SIG_IGN), "the handler of SIGUSR1"),
    "numpy": (lambda _: np.seterr(all="raise"), "numpy's error state"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_it_is_put_back_and_said(name: str, tmp_path: Path) -> None:
    change, what = CHANGES[name]
    before = os.getcwd(), signal.getsignal(signal.SIGUSR1), np.geterr()
    with pytest.warns(RuntimeWarning) as caught, guarded("uma-x 1.0"):
        change(tmp_path)
        assert (os.getcwd(), signal.getsignal(signal.SIGUSR1), np.geterr()) != before
    assert (os.getcwd(), signal.getsignal(signal.SIGUSR1), np.geterr()) == before
    assert [str(warning.message) for warning in caught] == [
        f"plugin uma-x 1.0 changed {what}; it was put back as it was"
    ]


def test_what_fails_has_its_error_and_no_warning_in_its_place(tmp_path: Path) -> None:
    before = os.getcwd()
    with pytest.raises(ZeroDivisionError), guarded("uma-x 1.0"):
        os.chdir(tmp_path)
        1 / 0  # noqa: B018
    assert os.getcwd() == before


def test_filters_of_warnings_are_put_back_without_a_word() -> None:
    before = list(warnings.filters)
    with guarded("uma-x 1.0"):
        warnings.simplefilter("ignore")
    assert list(warnings.filters) == before
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", UserWarning, stacklevel=1)


def test_a_folder_that_is_gone_cannot_be_gone_back_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    with pytest.warns(RuntimeWarning, match="changed the current folder"), guarded("uma-x 1.0"):
        os.chdir(tmp_path)
        gone.rmdir()
    assert os.getcwd() == str(tmp_path)


def test_another_thread_leaves_signals_alone() -> None:
    failed: list[BaseException] = []

    def run() -> None:
        try:
            with guarded("uma-x 1.0"):
                pass
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert failed == []


def test_numpy_may_be_imported_for_the_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy")
    with pytest.warns(RuntimeWarning, match="numpy's error state"), guarded("uma-x 1.0"):
        sys.modules["numpy"] = np
        np.seterr(divide="ignore")
    assert np.geterr()["divide"] == "warn"


def test_hooks_are_watched(tmp_path: Path) -> None:
    before = os.getcwd()
    entries = entry_of(accelerator("npu"), patterns=lambda: chdir(tmp_path))
    host = PluginHost(lambda: entries)
    with pytest.warns(RuntimeWarning, match="plugin uma-npu 1.0 changed the current folder"):
        host.plugin_for("npu").call("patterns", target=host.target("npu"))
    assert os.getcwd() == before
