"""Targets that are libraries: built, linked, run, timed; and missing."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import HOST, accelerator, entry_of, module_of, taking

import uma
from uma.errors import ToolchainError, UsageError
from uma.hookspecs import Extern, Library, Routine, Runtime
from uma.plugins import PluginHost
from uma.relay import Function, GlobalVar, IRModule, TensorType, Var, call, const
from uma.tir import Buffer, Param
from uma.toolchain import find_library

HEADER = "void twice(const int *x, int *y, long count);\n"
SOURCE = f"{HEADER}void twice(const int *x, int *y, long count) {{ while (count-- > 0) y[count] = 2 * x[count]; }}\n"
TWICE = Library("twice", "twice-lib", ("twice",))
X = Var("x", TensorType((2, 3), "int32"))
MODULE = module_of(call("add", call("nn.relu", X), const(1)))
GIVEN = np.array([[1, -2, 3], [4, 5, 6]], np.int32)


def relay_to_runtime(function: Function) -> tuple[IRModule, GlobalVar]:
    x, y = (Buffer(name, function.body.shape, "int32") for name in "xy")
    extern = Extern((Param(x, "input"), Param(y, "output")), "twice", {"count": x.size})
    module = IRModule.from_functions({"relu": extern})
    return module, module.global_var("relu")


def runtime(*libraries: Library) -> Runtime:
    return Runtime(
        header="my_twice.h",
        sources={"my_twice.h": HEADER},
        routines=(Routine("twice", "twice({x}, {y}, {count})"),),
        libraries=libraries,
    )


def host(hook: Any) -> PluginHost:
    hooks = {"patterns": lambda: [taking("npu", "nn.relu", None)], "relay_to_runtime": relay_to_runtime}
    entries = [*entry_of(accelerator(), **hooks, runtime=hook), *entry_of(HOST)]
    return PluginHost(lambda: entries)


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("UMA_LIBRARY_PATH", raising=False)
    monkeypatch.delenv("CC", raising=False)


@pytest.fixture
def folder(compilers: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where ``libtwice.so`` is, which is known to UMA."""
    (tmp_path / "twice.c").write_text(SOURCE)
    made = tmp_path / "lib"
    made.mkdir()
    command = [compilers[0], "-shared", "-fPIC", str(tmp_path / "twice.c"), "-o", str(made / "libtwice.so")]
    subprocess.run(command, check=True)
    monkeypatch.setenv("UMA_LIBRARY_PATH", str(made))
    return made


@pytest.mark.usefixtures("folder")
def test_a_model_calls_its_library() -> None:
    artifact = uma.build(MODULE, ["npu", "plain"], plugins=host(lambda: runtime(TWICE)))
    (made,) = artifact.run(GIVEN).values()
    np.testing.assert_array_equal(made, 2 * GIVEN + 1)
    profile = artifact.profile(GIVEN, repeat=1)
    np.testing.assert_array_equal(*profile.outputs.values(), made)
    assert len(profile.calls) == 2
    record = artifact.metadata
    assert record["compile"]["libraries"] == [{"name": "twice", "package": "twice-lib", "symbols": ["twice"]}]
    assert record["devices"] == []


@pytest.mark.usefixtures("folder")
def test_a_library_that_no_call_of_the_model_is_for_is_not_linked() -> None:
    nothing = module_of(call("add", X, const(1)))
    artifact = uma.build(nothing, ["npu", "plain"], plugins=host(lambda: runtime(TWICE)))
    assert artifact.metadata["compile"]["libraries"] == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("targets", "whose", "allowed"),
    [
        (["npu -libs=blas", "plain"], "npu", "blas,twice"),
        (["npu", "plain -libs=[]"], "plain", "twice"),
        (["npu -libs=twice", "plain -libs=blas"], "plain", "blas,twice"),
    ],
)
def test_libraries_that_a_target_leaves_out_are_not_linked(targets: list[str], whose: str, allowed: str) -> None:
    with pytest.raises(UsageError) as caught:
        uma.build(MODULE, targets, plugins=host(lambda: runtime(TWICE)))
    assert caught.value.what == f"'npu' is linked with library 'twice', which -libs of {whose!r} leaves out"
    assert caught.value.hint == f"give -libs={allowed}, or leave out 'npu'"


@pytest.mark.usefixtures("folder")
def test_libraries_that_may_be_linked() -> None:
    artifact = uma.build(MODULE, ["npu -libs=twice,m", "plain -libs=twice"], plugins=host(lambda: runtime(TWICE)))
    (made,) = artifact.run(GIVEN).values()
    np.testing.assert_array_equal(made, 2 * GIVEN + 1)
    assert artifact.metadata["notes"] == []
    nothing = module_of(call("add", X, const(1)))
    artifact = uma.build(nothing, ["npu -libs=m", "plain -libs=[]"], plugins=host(lambda: runtime(TWICE)))
    assert artifact.metadata["notes"] == [
        f"-libs of {label!r} has no effect: nothing that runs for it is linked with a library"
        for label in ("npu", "plain")
    ]


@pytest.mark.usefixtures("compilers")
@pytest.mark.parametrize("library", [TWICE, Library("m", symbols=("there_is_no_such_function",))])
def test_what_is_missing_is_found_by_the_build(library: Library, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=f"library '{library.name}' is missing or cannot be used") as error:
        uma.build(MODULE, ["npu", "plain"], plugins=host(lambda: runtime(library)))
    assert error.value.where == "target 'npu'"
    assert not (tmp_path / "cache").exists()


def test_a_plugin_chooses_among_libraries(folder: Path) -> None:
    def choose() -> Runtime:
        found = [library for library in (Library("no_such"), TWICE) if find_library(library) is not None]
        return runtime(*found)

    (made,) = uma.build(MODULE, ["npu", "plain"], plugins=host(choose)).run(GIVEN).values()
    np.testing.assert_array_equal(made, 2 * GIVEN + 1)


def test_a_plugin_looks_where_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing on this machine is not a fault of the plugin."""
    monkeypatch.setenv("CC", "/no/such/compiler")
    with pytest.raises(ToolchainError, match="cannot start the C compiler") as error:
        uma.build(MODULE, ["npu", "plain"], plugins=host(lambda: find_library(TWICE)))
    assert "hook runtime of plugin uma-npu 1.0" in (error.value.where or "")
