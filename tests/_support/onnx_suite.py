"""ONNX's own backend tests, which come with the package ``onnx``: built for the host, compiled, run, and compared."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import uma
from uma.errors import ModelError
from uma.frontends import import_model
from uma.frontends.model import ImportedModel
from uma.relay import Function, IRModule, Tuple
from uma.relay.computed_dimensions import cut_symbols
from uma.relay.dimension_binding import bind_dimensions
from uma.relay.expr import Expr, Var
from uma.relay.module import Signature, TensorInfo
from uma.relay.visit import post_order, substitute
from uma.tir.form.symbolic_dims import Extent, Symbol

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")

IMAGE_CASES = 60
"""Cases that are compiled together."""

OUT_OF_SCOPE = "out of scope: "


@dataclass(frozen=True)
class Case:
    """A model, and pairs of inputs and outputs."""

    name: str
    model: onnx.ModelProto
    sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """What is fed: before IR version 4 initialisers were listed too."""
        known = {tensor.name for tensor in self.model.graph.initializer}
        return [value for value in self.model.graph.input if value.name not in known]


@dataclass
class Outcomes:
    """What became of the cases, by name: ``passed``, or why not."""

    passed: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    """Wrong results, and errors that are not what a user is to be told."""


def load(kinds: Iterable[str] = KINDS) -> list[Case]:
    """The cases of these kinds, in the order of their names."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # the suite's own arithmetic
        found = [_case(test) for kind in kinds for test in load_model_tests(kind=kind)]
    return sorted(found, key=lambda case: case.name)


def some_nodes() -> list[Case]:
    """Up to three cases of every eighth operator. (To make all of them takes longer than to run these.)"""
    from onnx.backend.test.case import node

    found: dict[str, list[Any]] = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for module in sorted(module.name for module in pkgutil.iter_modules(node.__path__))[::8]:
            importlib.import_module(f"{node.__name__}.{module}")
        for test in node._NodeTestCases:
            found.setdefault(test.model.graph.node[0].op_type, []).append(test)
        return [_case(test) for tests in found.values() for test in tests[:: -(-len(tests) // 3)]]


def _case(test: Any) -> Case:
    if test.model is not None:
        sets = test.data_sets
        if [node.op_type for node in test.model.graph.node] == ["DFT"]:
            sets = [(inputs, _in_float64(test.model, inputs, outputs)) for inputs, outputs in sets]
        return Case(test.name, test.model, sets, test.rtol, test.atol)
    folder = Path(test.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = [(_stored(data, "input"), _stored(data, "output")) for data in sorted(folder.glob("test_data_set_*"))]
    return Case(test.name, model, sets, test.rtol, test.atol)


def _in_float64(model: onnx.ModelProto, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[np.ndarray]:
    """What ONNX's reference gives for floats of twice the width. (numpy 2 transforms float32 in float32: where 0 is
    right it has 2e-7, which is more than the suite tolerates.)
    """
    from onnx.reference import ReferenceEvaluator

    names = [value.name for value in model.graph.input]
    wide = [array.astype(np.float64) if array.dtype == np.float32 else array for array in inputs]
    made = ReferenceEvaluator(model).run(None, dict(zip(names, wide, strict=True)))
    return [one.astype(given.dtype) for one, given in zip(made, outputs, strict=True)]


def _stored(folder: Path, what: str) -> list[onnx.TensorProto]:
    tensors = []
    for position in range(len(list(folder.glob(f"{what}_*.pb")))):
        tensors.append(onnx.TensorProto())
        tensors[-1].ParseFromString((folder / f"{what}_{position}.pb").read_bytes())
    return tensors


def _array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _stored_as(array: np.ndarray) -> np.ndarray:
    """What a model takes and gives: of types that numpy has not, the bits of a bfloat16, a byte for a small integer."""
    if array.dtype.name == "bfloat16":
        return array.view(np.uint16)
    kind = array.dtype.name
    return array.astype({"u": np.uint8, "i": np.int8}[kind[0]]) if kind in _SMALL else array


_SMALL = ("uint4", "int4", "uint2", "int2")


# --- what is out of scope --------------------------------------------------------------------------------------------

_EIGHT_BITS_AND_LESS = ("FLOAT8", "FLOAT4", "FLOAT6")
_TRAINING = ("ai.onnx.preview.training",)


def out_of_scope(model: onnx.ModelProto) -> str | None:
    """Why nobody asks for a model here; None where somebody may."""
    values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
    for value in values:
        kind = value.type.WhichOneof("value")
        if kind in ("sequence_type", "optional_type", "map_type"):
            return f"{kind.removesuffix('_type')}s"
        element = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
        if element == "STRING":
            return "strings"
        if element.startswith(_EIGHT_BITS_AND_LESS):
            return "floats of 8 bits and less"
    for node in model.graph.node:
        if node.domain in _TRAINING:
            return "training"
        if node.op_type == "ImageDecoder":
            return "images"
        if node.op_type.startswith(("Sequence", "SplitToSequence", "ConcatFromSequence")):
            return "sequences"
    return None


# --- building and running --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Imported:
    case: Case
    model: ImportedModel

    @property
    def fed(self) -> list[int]:
        """Positions of the inputs that the model has here."""
        return [i for i, value in enumerate(self.case.inputs) if value.name not in self.model.constants]


def run(cases: Sequence[Case], target: str = "c") -> Outcomes:
    """Builds all cases, many as one image, runs them on all their data, and compares."""
    outcomes = Outcomes()
    imported = list(_import(cases, outcomes))
    for first in range(0, len(imported), IMAGE_CASES):
        _together(imported[first : first + IMAGE_CASES], target, outcomes)
    return outcomes


def _import(cases: Sequence[Case], outcomes: Outcomes) -> Iterator[_Imported]:
    for case in cases:
        reason = out_of_scope(case.model)
        if reason is not None:
            outcomes.refused[case.name] = OUT_OF_SCOPE + reason
            continue
        try:
            yield _Imported(case, import_model(case.model.SerializeToString(), shapes=_open_shapes(case)))
        except ModelError as error:
            outcomes.refused[case.name] = _in_short(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this case's outcome
            outcomes.faults[case.name] = f"{type(error).__name__}: {error}"


def _open_shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """Of inputs that the model leaves open, those of the data."""
    shapes = {}
    for value, given in zip(case.inputs, case.sets[0][0], strict=True):
        tensor = value.type.tensor_type
        if not tensor.HasField("shape") or any(dim.dim_value <= 0 for dim in tensor.shape.dim):
            shapes[value.name] = _array(given).shape
    return shapes


def _in_short(error: ModelError) -> str:
    """The first operator that is refused, or the whole of another error."""
    lines = error.what.splitlines()
    return lines[1].strip() if len(lines) > 1 else lines[0]


def _together(group: Sequence[_Imported], target: str, outcomes: Outcomes) -> None:
    """Builds cases as one model; where that fails, halves of them."""
    try:
        results = _run_one_image(group, target)
    except Exception as error:  # noqa: BLE001 - as above
        if len(group) > 1:
            middle = len(group) // 2
            _together(group[:middle], target, outcomes)
            _together(group[middle:], target, outcomes)
        elif isinstance(error, ModelError):
            outcomes.refused[group[0].case.name] = _in_short(error)
        else:
            outcomes.faults[group[0].case.name] = f"{type(error).__name__}: {error}"
        return
    for one, found in zip(group, results, strict=True):
        difference = _difference(one.case, found)
        if difference is None:
            outcomes.passed.append(one.case.name)
        else:
            outcomes.faults[one.case.name] = difference


def _apart(one: _Imported, number: int) -> tuple[Function, list[str]]:
    """``main`` of a case, with extents that no other one has; and the names of the results that hold these."""
    computed = cut_symbols(post_order(one.model.module.main.body))
    new = {name: Symbol(f"{name}_{number}", symbol.low, symbol.high) for name, (symbol, _) in computed.items()}
    if not new:
        return one.model.module.main, []
    assert one.model.module.signature is not None
    held = [new[info.name].name for info in one.model.module.signature.outputs if info.name in new]
    extents = {name: Extent.from_symbol(symbol) for name, symbol in new.items()}
    return bind_dimensions(one.model.module, extents).main, held


def _run_one_image(group: Sequence[_Imported], target: str) -> list[list[list[np.ndarray]]]:
    """Of each case, for each of its data sets, the results."""
    params: list[Var] = []
    results: list[Expr] = []
    names: list[str] = []
    counts: list[int] = []
    others: dict[str, Any] = {}
    for number, one in enumerate(group):
        main, held = _apart(one, number)
        own = {var.name: function for var, function in one.model.module.functions.items() if var.name != "main"}
        if not others.keys().isdisjoint(own):
            raise ValueError("two have functions of one name: each is built by itself")
        others.update(own)
        renamed = {old: Var(f"x{number}_{i}", old.tensor) for i, old in enumerate(main.params)}
        params += renamed.values()
        body = substitute(main.body, dict(renamed))
        fields = body.fields if isinstance(body, Tuple) else (body,)
        results += fields
        # (Those that hold extents are not among what a run gives.)
        counts.append(len(fields) - len(held))
        names += [*(f"y{number}_{i}" for i in range(counts[-1])), *held]
    main = Function(params, Tuple(results))
    signature = Signature(tuple(TensorInfo(param.name) for param in params), tuple(map(TensorInfo, names)))
    artifact = uma.build(IRModule.from_functions({**others, "main": main}, signature=signature), target, name="suite")
    found: list[list[list[np.ndarray]]] = [[] for _ in group]
    with artifact.session() as session:
        for turn in range(max(len(one.case.sets) for one in group)):
            fed = {}
            for number, one in enumerate(group):
                inputs = one.case.sets[min(turn, len(one.case.sets) - 1)][0]
                fed.update({f"x{number}_{i}": _stored_as(_array(inputs[k])) for i, k in enumerate(one.fed)})
            values = list(session.run(fed).values())
            for count, kept in zip(counts, found, strict=True):
                kept.append(values[:count])
                del values[:count]
    return found


def _difference(case: Case, found: Sequence[Sequence[np.ndarray]]) -> str | None:
    """What differs from the suite's results, as its own runner compares them; None for nothing."""
    for (_, wanted), results in zip(case.sets, found, strict=False):  # cases of one image have turns without data
        if len(wanted) != len(results):
            return f"{len(results)} results, not {len(wanted)}"
        for position, (given, result) in enumerate(zip(wanted, results, strict=True)):
            expected = _array(given)
            if result.dtype == _stored_as(expected).dtype != expected.dtype:
                small = expected.dtype.itemsize == 1
                result = result.astype(expected.dtype) if small else result.view(expected.dtype)
            if result.dtype != expected.dtype or result.shape != expected.shape:
                types = f"{result.dtype}{result.shape}, not {expected.dtype}{expected.shape}"
                return f"result {position} is {types}"
            try:
                np.testing.assert_allclose(
                    np.asarray(result, np.float64), np.asarray(expected, np.float64), case.rtol, case.atol
                )
            except AssertionError as error:
                return f"result {position}: {' '.join(str(error).split())}"
    return None
