"""Floats in verification: correct random networks pass, and planted errors of a thousandth of a tensor's range fail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.passes import by_host
from tests._support.plugins import members_of, module_of, taking, toy
from tests._support.random_float_nets import KINDS, random_float_net
from tests._support.te_lowerings import lowered

from uma.hookspecs import LoweredKernel, Pass
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import build_loaded
from uma.pipeline.loading import LoadedModel, load_model
from uma.plugins import default_host
from uma.relay import Call, Constant, Expr, Function, IRModule, TensorType, Tuple, Var, call, const
from uma.relay.evaluate import evaluate, evaluate_all
from uma.relay.op import get_op
from uma.relay.visit import post_order, rewrite
from uma.tir import te
from uma.tir.te.evaluate import contents_of
from uma.verification.models import verify
from uma.verification.results import compare
from uma.verification.rounding_error import (
    CONFIDENCE,
    relative_bounds,
    rounding_bounds,
    sampled_error,
    underflow,
    unit_roundoff,
)
from uma.verification.samples import Sample, filled

CASES = [(kind, seed) for seed in range(2, 22) for kind in KINDS]


def loaded_net(kind: str, seed: int, folder: Path) -> tuple[LoadedModel, list[Sample]]:
    """A random network, and what it is fed."""
    file = folder / "net.onnx"
    file.write_bytes(random_float_net(kind, seed))
    loaded = load_model(file)
    artifact = build_loaded(loaded, resolve_targets("c", default_host()))
    return loaded, list(filled([], artifact.record.inputs))


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_a_correct_network_passes(kind: str, seed: int, tmp_path: Path) -> None:
    loaded, samples = loaded_net(kind, seed, tmp_path)
    members = resolve_targets("c", default_host())
    found = verify(loaded, build_loaded(loaded, members), members, samples)
    wrong = [check for check in (*found.kernels, *found.outputs) if not check.difference.ok]
    assert found.ok, wrong


FORMULAS = (
    ("sigmoid", {}),
    ("rsqrt", {}),
    ("nn.hard_swish", {}),
    ("nn.leaky_relu", {"alpha": 0.1}),
    ("nn.gelu", {"approximate": "none"}),
    ("nn.gelu", {"approximate": "tanh"}),
)
"""Elementwise ops that compute their results in several steps, and their attributes."""

PLANTED = 1e-3
"""Of the largest absolute value over the samples that the compared tensor has."""


def results(form: IRModule, samples: list[Sample]) -> list[np.ndarray]:
    names = [param.name for param in form.main.params]
    return [evaluate(form, dict(zip(names, sample.inputs.values(), strict=True)))[0] for sample in samples]


def with_error(form: IRModule, samples: list[Sample], rng: np.random.Generator, weights: bool) -> IRModule:
    """A model in which one element of a constant, or one of what a layer gives, is off, by so much that its output is
    off by `PLANTED`."""
    order = post_order(form.main.body)
    kind = Constant if weights else Call
    places = [e for e in order if isinstance(e, kind) and isinstance(e.type, TensorType) and e.dtype == "float32"]
    right = results(form, samples)
    scale = max(float(np.abs(array).max()) for array in right)
    while True:
        place = places[rng.integers(len(places))]
        element = np.zeros(place.shape, np.float32)
        element.flat[rng.integers(element.size)] = 1.0
        step = 1e-2
        for _ in range(30):
            off = element * np.float32(step)
            wrong = const(place.data + off) if isinstance(place, Constant) else call("add", place, const(off))

            def rule(expr: Expr, place: Expr = place, wrong: Expr = wrong) -> Expr | None:
                return wrong if expr is place else None

            body = rewrite(form.main.body, rule)
            changed = IRModule.from_functions({"main": Function(form.main.params, body)}, None, form.signature)
            pairs = zip(results(changed, samples), right, strict=True)
            share = max(float(np.abs(one - other).max()) for one, other in pairs) / scale
            if PLANTED <= share <= 1.2 * PLANTED:
                return changed
            if not share or step > 1e6:
                break  # no sample shows it
            step *= min(1.1 * PLANTED / share, 100.0)


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "seed"), CASES[:50])
def test_an_error_before_the_kernels_fails(kind: str, seed: int, tmp_path: Path) -> None:
    """A pass changes one weight, or one element of a layer's result."""
    loaded, samples = loaded_net(kind, seed, tmp_path)
    rng = np.random.default_rng(seed)
    changed: list[IRModule] = []

    def wrong(module: IRModule) -> IRModule:
        if not changed:  # a build that runs the pass again has the same error
            changed.append(with_error(module, samples, rng, weights=seed % 2 == 0))
        return changed[0]

    members = by_host(Pass("PRE_PARTITIONING", "wrong", wrong))
    found = verify(loaded, build_loaded(loaded, members), members, samples)
    assert not found.ok and any(not one.difference.ok for one in found.outputs if one.against == "references")
    assert all(one.difference.ok for one in found.kernels)  # each of them does what the pass says


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "seed"), CASES[:50])
def test_an_error_in_a_kernel_fails(kind: str, seed: int, tmp_path: Path) -> None:
    """An accelerator gives one wrong element of one kind of layer."""
    loaded, samples = loaded_net(kind, seed, tmp_path)
    rng = np.random.default_rng(seed)
    assert isinstance(loaded.form, IRModule)
    scales: dict[str, float] = {}
    for sample in samples:
        inputs = {p.name: a for p, a in zip(loaded.form.main.params, sample.inputs.values(), strict=True)}
        for expr, value in evaluate_all(loaded.form, inputs).items():
            if isinstance(expr, Call) and isinstance(value, np.ndarray) and value.dtype == np.float32 and value.size:
                name = str(expr.op_name)
                scales[name] = max(scales.get(name, 0.0), float(np.abs(value).max()))
    # (What only moves elements is not a kernel of its own.)
    names = [name for name in scales if get_op(name).kind != "injective" and get_op(name).compute is not None]
    name = names[rng.integers(len(names))]

    def wrong(function: Function) -> LoweredKernel:
        off = np.zeros(function.body.shape, np.float32)
        off.flat[rng.integers(off.size)] = 1.05 * PLANTED * scales[name]
        return lowered(Function(function.params, call("add", function.body, const(off))))

    members = members_of(toy("npu", patterns=lambda: [taking("npu", name, wrong)]))
    found = verify(loaded, build_loaded(loaded, members), members, samples)
    assert any(not one.difference.ok for one in found.kernels), name


class TestBounds:
    def test_a_chain_grows_with_the_square_root(self) -> None:
        x = Var("x", TensorType((2, 64), "float32"))
        weight = const(np.ones((64, 64), np.float32))
        one = call("nn.dense", x, weight)
        four = call("nn.dense", call("nn.dense", call("nn.dense", one, weight), weight), weight)
        (short,), (long,) = (relative_bounds(module_of(body)) for body in (one, four))
        assert short == pytest.approx(CONFIDENCE * np.sqrt(65) * 2.0**-24)  # 64 sums, and their products
        assert long == pytest.approx(2 * short)

    def test_integers_are_exact_and_end_a_chain(self) -> None:
        x = Var("x", TensorType((2, 64), "float32"))
        summed = call("sum", x, axis=(1,), keepdims=True)
        whole = call("qnn.quantize", summed, scale=(1.0,), zero_point=(0,), dtype="int8", rounding="even")
        (bound,) = relative_bounds(module_of(whole))
        assert bound == 0.0
        behind = call("add", call("cast", whole, dtype="float32"), const(np.float32(1)))
        (bound,) = relative_bounds(module_of(behind))
        assert bound <= CONFIDENCE * np.sqrt(2) * unit_roundoff("float32")

    def test_float16_has_a_larger_roundoff(self) -> None:
        x = Var("x", TensorType((2,), "float32"))
        (bound,) = relative_bounds(module_of(call("cast", x, dtype="float16")))
        assert bound == CONFIDENCE * 2.0**-11

    def test_a_branch_counts_as_its_longer_side(self) -> None:
        x = Var("x", TensorType((2,), "float32"))
        short, long = call("add", x, x), call("add", call("multiply", x, x), x)
        for body in (Tuple([short, long]), Tuple([long, short])):
            assert max(relative_bounds(module_of(body))) == pytest.approx(CONFIDENCE * np.sqrt(2) * 2.0**-24)

    def test_the_sampled_error_shows_cancellation(self) -> None:
        x = Var("x", TensorType((8,), "float32"))
        mean = call("mean", x, axis=(0,), keepdims=True)
        centred, inputs = module_of(call("subtract", x, mean)), {"x": np.full(8, 1e4, np.float32)}
        (error,) = sampled_error(centred, inputs, evaluate(centred, inputs))
        assert 1e-4 < error < 1e-1  # some units in the last place of 1e4, which is 1e-3
        plain = module_of(call("add", x, x))
        (error,) = sampled_error(plain, inputs, evaluate(plain, inputs))
        assert error < 1e4 * 1e-6

    @pytest.mark.parametrize(("name", "attrs"), FORMULAS)
    def test_each_formula_computed_in_float32_is_within_its_bound(self, name: str, attrs: Mapping[str, Any]) -> None:
        """1 + tanh(x) cancels where x is negative: gelu(-4) is -7e-5, and off by 2**-23."""
        x = Var("x", TensorType((1,), "float32"))
        y = call(name, x, **attrs)
        form, data = module_of(y), te.placeholder((1,), "float32", "x")
        (relative,) = relative_bounds(form)
        for value in np.linspace(-8, 8, 33, dtype=np.float32):
            array = np.full(1, value)
            expected = evaluate(form, {"x": array})
            computed = contents_of([y.op.compute(y.attrs, y.type, data)], {data: array})
            (bound,) = rounding_bounds([relative], form, {"x": array}, expected)
            assert compare(computed[0], expected[0], bound).ok, value
            off = expected[0] + np.float32(1e-5 * max(1, abs(value)))
            assert not np.isfinite(off) or not compare(off, expected[0], bound).ok, value

    @pytest.mark.parametrize(("dtype", "lowest"), [("float32", -95.0), ("float16", -17.0)])
    def test_results_below_the_normal_numbers_may_be_zero(self, dtype: str, lowest: float) -> None:
        """1 / (1 + exp(95)) is 0 in float32, and 6e-42 exactly."""
        x = Var("x", TensorType((8,), dtype))
        wide = call("sigmoid", call("cast", x, dtype="float32"))
        form, inputs = module_of(call("cast", wide, dtype=dtype)), {"x": np.full(8, lowest, dtype)}
        expected = evaluate(form, inputs)
        assert 0 < expected[0].max() <= underflow(dtype)
        (bound,) = rounding_bounds(relative_bounds(form), form, inputs, expected)
        assert compare(np.zeros_like(expected[0]), expected[0], bound).ok
        assert not compare(expected[0] + 2 * np.array(underflow(dtype), dtype), expected[0], bound).ok

    def test_integers_stay_in_the_sampled_error(self) -> None:
        """A tie at which rounding decides does not make a whole step of it."""
        x = Var("x", TensorType((8,), "float32"))
        tied = call("multiply", x, const(np.float32(0.5)))
        stepped = call("qnn.quantize", tied, scale=(1.0,), zero_point=(0,), dtype="int8", rounding="even")
        back = call("qnn.dequantize", stepped, scale=(1.0,), zero_point=(0,))
        model, inputs = module_of(back), {"x": np.arange(1, 17, 2, dtype=np.float32)}
        assert sampled_error(model, inputs, evaluate(model, inputs)) == (0.0,)
