"""Layers built anew with something changed: what has to follow does."""

from __future__ import annotations

import numpy as np

from uma.relay import Expr, FixedPoint, Function, TensorType, Var, call, const
from uma.testing.fuzz.acceptance_nudges import fitting
from uma.testing.fuzz.inputs import feeds, zero_points
from uma.testing.fuzz.layer import Layer, calls_in, with_body
from uma.testing.fuzz.layer_rebuild import Changes, OperandPosition, fitted, leaves_of, rebuilt
from uma.testing.fuzz.mutations import mutations
from uma.testing.fuzz.shrinking import measure, reductions
from uma.testing.fuzz.values import Sizes


def conv(groups: int = 1) -> Expr:
    """A convolution with a bias, a residual, a scale per channel and a clip."""
    data, residual = Var("x", TensorType((1, 6, 6, 4), "int8")), Var("r", TensorType((1, 6, 6, 4), "int8"))
    weight = const(np.arange(9 * 4 // groups * 4).reshape(3, 3, 4 // groups, 4).astype(np.int8))
    sums = call("qnn.conv2d", data, weight, padding=(1, 1, 1, 1), groups=groups, input_zero_point=5)
    sums = call("add", sums, const(np.arange(4, dtype=np.int32)))
    sums = call("add", sums, call("cast", residual, dtype="int32"))
    scale = FixedPoint((2**30, 2**30 + 1, 2**30 + 2, 2**30 + 3), (-5, -6, -7, -8), "up")
    return call("clip", call("qnn.requantize", sums, scale=scale, dtype="int8", axis=-1), a_min=-90.0, a_max=90.0)


def with_extent(body: Expr, place: OperandPosition, shape: tuple[int, ...]) -> Expr | None:
    return rebuilt(body, Changes(leaves={place: fitted(leaves_of(body)[place], shape)}))


def test_weights_bias_scales_and_residual_follow_channels() -> None:
    body = conv()
    data, weight = OperandPosition(0, 0), OperandPosition(0, 1)
    assert leaves_of(body)[data].shape == (1, 6, 6, 4) and leaves_of(body)[weight].shape == (3, 3, 4, 4)
    made = with_extent(body, data, (2, 5, 7, 3))
    assert made is not None and made.shape == (2, 5, 7, 4)
    assert [leaf.shape for leaf in leaves_of(made).values()] == [(2, 5, 7, 3), (3, 3, 3, 4), (4,), (2, 5, 7, 4)]
    made = with_extent(body, weight, (3, 1, 4, 6))
    assert made is not None and made.shape == (1, 6, 8, 6)
    assert len(calls_in(made)[-2].attrs.scale) == 6


def test_groups_follow_the_channels_of_a_depthwise_convolution() -> None:
    made = with_extent(conv(4), OperandPosition(0, 0), (1, 6, 6, 7))
    assert made is not None and made.shape == (1, 6, 6, 7)
    assert calls_in(made)[0].attrs.groups == 7


def test_what_cannot_follow_makes_no_layer() -> None:
    body = conv()
    assert rebuilt(body, Changes({0: {"strides": (9, 9), "padding": (0, 0, 0, 0), "dilation": (9, 9)}})) is None
    assert rebuilt(body, Changes({3: {"dtype": "float32"}})) is None


def test_each_variation_is_a_layer_of_its_own_and_says_what_it_is() -> None:
    layer = Layer(with_body(conv()), "p")
    found = list(mutations(layer, Sizes((8,), (256,)), np.random.default_rng(0)))
    made = [(one, other) for one in found if (other := one.apply(layer)) is not None]
    texts = [one.text for one, _ in made]
    for part in ("strides of", "padding of", "dilation of", "input_zero_point of", "shift -31", "halves of both signs"):
        assert any(part in text for text in texts), part
    for part in ("used outside", "is 7", "is 9", "larger than 256 bytes", "dtype of data", "is a constant", "as well"):
        assert any(part in text for text in texts), part
    assert all(other.varied and other.function is not layer.function for _, other in made)
    assert len(list(fitting(layer, np.random.default_rng(0)))) > 50


def test_inputs_reach_ends_and_zero_points() -> None:
    function = with_body(conv())
    assert zero_points(function) == {"x": 5, "r": 0}
    fed = dict(feeds(function, np.random.default_rng(0), 2))
    assert len(fed) == 8 and (fed["zero points"]["x"] == 5).all()
    assert (fed["lowest numbers"]["r"] == -128).all() and (fed["highest numbers"]["x"] == 127).all()
    assert len(np.unique(fed["every value"]["x"])) > 100


def test_reductions_are_smaller_layers() -> None:
    layer = Layer(Function(with_body(conv()).params, conv()), "p")
    smaller = [one for one in reductions(layer) if measure(one) < measure(layer)]
    assert min(measure(one)[0] for one in smaller) <= measure(layer)[0] - 1
    assert any(all(var.tensor.size == 1 or var.shape[-1] == 4 for var in one.function.params) for one in smaller)
