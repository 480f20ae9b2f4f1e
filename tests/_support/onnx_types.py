"""Which forms and types of ONNX's operators the importer takes, found out by trying ONNX's own backend tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import defs
from tests._support.onnx_suite import Case

from uma.errors import UmaError
from uma.frontends import import_model
from uma.frontends.onnx.converters import CONVERTERS
from uma.frontends.onnx.fold import FOLDERS
from uma.frontends.onnx.proto import OPSETS

__all__ = ["supported"]

_TYPES = {"float": "float32", "double": "float64"}


def supported(cases: Sequence[Case]) -> dict[str, dict[str, list[Any]]]:
    """Of each operator that there is a converter for, the opsets in which it got another form, of those that are read;
    and the types that its first input may have in the first of the cases that is imported.
    """
    alone: dict[str, list[Case]] = {}
    for case in cases:
        nodes = case.model.graph.node
        if len(nodes) == 1 and not nodes[0].domain:
            alone.setdefault(nodes[0].op_type, []).append(case)
    forms = {op: _forms(op) for op in sorted({*CONVERTERS, *FOLDERS})}
    return {op: {"opsets": found, "types": _types(alone.get(op, ()))} for op, found in forms.items()}


def _forms(op: str) -> list[int]:
    versions = {schema.since_version for schema in defs.get_all_schemas_with_history() if _is(schema, op)}
    first = max((version for version in versions if version <= OPSETS[0]), default=OPSETS[0])
    return sorted(version for version in versions if version == first or version in OPSETS)


def _is(schema: defs.OpSchema, op: str) -> bool:
    return schema.name == op and schema.domain == ""


def _types(cases: Sequence[Case]) -> list[str]:
    case = next((case for case in cases if _imports(case.model)), None)
    if case is None:
        return []
    node = case.model.graph.node[0]
    opset = next(entry.version for entry in case.model.opset_import if not entry.domain)
    schema = defs.get_schema(node.op_type, opset, "")
    if not schema.inputs:
        return []
    kind = schema.inputs[0].type_str
    allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == kind), [kind])
    found = []
    for text in allowed:
        name = text.removeprefix("tensor(").removesuffix(")")
        number = dict(onnx.TensorProto.DataType.items()).get(name.upper())
        if text.startswith("tensor(") and number is not None and _imports(_of_type(case.model, schema, kind, number)):
            found.append(_TYPES.get(name, name))
    return sorted(found, key=_order)


def _order(name: str) -> tuple[str, int]:
    kind = name.rstrip("0123456789")
    return kind, int(name.removeprefix(kind) or 0)


def _of_type(model: onnx.ModelProto, schema: defs.OpSchema, kind: str, number: int) -> onnx.ModelProto:
    """The model with another type for all tensors that have that of its node's first input."""
    node = model.graph.node[0]
    names = {*_alike(node.input, schema.inputs, kind), *_alike(node.output, schema.outputs, kind)}
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for value in (*made.graph.input, *made.graph.output):
        if value.name in names:
            value.type.tensor_type.elem_type = number
    return made


def _alike(names: Sequence[str], formal: Sequence[defs.OpSchema.FormalParameter], kind: str) -> list[str]:
    # The last one may stand for many.
    return [name for place, name in enumerate(names) if formal[min(place, len(formal) - 1)].type_str == kind]


def _imports(model: onnx.ModelProto) -> bool:
    try:
        import_model(model.SerializeToString())
    except UmaError:
        return False
    return True
