"""From the records of a TFLite file to a module."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ...errors import ModelError, UsageError
from ...relay.custom_ops import CustomImporter, CustomLayer, CustomTensor, FindImporter, no_importer
from ...relay.evaluate import fold
from ...relay.expr import Constant, Expr, Function, Tuple, Var, const
from ...relay.module import IRModule, Signature, Spans, StateInfo, TensorInfo
from ...relay.types import TensorType
from ...relay.visit import children
from ...support.import_budget import IMPORT_LIMIT, Budget, BudgetError, importing_within, require_memory
from ...targets.values import suggest
from ...tir.form.dtype import is_integer
from ..fixed_inputs import Fixed, check_fixed, fixed_array
from ..import_summary import Simplified
from ..model import ImportedModel, distinct_names, variable_names
from ..state_pairs import keep_states
from .arith import ARITH
from .axis_ops import ALONG
from .binary_ops import PAIRS
from .constant_folding import KNOWN
from .control import CONTROL, Control
from .conv_matmul import LINEAR
from .elementwise import ELEMENTWISE
from .gather_scatter import PICKS
from .hybrid import HYBRID_REMARK
from .layer import Importer, Layer, quantisations
from .lut_activations import CURVES
from .pads import PADS
from .reader import Graph, Operator, Tensor, read
from .recurrent import RECURRENT
from .resize import RESIZE
from .shape import SHAPE
from .space_to_batch import BLOCKS
from .sparse import densified
from .supported import REFUSED
from .transposed_conv import TRANSPOSED, TRANSPOSED_CUSTOM
from .variable_tensors import KEEPERS, Kept
from .variables import VARIABLE_OPERATORS, Variables

if TYPE_CHECKING:
    import numpy as np

__all__ = ["CUSTOM_OPERATORS", "OPERATORS", "from_tflite"]

FOLDED_BYTES = 1 << 10
"""Of a result that is computed at import. Shapes have tens of bytes; what is larger waits for canonicalisation."""

_EMPTY = "has no elements, which is not supported: remove the operator"

OPERATORS: dict[str, Importer] = {
    **ALONG,
    **ARITH,
    **BLOCKS,
    **CURVES,
    **ELEMENTWISE,
    **KNOWN,
    **LINEAR,
    **PADS,
    **PAIRS,
    **PICKS,
    **RECURRENT,
    **RESIZE,
    **SHAPE,
    **TRANSPOSED,
}
"""How each operator is imported, by its name in the schema."""

CUSTOM_OPERATORS: dict[str, Importer] = {**TRANSPOSED_CUSTOM}
"""How operators that are not the schema's are imported, by their custom codes, unless a plugin imports them."""


def from_tflite(
    data: bytes,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    states: Mapping[str, str] | None = None,
    constants: Mapping[str, Fixed] | None = None,
    custom: FindImporter = no_importer,
    hybrid: bool = False,
    import_limit: int = IMPORT_LIMIT,
) -> ImportedModel:
    """Import a TFLite model.

    Integer arithmetic is that of TFLite's reference kernels, bit for bit. Every expression that an operator becomes has
    the name of the operator's first result as its layer.

    Args:
        data: the file.
        shapes: of inputs, by their names in the file, instead of those in the file.
        states: as for `keep_states`; the model's variables are its states anyway.
        constants: values that inputs are fixed to, by their names in the file.
        custom: finds importers of operators that are not the core's.
        hybrid: whether to compute layers with float32 data and int8 weights as LiteRT does; otherwise the weights are
            dequantised.
        import_limit: bytes of constants, and scalar operations, for each byte of the model: see
            `uma.support.import_budget`.

    Raises:
        UsageError: the packages of the extra ``tflite`` are not installed, or ``shapes``, ``states`` or
            ``constants`` do not fit.
        ModelError: the file is malformed, or has operators that are not supported: all of them are listed.
    """
    graph = _with_distinct_inputs(read(data))
    names = [graph.tensors[index].name for index in graph.inputs]
    valued = {tensor.name for tensor in graph.tensors.values() if tensor.data is not None}
    check_fixed(constants or {}, names, states or {}, valued)
    with importing_within(Budget(graph.file_bytes, _declared_bytes(graph), import_limit)):
        imported = _Converter(graph, shapes or {}, constants or {}, custom, hybrid).model()
    return replace(imported, module=keep_states(imported.module, states or {}))


class _Unknown(ModelError):
    """A value that has no expression because something failed before; that was told already."""


class _Converter:
    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[str, Sequence[int]],
        constants: Mapping[str, Fixed],
        custom: FindImporter,
        hybrid: bool,
    ) -> None:
        self.constants: dict[str, np.ndarray] = {}
        """What inputs were fixed to."""
        self._fixed = constants
        self._graph = graph
        self._custom = custom
        self._hybrid = hybrid
        self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self._values: dict[int, Expr | None] = {}  # None where something failed before
        self._constants: dict[int, np.ndarray] = {}
        self._spans = Spans()
        self._faults: list[str] = []
        self._layer = ""
        self._remarks: dict[str, list[str]] = {}  # each with its layers
        self._open: list[str] = []  # of inputs whose stored shapes are used
        self._variables = Variables(graph, self._decoded)
        self._kept = Kept(graph, self._variables.names)

        self._control = Control()

    def convert_graph(self, graph: int, arguments: Sequence[Expr], layer: str) -> list[Expr]:
        """What a graph that an operator runs gives for operands; its layers begin with that of the operator.

        Raises:
            ModelError: it is malformed, has variables, takes other operands, runs itself, or cannot be imported.
        """
        inner = copy(self)
        inner._graph = replace(self._graph.bodies[graph], bodies=self._graph.bodies)
        inner._values, inner._constants, inner._faults, inner._layer = {}, {}, [], f"{self._layer}{layer}/"
        tensors, operators = inner._graph.tensors, inner._graph.operators
        if any(op.name in VARIABLE_OPERATORS or op.name in KEEPERS for op in operators):
            raise ModelError(f"graph {graph}, which it runs, keeps values from one run to the next")
        if len(arguments) != len(inner._graph.inputs):
            raise ModelError(f"graph {graph} takes {len(inner._graph.inputs)} operands, and is given {len(arguments)}")
        for index, value in zip(inner._graph.inputs, arguments, strict=True):
            if index in inner._values or tensors[index].data is not None or tensors[index].dtype != value.dtype:
                raise ModelError(f"graph {graph} takes {tensors[index].name!r}, which cannot be {value.type}")
            inner._values[index] = value
        self._control.enter(graph, len(operators))
        try:
            for operator in operators:
                inner._convert(operator)
        finally:
            self._control.leave()
        if inner._faults:
            raise ModelError(f"in graph {graph}, which it runs: {inner._faults[0].strip()}")
        return [inner._result(index) for index in inner._graph.outputs]

    def model(self) -> ImportedModel:
        """The imported model."""
        params = self._params()
        for operator in self._graph.operators:
            self._convert(operator)
        if self._faults:
            many = f"{len(self._faults)} operators" if len(self._faults) > 1 else "an operator"
            raise ModelError("\n".join([f"the model has {many} that cannot be imported:", *self._faults]))
        results = [self._result(index) for index in self._graph.outputs]
        results += self._variables.results() + self._kept.results(self._values)
        body = results[0] if len(results) == 1 else Tuple(results)
        tensors = self._graph.tensors
        outputs = [_info(tensors[index]) for index in self._graph.outputs]
        numbered = distinct_names([info.name for info in outputs])
        signature = Signature(
            tuple(_info(tensors[index]) for index in self._graph.inputs if tensors[index].name not in self._fixed),
            tuple(replace(info, name=name) for info, name in zip(outputs, numbered, strict=True)),
            self._states(),
        )
        notes = [
            f"{remark} in {len(layers)} layers: {', '.join(map(repr, layers))}"
            for remark, layers in self._remarks.items()
        ]
        if self._graph.others:
            names = ", ".join(map(repr, self._graph.others))
            notes.append(f"the first of the file's graphs is imported, and nothing of {names}")
        module = IRModule.from_functions(
            {"main": Function(params, body), **self._control.functions}, self._spans, signature
        )
        simplified = (*self._open, *self._simplified().sentences())
        hybrid_layers = tuple(self._remarks.get(HYBRID_REMARK, ()))
        return ImportedModel(module, tuple(notes), self.constants, simplified, hybrid_layers=hybrid_layers)

    def _simplified(self) -> Simplified:
        """What was folded and dropped of the operators that the outputs depend on, and what these do not depend on."""
        summary, needed = Simplified(), {*self._graph.outputs}
        for operator in reversed(self._graph.operators):
            if operator.name in VARIABLE_OPERATORS:
                needed.update(operator.inputs)
            elif needed.isdisjoint(operator.outputs):
                summary.unneeded.append((operator.layer, operator.name))
            else:
                needed.update(operator.inputs)
                operands = [self._values.get(index) for index in operator.inputs if index >= 0]
                results = [self._values.get(index) for index in operator.outputs]
                if results and all(isinstance(value, Constant) for value in results):
                    summary.computed[operator.name] += 1
                elif len(results) == 1 and results[0] in operands:
                    summary.idle.append((operator.layer, operator.name))
        summary.unneeded.reverse()
        summary.idle.reverse()
        tensors, inputs = self._graph.tensors, [self._graph.tensors[index].name for index in self._graph.inputs]
        constants = [t.name for t in tensors.values() if t.data is not None and t.name not in inputs]
        summary.note_unused(constants, inputs, {tensors[index].name for index in needed if index >= 0})
        return summary

    def _states(self) -> tuple[StateInfo, ...]:
        inputs, outputs = len(self._graph.inputs) - len(self.constants), len(self._graph.outputs)
        states = self._variables.states(inputs, outputs)
        return states + self._kept.states(inputs + len(states), outputs + len(states))

    # --- values ------------------------------------------------------------------------------------------------------

    def _params(self) -> list[Var]:
        tensors = [self._graph.tensors[index] for index in self._graph.inputs]
        for name in self._shapes:
            if name not in {tensor.name for tensor in tensors}:
                input_names = [tensor.name for tensor in tensors]
                hint = f"{suggest(name, input_names)}inputs: {', '.join(map(repr, input_names)) or 'none'}"
                raise UsageError(f"a shape is given for {name!r}, which is not an input", hint=hint)
        params = []
        states = [*self._variables.names, *self._kept.names]
        names = variable_names([*(tensor.name for tensor in tensors), *states])
        for tensor, name in zip(tensors, names[: len(tensors)], strict=True):
            fixed = self._fixed.get(tensor.name)
            where = f"input {tensor.name!r}"
            if tensor.odd is not None or tensor.data is not None or tensor.index in self._values:
                reason = tensor.odd or ("it is a constant" if tensor.data is not None else "the file lists it twice")
                raise ModelError(f"{where} cannot be one: {reason}")
            shape = self._shapes.get(tensor.name, getattr(fixed, "shape", None) if is_open(tensor) else None)
            if shape is None:
                shape = tensor.shape
                self._note_open(tensor)
            try:
                type_ = TensorType(shape, tensor.dtype)
                if fixed is not None:
                    self.constants[tensor.name] = fixed_array(tensor.name, fixed, tensor.dtype, type_.shape)
            except ModelError as error:
                raise ModelError(error.what, where=where, hint="give its shape, if the model leaves it open") from error
            if fixed is not None:
                self._values[tensor.index] = const(self.constants[tensor.name])
                continue
            params.append(Var(name, type_))
            self._values[tensor.index] = params[-1]
        state_names = names[len(tensors) :]
        count = len(self._variables.names)
        return [
            *params,
            *self._variables.declare(state_names[:count]),
            *self._kept.declare(state_names[count:], self._values),
        ]

    def _note_open(self, tensor: Tensor) -> None:
        """Note that the stored extents of an input are used for the dimensions that the file leaves open.

        Raises:
            ModelError: one of them is stored as 1, as converters write it for an unknown extent, and is not the batch.
        """
        if not is_open(tensor):
            return
        dims = ", ".join("?" if extent < 0 else str(extent) for extent in tensor.signature)
        message = f"the model leaves the shape of its input {tensor.name!r} open: ({dims})"
        option = f"--shape {tensor.name}={dims.replace('?', 'N').replace(' ', '')}"
        pairs = list(zip(tensor.signature, tensor.shape, strict=True))
        if (-1, 1) in (pairs[1:] if len(pairs) > 1 else pairs):
            raise ModelError(message, hint=f"say it, as {option}")
        self._open.append(f"{message}; {tensor.shape} is built; another shape is asked for by {option}")

    def _value(self, tensor: Tensor) -> Expr:
        if tensor.index not in self._values:
            array = self._constant(tensor)
            if array is None:
                raise ModelError(f"it reads {tensor.name!r} before anything wrote it")
            self._values[tensor.index] = const(array)
        value = self._values[tensor.index]
        if value is None:
            raise _Unknown(tensor.name)
        return value

    def _constant(self, tensor: Tensor) -> np.ndarray | None:
        """The contents of a constant; None for another tensor."""
        if tensor.index in self._values:
            value = self._value(tensor)
            return value.data if isinstance(value, Constant) else None
        if tensor.index not in self._constants:
            array = self._decoded(tensor)
            if array is None:
                return None
            self._constants[tensor.index] = array
        return self._constants[tensor.index]

    def _decoded(self, tensor: Tensor) -> np.ndarray | None:
        """What the file has for a tensor of any of its graphs; None for one that is computed."""
        import numpy as np

        if tensor.odd is not None:
            raise ModelError(f"{tensor.name!r}: {tensor.odd}")
        if tensor.data is None and 0 not in tensor.shape:
            return None
        element = np.dtype(tensor.dtype)
        stored_bytes = 0 if tensor.data is None else len(tensor.data)
        # Not numpy's product: it wraps around.
        count = math.prod(tensor.shape)
        if tensor.sparsity is not None:
            count = stored_bytes * 2 if tensor.packed else stored_bytes // element.itemsize
        expected = -(-count // 2) if tensor.packed else count * element.itemsize
        if min(tensor.shape, default=1) < 0 or expected != stored_bytes:
            dtype = "int4" if tensor.packed else tensor.dtype
            raise ModelError(f"{tensor.name!r} of shape {tensor.shape} and {dtype} has {stored_bytes} bytes")
        require_memory(4 * stored_bytes if tensor.packed else stored_bytes)
        raw = np.zeros(0, np.uint8) if tensor.data is None else tensor.data
        if tensor.packed:
            # The lower half is the first of the two; shifts of int8 extend the sign.
            halves = np.stack([raw << 4, raw], axis=-1).view(np.int8) >> 4
            array = halves.ravel()[:count]
        else:
            array = raw != 0 if tensor.dtype == "bool" else raw.view(element.newbyteorder("<"))
        if tensor.sparsity is not None:
            return densified(array, tensor.shape, tensor.sparsity)
        return np.asarray(array.reshape(tensor.shape))

    def _result(self, index: int) -> Expr:
        tensor = self._graph.tensors[index]
        try:
            return self._value(tensor)
        except ModelError as error:
            raise ModelError(error.what, where=f"output {tensor.name!r}") from error

    # --- operators ---------------------------------------------------------------------------------------------------

    def _convert(self, operator: Operator) -> None:
        """Give the operator's results a value, or note why that cannot be."""
        outputs = [self._graph.tensors[index] for index in operator.outputs]
        if operator.name == "VAR_HANDLE":
            outputs = []  # it stands for a variable, and has no value
        layer = Layer(operator, self._graph.tensors, self._value, self._constant, self._hybrid)
        values: Sequence[Expr | None]
        try:
            values = results = self._results(operator, layer, outputs)
        except _Unknown:
            values = [None] * len(outputs)
        except BudgetError as error:
            error.where = error.where or f"{operator.layer!r} ({operator.name})"
            raise
        except ModelError as error:
            is_supported = operator.name in OPERATORS
            empty = next(
                (f"its result of shape {t.shape} {_EMPTY}" for t in outputs if is_supported and 0 in t.shape), ""
            )
            hint = f" ({error.hint or empty})" if error.hint or empty else ""
            self._faults.append(f"  {operator.layer!r} ({operator.name}): {error.what}{hint}")
            values = [self._stand_in(tensor) for tensor in outputs]
        else:
            if operator.name not in VARIABLE_OPERATORS:
                self._name(operator, [*results, *layer.new_states.values()])
                self._values.update(layer.new_states)
            for remark in dict.fromkeys(layer.remarks):
                self._remarks.setdefault(remark, []).append(operator.layer)
        for tensor, value in zip(outputs, values, strict=True):
            self._values.setdefault(tensor.index, value)

    def _results(self, operator: Operator, layer: Layer, outputs: Sequence[Tensor]) -> Sequence[Expr]:
        on_variables = operator.name in VARIABLE_OPERATORS
        is_control = operator.name in CONTROL and operator.custom_code is None
        importer = None if on_variables or is_control else self._importer(operator)
        if not outputs and not on_variables:
            raise ModelError("it has no result")
        for position, tensor in enumerate(outputs):
            if tensor.odd is not None:
                raise ModelError(f"{tensor.name!r}: {tensor.odd}")
            if tensor.index in self._values or tensor.data is not None or tensor in outputs[:position]:
                raise ModelError(f"it writes {tensor.name!r}, which has a value already")
        converted: Expr | Sequence[Expr]
        if is_control:
            converted = self._control.run(operator, [layer.value(i) for i in range(layer.count)], self.convert_graph)
        else:
            converted = self._variables.run(operator, layer.value) if importer is None else importer(layer)
        results = [converted] if isinstance(converted, Expr) else converted
        if len(results) != len(outputs):
            raise ModelError(f"it has {len(outputs)} results, not {len(results)}")
        for tensor, result in zip(outputs, results, strict=True):
            # A shape of no extents may stand for one that was not known, and so may extents below 1.
            open_shape = bool(self._shapes) or not tensor.signature
            same_rank = len(tensor.signature) == len(result.shape)
            extents = zip(tensor.signature, result.shape, strict=False)  # the ranks are compared beside it
            fits = open_shape or (same_rank and all(declared < 1 or declared == extent for declared, extent in extents))
            if result.dtype != tensor.dtype or not fits:
                raise ModelError(
                    f"its result {tensor.name!r} is {tensor.shape} {tensor.dtype} in the file and {result.type}"
                )
        return results if is_control else self._folded(operator, results)

    def _folded(self, operator: Operator, results: Sequence[Expr]) -> Sequence[Expr]:
        """``results``; as constants, if they are numbers that shapes are made of and follow from constants alone."""
        import numpy as np

        def is_known(index: int) -> bool:
            is_constant = self._graph.tensors[index].data is not None
            return isinstance(self._values[index], Constant) if index in self._values else is_constant

        operands = [index for index in operator.inputs if index >= 0]
        of_shapes = all(r.dtype in ("int32", "int64") and r.tensor.nbytes <= FOLDED_BYTES for r in results)
        if not (operands and results and of_shapes and all(map(is_known, operands))):
            return results
        with np.errstate(all="ignore"):
            folded = fold(results)
        return results if folded is None else [const(array) for array in folded]

    def _importer(self, operator: Operator) -> Importer:
        if operator.custom_code is None:
            if operator.name not in OPERATORS:
                raise ModelError("this operator is not supported", hint=REFUSED.get(operator.name))
            return OPERATORS[operator.name]
        importer = self._custom("tflite", operator.custom_code)
        if importer is None and operator.custom_code in CUSTOM_OPERATORS:
            return CUSTOM_OPERATORS[operator.custom_code]
        if importer is None:
            hint = "no plugin of this build imports it: name a target of the one that does"
            raise ModelError("this operator is not supported", hint=hint)
        return partial(self._import_custom, operator, importer)

    def _import_custom(self, operator: Operator, importer: CustomImporter, layer: Layer) -> Expr | Sequence[Expr]:
        """The results of an operator that a plugin imports."""
        inputs = tuple(
            _custom_tensor(layer.tensor(i), layer.value(i)) if layer.has(i) else None for i in range(layer.count)
        )
        outputs = tuple(_custom_tensor(layer.output(i)) for i in range(layer.outputs))
        code = operator.custom_code or ""
        return importer(CustomLayer(operator.layer, code, inputs, outputs, options=operator.custom_options))

    def _stand_in(self, tensor: Tensor) -> Expr | None:
        """A value of a failed operator's result, so that what follows is looked at too; None where that is in vain."""
        try:
            open_shape = bool(self._shapes) or is_open(tensor)
            return None if open_shape else Var(f"tensor_{tensor.index}", TensorType(tensor.shape, tensor.dtype))
        except ModelError:
            return None

    def _name(self, operator: Operator, results: Sequence[Expr]) -> None:
        """Note the layer of every expression between the operator's operands and its results."""
        operands = {self._values.get(index) for index in operator.inputs}
        stack = [result for result in results if result not in operands]
        while stack:
            expr = stack.pop()
            operands.add(expr)
            self._spans.add(expr, [f"{self._layer}{operator.layer}"])
            stack.extend(child for child in children(expr) if child not in operands)


def is_open(tensor: Tensor) -> bool:
    """Return whether the file leaves an extent of a tensor open."""
    return -1 in tensor.signature


def _with_distinct_inputs(graph: Graph) -> Graph:
    """Return ``graph`` with numbers on the names of inputs that are called as one before."""
    indices = list(dict.fromkeys(graph.inputs))
    names = distinct_names([graph.tensors[index].name for index in indices])
    renamed = {index: replace(graph.tensors[index], name=name) for index, name in zip(indices, names, strict=True)}
    return replace(graph, tensors={**graph.tensors, **renamed})


def _custom_tensor(tensor: Tensor, value: Expr | None = None) -> CustomTensor:
    info = _info(tensor)
    shape = None if is_open(tensor) else tensor.shape
    return CustomTensor(tensor.name, value, shape, tensor.dtype, info.scale, info.zero_point)


def _info(tensor: Tensor) -> TensorInfo:
    if tensor.quantisation is None or not is_integer(tensor.dtype):
        return TensorInfo(tensor.name)
    try:
        scales, zero_points = quantisations(tensor)
    except ModelError as error:
        raise ModelError(error.what, where=f"input or output {tensor.name!r}") from error
    return TensorInfo(tensor.name, scales[0], zero_points[0]) if len(scales) == 1 else TensorInfo(tensor.name)


def _declared_bytes(graph: Graph) -> int:
    """The size of the tensors that are computed, and of the inputs, which have four bytes an element."""
    shapes = [tensor.shape for tensor in graph.tensors.values() if tensor.data is None]
    return 4 * sum(math.prod(shape) for shape in shapes if min(shape, default=1) > 0)
