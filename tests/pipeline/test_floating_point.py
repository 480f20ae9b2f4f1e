"""Results do not depend on the mode of floating-point arithmetic, whoever has changed it."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import HOST, accelerator, entry_of, module_of, taking

import uma
from uma.hookspecs import Extern, Routine, Runtime
from uma.plugins import PluginHost
from uma.relay import Function, GlobalVar, IRModule, TensorType, Var, call, const
from uma.support.float_environment import (
    DEFAULT,
    default_mode,
    describe_mode,
    preserving_mode,
    read_mode,
    restore_mode,
    save_mode,
)
from uma.tir import Buffer, Param

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"), reason="the mode is nobody's business on this machine"
)
X86 = platform.machine() == "x86_64"
ROUNDINGS = {"down": 0x400, "up": 0x800, "to zero": 0xC00} if X86 else {"up": 0x400000, "down": 0x800000}

X = Var("x", TensorType((2, 3), "float32"))
Y = call("nn.relu", X)
MODEL = module_of(call("multiply", call("add", Y, const(np.float32(1e-9))), const(np.float32(1 / 3))))
GIVEN = np.array([[1.0, 2.0, 3.0], [0.1, 0.7, 1.0]], np.float32)
WANTED = (GIVEN + np.float32(1e-9)) * np.float32(1 / 3)
HEADER = "void spoil(const float *x, float *y, long count);\n"
SOURCE = f"""\
#include <fenv.h>
{HEADER}void spoil(const float *x, float *y, long count)
{{
    fesetround(FE_UPWARD);
    while (count-- > 0) y[count] = x[count] > 0 ? x[count] : 0;
}}
"""


@pytest.fixture(autouse=True)
def back() -> Iterator[None]:
    """A test that fails leaves the mode as it was."""
    environment = save_mode()
    yield
    restore_mode(environment)


def set_rounding(mode: int) -> None:
    ctypes.CDLL(None).fesetround(mode)


def flush() -> None:
    """Flushes to zero, as what gcc links with -ffast-math does."""
    environment = save_mode()
    at, bits = (28, 0x8040) if X86 else (0, 1 << 24)
    word = int.from_bytes(environment.raw[at : at + 4], "little") | bits
    environment[at : at + 4] = word.to_bytes(4, "little")
    restore_mode(environment)


def relay_to_runtime(function: Function) -> tuple[IRModule, GlobalVar]:
    x, y = (Buffer(name, function.body.shape, "float32") for name in "xy")
    module = IRModule.from_functions(
        {"relu": Extern((Param(x, "input"), Param(y, "output")), "spoil", {"count": x.size})}
    )
    return module, module.global_var("relu")


def host(**more: Any) -> PluginHost:
    """A library that rounds up from its first call on."""
    runtime = Runtime(
        header="spoil.h",
        sources={"spoil.h": HEADER, "spoil.c": SOURCE},
        routines=(Routine("spoil", "spoil({x}, {y}, {count})"),),
    )
    hooks = {"patterns": lambda: [taking("npu", "nn.relu", None)], "relay_to_runtime": relay_to_runtime}
    entries = [*entry_of(accelerator(), **{**hooks, "runtime": lambda: runtime, **more}), *entry_of(HOST)]
    return PluginHost(lambda: entries)


def test_modes_are_told_apart() -> None:
    assert read_mode() == DEFAULT and describe_mode(DEFAULT) == "the default"
    for name, number in ROUNDINGS.items():
        set_rounding(number)
        assert read_mode() == (name, False) and describe_mode(read_mode()) == f"rounding {name}"
        with default_mode():
            assert read_mode() == DEFAULT
        assert read_mode() == (name, False)
    flush()
    assert read_mode()[1] and describe_mode(read_mode()).endswith(" and flushing small numbers to zero")
    with default_mode():
        assert read_mode() == DEFAULT
        flush()
    assert read_mode()[1]


def test_who_changes_the_mode_is_named() -> None:
    with pytest.warns(RuntimeWarning) as caught, preserving_mode("it"):
        flush()
    assert str(caught[0].message) == (
        "it changed the mode of floating-point arithmetic (flushing small numbers to zero); it was put back as it was"
    )
    assert read_mode() == DEFAULT


def test_a_library_that_changes_it_in_a_run_spoils_no_later_step() -> None:
    artifact = uma.build(MODEL, ["npu", "plain"], plugins=host())
    (made,) = artifact.run(GIVEN).values()
    np.testing.assert_array_equal(made, WANTED)
    assert read_mode() == DEFAULT
    set_rounding(next(iter(ROUNDINGS.values())))
    (spoiled,) = artifact.run(GIVEN).values()
    assert read_mode() != DEFAULT  # it is the caller's
    np.testing.assert_array_equal(spoiled, WANTED)


@pytest.mark.parametrize("target", [["c"], ["npu", "plain"]])
def test_whoever_builds_and_runs_in_another_mode_gets_what_others_get(target: list[str], tmp_path: Path) -> None:
    import uma.plugins

    plugins = host() if len(target) > 1 else uma.plugins.default_host()
    expected = uma.build(MODEL, target, plugins=plugins)
    (wanted,) = expected.run(GIVEN).values()
    for change in (flush, *(lambda number=number: set_rounding(number) for number in ROUNDINGS.values())):
        environment = save_mode()
        change()
        made = uma.build(MODEL, target, plugins=plugins)
        with made.session() as session:
            (got,) = session.run(GIVEN).values()
        assert read_mode() != DEFAULT
        restore_mode(environment)
        assert made.files == expected.files and got.tobytes() == wanted.tobytes()


def test_a_driver_that_changes_it_leaves_nothing_behind() -> None:
    """In C as well: what the caller had is what it has."""
    source = uma.build(MODEL, ["npu", "plain"], plugins=host()).source("model.c")
    run = source[source.index("uma_status model_run") :]
    assert run.index("const uma_float_mode mode = uma_float_now();") < run.index("model_k_relu(")
    assert run.index("model_k_relu(") < run.index("uma_float_set(mode);") < run.index("UMA_STEP_ENDS(0)")
