"""Layers in the forms for the DSP extension: against the ops' references, in C99 here and in assembler in an emulator,
at the limits of what they are for.
"""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.asked_by_rows import asked_by_rows
from tests._support.built_layers import PLUGINS, same
from tests._support.random_layers import reference
from tests._support.tools import skip_without

import uma
from uma.cli import main
from uma.hookspecs import Fusion
from uma.pipeline.line_buffering import RowsAsked
from uma.relay import (
    Constant,
    Expr,
    FixedPoint,
    FloatForm,
    FloatScale,
    Function,
    IRModule,
    TensorType,
    Tuple,
    Var,
    call,
    const,
)
from uma.tir import PrimFunc
from uma_cpu_c.dsp import paired
from uma_cpu_c.dsp_layers import Refused

TARGET = "c -mcpu=cortex-m4 -opt=2"
BOARD = "-runner=qemu-mps2-an386"
HERE = "c -opt=2"


class Drawn:
    """Layers of one model, beside the values for their inputs."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.inputs: list[Var] = []
        self.outputs: list[Expr] = []

    def upto(self, most: int, least: int = 1) -> int:
        return int(self.rng.integers(least, most + 1))

    def input(self, *shape: int) -> Var:
        self.inputs.append(Var(f"x{len(self.inputs)}", TensorType(shape, "int8")))
        return self.inputs[-1]

    def weights(self, *shape: int) -> Constant:
        """The smallest number is that of even channels alone, as those of a pair are."""
        ends = self.rng.random() < 0.3
        made = self.rng.choice([-127, 127], shape) if ends else self.rng.integers(-127, 128, shape)
        if self.rng.random() < 0.3:
            made[..., ::2] = np.where(self.rng.random(made[..., ::2].shape) < 0.3, -128, made[..., ::2])
        return const(made.astype(np.int8))

    def finished(self, sums: Expr, rounding: str = "double", dead: bool = True) -> Expr:
        channels = sums.shape[-1]
        bias = self.rng.integers(-20000, 20000, channels).astype(np.int32)
        exponents = self.rng.integers(-14, -4, channels)
        if dead and channels > 2:
            bias[1], exponents[1] = 2**30, -9  # a channel that is at its limit whatever comes
            exponents[2] = -31  # and one that is 0
        count = channels if self.rng.random() < 0.7 else 1
        multipliers = self.rng.integers(2**30, 2**31, count)
        scale = FixedPoint(tuple(multipliers.tolist()), tuple(exponents[:count].tolist()), rounding)
        if count == 1:
            bias[:] = np.clip(bias, -20000, 20000)
        zero = self.upto(127, -128)
        return call(
            "qnn.requantize", call("add", sums, const(bias)), scale=scale, output_zero_point=zero, dtype="int8", axis=-1
        )

    def dense(self) -> Expr:
        rows = self.rng.choice([1, 1, 2, 3, 4])
        x, out = self.input(int(rows), self.upto(40)), self.upto(10)
        w = self.weights(x.shape[-1], out).data.T
        sums = call("qnn.dense", x, const(np.ascontiguousarray(w)), input_zero_point=self.upto(127, -128))
        return self.finished(sums, "up" if self.rng.random() < 0.7 else "double")

    def convolution(self, one: bool = False) -> Expr:
        rows, columns = (1, 1) if one else (self.upto(3), self.upto(4))
        shape = self.upto(6) + rows, self.upto(7) + columns
        x, out = self.input(1, *shape, self.upto(9)), self.upto(7)
        strides = (self.upto(2), self.upto(2))
        padding = (0,) * 4 if one else tuple(self.upto(2, 0) for _ in range(4))
        w = self.weights(rows, columns, x.shape[-1], out)
        zero = self.upto(127, -128)
        sums = call("qnn.conv2d", x, w, strides=strides, padding=padding, input_zero_point=zero)
        return self.finished(sums)

    def line(self) -> Expr:
        width = self.upto(4)
        x, out = self.input(1, self.upto(9) + width, self.upto(6)), self.upto(6)
        sums = call("qnn.conv1d", x, self.weights(width, x.shape[-1], out), padding=(self.upto(1, 0), 1))
        return self.finished(sums)

    def planes(self) -> Expr:
        some = self.upto(5, 2) if self.rng.random() < 0.5 else 4 * self.upto(3)
        x, stride = self.input(1, self.upto(6, 2), self.upto(7, 2), some), self.upto(2)
        channels = x.shape[-1]
        sums = call(
            "qnn.conv2d",
            x,
            self.weights(3, 3, 1, channels),
            strides=(stride, stride),
            padding=tuple(self.upto(2) for _ in range(4)),
            groups=channels,
            input_zero_point=self.upto(127, -128),
        )
        return self.finished(sums)

    def residual(self) -> Expr:
        made = self.convolution()
        other = self.input(*made.shape)
        scales = {
            f"{name}_scale": FixedPoint((self.upto(2**31 - 1, 2**30),), (exponent,), "double")
            for name, exponent in (("lhs", -1), ("rhs", 0), ("output", -18))
        }
        pair = (made, other) if self.rng.random() < 0.5 else (other, made)
        zeros = {f"{name}_zero_point": self.upto(100, -100) for name in ("lhs", "rhs", "output")}
        return call("qnn.add", *pair, **scales, **zeros, left_shift=20)

    def check(self, count: int, *targets: str, by_rows: bool = False) -> None:
        """Layers of each kind, built for ``targets``, which give what the references do; by their loops for all rows at
        once, or those for one row.
        """
        for number in range(count):
            one = (self.dense, self.convolution, self.line, self.planes, self.residual)[number % 5]
            self.outputs.append(one() if number % 10 != 6 else self.convolution(one=True))
        module = IRModule.from_functions({"main": Function(tuple(self.inputs), Tuple(self.outputs))})
        values = {
            x.name: self.rng.choice([-128, 127], x.shape).astype(np.int8)
            if self.rng.random() < 0.3
            else self.rng.integers(-128, 128, x.shape).astype(np.int8)
            for x in self.inputs
        }
        wanted = reference(module, values)
        with asked_by_rows() if by_rows else nullcontext():
            loops = uma.build(module, TARGET, plugins=PLUGINS, stop_after="flatten")
        assert isinstance(loops, IRModule)
        for target in targets:
            artifact = uma.build(loops, target, name="layers", plugins=PLUGINS)
            text = artifact.files["layers.c"].decode()
            for form in ("tile", "row", "window", "expand", "depth" if by_rows else "filter"):
                assert f"uma_dsp_{form}" in text
            same(artifact.run(values), wanted)


@pytest.mark.few(1)
@pytest.mark.parametrize("by_rows", [False, True])
def test_layers_here(by_rows: bool) -> None:
    Drawn(1).check(10 if by_rows else 20, HERE, by_rows=by_rows)


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
@pytest.mark.parametrize("by_rows", [False, True])
def test_layers_in_the_emulator(by_rows: bool) -> None:
    Drawn(2).check(10 if by_rows else 20, f"{TARGET} {BOARD}", by_rows=by_rows)


@pytest.mark.soak
@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("seed", range(100, 120))
def test_many_layers(seed: int, by_rows: bool) -> None:
    skip_without("arm-none-eabi-gcc", "qemu-system-arm")
    m7 = "c -mcpu=cortex-m7f -opt=3 -runner=qemu-mps2-an500"
    others = [f"{TARGET} {BOARD} -cc=clang"] if shutil.which("clang") else []
    Drawn(seed).check(50, HERE, f"{TARGET} {BOARD}", m7, *others, by_rows=by_rows)


@pytest.mark.parametrize(
    ("shape", "attrs", "in_place"),
    [
        ((3, 3, 1, 4), {"groups": 4, "padding": (1, 1, 1, 1)}, True),
        ((1, 1, 4, 4), {}, True),
        ((3, 3, 4, 4), {"padding": (1, 1, 1, 1)}, False),
    ],
)
def test_what_may_be_in_place(shape: tuple[int, ...], attrs: dict[str, Any], in_place: bool) -> None:
    """A channel that is in a plane, and pixels that are in a block; not windows, which are read again."""
    made = fusion(np.ones(shape, np.int8), (1, 5, 5, 4), **attrs)
    module = IRModule.from_functions({"main": Function(made.function.params[:1], made_of(made))})
    loops = uma.build(module, TARGET, plugins=PLUGINS, stop_after="lower")
    assert isinstance(loops, IRModule)
    (func,) = (one for one in loops.functions.values() if isinstance(one, PrimFunc))
    assert bool(func.may_alias) == in_place


@pytest.mark.parametrize(
    ("opt", "channels", "taken"), [("2", 40, True), ("s", 4, True), ("s", 40, False), ("1", 4, False)]
)
def test_where_flash_counts_few_channels_are_paired(opt: str, channels: int, taken: bool) -> None:
    """Sixteen bytes a channel are more than a bias where all have one scale."""
    made = fusion(np.ones((1, 1, 4, channels), np.int8), (1, 5, 5, 4), scale=FixedPoint((2**30,), (-9,), "double"))
    module = IRModule.from_functions({"main": Function(made.function.params[:1], made_of(made))})
    artifact = uma.build(module, f"c -mcpu=cortex-m4 -opt={opt}", name="m", plugins=PLUGINS)
    assert ("uma_dsp_tile_twice(" in artifact.files["m.c"].decode()) == taken


@pytest.mark.parametrize("channels", [1, 4])
def test_a_layer_alone_has_all_headers(channels: int) -> None:
    """``uma_dsp_depth.h`` includes ``uma_dsp.h``, which no other layer of the model brings."""
    made = fusion(np.ones((3, 3, 1, channels), np.int8), (1, 5, 5, channels), groups=channels, padding=(1, 1, 1, 1))
    module = IRModule.from_functions({"main": Function(made.function.params[:1], made_of(made))})
    with asked_by_rows():
        loops = uma.build(module, TARGET, plugins=PLUGINS, stop_after="flatten")
    assert isinstance(loops, IRModule)
    files = uma.build(loops, TARGET, name="m", plugins=PLUGINS).files
    includes = {name for text in files.values() for name in re.findall(rb'#include "(\w+\.h)"', text)}
    assert {name.decode() for name in includes} <= files.keys()


def made_of(one: Fusion, data: Var | None = None) -> Expr:
    """The body of a layer with its constants in it, of ``data`` or its own parameter."""
    x, w, b = one.function.params
    x = data or x
    sums = call("add", call("qnn.conv2d", x, one.known[w], **dict(one.anchor.attrs.items)), one.known[b])
    return call("qnn.requantize", sums, **dict(one.epilogue[-1].attrs.items))


# --- what has no form -------------------------------------------------------------------------------------------------


def fusion(
    weights: np.ndarray,
    shape: tuple[int, ...] = (1, 2, 2, 4),
    *,
    op: str = "qnn.conv2d",
    bias: Any = 5,
    exponent: int = -8,
    rounding: str = "double",
    after: Any = None,
    scale: Any = None,
    numbers: dict[str, Any] | None = None,
    **attrs: Any,
) -> Fusion:
    """One layer, whose weights and bias are known."""
    x, w = Var("x", TensorType(shape, "int8")), Var("w", TensorType(weights.shape, weights.dtype.name))
    sums = call(op, x, w, **attrs)
    channels = sums.shape[-1]
    b = Var("b", TensorType((channels,), "int32"))
    known = {w: const(weights), b: const(np.full(channels, bias, np.int32))}
    fixed = FixedPoint((1 << 30,), (exponent,), rounding) if scale is None else scale
    given = {"scale": fixed, "dtype": "int8", "output_zero_point": 3, **(numbers or {})}
    made = call("qnn.requantize", call("add", sums, b), **given)
    body = made if after is None else after(made, sums)
    return Fusion(Function((x, w, b), body), known)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.int8)


def large(value: int, depth: int = 4) -> np.ndarray:
    return np.full((1, 1, depth, 2), value, np.int8)


def unknown(made: Fusion, *names: str) -> Fusion:
    """The same where some parameters are not known."""
    return Fusion(made.function, {param: held for param, held in made.known.items() if param.name not in names})


def alone() -> Fusion:
    x, w = Var("x", TensorType((1, 4), "int8")), Var("w", TensorType((3, 4), "int8"))
    return Fusion(Function((x, w), call("qnn.dense", x, w)), {w: const(ones(3, 4))})


def beside() -> Fusion:
    """With a maximum of another input, of which all columns have the same."""
    made = fusion(ones(1, 1, 4, 2))
    other = Var("other", TensorType((1, 2, 1, 2), "int8"))
    body = call("maximum", made.function.body, other)
    return Fusion(Function((*made.function.params, other), body), made.known)


REFUSED = {
    "are not known": lambda: unknown(fusion(ones(1, 1, 4, 2)), "w"),
    "not a number for each channel": lambda: unknown(fusion(ones(1, 1, 4, 2)), "b"),
    "do not become int8 at once": alone,
    "not those of its channels": lambda: fusion(
        ones(1, 1, 4, 2), scale=FixedPoint((1 << 30,) * 2, (-8, -9), "double"), numbers={"axis": 1}
    ),
    "are from 0 to 127": lambda: fusion(
        ones(1, 1, 4, 2), numbers={"form": FloatForm("float32", (0.01,), (3.0,), (), 0, 127, False)}
    ),
    "other elements than its own": beside,
    "uint8 around 0; not int8": lambda: fusion(ones(1, 1, 4, 2).astype(np.uint8)),
    "int8 around 3; not int8 around 0": lambda: fusion(ones(1, 1, 4, 2), kernel_zero_point=3),
    "by another rounding": lambda: fusion(ones(1, 1, 4, 2), scale=FloatScale((0.01,))),
    "or another type": lambda: fusion(ones(1, 1, 4, 2), numbers={"dtype": "uint8"}),
    "shift 0": lambda: fusion(ones(1, 1, 4, 2), exponent=0),
    "not below 2\\*\\*30": lambda: fusion(
        ones(1, 1, 4, 2), bias=257 << 22, exponent=-22, numbers={"output_zero_point": -128}
    ),
    "a weight is -128": lambda: fusion(large(-128)),
    "not below 2\\*\\*23": lambda: fusion(large(127, 517), (1, 2, 2, 517)),
    "has holes": lambda: fusion(ones(2, 2, 4, 2), (1, 5, 5, 4), dilation=(2, 2)),
    "in 2 groups": lambda: fusion(ones(1, 1, 2, 2), groups=2),
    "several pictures": lambda: fusion(ones(2, 2, 4, 2), (2, 3, 3, 4)),
    "three by three": lambda: fusion(ones(2, 2, 1, 4), (1, 3, 3, 4), groups=4),
    "rounded once": lambda: fusion(ones(3, 3, 1, 4), (1, 3, 3, 4), groups=4, rounding="up"),
    "follows what is computed in planes": lambda: fusion(
        ones(3, 3, 1, 4), (1, 3, 3, 4), groups=4, after=lambda made, _: call("nn.relu", made)
    ),
    "used again": lambda: fusion(
        ones(1, 1, 4, 2),
        after=lambda made, sums: call("add", call("cast", made, dtype="int32"), sums),
    ),
    "element by element": lambda: fusion(ones(1, 1, 4, 2), after=lambda made, _: call("cast", made, dtype="int32")),
}


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
@pytest.mark.parametrize("by_rows", [False, True])
def test_instructions_are_about_what_the_emulator_counts(by_rows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a fifth, of layers of other sizes than those that the numbers are from."""
    monkeypatch.setattr(RowsAsked, "from_targets", lambda *_: RowsAsked())  # the loops are those that were asked for
    made = [
        fusion(np.ones((1, 1, 20, 12), np.int8), (1, 9, 7, 20)),
        fusion(np.ones((3, 3, 8, 16), np.int8), (1, 9, 10, 8), padding=(1, 1, 1, 1)),
        fusion(np.ones((3, 3, 1, 24), np.int8), (1, 11, 14, 24), groups=24, padding=(1, 1, 1, 1)),
        fusion(np.ones((3, 3, 1, 32), np.int8), (1, 12, 16, 32), groups=32, strides=(2, 2), padding=(0, 0, 1, 1)),
    ]
    inputs = tuple(Var(f"x{number}", one.function.params[0].type) for number, one in enumerate(made))
    outputs = [made_of(one, x) for one, x in zip(made, inputs, strict=True)]
    module = IRModule.from_functions({"main": Function(inputs, Tuple(outputs))})
    with asked_by_rows() if by_rows else nullcontext():
        artifact = uma.build(module, f"{TARGET} {BOARD}", name="layers", plugins=PLUGINS)
    calls = artifact.profile({x.name: np.zeros(x.shape, np.int8) for x in inputs}).calls
    for one, done in zip(made, calls, strict=True):
        told = paired(replace(one, by_rows=by_rows)).instructions
        assert told is not None and done.instructions is not None
        assert 0.8 < told / done.instructions < 1.2, (done.kernel, told, done.instructions)


def test_channels_by_rows_go_four_at_a_time() -> None:
    made = fusion(ones(3, 3, 1, 6), (1, 3, 3, 6), groups=6)
    paired(made)
    with pytest.raises(Refused, match="6 channels are not a multiple of 4"):
        paired(replace(made, by_rows=True))


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_form(reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        paired(REFUSED[reason]())


def test_explain_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With ``-v`` alone; of the layer that has no form alone."""
    (tmp_path / "m.py").write_text(
        "@function\ndef main(x: Tensor[(1, 2, 2, 2), int8]) -> Tensor[(1, 2, 2, 2), int8]:\n"
        "    v0: ('odd',) = qnn.conv2d(x, const([1, -128, 1, 1], (1, 1, 2, 2), int8))\n"
        "    v1: ('odd',) = qnn.requantize(v0, scale=FixedPoint((1073741824,), (-2,), 'double'), dtype='int8')\n"
        "    v2: ('even',) = qnn.conv2d(v1, const([-128, 1, 1, 1], (1, 1, 2, 2), int8))\n"
        "    v3: ('even',) = qnn.requantize(v2, scale=FixedPoint((1073741824,), (-2,), 'double'), dtype='int8')\n"
        "    return v3\n"
    )
    command = ["explain", str(tmp_path / "m.py"), "--target", "c -mcpu=cortex-m4f -opt=2"]
    why = "no form for the DSP extension: a weight is -128, and shares a half word"
    assert main(command) == 0 and why not in capsys.readouterr().out
    assert main([*command, "-v"]) == 0
    told = capsys.readouterr().out
    assert f"and why:\n  odd: c, strategy 'qnn.conv2d': {why}\n" in told and "even: c" not in told


def test_limits_that_still_fit() -> None:
    paired(fusion(large(127, 516), (1, 2, 2, 516)))
    even = large(-127)
    even[..., 0] = -128
    paired(fusion(even))
    paired(fusion(ones(1, 1, 4, 2), bias=255 << 22, exponent=-22, numbers={"output_zero_point": -128}))
