"""Strips of columns: what may be computed in them, and that they give the same."""

from __future__ import annotations

import numpy as np
import pytest
from tests._support.row_nets import RowNet, mobilenet
from tests._support.strip_nets import named, strip_net

from uma.relay import Expr, Function, IRModule, TensorType, Tuple, Var, call, const
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call
from uma.relay.transform.strips import COLUMNS, Window, fits, in_strips, leading, products
from uma.relay.verify import verify
from uma.relay.visit import post_order


def drawn(module: IRModule) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    types = {param.name: param.tensor for param in module.main.params}
    return {
        name: rng.normal(size=one.shape).astype(np.float32)
        if one.dtype == "float32"
        else rng.integers(-128, 128, one.shape, np.int8)
        for name, one in types.items()
    }


def compared(module: IRModule) -> int:
    """Checks every chain of a network in 2 to 4 strips; gives how many there were."""
    given = drawn(module)
    expected = evaluate(module, given)
    count = 0
    for one in leading(module.main, lambda call: True):
        for end in one.ends:
            for strips in (2, 3, 4):
                chain = one.chain(end)
                if not fits(chain, strips):
                    continue
                made = in_strips(module, chain, strips)
                verify(made)
                assert made.main.type is module.main.type
                for found, wanted in zip(evaluate(made, given), expected, strict=True):
                    assert (
                        (found == wanted).all() if wanted.dtype == np.int8 else np.allclose(found, wanted, 1e-6, 1e-6)
                    )
                count += 1
    return count


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_random_networks(dtype: str) -> None:
    assert sum(compared(strip_net(seed, dtype, 5)) for seed in range(6)) > 30


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_many_random_networks(dtype: str) -> None:
    assert sum(compared(strip_net(seed, dtype)) for seed in range(100, 700)) > 5000


def test_windows() -> None:
    window = Window(3, 2, 0, 1)  # TFLite's SAME of an even width at stride 2
    assert window.touched(0, 4, 16) == (0, 9) and window.padding(0, 4, 16) == (0, 0)
    assert window.touched(4, 8, 16) == (8, 16) and window.padding(4, 8, 16) == (0, 1)
    assert Window(5, 1, 2, 2).touched(0, 1, 2) == (0, 2) and Window(5, 1, 2, 2).padding(0, 1, 2) == (2, 1)


def test_a_residual_block_takes_the_columns_that_it_adds() -> None:
    net = RowNet(6, 10, 4)
    y = net.conv(net.x, 4)
    module = named(net.module(call("maximum", net.conv(net.conv(y, 4), 4), y)))
    (one,) = leading(module.main, lambda call: True)
    made = in_strips(module, one.chain(one.ends[-1]), 2)
    slices = [expr for expr in post_order(made.main.body) if isinstance(expr, Call) and expr.op_name == "strided_slice"]
    # Of 10 columns a strip of 5 needs 8 of the input, 7 of the first layer, of which it adds 5.
    assert [one.tensor.shape[COLUMNS] for one in slices] == [8, 5, 8, 5]
    assert made.spans[slices[1]] == module.spans[module.main.body]
    joined = made.main.body
    assert isinstance(joined, Call) and joined.op_name == "concatenate" and joined.attrs.axis == COLUMNS
    assert compared(module) > 0


def test_where_the_borders_are_the_whole_nothing_is_left_out() -> None:
    net = RowNet(5, 5, 2)
    module = net.module(net.conv(net.conv(net.conv(net.x, 2), 2), 2))
    assert compared(module) > 0


def test_the_products_of_mobilenet_v2() -> None:
    (one,) = leading(mobilenet().main, lambda call: True)
    total = products(one.chain(one.ends[-1]))
    (chain,) = [one.chain(end) for end in one.ends if one.members[end].tensor.shape == (1, 28, 28, 32)][:1]
    assert 0.014 < (products(chain, 2) - products(chain)) / total < 0.015


def test_an_input_whose_dimensions_are_moved_is_cut_before() -> None:
    x = Var("x", TensorType((1, 3, 6, 9), "int8"))
    moved = call("layout_transform", x, src_layout="NCHW", dst_layout="NHWC")
    module = IRModule.from_functions({"main": Function([x], call("nn.max_pool2d", moved, pool_size=(2, 2)))})
    (one,) = leading(module.main, lambda call: True)
    made = in_strips(module, one.chain(0), 2)
    assert compared(module) > 0
    cut = [expr for expr in post_order(made.main.body) if isinstance(expr, Call) and expr.op_name == "strided_slice"]
    assert [expr.args[0] for expr in cut] == [x, x] and [expr.tensor.shape for expr in cut] == [(1, 3, 6, 5)] * 2


def reasons(body: Expr, *params: Var) -> list[str]:
    (one,) = leading(Function(params, body), lambda call: call.op_name != "abs")
    return list(one.reasons.values())


def test_what_ends_a_chain_says_why() -> None:
    x, y = (Var(name, TensorType((1, 4, 6, 2), "float32")) for name in "xy")
    assert reasons(call("nn.softmax", x, axis=2), x) == ["it is not computed by windows, nor element by element"]
    assert reasons(call("reshape", x, newshape=(1, 8, 3, 2)), x) == [
        "it is not computed by windows, nor element by element"
    ]
    assert reasons(call("nn.global_avg_pool", x), x) == ["it gives no picture: (1, rows, columns, channels)"]
    assert reasons(call("nn.pad", x, pad_width=(0, 0, 0, 1, 0, 0, 0, 0)), x) == ["it pads channels"]
    assert reasons(call("concatenate", x, x, axis=1), x) == ["it does not join channels"]
    assert reasons(call("add", x, const(np.ones((6, 1), np.float32))), x) == ["it takes a second picture"]
    assert reasons(call("abs", x), x) == ["it is for another target"]
    scaled = call("qnn.quantize", x, scale=(0.5,) * 6, zero_point=(0,), axis=2, rounding="even", dtype="int8")
    assert reasons(scaled, x) == ["it tells columns from one another"]
    both = leading(Function([x, y], call("add", x, y)), lambda call: True)
    assert [list(one.reasons.values()) for one in both] == [["it takes a second picture"]] * 2


def test_what_others_use_is_no_inner_member() -> None:
    x = Var("x", TensorType((1, 4, 6, 2), "float32"))
    once = call("nn.relu", x)
    twice = call("nn.max_pool2d", once, pool_size=(2, 2))
    (one,) = leading(Function([x], Tuple([twice, once])), lambda call: True)
    assert one.ends == (0,)
    last = call("nn.relu", call("abs", twice))
    (one,) = leading(Function([x], call("add", last, call("abs", twice))), lambda call: True)
    assert [one.members[end] for end in one.ends][:2] == [once, twice]
