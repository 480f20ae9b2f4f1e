"""``uma doctor`` finds a C compiler that computes wrong numbers, and the flag that mends it."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest
from tests._support.small_models import Uma
from tests._support.tools import skip_without

from uma.cli import compiler_check
from uma.plugins import PluginEntry, PluginHost
from uma.relay.expr import Function, Tuple, Var, call
from uma.relay.module import IRModule
from uma.relay.types import TensorType

PLUGINS = PluginHost(lambda: [PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0")])

ERRING = """#!/bin/sh
# A compiler that takes weights of signed bytes for unsigned ones, unless it is told not to do its tricks.
case " $* " in
*" {mends} "*) ;;
*) for file in "$@"; do
    case "$file" in *.c) sed -i 's/(int32_t)x1\\[/(int32_t)(uint8_t)x1[/g' "$file" ;; esac
done ;;
esac
exec {real} "$@"
"""


def few_loops() -> tuple[IRModule, tuple[str, ...]]:
    """Weights that no strategy brings into order: they are read as they come, and not often."""
    x, w = Var("x", TensorType((2, 20), "int8")), Var("w", TensorType((3, 20), "int8"))
    results = Tuple([call("qnn.dense", x, w), call("nn.relu", x)])
    return IRModule.from_functions({"main": Function([x, w], results)}), ("qnn.dense", "nn.relu")


@pytest.fixture
def with_gcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few loops, one compiler, and a cache that knows neither."""
    skip_without("gcc")
    monkeypatch.setattr(compiler_check, "_loops", few_loops)
    monkeypatch.setattr(compiler_check, "COMPILERS", ("gcc",))
    monkeypatch.setattr("uma.plugins.default_host", lambda: PLUGINS)
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))


def install(mends: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``gcc`` that errs unless it is given the flag ``mends``."""
    tools = folder / "tools"
    tools.mkdir()
    path = tools / "gcc"
    path.write_text(ERRING.format(mends=mends, real=shutil.which("gcc")))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")


def test_a_compiler_that_computes_what_is_meant(uma: Uma, with_gcc: None) -> None:
    assert "ok     c -cc=gcc computes on this CPU what is meant\n" in uma("doctor").out


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("mends", "flags"),
    [
        ("-mno-avxvnni", "-mno-avx512vnni,-mno-avxvnni"),
        ("-fno-tree-vectorize", "-fno-tree-vectorize,-fno-tree-slp-vectorize"),
        ("-never", None),
    ],
)
def test_one_that_errs(
    uma: Uma, with_gcc: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mends: str, flags: str | None
) -> None:
    if "vnni" in mends and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("VNNI is of x86")
    install(mends, tmp_path, monkeypatch)
    done = uma("doctor", "--json")
    assert done.code == 6
    [fault] = [finding for finding in done.json["findings"] if finding["check"] == "loops"]
    assert (fault["status"], fault["exit_code"]) == ("fault", 6)
    assert fault["what"] == "c -cc=gcc computes wrong numbers on this CPU: qnn.dense"
    other = "use another compiler, or another version of this one"
    mended = f"build for 'c -cc=gcc -cflags={flags}', or use another compiler or version"
    assert fault["hint"] == (other if flags is None else mended)


def test_a_compiler_that_fails_is_the_matter_of_another_check(
    uma: Uma, with_gcc: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "gcc").write_text('#!/bin/sh\ncase "$*" in *--version*) echo gcc 12; exit 0;; esac\nexit 1\n')
    (tools / "gcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    found = uma("doctor", "--json").json["findings"]
    assert not [finding for finding in found if finding["check"] == "loops"]


@pytest.mark.soak
def test_all_forms_are_computed_as_meant_by_the_compilers_of_this_machine(compilers: tuple[str, ...]) -> None:
    """What doctor asks, of the whole list of loops."""
    verdicts = list(compiler_check.judge(PLUGINS))
    assert {verdict.target for verdict in verdicts} >= {f"c -cc={name}" for name in compilers}
    assert [verdict for verdict in verdicts if verdict.wrong] == []
