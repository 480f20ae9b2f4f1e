"""Every form of inner loop over quantised numbers, compiled as builds for this machine are, against the references.

What a compiler makes of a loop depends on its types, on what is subtracted before a product, on how many elements there
are, and on conditions: these are varied, beside what the numbers are. gcc 12 took the difference of an unsigned byte
and 128 for unsigned on CPUs with VNNI, which no test of some random sizes shows.
"""

from __future__ import annotations

import itertools
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests._support import c_programs
from tests._support.op_cases import on
from tests._support.op_kernels import check

from uma.relay.expr import Call
from uma.relay.op import FixedPoint, FloatScale

LENGTHS = (1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 180)
"""Around the widths of vectors, and where something is left over."""

PAIRS = (
    ("int8", "int8"),
    ("uint8", "int8"),
    ("int8", "uint8"),
    ("uint8", "uint8"),
    ("int16", "int8"),
    ("int8", "int16"),
    ("int16", "int16"),
)
"""dtypes of data and weights. Builds have no uint8, but plugins may."""

ZEROS = {"int8": (0, -128, 127, 5), "uint8": (0, 128, 255, 5), "int16": (0, -32768, 5)}

Form = tuple[Call, list[np.ndarray]]


def filled(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Random numbers; every fourth array the lowest and highest ones only, where products are largest."""
    ends, rng = np.iinfo(dtype), np.random.default_rng(seed)
    if seed % 4 == 3:
        return rng.choice([ends.min, ends.max], shape).astype(dtype)
    return rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)


class Forms:
    """Collects calls, each with arrays of its own."""

    def __init__(self) -> None:
        self.found: list[Form] = []

    def add(self, name: str, *types: tuple[tuple[int, ...], str], **attrs: object) -> None:
        arrays = [filled(shape, dtype, len(self.found) + i) for i, (shape, dtype) in enumerate(types)]
        self.found.append((on(name, *types, **attrs), arrays))


def products(lengths: tuple[int, ...]) -> Forms:
    """Dot products, of every length and pair of types, and with every zero point."""
    forms = Forms()
    for n, (data, weight) in itertools.product(lengths, PAIRS):
        zeros = itertools.cycle(itertools.product(ZEROS[data], ZEROS[weight][:2]))
        for zero, weight_zero in itertools.islice(zeros, n % 5, n % 5 + 1 + (data == weight)):
            points = {"input_zero_point": zero, "kernel_zero_point": weight_zero}
            forms.add("qnn.dense", ((2, n), data), ((3, n), weight), **points)
            if n < 70:
                forms.add("qnn.matmul", ((2, n), data), ((n, 5), weight), **points)
    return forms


def windows(pairs: tuple[tuple[str, str], ...] = PAIRS) -> Forms:
    """Convolutions tap by tap, by rows that are copied, and channel by channel, with and without padding."""
    forms = Forms()
    for data, weight in pairs:
        for number, zero in enumerate(ZEROS[data]):
            pad = number % 2
            shape = {"padding": (pad, 0, pad, pad), "input_zero_point": zero, "kernel_zero_point": ZEROS[weight][pad]}
            for depth, units, groups in ((3 + number, 5, 1), (8 + 9 * (number // 2), 8, 1), (17, 17, 17)):
                types = ((1, 4, 5, depth), data), ((2, 3, depth // groups, units), weight)
                forms.add("qnn.conv2d", *types, groups=groups, **shape)
            forms.add("qnn.conv2d", ((1, 3, 3, 33), data), ((1, 1, 33, 9), weight), input_zero_point=zero)
    return forms


def others(lengths: tuple[int, ...]) -> Forms:
    """Sums, pools, and what is done element by element."""
    forms = Forms()
    half, small = FixedPoint((2**30,), (0,), "double"), FixedPoint((2**30 + 12345,), (-7,), "double")
    for n, dtype in itertools.product(lengths, ("int8", "uint8")):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        zero = 128 if dtype == "uint8" else -128
        flat, image = ((2, n), dtype), ((1, 4, 3, n), dtype)
        points = {"lhs_zero_point": zero, "rhs_zero_point": 3, "output_zero_point": 5}
        forms.add("qnn.sum", flat, axis=(1,), input_zero_point=zero)
        forms.add("qnn.sum", flat, axis=(0,), input_zero_point=3)
        forms.add("nn.max_pool2d", image, pool_size=(2, 3), padding=(1, 1, 0, 1))
        forms.add("qnn.avg_pool2d", image, pool_size=(2, 3), padding=(1, 1, 0, 1))
        forms.add("qnn.add", flat, flat, lhs_scale=half, rhs_scale=half, output_scale=small, left_shift=9, **points)
        forms.add("qnn.multiply", flat, flat, scale=small, **points)
        forms.add("clip", flat, a_min=low + 3, a_max=high - 3)
        forms.add("qnn.dequantize", flat, scale=0.5, zero_point=zero)
        for rounding in ("double", "up", "even", "away"):
            scale = FixedPoint(tuple(2**30 + 977 * i for i in range(n)), tuple(-8 - i % 3 for i in range(n)), rounding)
            forms.add("qnn.requantize", ((2, n), "int32"), scale=scale, output_zero_point=3, dtype=dtype)
        forms.add("qnn.requantize", flat, scale=FloatScale((0.375,)), input_zero_point=zero, dtype=dtype)
    return forms


SHORT: dict[str, Callable[[], Forms]] = {
    "products": lambda: products((33,)),
    "windows": lambda: windows(PAIRS[:1]),
    "others": lambda: others((33,)),
}
LONG: dict[str, Callable[[], Forms]] = {
    "products": lambda: products(LENGTHS),
    "windows": windows,
    "others": lambda: others((7, 16, 33, 65)),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", SHORT)
def test_inner_loops(tmp_path: Path, compilers: tuple[str, ...], kind: str) -> None:
    check(SHORT[kind]().found, compilers, tmp_path)


@pytest.fixture
def vnni(tmp_path: Path, compilers: tuple[str, ...]) -> tuple[str, ...]:
    """Flags with which gcc leaves products of bytes to VNNI, which is emulated where the CPU has none of it."""
    cpu = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not cpu.exists() or " avx2 " not in cpu.read_text() or "gcc" not in compilers:
        pytest.skip("VNNI is emulated on x86-64 Linux with AVX2, for gcc")
    made = tmp_path / "vnni.o"
    source = Path(c_programs.__file__).parent / "vnni.c"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-c", str(source), "-o", str(made)], check=True)
    loop = "for (int i = 0; i < 99; i++) s += a[i] * b[i];"
    loop = f"int f(unsigned char *a, signed char *b) {{ int s = 0; {loop} return s; }}"
    flags = ["gcc", "-O3", "-mavx2", "-mavxvnni", "-S", "-xc", "-", "-o", "-"]
    done = subprocess.run(flags, input=loop, capture_output=True, text=True, check=False)
    if "vpdpbusd" not in done.stdout:
        pytest.skip("this gcc does not use VNNI")
    return ("-mavxvnni", str(made))


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["products", "windows"])
def test_inner_loops_on_vnni(tmp_path: Path, vnni: tuple[str, ...], kind: str) -> None:
    """gcc 12 gives wrong sums there, where 128 is subtracted from an unsigned byte within the loop."""
    check(SHORT[kind]().found, ["gcc"], tmp_path, vnni)


@pytest.mark.soak
@pytest.mark.parametrize("kind", LONG)
def test_all_inner_loops(tmp_path: Path, compilers: tuple[str, ...], kind: str) -> None:
    check(LONG[kind]().found, compilers, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("kind", LONG)
def test_all_inner_loops_on_vnni(tmp_path: Path, vnni: tuple[str, ...], kind: str) -> None:
    check(LONG[kind]().found, ["gcc"], tmp_path, vnni)
