"""Functions of float32 that the core defines: values to try them on, what they give, and how far off that is."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests._support.c_programs import CSRC

from uma.codegen.functions import function_texts
from uma.tir import te
from uma.tir.form.nodes import INDEX, Buffer, Call, For, Imm, Load, Param, PrimFunc, Store, Var
from uma.tir.maths import DEFINITIONS, ERRORS
from uma.tir.te.evaluate import contents_of

Floats = NDArray[np.float32]

OF_ONE = tuple(ERRORS)
"""The functions of one argument that are asked for by name."""

BREAKPOINTS = (
    *(0.0, 2.0**-149, 2.0**-126, 2.0**-25, 2.0**-24, 2.0**-13, 2.0**-12, 0.5, 1.0, 2.0, 4.0, 8192.0, 2.0**24, math.inf),
    *(math.sqrt(0.5), math.sqrt(2.0), math.sqrt(2.0) - 1, 1 - math.sqrt(0.5), 3.92, 9.05, 18.1, 20.0),
    *(
        87.6830810,
        88.0199966,
        88.0296919,
        88.3762626,
        88.7228390,
        89.0,
        89.4159851,
        89.5,
        87.3365447,
        103.2789297,
        103.9720770,
        104.0,
    ),
    *(math.pi / 4 * turn for turn in range(1, 9)),
    *(math.log(2) * (n + 0.5) for n in (0, 1, 2, 24, 25, 126, 127)),
)
"""Where definitions, or what they give, change their form, in size."""


@lru_cache(maxsize=4)
def values(count: int, seed: int = 0) -> Floats:
    """``count`` values of all exponents and both signs, and those around each breakpoint; NaN and infinities."""
    random = np.random.default_rng(seed)
    spread = (np.arange(count, dtype=np.uint64) << np.uint64(32)) // np.uint64(count)
    spread += random.integers(0, max(1, (1 << 32) // count), count, dtype=np.uint64)
    around = np.array(BREAKPOINTS, np.float32).view(np.uint32).astype(np.int64)[:, None] + np.arange(-16, 17)
    around = np.concatenate([around, around + (1 << 31)]).reshape(-1) % (1 << 32)
    found: Floats = np.concatenate([spread.astype(np.uint32), around.astype(np.uint32)]).view(np.float32)
    return found


def pairs(count: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Arguments of a function of two: of all exponents, of a size that gives numbers, whole and special ones."""
    random = np.random.default_rng(seed)
    x = random.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        fitting = (random.uniform(-160, 160, count) / np.log2(np.abs(x.astype(np.float64)))).astype(np.float32)
    whole = random.integers(-20, 21, count).astype(np.float32)
    any_y = random.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    y = np.choose(random.integers(0, 4, count), [fitting, fitting, whole, any_y]).astype(np.float32)
    special = np.array(
        [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 2.0**24 - 1, 2.0**24 + 2, 2.0**-149, np.inf, np.nan], np.float32
    )
    special = np.concatenate([special, -special])
    a, b = (grid.reshape(-1) for grid in np.meshgrid(special, special))
    return np.concatenate([x, a.astype(np.float32)]), np.concatenate([y, b.astype(np.float32)])


def arguments(name: str, count: int, seed: int = 0) -> tuple[Floats, ...]:
    """Arguments of any function that is defined."""
    return pairs(count, seed) if name == "pow" else (values(count, seed),)


def meant(name: str, *args: Floats) -> Floats:
    """What the definition gives, by numpy."""
    given = [te.constant(arg, f"c{number}") for number, arg in enumerate(args)]
    (found,) = contents_of([te.compute(args[0].shape, lambda i: Call(name, *(one[i] for one in given)), "y")], {})
    return found


def same(got: Floats, expected: Floats) -> NDArray[np.bool_]:
    """Where the bits are the same, or both are NaN."""
    return np.asarray((got.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(got) & np.isnan(expected)))


def kernel(name: str, size: int, lanes: int = 1) -> PrimFunc:
    """The function of each of so many elements, in vectors or not."""
    x = [Buffer(f"x{number}", (size,), "float32") for number in range(2 if name == "pow" else 1)]
    y, i, lane = Buffer("y", (size,), "float32"), Var("i"), Var("lane")
    at = i * lanes + lane if lanes > 1 else i
    body: Any = Store(y, (at,), Call(name, *(Load(one, (at,)) for one in x)))
    if lanes > 1:
        body = For(lane, Imm(lanes, INDEX), body, "vectorized")
    body = For(i, Imm(size // lanes, INDEX), body)
    return PrimFunc((*(Param(one, "input") for one in x), Param(y, "output")), body)


def wide(name: str) -> Callable[..., Any]:
    """The function of float64, by numpy or Python, one by one."""
    own = {"pow": "power", "atan": "arctan", "atanh": "arctanh"}.get(name, name)
    return np.vectorize(math.erf, otypes=[np.float64]) if name == "erf" else getattr(np, own)


def errors(got: Floats, exact: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far off results are, in units of the last place of float32; infinite where NaN, infinity, or the sign of a
    result is not that of the exact one rounded."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        unit = np.exp2(np.maximum(np.frexp(exact)[1], -125) - 24.0)
        found = np.abs(got.astype(np.float64) - exact) / unit
    plain = np.isfinite(rounded) & np.isfinite(got)
    wrong = np.signbit(got) != np.signbit(rounded)
    return np.where(plain, np.where(wrong, np.inf, found), np.where(same(got, rounded), 0.0, np.inf))


def largest_error(name: str, folder: Path, stride: int = 1) -> float:
    """The largest error over every ``stride``-th float32, in units of the last place, against the C library's function
    of doubles; infinite as in `errors`."""
    program = f"""\
#include <stdio.h>
#include "uma_math.h"

{chr(10).join(function_texts([kernel(name, 4)]))}

static float x[4096], y[4096];

int main(void)
{{
    double worst = 0.0;
    for (uint64_t block = 0; block < UINT64_C(1) << 32; block += UINT64_C(4096) * {stride}) {{
        for (int i = 0; i < 4096; ++i) x[i] = uma_bits_float_f32((uint32_t)(block + (uint64_t)i * {stride}));
        for (int i = 0; i < 4096; ++i) y[i] = uma_{name}_f32(x[i]);
        for (int i = 0; i < 4096; ++i) {{
            const double exact = {name}((double)x[i]);
            const float rounded = (float)exact, got = y[i];
            double error;
            if (isfinite(rounded) && isfinite(got) && !signbit(rounded) == !signbit(got)) {{
                int exponent;
                frexp(exact, &exponent);
                error = fabs(got - exact) / ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
            }} else {{
                error = (rounded != rounded && got != got) || (isinf(rounded) && rounded == got) ? 0.0 : INFINITY;
            }}
            worst = error > worst ? error : worst;
        }}
    }}
    printf("%.17g", worst);
    return 0;
}}
"""
    source, binary = folder / f"{name}.c", folder / name
    source.write_text(program)
    flags = ("-std=gnu99", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
    subprocess.run(["gcc", *flags, "-I", str(CSRC), str(source), "-o", str(binary), "-lm"], check=True)
    return float(subprocess.run([str(binary)], check=True, capture_output=True, text=True).stdout)


def all_names() -> Sequence[str]:
    """What is defined, but parts of others."""
    return [name for name in DEFINITIONS if not name.endswith("_far")]
