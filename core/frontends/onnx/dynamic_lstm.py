"""DynamicQuantizeLSTM of onnxruntime: an LSTM with integer weights that quantises its data as it runs.

It is written in ONNX's own operators: the product of the data with the weights quantises all time steps at once, and a
Loop over the steps quantises the hidden state of all batches. This is what onnxruntime computes on one thread
(onnxruntime/core/providers/cpu/rnn/uni_directional_lstm.cc, ``ComputeGemm``); on several threads it quantises each
thread's batches by a scale of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...tir.form.symbolic_dims import is_open
from .context import Value
from .function_expansion import Body
from .proto import Node
from .recurrent import LSTM, activations_of, directions_of

if TYPE_CHECKING:
    import numpy as np
    from onnx import NodeProto

__all__ = ["BODIES"]

_INPUTS = ("X", "W", "R", "B", "lens", "h", "c", "P", "W_scale", "W_zero", "R_scale", "R_zero")

_RESULTS = ("Y", "Y_h", "Y_c")

_OPSET = 18

_ONNX_NAMES = {
    "elu": "Elu",
    "hard_sigmoid": "HardSigmoid",
    "leaky_relu": "LeakyRelu",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "softsign": "Softsign",
    "tanh": "Tanh",
    "thresholded_relu": "ThresholdedRelu",
}
"""Activations that are operators of ONNX, of one attribute or two; the others are composed."""

_WITH_ALPHA = ("elu", "hard_sigmoid", "leaky_relu", "thresholded_relu")


class _Nodes:
    """Nodes of a graph, whose results are numbered.

    Args:
        prefix: of the names of results.
    """

    def __init__(self, prefix: str) -> None:
        self.nodes: list[NodeProto] = []
        self._prefix = prefix

    def __call__(self, op: str, *inputs: str, results: int = 1, **attrs: Any) -> Any:
        """Add a node; return the name of its result, or a list of names."""
        from onnx import helper

        names = [f"{self._prefix}{len(self.nodes)}_{index}" for index in range(results)]
        self.nodes.append(helper.make_node(op, inputs, names, **attrs))
        return names[0] if results == 1 else names

    def number(self, value: Any, dtype: str = "int64") -> str:
        """Add a constant."""
        import numpy as np
        from onnx import numpy_helper

        name: str = self("Constant", value=numpy_helper.from_array(np.array(value, dtype)))
        return name

    def named(self, op: str, *inputs: str, result: str, **attrs: Any) -> None:
        """Add a node whose result has a name of its own."""
        from onnx import helper

        self.nodes.append(helper.make_node(op, inputs, [result], **attrs))

    def product(self, data: str, weight: str, scale: str, zero: str) -> str:
        """Add the product of floats, quantised by one scale, with integer weights; return a float32."""
        codes, data_scale, data_zero = self("DynamicQuantizeLinear", data, results=3)
        sums = self("Cast", self("MatMulInteger", codes, weight, data_zero, zero), to=1)
        result: str = self("Mul", sums, self("Mul", data_scale, scale))
        return result


def _body(node: Node, values: Sequence[Value | None], opsets: Mapping[str, int]) -> Body:
    """Return what a DynamicQuantizeLSTM stands for.

    Raises:
        ModelError: an input has the wrong type or shape, or the zero points are computed or differ within a direction;
            or an attribute is not supported.
    """
    directions = directions_of(node)
    if len(node.outputs) > len(_RESULTS) or len(values) > len(_INPUTS):
        raise ModelError(f"it has {len(values)} inputs and {len(node.outputs)} results")
    inputs = {name: value for name, value in zip(_INPUTS, values, strict=False) if value is not None}
    units, zeros = _checked(inputs, len(directions), node.integer("hidden_size", 0))
    add = _Nodes("n")
    data, lengths = "X", None
    steps = int(inputs["X"].shape[0])
    if "lens" in inputs:
        lengths = add("Cast", "lens", to=7)
        # What follows the longest sequence is not quantised; 0 is in every range.
        longest = add("ReduceMax", lengths, keepdims=0)
        places = add("Range", add.number(0), add.number(steps), add.number(1))
        is_within = add("Reshape", add("Less", places, longest), add.number([steps, 1, 1]))
        data = add("Where", is_within, "X", add.number(0, "float32"))
    results: list[Sequence[str]] = []
    for number, is_reverse in enumerate(directions):

        def part(name: str, number: int = number) -> str:
            result: str = add("Gather", name, add.number(number), axis=0)
            return result

        ordered = _reversed(add, data, lengths, steps) if is_reverse else data
        product = add.product(ordered, part("W"), part("W_scale"), add.number(*zeros["W_zero"][number]))
        if "B" in inputs:
            halves = add("Reshape", part("B"), add.number([2, 4 * units]))
            product = add("Add", product, add("ReduceSum", halves, add.number([0]), keepdims=0))
        states = [part(name) if name in inputs else _zeros(add, inputs["X"].shape[1], units) for name in "hc"]
        peepholes = add("Reshape", part("P"), add.number([3, units])) if "P" in inputs else None
        recurrent = part("R"), part("R_scale"), add.number(*zeros["R_zero"][number])
        step = _step(node, number, product, recurrent, peepholes, lengths)
        carried = states if lengths is None else [*states, states[0]]
        *last, output = add("Loop", add.number(steps), "", *carried, body=step, results=len(carried) + 1)
        if lengths is not None:
            _, cell, hidden = last
            # A sequence without elements ends in zeros.
            some = add("Unsqueeze", add("Greater", lengths, add.number(0)), add.number([1]))
            last = [add("Where", some, state, add.number(0, "float32")) for state in (hidden, cell)]
        results.append((_reversed(add, output, lengths, steps) if is_reverse else output, *last))
    for position, (name, parts) in enumerate(zip(_RESULTS, zip(*results, strict=True), strict=True)):
        axis = 1 if position == 0 else 0
        stacked = [add("Unsqueeze", one, add.number([axis])) for one in parts]
        add.named("Concat", *stacked, result=name, axis=axis)
    return Body(node.described, add.nodes, _INPUTS, _RESULTS, {**opsets, "": _OPSET}, {})


def _zeros(add: _Nodes, batch: int, units: int) -> str:
    result: str = add("Expand", add.number(0, "float32"), add.number([batch, units]))
    return result


def _reversed(add: _Nodes, data: str, lengths: str | None, steps: int) -> str:
    """Turn the first axis around, in each batch as much of it as its length says."""
    if lengths is not None:
        result: str = add("ReverseSequence", data, lengths, batch_axis=1, time_axis=0)
    else:
        result = add("Slice", data, *(add.number([n]) for n in (steps - 1, -(2**31), 0, -1)))
    return result


def _checked(inputs: Mapping[str, Value], directions: int, hidden: int) -> tuple[int, dict[str, list[tuple[int, str]]]]:
    """Return how many units there are, and the zero points of each direction with their dtypes."""
    for name, kinds in (("X", ("float32",)), ("W", ("int8", "uint8")), ("R", ("int8", "uint8"))):
        value = inputs.get(name)
        if value is None or len(value.shape) != 3 or str(value.dtype) not in kinds:
            shown = "missing" if value is None else f"{value.dtype} of shape {tuple(value.shape)}"
            raise ModelError(f"its {name} is {shown}, not {' or '.join(kinds)} of 3 dimensions")
        if is_open(value.shape):
            hint = "fix its shape, --shape NAME=..., or in Python shapes="
            raise ModelError(f"its {name} has dynamic dimensions, which is not supported", hint=hint)
        if min(value.shape) < 1:
            raise ModelError(f"its {name} is empty: {tuple(value.shape)}")
    _, batch, features = inputs["X"].shape
    units = inputs["R"].shape[1]
    scales = ((directions,), (directions, 4 * units))
    expected: dict[str, tuple[str, Sequence[tuple[int, ...]]]] = {
        "W": (str(inputs["W"].dtype), [(directions, features, 4 * units)]),
        "R": (str(inputs["R"].dtype), [(directions, units, 4 * units)]),
        "B": ("float32", [(directions, 8 * units)]),
        "lens": ("int32", [(batch,)]),
        "h": ("float32", [(directions, batch, units)]),
        "c": ("float32", [(directions, batch, units)]),
        "P": ("float32", [(directions, 3 * units)]),
        "W_scale": ("float32", scales),
        "W_zero": (str(inputs["W"].dtype), scales),
        "R_scale": ("float32", scales),
        "R_zero": (str(inputs["R"].dtype), scales),
    }
    for name, (dtype, shapes) in expected.items():
        value = inputs.get(name)
        if value is None and name in ("B", "lens", "h", "c", "P"):
            continue
        if value is None or str(value.dtype) != dtype or tuple(value.shape) not in shapes:
            shown = "missing" if value is None else f"{value.dtype} of shape {tuple(value.shape)}"
            raise ModelError(f"its {name} is {shown}, not {dtype} of shape {' or '.join(map(str, shapes))}")
    if hidden not in (0, units):
        raise ModelError(f"its hidden_size is {hidden}, its R of {units} units")
    return units, {name: _zero_points(name, inputs[name], directions) for name in ("W_zero", "R_zero")}


def _zero_points(name: str, value: Any, directions: int) -> list[tuple[int, str]]:
    """Return one for each direction, with its dtype."""
    if not hasattr(value, "reshape"):
        raise ModelError(f"its {name} is computed at run time")
    rows: np.ndarray = value.reshape(directions, -1)
    if (rows != rows[:, :1]).any():
        raise ModelError(
            f"its {name} has different numbers in one direction", hint="quantise the weights symmetrically"
        )
    return [(int(row[0]), rows.dtype.name) for row in rows]


def _step(
    node: Node,
    number: int,
    product: str,
    recurrent: tuple[str, str, str],
    peepholes: str | None,
    lengths: str | None,
) -> Any:
    """Return the graph of one time step.

    It carries the hidden state, 0 in finished sequences, the cell state, and, where there are lengths, the hidden state
    in which each sequence ended.

    Args:
        node: the operator.
        number: of the direction.
        product: the data times the weights, plus the bias, (time, batch, 4 * units).
        recurrent: the recurrent weights, their scale and their zero point.
        peepholes: (3, units), if there are any.
        lengths: of the sequences, int64; None if all have all steps.
    """
    from onnx import ValueInfoProto, helper

    activations = activations_of(node, LSTM, number)
    add = _Nodes(f"s{number}_")
    at = add("Gather", product, "step", axis=0)
    total = add("Add", at, add.product("hidden", *recurrent))
    gates = add("Split", total, axis=1, num_outputs=4, results=4)

    def activated(part: str, value: str) -> str:
        if part != "output" and node.has("clip"):
            limit = node.real("clip")
            value = add("Clip", value, add.number(-limit, "float32"), add.number(limit, "float32"))
        return _activation(add, value, *(activations[f"{part}{end}"] for end in ("", "_alpha", "_beta")))

    def gate(position: int, peephole: int, cell: str) -> str:
        value = gates[position]
        if peepholes is not None:
            row = add("Gather", peepholes, add.number(peephole), axis=0)
            value = add("Add", value, add("Mul", row, cell))
        return activated("gate", value)

    remembered = add("Mul", gate(2, 2, "cell"), "cell")
    cell = add("Add", remembered, add("Mul", gate(0, 0, "cell"), activated("candidate", gates[3])))
    hidden = add("Mul", gate(1, 1, cell), activated("output", cell))
    carried = [hidden, cell]
    if lengths is not None:
        is_live = add("Unsqueeze", add("Less", "step", lengths), add.number([1]))
        hidden = add("Where", is_live, hidden, add.number(0, "float32"))
        carried = [hidden, add("Where", is_live, cell, "cell"), add("Where", is_live, hidden, "last")]
    names = ["step", "goes", "hidden", "cell", "last"][: 2 + len(carried)]
    outputs = [add("Identity", name) for name in ("goes", *carried, hidden)]
    inputs, results = ([ValueInfoProto(name=name) for name in side] for side in (names, outputs))
    return helper.make_graph(add.nodes, "step", inputs, results)


def _activation(add: _Nodes, value: str, name: str, alpha: float, beta: float) -> str:
    """Add an activation; `relay.ops.recurrent.ACTIVATIONS` has the formulas."""
    result: str
    if name in _ONNX_NAMES:
        attrs: dict[str, Any] = {"alpha": alpha} if name in _WITH_ALPHA else {}
        if name == "hard_sigmoid":
            attrs["beta"] = beta
        result = add(_ONNX_NAMES[name], value, **attrs)
    elif name == "affine":
        result = add("Add", add("Mul", value, add.number(alpha, "float32")), add.number(beta, "float32"))
    else:  # scaled_tanh
        inner = add("Tanh", add("Mul", value, add.number(beta, "float32")))
        result = add("Mul", inner, add.number(alpha, "float32"))
    return result


BODIES: Mapping[str, Callable[[Node, Sequence[Value | None], Mapping[str, int]], Body]] = {"DynamicQuantizeLSTM": _body}
"""Operators of the domain com.microsoft that are written in ONNX's own."""
