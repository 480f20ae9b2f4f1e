"""Functions of float32 that the core defines: the same bits from interpreter, numpy, and C of all kinds; how far off
they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support import maths
from tests._support.c_programs import NATIVE, SANITIZED, STRICT, Run, run_compiled
from tests._support.tools import skip_without

import uma
from uma.codegen.functions import function_texts
from uma.relay import Function, IRModule, TensorType, Var, call
from uma.tir.form.functions import FUNCTIONS
from uma.tir.form.interp import interpret
from uma.tir.form.nodes import Call as Apply
from uma.tir.form.nodes import Var as Name
from uma.tir.form.visit import walk
from uma.tir.maths import DEFINITIONS, ERRORS, fit, value_of, written_out
from uma.tir.maths import coefficients as found

INF, NAN = np.inf, np.nan
PLAIN = ("gcc", (*STRICT, "-O1", "-fno-math-errno"))
BUILDS = [("gcc", (*STRICT, *NATIVE)), ("clang", (*STRICT, *NATIVE)), ("gcc", (*STRICT, "-Os")), ("gcc", SANITIZED)]


def check_compiled(compiler: str, flags: tuple[str, ...], lanes: tuple[int, ...], count: int, folder: Path) -> None:
    runs, expected = [], []
    for name in maths.all_names():
        args = maths.arguments(name, count)
        size = len(args[0]) // 16 * 16
        args = tuple(arg[:size] for arg in args)
        for number in lanes:
            arrays = {f"x{position}": arg for position, arg in enumerate(args)}
            runs.append(Run(maths.kernel(name, size, number), arrays))
            expected.append((f"{name} by {number} lanes", args, maths.meant(name, *args)))
    for (what, args, wanted), got in zip(expected, run_compiled(runs, compiler, flags, folder), strict=True):
        wrong = ~maths.same(got["y"], wanted)
        assert not wrong.any(), (
            f"{what}: {got['y'][wrong][:4]}, not {wanted[wrong][:4]} of {[a[wrong][:4] for a in args]}"
        )


def test_what_is_compiled_gives_what_is_meant(tmp_path: Path) -> None:
    """Numbers and vectors, by a compiler that may take any instruction of this machine, and one that may take few."""
    check_compiled(*PLAIN, (1, 4, 16), 4096, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize(("compiler", "flags"), BUILDS)
def test_whatever_the_compiler_it_gives_what_is_meant(compiler: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    skip_without(compiler)
    check_compiled(compiler, flags, (1, 2, 4, 8, 16, 32), 1 << 16, tmp_path)


@pytest.mark.parametrize("name", maths.all_names())
def test_the_interpreter_gives_what_is_meant(name: str) -> None:
    args = tuple(arg[::97] for arg in maths.arguments(name, 8192))
    func = maths.kernel(name, len(args[0]))
    got = interpret(func, {f"x{position}": arg for position, arg in enumerate(args)})["y"]
    assert maths.same(got, maths.meant(name, *args)).all()


@pytest.mark.parametrize("name", maths.OF_ONE)
def test_errors_are_as_stated(name: str) -> None:
    """Over a sample of all numbers; the soak takes every one."""
    x = maths.values(1 << 15)
    with np.errstate(all="ignore"):
        worst = maths.errors(maths.meant(name, x), maths.wide(name)(x.astype(np.float64))).max()
    assert worst <= ERRORS[name]


@pytest.mark.soak
@pytest.mark.parametrize("name", maths.OF_ONE)
def test_errors_are_as_stated_for_every_number(name: str, tmp_path: Path) -> None:
    assert ERRORS[name] - 0.1 <= maths.largest_error(name, tmp_path) <= ERRORS[name]


def check_powers(count: int, seed: int) -> None:
    x, y = maths.pairs(count, seed)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
        # (What overflows float64 has no digits to compare, and is infinite.)
        assert maths.errors(maths.meant("pow", x, y), exact).max() <= 0.51


def test_errors_of_powers() -> None:
    check_powers(1 << 14, 0)


@pytest.mark.soak
def test_errors_of_very_many_powers() -> None:
    for seed in range(1, 97):
        check_powers(1 << 20, seed)


@pytest.mark.parametrize(
    ("name", "of", "gives"),
    [
        ("exp", (-INF, -104.0, -103.0, 0.0, 88.8, INF, NAN), (0.0, 0.0, 1.4e-45, 1.0, INF, INF, NAN)),
        ("expm1", (-INF, -0.0, 1e-45, INF, NAN), (-1.0, -0.0, 1e-45, INF, NAN)),
        ("log", (-INF, -1.0, -0.0, 0.0, 1.0, INF, NAN), (NAN, NAN, -INF, -INF, 0.0, INF, NAN)),
        ("log1p", (-INF, -1.5, -1.0, -0.0, 1e-45, INF, NAN), (NAN, NAN, -INF, -0.0, 1e-45, INF, NAN)),
        ("tanh", (-INF, -10.0, -0.0, 1e-45, INF, NAN), (-1.0, -1.0, -0.0, 1e-45, 1.0, NAN)),
        ("sinh", (-INF, -0.0, 1e-45, 90.0, NAN), (-INF, -0.0, 1e-45, INF, NAN)),
        ("cosh", (-INF, -0.0, 1e-45, 90.0, NAN), (INF, 1.0, 1.0, INF, NAN)),
        ("atan", (-INF, -0.0, 1e-45, 1.0, INF, NAN), (-1.5707964, -0.0, 1e-45, 0.7853982, 1.5707964, NAN)),
        ("atanh", (-INF, -1.0, -0.0, 1.0, 1.5, NAN), (NAN, -INF, -0.0, INF, NAN, NAN)),
        ("erf", (-INF, -4.0, -0.0, INF, NAN), (-1.0, -1.0, -0.0, 1.0, NAN)),
        ("sin", (-INF, -0.0, 1e-45, INF, NAN), (NAN, -0.0, 1e-45, NAN, NAN)),
        ("cos", (-INF, -0.0, 1e-45, INF, NAN), (NAN, 1.0, 1.0, NAN, NAN)),
    ],
)
def test_special_values(name: str, of: tuple[float, ...], gives: tuple[float, ...]) -> None:
    assert maths.same(maths.meant(name, np.array(of, np.float32)), np.array(gives, np.float32)).all()


@pytest.mark.parametrize("name", sorted(name for name in dir(found) if name.isupper()))
def test_coefficients_are_those_that_are_fitted(name: str) -> None:
    """Found again they may differ in their last bits, by numpy's own; not in how well they fit."""
    one = fit.FITS[name]
    held = getattr(found, name)
    assert len(held) == one.degree + 1
    assert one.error(held) <= one.error(fit.fitted(one)) * 1.02


def test_no_function_of_the_c_library_is_called() -> None:
    text = "\n".join(function_texts(maths.kernel(name, 64, lanes) for name in DEFINITIONS for lanes in (1, 8)))
    for name in ("exp", "log", "tanh", "sin", "cos", "pow", "rint", "floor"):
        assert f" {name}f(" not in text and f"({name}f(" not in text
    assert text.count("float uma_sin_far_f32(float x)\n") == 1
    assert text.count("#ifndef UMA_DEFINES_") == text.count("static ")  # several models may be one source


def test_written_out_nothing_is_left() -> None:
    x = Name("x", "float32")
    whole = written_out(Apply("exp", Apply("sin", x)))
    assert not any(isinstance(part, Apply) and part.name in DEFINITIONS for part in walk(whole))
    assert written_out(Apply("exp", Name("x", "float64"))).name == "exp"  # type: ignore[attr-defined]  # it stays an `Apply`
    assert value_of("exp")(0.0) == 1.0


def test_exp_flushed_is_exp_as_far_as_it_goes() -> None:
    x = maths.values(1 << 16)
    inside = x[(x >= -87.3) & (x <= 88)]
    assert maths.errors(maths.meant("exp_flushed", inside), np.exp(inside.astype(np.float64))).max() <= ERRORS["exp"]
    below = np.append(x[x < -87.69], np.float32(-INF))
    assert not maths.meant("exp_flushed", below).any() and np.isnan(maths.meant("exp_flushed", np.float32([NAN]))).all()


MACHINES = {
    "aarch64": ("c -mtriple=aarch64-linux-gnu -runner=qemu-aarch64", ("aarch64-linux-gnu-gcc", "qemu-aarch64")),
    "cortex-m4f": ("c -mcpu=cortex-m4f -runner=qemu-mps2-an386", ("arm-none-eabi-gcc", "qemu-system-arm")),
    "cortex-m3": ("c -mcpu=cortex-m3 -runner=qemu-mps2-an385", ("arm-none-eabi-gcc", "qemu-system-arm")),
    "here": ("c", ("gcc",)),
}


@pytest.mark.soak
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", maths.all_names())
def test_machines_give_the_same_bits(name: str, machine: str) -> None:
    """Four million numbers each, of all exponents, with those around every breakpoint."""
    target, tools = MACHINES[machine]
    skip_without(*tools)
    if name == "exp_flushed":
        pytest.skip("it is not an op, but a part of softmax")
    op = {"pow": "power"}.get(name, name)
    size = 1 << 17
    params = [Var(one, TensorType((size,), "float32")) for one in ("x", "y")[: 2 if name == "pow" else 1]]
    art = uma.build(IRModule.from_functions({"main": Function(params, call(op, *params))}), target=target)
    args = maths.arguments(name, 1 << 22)
    for first in range(0, len(args[0]), size):
        part = tuple(np.resize(arg[first : first + size], size) for arg in args)
        got = next(iter(art.run(dict(zip(("x", "y"), part, strict=False))).values()))
        assert maths.same(got, maths.meant(name, *part)).all(), first


def test_the_page_says_what_is_so() -> None:
    page = (Path(__file__).parents[2] / "docs" / "functions.md").read_text()
    for name, error in ERRORS.items():
        assert f"| `{name}` | {error} |" in page
    libm = sorted(name for name, row in FUNCTIONS.items() if not (row.is_exact("float32") or "bits" in name))
    assert ", ".join(f"`{name}`" for name in libm) in page
