"""Operators that other operators say: functions of the model, those of ONNX that have a body, the branch of an If that
a constant decides, the turns of a short Scan. A node of such a kind is replaced by the nodes of its body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...relay.ops.common import normalise_axis
from ...relay.types import TensorType
from ...support.import_budget import OPERATIONS_PER_NODE, spend_operations
from .context import Value
from .narrow_dtypes import Narrow
from .proto import Node, as_text, needed, read_nodes
from .tensors import element_type

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto

__all__ = [
    "MAX_TURNS",
    "Body",
    "ScanForm",
    "branch",
    "expanded",
    "function_body",
    "graph_body",
    "scan",
    "scan_form",
    "schema_body",
]

MAX_TURNS = 64
"""Of what is written out, turn by turn."""

_GRAPH = 5
"""AttributeProto.AttributeType of a graph."""


@dataclass(frozen=True)
class Body:
    """What a node stands for.

    Args:
        what: its name in messages, which tells whether bodies use each other endlessly.
        nodes: as in the file.
        inputs: names within the body that the node's inputs are given to, in order.
        outputs: names within the body of the node's results.
        opsets: version of the operator set of each domain.
        attributes: what the body's nodes may refer to, by name.
    """

    what: str
    nodes: Sequence[NodeProto]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opsets: Mapping[str, int]
    attributes: Mapping[str, AttributeProto]


def function_body(node: Node, function: FunctionProto, opsets: Mapping[str, int]) -> Body:
    """The body of a function of the model that ``node`` calls.

    Args:
        node: the call.
        function: not trusted.
        opsets: of the model, for a domain whose version the function does not name.

    Raises:
        ModelError: the call has an attribute that the function has not, or lacks one that it needs.
    """
    defaults = {as_text(attribute.name): attribute for attribute in function.attribute_proto}
    required = tuple(map(as_text, function.attribute))
    for name in node.attributes:
        if name not in required and name not in defaults:
            raise ModelError(f"its function has no attribute {name!r}")
    for name in required:
        if name not in node.attributes:
            raise ModelError(f"it needs the attribute {name!r}")
    function_opsets = {
        ("" if entry.domain == "ai.onnx" else entry.domain): entry.version for entry in function.opset_import
    }
    attributes = {**defaults, **node.attributes}
    inputs, outputs = tuple(map(as_text, function.input)), tuple(map(as_text, function.output))
    return Body(node.described, function.node, inputs, outputs, {**opsets, **function_opsets}, attributes)


def schema_body(
    node: Node, values: Sequence[Value | None], kinds: Sequence[Narrow | None], opsets: Mapping[str, int]
) -> Body | None:
    """The body that ONNX gives an operator of its own; None for one that has none.

    Args:
        node: the operator.
        values: its inputs, None for those that were left out: some bodies follow from their types.
        kinds: of each input that is of a narrow type, what that is.
        opsets: of the model, for a domain whose version the body does not name.

    Raises:
        ModelError: the node is not as the operator's schema says.
    """
    from onnx import FunctionProto, NodeProto, defs

    try:
        # (The methods that give bodies are not in onnx's own types.)
        schema: Any = defs.get_schema(node.op, node.opset, node.domain)
    except defs.SchemaError:
        return None
    by_type = schema.context_dependent_function_opset_versions
    versions = sorted(v for v in by_type or schema.function_opset_versions if v <= node.opset)
    if not versions:
        return None
    _check(node, schema)
    if by_type:
        proto = NodeProto(op_type=node.op, domain=node.domain, input=node.inputs, output=node.outputs)
        proto.attribute.extend(node.attributes.values())
        types = [
            b"" if value is None else _type_of(value, kind).SerializeToString()
            for value, kind in zip(values, kinds, strict=True)
        ]
        try:
            data = schema.get_context_dependent_function_with_opset_version(
                versions[-1], proto.SerializeToString(), types
            )
        except (RuntimeError, ValueError) as error:  # what its C++ raises
            raise ModelError(f"its types do not fit: {error}") from error
    else:
        data = schema.get_function_with_opset_version(versions[-1])
    function = FunctionProto()
    function.ParseFromString(data)
    if not function.node:  # it has a body for other forms of the operator
        return None
    defaults = {name: attribute.default_value for name, attribute in schema.attributes.items()}
    attributes = {**{name: value for name, value in defaults.items() if value.name}, **node.attributes}
    body_opsets = {entry.domain: entry.version for entry in function.opset_import}
    inputs = tuple(function.input) or tuple(formal.name for formal in schema.inputs)
    outputs = tuple(function.output) or tuple(formal.name for formal in schema.outputs)
    return Body(
        node.described, function.node, inputs, outputs, {**opsets, node.domain: node.opset, **body_opsets}, attributes
    )


def _check(node: Node, schema: Any) -> None:
    """ModelError where a node has not the inputs, results and attributes that its operator's schema asks for."""
    from onnx import defs

    input_count, output_count = len(node.inputs), len(node.outputs)
    if (
        not schema.min_input <= input_count <= schema.max_input
        or not schema.min_output <= output_count <= schema.max_output
    ):
        raise ModelError(f"it has {input_count} inputs and {output_count} results")
    for formal, name in zip(schema.inputs, node.inputs, strict=False):  # optional ones may be left out
        if not name and formal.option != defs.OpSchema.FormalParameterOption.Optional:
            raise ModelError(f"its input {formal.name!r} is missing")
    for name, attribute in schema.attributes.items():
        if name not in node.attributes and attribute.required:
            raise ModelError(f"it needs the attribute {name!r}")
        if name in node.attributes and node.attributes[name].type != int(attribute.type.value):
            raise ModelError(f"its attribute {name!r} has the wrong type")


def _type_of(value: Value, kind: Narrow | None) -> TypeProto:
    from onnx import TypeProto

    type_ = value.type if hasattr(value, "type") else TensorType((), value.dtype.name)
    assert isinstance(type_, TensorType)
    proto = TypeProto()
    proto.tensor_type.elem_type = element_type(type_.dtype) if kind is None else kind.number
    proto.tensor_type.shape.SetInParent()
    for extent in value.shape:
        proto.tensor_type.shape.dim.add().dim_value = extent
    return proto


def branch(node: Node, holds: bool, opsets: Mapping[str, int]) -> Body:
    """The branch of an If that its condition chooses.

    Raises:
        ModelError: it has no such branch.
    """
    graph = node.graph("then_branch" if holds else "else_branch")
    if graph.input:
        raise ModelError("its branches take no inputs")
    outputs = tuple(as_text(value.name) for value in graph.output)
    return Body(node.described, _with_constants(graph), node.inputs, outputs, opsets, {})


@dataclass(frozen=True)
class ScanForm:
    """What a Scan does.

    Args:
        states: how many values it carries from turn to turn.
        turns: how many there are.
        axes, backwards: of what its turns take slices of: the axis, and whether the last one comes first.
        out_axes, out_backwards: of what it puts together from its turns, likewise.
    """

    states: int
    turns: int
    axes: tuple[int, ...]
    backwards: tuple[bool, ...]
    out_axes: tuple[int, ...]
    out_backwards: tuple[bool, ...]


def scan_form(node: Node, values: Sequence[Value | None]) -> ScanForm:
    """What a Scan does.

    Args:
        node: the Scan: states, then what its turns take slices of.
        values: its inputs.

    Raises:
        ModelError: it is of the form before opset 9, or is malformed.
    """
    graph, input_count = node.graph("body"), node.integer("num_scan_inputs")
    states = len(node.inputs) - input_count
    output_count = len(graph.output) - states
    if (
        not 0 < input_count <= len(node.inputs)
        or output_count < 0
        or len(graph.input) != len(node.inputs)
        or any(value is None for value in values)
    ):
        raise ModelError(f"it scans {input_count} of {len(node.inputs)} inputs by a body of {len(graph.input)}")
    axes, out_axes = (
        _numbers_per_tensor(node, "scan_input_axes", input_count),
        _numbers_per_tensor(node, "scan_output_axes", output_count),
    )
    backwards = _numbers_per_tensor(node, "scan_input_directions", input_count)
    out_backwards = _numbers_per_tensor(node, "scan_output_directions", output_count)
    shapes = [() if value is None else value.shape for value in values[states:]]
    lengths = {shape[normalise_axis(axis, len(shape))] for shape, axis in zip(shapes, axes, strict=True)}
    turns = max(lengths)
    if len(lengths) > 1 or turns < 1:
        raise ModelError(f"it has {sorted(lengths)} turns", hint="one number, 1 or more")
    return ScanForm(states, turns, axes, tuple(map(bool, backwards)), out_axes, tuple(map(bool, out_backwards)))


def scan(node: Node, form: ScanForm, opsets: Mapping[str, int], fresh: Callable[[str], str]) -> Body:
    """The turns of a Scan of at most `MAX_TURNS`, one after the other.

    Args:
        node: the Scan.
        form: what it does.
        opsets: of the model.
        fresh: as for `expanded`.
    """
    from onnx import helper

    graph, states, turns, output_count = node.graph("body"), form.states, form.turns, len(form.out_axes)
    body, formals = _with_constants(graph), [as_text(value.name) for value in graph.input]
    results = [as_text(value.name) for value in graph.output]
    current, parts = list(node.inputs[:states]), [[""] * turns for _ in range(output_count)]
    nodes: list[NodeProto] = []
    for turn in range(turns):
        names = dict(zip(formals[:states], current, strict=True))
        for position, name in enumerate(node.inputs[states:]):
            at, part = fresh("turn"), fresh(formals[states + position])
            place = turns - 1 - turn if form.backwards[position] else turn
            nodes.append(helper.make_node("Constant", [], [at], value_int=place))
            nodes.append(helper.make_node("Gather", [name, at], [part], axis=form.axes[position]))
            names[formals[states + position]] = part
        nodes += _instances(body, names, fresh, {})
        current = [names.get(name, name) for name in results[:states]]
        for position, name in enumerate(results[states:]):
            along, stacked = fresh("axis"), fresh(name)
            nodes.append(helper.make_node("Constant", [], [along], value_ints=[form.out_axes[position]]))
            nodes.append(helper.make_node("Unsqueeze", [names.get(name, name), along], [stacked]))
            parts[position][turns - 1 - turn if form.out_backwards[position] else turn] = stacked
    scanned = [fresh(name) for name in results[states:]]
    for position, name in enumerate(scanned):
        nodes.append(helper.make_node("Concat", parts[position], [name], axis=form.out_axes[position]))
    return Body(node.described, nodes, node.inputs, (*current, *scanned), {**opsets, "": max(13, node.opset)}, {})


def graph_body(node: Node, graph: GraphProto, opsets: Mapping[str, int]) -> Body:
    """A graph of a node's as its body: of a branch, or of a turn."""
    inputs, outputs = (tuple(as_text(value.name) for value in side) for side in (graph.input, graph.output))
    return Body(node.described, _with_constants(graph), inputs, outputs, {**opsets, node.domain: node.opset}, {})


def _numbers_per_tensor(node: Node, name: str, count: int) -> tuple[int, ...]:
    """An attribute with a number for each of ``count`` tensors, 0 where it is missing."""
    numbers = node.integers(name, (0,) * count)
    if len(numbers) != count:
        raise ModelError(f"it has {name} {numbers} for {count} tensors")
    return numbers


def _with_constants(graph: GraphProto) -> list[NodeProto]:
    """The nodes of a graph, its initialisers being nodes too."""
    from onnx import helper

    dense = (helper.make_node("Constant", [], [as_text(t.name)], value=t) for t in graph.initializer)
    sparse = (
        helper.make_node("Constant", [], [as_text(t.values.name)], sparse_value=t) for t in graph.sparse_initializer
    )
    return [*dense, *sparse, *graph.node]


def expanded(node: Node, body: Body, fresh: Callable[[str], str], is_apart: bool = False) -> tuple[Node, ...]:
    """The nodes that take the place of ``node``: those of its body that its results need.

    Args:
        node: with its inputs and outputs, which the new nodes use and make.
        body: what it stands for.
        fresh: gives a name that no tensor of the model has, from one within the body.
        is_apart: whether they are layers of their own, whose names begin with the node's.

    Raises:
        ModelError: the body does not fit the node, or is malformed.
    """
    from onnx import helper

    if len(node.inputs) > len(body.inputs) or len(node.outputs) > len(body.outputs):
        raise ModelError(f"it has {len(node.inputs)} inputs and {len(node.outputs)} results")
    names = {**dict.fromkeys(body.inputs, ""), **dict(zip(body.inputs, node.inputs, strict=False))}  # left out
    copies: list[NodeProto] = []
    for formal, actual in zip(body.outputs, node.outputs, strict=False):  # optional results may be left out
        if actual and formal not in names:
            names[formal] = actual
        elif actual:
            copies.append(helper.make_node("Identity", [formal], [actual]))
    protos = [
        *_instances(body.nodes, names, fresh, body.attributes),
        *_instances(copies, {**names, **{copy.output[0]: copy.output[0] for copy in copies}}, fresh, {}),
    ]
    inner = read_nodes(protos, body.opsets)
    ordered = needed(inner, node.needs, tuple(dict.fromkeys(filter(None, node.outputs))))
    enclosing = (*node.enclosing, body.what)
    return tuple(
        replace(n, layer=f"{node.layer}/{n.layer}" if is_apart else node.layer, enclosing=enclosing) for n in ordered
    )


def _instances(
    nodes: Iterable[NodeProto],
    names: dict[str, str],
    fresh: Callable[[str], str],
    attributes: Mapping[str, AttributeProto],
) -> list[NodeProto]:
    """Copies of nodes under the names of those around them, whose attributes stand where they are referred to."""
    nodes = list(nodes)
    for node in nodes:
        spend_operations(OPERATIONS_PER_NODE + node.ByteSize())
        for name in map(as_text, node.output):
            if name and name not in names:
                names[name] = fresh(name)
    copies = []
    for node in nodes:
        copy = type(node)()
        copy.CopyFrom(node)
        del copy.input[:], copy.output[:], copy.attribute[:]
        copy.input.extend(names.get(name, name) for name in map(as_text, node.input))
        copy.output.extend(names.get(name, name) for name in map(as_text, node.output))
        for attribute in node.attribute:
            source = attributes.get(as_text(attribute.ref_attr_name)) if attribute.ref_attr_name else attribute
            if source is None:
                continue
            instance = copy.attribute.add()
            instance.CopyFrom(source)
            instance.name = as_text(attribute.name)
            if instance.type == _GRAPH:
                _instantiate(instance.g, names, fresh, attributes)
        copies.append(copy)
    return copies


def _instantiate(
    graph: GraphProto, names: Mapping[str, str], fresh: Callable[[str], str], attributes: Mapping[str, AttributeProto]
) -> None:
    """A graph that a node has, under the names of what is around it, in place."""
    local = {name: fresh(name) for name in (as_text(value.name) for value in (*graph.input, *graph.initializer))}
    inner = {**names, **local}
    nodes = _instances(graph.node, inner, fresh, attributes)
    del graph.node[:]
    graph.node.extend(nodes)
    for value in (*graph.input, *graph.initializer, *graph.output):
        name = as_text(value.name)
        value.name = inner.get(name, name)
