"""``uma KIND``: the command of a plugin, alone imported; what it gives and raises; names of the core go first."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests._support.installed import install
from tests._support.plugins import accelerator, entry_of

from uma.cli import main
from uma.errors import ModelError
from uma.plugins import PluginEntry, PluginHost

Command = Callable[..., Any]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Callable[[Command], None]:
    """Has `main` find one plugin with kinds ``npu`` and ``build``, and its command; and one that breaks, ``bad``."""

    def with_command(command: Command) -> None:
        entries = entry_of(accelerator("npu"), accelerator("build"), command=command)
        host = PluginHost(lambda: [*entries, PluginEntry("bad", "no_such_module", "uma-bad", "1.0")])
        monkeypatch.setattr("uma.plugins.default_host", lambda: host)

    return with_command


def test_it_is_given_all_that_follows_its_name(
    own: Callable[[Command], None], capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[tuple[str, Sequence[str]]] = []

    def command(name: str, arguments: Sequence[str]) -> int:
        print("its own")
        given.append((name, arguments))
        return 125

    own(command)
    assert main(["npu", "run", "--help", "--json", "--", "-q"]) == 125
    assert given == [("npu", ("run", "--help", "--json", "--", "-q"))]
    assert capsys.readouterr() == ("its own\n", "")


def test_a_name_of_the_core_goes_first(own: Callable[[Command], None], capsys: pytest.CaptureFixture[str]) -> None:
    own(lambda: pytest.fail("it was called"))
    with pytest.raises(SystemExit):
        main(["build", "--help"])
    assert "usage: uma build" in capsys.readouterr().out


@pytest.mark.parametrize("given", [None, 0, SystemExit(), SystemExit(None), SystemExit(0)])
def test_it_may_end_well_in_several_ways(given: object, own: Callable[[Command], None]) -> None:
    own(lambda: _end(given))
    assert main(["npu"]) == 0


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (3, 3, ""),
        (SystemExit(2), 2, ""),
        (ModelError("no stream", where="a.bin", hint="give one"), 3, "no stream\n  where: a.bin\n  hint: give one\n"),
        (126, 5, "plugin uma-npu 1.0 ended uma npu with 126, not with a status from 0 to 125\n"),
        (-1, 5, "plugin uma-npu 1.0 ended uma npu with -1, not with a status from 0 to 125\n"),
        (True, 5, "plugin uma-npu 1.0 ended uma npu with True, not with a status from 0 to 125\n"),
        ("0", 5, "plugin uma-npu 1.0 ended uma npu with '0', not with a status from 0 to 125\n"),
        (SystemExit("bye"), 5, "plugin uma-npu 1.0 ended uma npu with 'bye', not with a status from 0 to 125\n"),
        (KeyError("x"), 5, "plugin uma-npu 1.0 failed in hook command: KeyError: 'x'\n"),
        (KeyboardInterrupt(), 130, None),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_what_it_ends_with_is_reported(
    given: object, code: int, said: str | None, own: Callable[[Command], None], capsys: pytest.CaptureFixture[str]
) -> None:
    own(lambda: _end(given))
    assert main(["npu"]) == code
    err = capsys.readouterr().err
    assert err.startswith(f"uma: error: {said}") if said else err == ("uma: interrupted\n" if said is None else "")


def _end(given: object) -> object:
    if isinstance(given, BaseException):
        raise given
    return given


def test_errors_are_json_where_that_is_asked_for(
    own: Callable[[Command], None], capsys: pytest.CaptureFixture[str]
) -> None:
    own(lambda: _end(ModelError("no stream")))
    assert main(["npu", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["what"] == "no stream"


@pytest.mark.filterwarnings("default:plugin uma-npu")
def test_what_it_changes_is_put_back_and_said(
    own: Callable[[Command], None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = Path.cwd()
    own(lambda: os.chdir(tmp_path))
    assert main(["npu"]) == 0
    assert Path.cwd() == folder
    assert "plugin uma-npu 1.0 changed the current folder; it was put back" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [
        ("bad", 5, "plugin uma-bad 1.0 cannot be imported: ModuleNotFoundError"),
        ("npy", 2, "unknown command 'npy'"),
    ],
)
def test_without_a_plugin_that_works_there_is_one_error(
    word: str, code: int, said: str, own: Callable[[Command], None], capsys: pytest.CaptureFixture[str]
) -> None:
    own(lambda: pytest.fail("it was called"))
    assert main([word]) == code
    assert capsys.readouterr().err.startswith(f"uma: error: {said}")


def test_a_plugin_may_have_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    host = PluginHost(lambda: entry_of(accelerator("npu")))
    monkeypatch.setattr("uma.plugins.default_host", lambda: host)
    assert main(["npu", "x"]) == 2
    assert capsys.readouterr().err == (
        "uma: error: plugin uma-npu 1.0 has no command of its own, uma npu\n"
        "  hint: see uma --help for the commands that there are, and uma targets npu for what the kind is\n"
    )


def test_a_disabled_one_has_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    host = PluginHost(lambda: entry_of(accelerator("npu"), command=lambda: 0), disabled=["npu"])
    monkeypatch.setattr("uma.plugins.default_host", lambda: host)
    assert main(["npu"]) == 2
    assert "target kind 'npu' is not there: plugin uma-npu 1.0 is disabled" in capsys.readouterr().err


def test_no_other_plugin_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = """
    from uma.hookspecs import hookimpl
    from uma.targets import TargetKind

    @hookimpl
    def register_target():
        return [TargetKind(__name__[4:], help="a device", device_type="npu")]

    @hookimpl
    def command(name, arguments):
        print(name, *arguments)
        return 7
    """
    for name in ("one", "two"):
        install(tmp_path, f"uma-{name}", [name], source)
    monkeypatch.syspath_prepend(tmp_path)
    host = PluginHost()
    monkeypatch.setattr("uma.plugins.default_host", lambda: host)
    try:
        assert main(["two", "a", "b"]) == 7
        assert "uma_two" in sys.modules and "uma_one" not in sys.modules
    finally:
        sys.modules.pop("uma_two", None)
    assert capsys.readouterr() == ("two a b\n", "")
