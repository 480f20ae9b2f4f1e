"""What plugins change of the process is put back, and said."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests._support.plugins import accelerator, entry_of

from uma.plugins import PluginHost
from uma.plugins.process_guard import guarded
from uma.support.float_environment import DEFAULT, read_mode


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
        1 / 0  # noqa: B018 - it raises
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


def test_the_mode_of_floating_point_arithmetic_is_put_back_and_said() -> None:
    import ctypes
    import platform

    if platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("the number of the rounding is not known here")
    upward = 0x800 if platform.machine() == "x86_64" else 0x400000
    with pytest.warns(RuntimeWarning) as caught, guarded("uma-x 1.0"):
        ctypes.CDLL(None).fesetround(upward)
        assert read_mode() == ("up", False)
    assert read_mode() == DEFAULT
    assert [str(warning.message) for warning in caught] == [
        "plugin uma-x 1.0 changed the mode of floating-point arithmetic (rounding up); it was put back as it was"
    ]


def test_variables_and_the_limit_of_recursion_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMA_TEST_OLD", "old")
    monkeypatch.setenv("UMA_TEST_GONE", "here")
    limit = sys.getrecursionlimit()
    with pytest.warns(RuntimeWarning) as caught, guarded("uma-x 1.0"):
        os.environ["UMA_TEST_NEW"] = "1"
        os.environ["UMA_TEST_OLD"] = "new"
        del os.environ["UMA_TEST_GONE"]
        sys.setrecursionlimit(limit + 1000)
    assert (os.environ["UMA_TEST_OLD"], os.environ["UMA_TEST_GONE"]) == ("old", "here")
    assert "UMA_TEST_NEW" not in os.environ and sys.getrecursionlimit() == limit
    assert [str(warning.message) for warning in caught] == [
        "plugin uma-x 1.0 changed the environment (UMA_TEST_GONE, UMA_TEST_NEW, UMA_TEST_OLD), the limit of recursion; "
        "it was put back as it was"
    ]


def test_the_umask_is_put_back() -> None:
    before = os.umask(0o022)
    try:
        said = r"^plugin uma-x 1.0 changed the umask; it was put back as it was$"
        with pytest.warns(RuntimeWarning, match=said), guarded("uma-x 1.0"):
            os.umask(0)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_resource_limits_are_put_back() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = r"changed the resource limits \(RLIMIT_NOFILE\); it was put back"
    with pytest.warns(RuntimeWarning, match=said), guarded("uma-x 1.0"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_a_hard_limit_that_cannot_be_raised_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without privileges may lower a hard limit and never raise it."""
    limits = {"now": (200, 300)}

    def set_limit(number: int, new: tuple[int, int]) -> None:
        if new[1] > limits["now"][1]:
            raise ValueError("not allowed to raise maximum limit")
        limits["now"] = new

    monkeypatch.setattr("uma.plugins.process_guard._LIMITS", {"RLIMIT_CORE": resource.RLIMIT_CORE})
    monkeypatch.setattr(resource, "getrlimit", lambda number: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    with pytest.warns(RuntimeWarning) as caught, guarded("uma-x 1.0"):
        resource.setrlimit(resource.RLIMIT_CORE, (50, 100))
    assert limits["now"] == (100, 100)
    assert [str(warning.message) for warning in caught] == [
        "plugin uma-x 1.0 lowered RLIMIT_CORE, which this process may not raise again"
    ]


@pytest.mark.parametrize("armed_s", [0.0, 50.0])
@pytest.mark.parametrize("change", [(0.0, 0.0), (90.0, 0.0), (49.9, 7.0)])
def test_timers_are_put_back(armed_s: float, change: tuple[float, float]) -> None:
    signal.setitimer(signal.ITIMER_REAL, armed_s)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with guarded("uma-x 1.0"):
                signal.setitimer(signal.ITIMER_REAL, *change)
        left_s, interval_s = signal.getitimer(signal.ITIMER_REAL)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert (left_s > 49) == bool(armed_s) and left_s <= armed_s and interval_s == 0
    expected = "plugin uma-x 1.0 changed the interval timers (ITIMER_REAL); it was put back as it was"
    assert [str(warning.message) for warning in caught] == ([expected] if armed_s or change[0] else [])


@pytest.mark.parametrize("interval_s", [0.0, 60.0])
def test_a_timer_that_expires_meanwhile_is_not_a_change(interval_s: float) -> None:
    expired: list[int] = []
    handler = signal.signal(signal.SIGALRM, lambda number, frame: expired.append(number))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            signal.setitimer(signal.ITIMER_REAL, 0.02, interval_s)
            with guarded("uma-x 1.0"):
                while not expired:
                    signal.sigtimedwait((), 0.01)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


def test_modules_that_were_there_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    other = types.ModuleType("uma_test_other")
    monkeypatch.setitem(sys.modules, "uma_test_other", other)
    monkeypatch.delitem(sys.modules, "uma_test_new", raising=False)
    before_json = sys.modules["json"]
    with pytest.warns(RuntimeWarning) as caught, guarded("uma-x 1.0"):
        sys.modules["json"] = types.ModuleType("json")
        del sys.modules["uma_test_other"]
        sys.modules["uma_test_new"] = types.ModuleType("uma_test_new")
    assert sys.modules["json"] is before_json and sys.modules["uma_test_other"] is other
    assert sys.modules.pop("uma_test_new") is not None  # what a plugin imports stays
    assert [str(warning.message) for warning in caught] == [
        "plugin uma-x 1.0 changed the imported modules (json, uma_test_other); it was put back as it was"
    ]


def test_threads_that_are_left_behind_are_named() -> None:
    stop = threading.Event()
    done = threading.Thread(target=lambda: None)
    left = threading.Thread(target=stop.wait, name="a-worker", daemon=True)
    try:
        with pytest.warns(RuntimeWarning) as caught, guarded("uma-x 1.0"):
            done.start()
            done.join()
            left.start()
        assert [str(warning.message) for warning in caught] == ["plugin uma-x 1.0 left threads running: a-worker"]
    finally:
        stop.set()
        left.join()
