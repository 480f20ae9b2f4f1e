"""Strips of columns, built and run: the same results, less RAM, and why there are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests._support.control_flow import EXAMPLE
from tests._support.row_nets import RowNet, mobilenet, small_net
from tests._support.strip_nets import named, strip_net

import uma
from uma.errors import RequirementError, UsageError
from uma.option_values import MAX_STRIPS
from uma.pipeline.dump import print_form
from uma.relay import Function, IRModule, TensorType, Tuple, Var, call, parse_module
from uma.relay.transform.strips import fits, leading

HOST = "c -opt=s"
"""What is compiled soonest."""


def drawn(module: IRModule) -> np.ndarray:
    rng, (param,) = np.random.default_rng(1), module.main.params
    if param.tensor.dtype == "float32":
        return rng.normal(size=param.tensor.shape).astype(np.float32)
    return rng.integers(-128, 128, param.tensor.shape, np.int8)


def result(artifact: uma.Artifact, data: np.ndarray) -> np.ndarray:
    found: np.ndarray = artifact.run(data)["output"]
    return found


def wide(rows: int = 24, columns: int = 40) -> IRModule:
    """Four layers, of which the widest are the second one and the third one."""
    net = RowNet(rows, columns, 3)
    y = net.conv(net.conv(net.x, 4, 3, 2), 24, 1)
    return named(net.module(net.conv(net.conv(y, 24, 3, 2, depthwise=True), 4, 1)))


def test_two_strips_take_less_ram_than_rows_alone() -> None:
    model = wide()
    whole, made = uma.build(model, HOST), uma.build(model, HOST, strips=2)
    record = made.record.strips
    assert record is not None and record.count == 2 and record.columns == 10 and record.layers == ("layer11",)
    assert record.products == 12 * 20 * 4 * 27 + 12 * 20 * 24 * 4 + 6 * 10 * 24 * 9 + 6 * 10 * 4 * 24
    assert record.added == 12 * 4 * 27 + 12 * 24 * 4
    assert record.ram_bytes is not None and record.ram_before is not None and record.ram_bytes < record.ram_before
    assert made.record.rows is not None and record.ram_bytes == made.record.rows.point.ram_bytes
    assert whole.record.strips is None
    data = drawn(model)
    assert len(np.unique(result(whole, data))) > 50
    assert (result(made, data) == result(whole, data)).all()


@pytest.mark.soak
def test_a_limit_takes_strips_where_rows_alone_do_not_reach_it() -> None:
    made = uma.build(wide(), HOST, strips="2").record.strips
    assert made is not None and made.ram_before is not None and made.ram_bytes is not None
    roomy = uma.build(wide(), HOST, strips=2, max_ram=made.ram_before)
    assert roomy.record.strips is None and roomy.record.rows is not None
    tight = uma.build(wide(), HOST, strips=2, max_ram=made.ram_before - 1)
    assert tight.record.strips is not None and tight.record.rows is not None
    assert tight.record.rows.point.ram_bytes < made.ram_before
    with pytest.raises(RequirementError, match=r"the model takes .* bytes of RAM, 1,000 are allowed by max_ram"):
        uma.build(wide(), HOST, strips=2, max_ram=1000)


def last_ends(model: IRModule, strips: int) -> list[str]:
    """Layers that can be the last ones in so many strips."""
    found = [one.chain(end) for one in leading(model.main, lambda call: True) for end in one.ends]
    return [model.spans[chain.end][0] for chain in found if fits(chain, strips)]


def compared(seed: int, dtype: str) -> bool:
    """Builds a random network in strips up to the last layer that can be; False where none can."""
    model, strips = strip_net(seed, dtype), 2 + seed % 3
    for layer in reversed(last_ends(model, strips)):
        try:
            made = uma.build(model, HOST, strips=f"{strips}:{layer}")
        except RequirementError:  # (it is within a kernel)
            continue
        data = drawn(model)
        assert made.record.strips is not None and made.record.strips.layers == (layer,)
        assert (result(made, data) == result(uma.build(model, HOST), data)).all()
        return True
    return False


def test_a_random_network() -> None:
    assert compared(3, "int8")


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_many_random_networks(dtype: str) -> None:
    assert sum(compared(seed, dtype) for seed in range(20, 60)) > 25


@pytest.mark.soak
def test_a_dump_has_the_strips_and_is_built_on(tmp_path: Path) -> None:
    model = small_net()
    made = uma.build(named(model), HOST, strips="3:layer18", dump=tmp_path, name="net")
    text = next(tmp_path.glob("*-fuse.py"))
    assert "strided_slice" in text.read_text() and "concatenate" in text.read_text()
    again = uma.build(next(tmp_path.glob("*-sequence.py")), HOST, name="net")
    data = drawn(model)
    assert again.record.arena_bytes == made.record.arena_bytes and again.record.strips is None
    assert (result(again, data) == result(uma.build(model, HOST), data)).all()
    assert (result(uma.build(text, HOST, name="net"), data) == result(made, data)).all()


def test_forms_that_are_past_it(tmp_path: Path) -> None:
    x = Var("x", TensorType((1, 8, 8, 2), "float32"))
    model = IRModule.from_functions({"main": Function([x], call("nn.max_pool2d", x, pool_size=(2, 2)))})
    uma.build(model, HOST, stop_after="sequence", dump=tmp_path)
    with pytest.raises(UsageError, match="a form that was lowered already is not computed in strips"):
        uma.build(next(tmp_path.glob("*-flatten.py")), HOST, strips=2)
    with pytest.raises(UsageError, match="a program is not computed in strips"):
        uma.build(next(tmp_path.glob("*-sequence.py")), HOST, strips=2)
    fused = uma.build(model, HOST, strips=2, stop_after="fuse")
    assert isinstance(fused, IRModule) and "concatenate" in print_form(fused)[0]


@pytest.mark.parametrize("given", ["", "two", "2:", 2.0, True, -2, "2 "])
def test_what_is_no_number_of_strips(given: object) -> None:
    with pytest.raises(UsageError, match="is not a number of strips") as caught:
        uma.build(wide(), HOST, strips=given)  # type: ignore[call-overload]  # what the test is about
    assert caught.value.hint is not None and "like 2:conv4" in caught.value.hint


@pytest.mark.parametrize("given", [0, 1, "1:layer3", MAX_STRIPS + 1])
def test_too_few_and_too_many(given: int | str) -> None:
    with pytest.raises(UsageError, match="a picture cannot be computed in"):
        uma.build(wide(), HOST, strips=given)


def refused(model: IRModule, strips: int | str = 2) -> str:
    with pytest.raises(RequirementError, match="strips of columns bring nothing") as caught:
        uma.build(model, HOST, strips=strips)
    return caught.value.what


def test_why_there_are_none() -> None:
    x = Var("x", TensorType((1, 16), "float32"))
    assert "there is no picture" in refused(IRModule.from_functions({"main": Function([x], call("nn.relu", x))}))
    x = Var("x", TensorType((1, 4, 6, 2), "float32"))
    softmax = IRModule.from_functions({"main": Function([x], call("nn.softmax", x, axis=2))})
    assert "softmax: it is not computed by windows, nor element by element" in refused(softmax)
    assert "nothing of a model with branches or loops runs row by row" in refused(parse_module(EXAMPLE))
    assert "10 columns are too few for them" in refused(wide(), "11:layer11")
    net = RowNet(8, 8, 2)
    assert "bytes of RAM with them, and" in refused(net.module(net.conv(net.x, 4)))


def test_a_layer_that_is_no_end() -> None:
    with pytest.raises(UsageError, match="the model has no layer 'layer99'"):
        uma.build(wide(), HOST, strips="2:layer99")
    x = Var("x", TensorType((1, 8, 8, 2), "float32"))
    once = call("nn.max_pool2d", x, pool_size=(2, 2))
    twice = call("nn.max_pool2d", once, pool_size=(2, 2))
    model = named(IRModule.from_functions({"main": Function([x], Tuple([call("nn.softmax", twice), once]))}))
    assert "layer1: others use what is computed before it" in refused(model, "2:layer1")
    assert "layer2: it is not computed by windows" in refused(model, "2:layer2")


@pytest.mark.soak
def test_mobilenet_v2_in_two_strips() -> None:
    model = mobilenet()
    made = uma.build(model, HOST, strips=2)
    record = made.record.strips
    assert record is not None and made.record.arena_bytes <= 82_000
    assert record.added / record.products < 0.015
    data = drawn(model)
    assert (result(made, data) == result(uma.build(model, HOST), data)).all()
