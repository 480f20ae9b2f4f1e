"""What the library computes is what the ops mean: floats to 1e-5 of the largest, integers bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import uma
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Expr, Function, IRModule, TensorType, Tuple, Var, call, const
from uma.relay.evaluate import evaluate
from uma_onednn.match_reader import ACTIVATIONS, BINARY

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("onednn", "uma_onednn", "uma-onednn", "0.1.0"),
    ]
)

ATTRS: dict[str, dict[str, Any]] = {"clip": {"a_min": -0.5, "a_max": 0.75}, "nn.leaky_relu": {"alpha": 0.125}}
UNARY = ("nn.relu", "clip", "sigmoid", "tanh", "nn.hard_swish", "nn.gelu", "nn.leaky_relu", "exp", "abs")


@dataclass
class Layers:
    """Random layers, as outputs of one model.

    Args:
        rng: where they come from.
    """

    rng: np.random.Generator
    outputs: list[Expr] = field(default_factory=list)
    inputs: list[Var] = field(default_factory=list)
    given: dict[str, np.ndarray] = field(default_factory=dict)

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def picks(self, count: int, *options: int) -> tuple[int, ...]:
        return tuple(self.pick(*options) for _ in range(count))

    def data(self, *shape: int, dtype: str = "float32") -> Var:
        made = Var(f"x{len(self.inputs)}", TensorType(shape, dtype))
        self.inputs.append(made)
        self.given[made.name] = self.bytes(shape) if dtype == "int8" else self.rng.normal(0, 1, shape).astype(dtype)
        return made

    def bytes(self, shape: tuple[int, ...]) -> np.ndarray:
        """Random ones, or extremes."""
        kinds: list[Callable[[], np.ndarray]] = [
            lambda: self.rng.integers(-128, 128, shape),
            lambda: np.full(shape, self.pick(-128, 127)),
            lambda: self.rng.choice([-128, 127], shape),
        ]
        return kinds[int(self.rng.integers(3))]().astype(np.int8)

    def weight(self, *shape: int) -> Expr:
        return const(self.rng.normal(0, 0.25, shape).astype(np.float32))

    def finished(self, value: Expr) -> None:
        """With what may follow a product."""
        if self.pick(True, False):
            value = call("add", value, self.weight(value.shape[-1]))
        if self.pick(True, False):
            value = call("add", self.data(*value.shape), value)
        name = self.pick(None, *ACTIVATIONS)
        if name == "nn.gelu":
            value = call(name, value, approximate=self.pick("none", "tanh"))
        elif name is not None:
            value = call(name, value, **ATTRS.get(name, {}))
        self.outputs.append(value)

    def window(self, rank: int) -> dict[str, Any]:
        return {
            "strides": self.picks(rank, 1, 2, 3),
            "dilation": self.picks(rank, 1, 1, 2),
            "padding": self.picks(2 * rank, 0, 1, 2),
        }

    def channels(self) -> tuple[int, int, int]:
        """Groups, and channels in and out."""
        groups = self.pick(1, 1, 2, 4)
        taken, made = self.pick(1, 3, 4, 8, 16) * groups, self.pick(1, 2, 8, 16, 24) * groups
        return (taken, taken, taken * self.pick(1, 2)) if self.rng.random() < 0.25 else (groups, taken, made)

    def convolution(self) -> None:
        rank, (groups, taken, made) = self.pick(1, 2, 2, 2, 3), self.channels()
        x = self.data(self.pick(1, 2), *self.picks(rank, 9, 10, 11), taken)
        weight = self.weight(*self.picks(rank, 1, 2, 3, 4), taken // groups, made)
        self.finished(call(f"nn.conv{rank}d", x, weight, groups=groups, **self.window(rank)))

    def int8_convolution(self) -> None:
        rank, (groups, taken, made) = self.pick(1, 2, 2), self.channels()
        x = self.data(self.pick(1, 2), *self.picks(rank, 9, 10, 13), taken, dtype="int8")
        weight = const(self.bytes((*self.picks(rank, 1, 2, 3), taken // groups, made)))
        zero = self.pick(0, 0, -128, 127, 5)
        sums = call(f"qnn.conv{rank}d", x, weight, groups=groups, input_zero_point=zero, **self.window(rank))
        self.outputs.append(sums)

    def int8_dense(self) -> None:
        rows, depth, units = self.picks(3, 1, 2, 3, 7, 16, 33, 64, 100)
        x, weight = self.data(rows, depth, dtype="int8"), const(self.bytes((units, depth)))
        self.outputs.append(call("qnn.dense", x, weight, input_zero_point=self.pick(0, -128, 127, 5)))

    def dense(self) -> None:
        rows, depth, units = self.picks(3, 1, 2, 3, 7, 16, 33, 64, 100)
        shape = self.pick((rows, depth), (2, rows, depth), (depth,))
        weight = self.weight(units, depth) if self.pick(True, False) else self.data(units, depth)
        self.finished(call("nn.dense", self.data(*shape), weight))

    def matmul(self) -> None:
        rows, depth, columns = self.picks(3, 1, 2, 3, 7, 16, 33, 64)
        batches = ((), (1,), (3,), (2, 1), (2, 3), (1, 3))
        sides = [self.side(self.pick(*batches), *size) for size in ((rows, depth), (depth, columns))]
        self.finished(call("matmul", *sides))

    def side(self, batch: tuple[int, ...], rows: int, columns: int) -> Expr:
        if self.pick(True, False):
            return self.data(*batch, rows, columns)
        leading = tuple(range(len(batch)))
        axes = (*leading, len(batch) + 1, len(batch))
        return call("transpose", self.data(*batch, columns, rows), axes=axes)

    def pool(self) -> None:
        rank, what = self.pick(1, 2, 2, 3), self.pick("max", "avg")
        size = (self.pick(2, 3), *self.picks(rank - 1, 1, 2, 3))
        padding = [self.pick(0, taps - 1) for taps in (*size, *size)]
        more = {"count_include_pad": self.pick(True, False)} if what == "avg" else {}
        dtype = "int8" if what == "max" and self.pick(True, False) else "float32"
        x = self.data(self.pick(1, 2), *self.picks(rank, 7, 8, 9), self.pick(1, 3, 16, 17), dtype=dtype)
        strides = self.picks(rank, 1, 2, 3)
        self.outputs.append(
            call(f"nn.{what}_pool{rank}d", x, pool_size=size, strides=strides, padding=tuple(padding), **more)
        )

    def check(self, targets: str) -> None:
        """Build and run them: all by the library, and all right."""
        module = IRModule.from_functions({"main": Function(self.inputs, Tuple(self.outputs))})
        artifact = uma.build(module, targets, plugins=PLUGINS)
        kernels = [one["kernel"] for one in artifact.metadata["calls"]]
        assert all(kernel.startswith("onednn") for kernel in kernels), kernels
        with artifact.session() as session:
            for _ in range(2):  # the second time with what the first one made
                made = session.run(self.given)
        for expr, got, wanted in zip(self.outputs, made.values(), evaluate(module, self.given), strict=True):
            if got.dtype.kind == "i":
                np.testing.assert_array_equal(got, wanted, err_msg=repr(expr))
            else:
                np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max(), err_msg=repr(expr))


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(12))
def test_floats(real: str, seed: int) -> None:
    layers = Layers(np.random.default_rng(seed))
    for make in (layers.convolution, layers.dense, layers.matmul, layers.pool):
        for _ in range(5):
            make()
    layers.check(real)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(12))
def test_int8_sums(real: str, seed: int) -> None:
    layers = Layers(np.random.default_rng(seed))
    for make in (layers.int8_convolution, layers.int8_dense):
        for _ in range(9):
            make()
    layers.check(real)


def test_elementwise_and_global_pools(real: str) -> None:
    layers = Layers(np.random.default_rng(0))
    for name in UNARY:
        layers.outputs.append(call(name, layers.data(3, 37), **ATTRS.get(name, {})))
    layers.outputs += [call(name, call(first, layers.data(3, 37))) for name, first in (("sqrt", "abs"), ("log", "exp"))]
    for name in BINARY:
        for second in (layers.data(2, 3, 17), layers.data(17), const(np.float32(2.5)), layers.data(1, 1, 17)):
            layers.outputs.append(call(name, layers.data(2, 3, 17), second))
    for name, shape, axis in (
        ("nn.softmax", (4, 37), -1),
        ("nn.softmax", (2, 5, 3, 4), 1),
        ("nn.log_softmax", (3, 2, 19), 2),
        ("nn.log_softmax", (7, 3), 0),
    ):
        layers.outputs.append(call(name, layers.data(*shape), axis=axis))
    for shape in ((1, 5, 4), (2, 7, 7, 16), (1, 3, 4, 5, 3)):
        layers.outputs += [call(f"nn.global_{what}_pool", layers.data(*shape)) for what in ("max", "avg")]
    layers.check(real)


NAN, INF = np.nan, np.inf


def _special(rng: np.random.Generator, shape: tuple[int, ...], *values: float, often: float = 0.1) -> np.ndarray:
    """Normal numbers, some of which are others."""
    made = rng.normal(0, 1, shape)
    chosen = rng.random(shape) < often
    made[chosen] = rng.choice(values, int(chosen.sum()))
    return made.astype(np.float32)


@pytest.mark.few(1)
@pytest.mark.parametrize("values", [(NAN, INF, -INF, -0.0), (NAN,), (INF,), (-INF,)])
def test_with_nan_to_be_kept_the_table_of_special_values_holds(real: str, values: tuple[float, ...]) -> None:
    """Every op that is still taken, and those that are not, beside the ops' references."""
    rng = np.random.default_rng(0)
    layers = Layers(rng)

    def data(*shape: int, often: float = 0.1) -> Var:
        made = layers.data(*shape)
        layers.given[made.name] = _special(rng, shape, *values, often=often)
        return made

    for name in (*UNARY, "sqrt", "log", "nn.softmax", "nn.log_softmax"):
        layers.outputs.append(call(name, data(4, 16), **ATTRS.get(name, {})))
    layers.outputs += [call(name, data(4, 16), data(4, 16)) for name in BINARY]
    for rank, what in itertools.product((1, 2, 3), ("max", "avg")):
        window = {"pool_size": (3,) * rank, "strides": (2,) * rank, "padding": (1,) * 2 * rank}
        layers.outputs.append(call(f"nn.{what}_pool{rank}d", data(1, *[7] * rank, 17, often=0.4), **window))
    layers.outputs += [call(f"nn.global_{what}_pool", data(1, 5, 5, 16)) for what in ("max", "avg")]
    layers.outputs.append(call("matmul", data(4, 16), layers.data(16, 5)))
    for name in ACTIVATIONS:
        layers.outputs.append(call(name, call("nn.dense", data(4, 16), layers.weight(8, 16)), **ATTRS.get(name, {})))
    module = IRModule.from_functions({"main": Function(layers.inputs, Tuple(layers.outputs))})
    artifact = uma.build(module, "onednn -nan=keep; c", plugins=PLUGINS)
    kernels = [one["kernel"] for one in artifact.metadata["calls"]]
    assert 20 <= sum(kernel.startswith("onednn") for kernel in kernels) < len(kernels)
    found = artifact.run(layers.given).values()
    with np.errstate(all="ignore"):
        references = evaluate(module, layers.given)
    for expr, got, wanted in zip(layers.outputs, found, references, strict=True):
        largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
        np.testing.assert_allclose(got, wanted, 1e-5, 1e-5 * largest, err_msg=repr(expr))
