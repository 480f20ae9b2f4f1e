"""From an ONNX graph to a module."""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...relay.custom_ops import FindImporter, no_importer
from ...relay.evaluate import fold as fold_exprs
from ...relay.expr import Expr, Function, GlobalVar, Tuple, Var, const
from ...relay.module import IRModule, Signature, Spans, TensorInfo, func_type
from ...relay.qdq import to_integers
from ...relay.types import TensorType
from ...relay.visit import free_vars, rewrite
from ...support.import_budget import (
    IMPORT_LIMIT,
    Budget,
    BudgetError,
    importing_within,
    spend_memory,
)
from ...tir.form.symbolic_dims import OpenExtentError, is_open, symbols_of, upper_bounds
from ..dynamic_shapes import AskedShape
from ..fixed_inputs import Fixed, check_fixed, fixed_array
from ..import_summary import Simplified
from ..model import ImportedModel, clean_text, distinct_names, variable_names
from ..state_pairs import keep_states
from .computed_dimensions import Counts, dimension_values
from .context import ComputedAtRunTime, Context, Converter, Value
from .control import branches, loop, scan_loop
from .converters import CONVERTERS, OTHER_DOMAINS, check_attributes, require_attributes
from .custom import convert_custom
from .dynamic_lstm import BODIES
from .dynamic_shapes import UnknownShape, leaves_open, proposed, resolved
from .fold import FOLDERS, OF_SHAPES, fold, limited
from .function_expansion import MAX_TURNS, Body, branch, expanded, function_body, scan, scan_form, schema_body
from .narrow_dtypes import Narrow
from .opset_upgrade import modern, modern_op
from .proto import Graph, Input, Node, read_graph, with_arguments
from .qonnx import QONNX
from .quant import QUANT, Parameters, are_known, parameters
from .requested_shapes import RequestedShapes
from .rounding import STEPWISE, fitted, narrow_results, stored, widened
from .runtime_parameters import at_run_time
from .symbolic_values import OPEN_CONVERTERS, is_open_value

if TYPE_CHECKING:
    import numpy as np

__all__ = ["from_onnx"]

_KEPT_QUANTISED = ("DequantizeLinear", *QONNX)
"""Operators whose results stay dequantised integers where they are known at import."""

_PACKED_HINT = "save it with ORT_ENABLE_EXTENDED: ORT_ENABLE_ALL packs tensors for one machine"

QDQ_HINT = "quantise it statically, in the QDQ form: quantize_static(..., quant_format=QuantFormat.QDQ) of onnxruntime"
_QUANTISED = ("ConvInteger", "DynamicQuantize", "MatMulInteger", "QGemm", "QLinear")
"""How the names of operators begin for which there are QuantizeLinear and DequantizeLinear in the QDQ form."""

RESULTS: Mapping[str, int] = {"LayerNormalization": 1}
"""Of operators with a body, how many results their converters give; it is the body that gives more."""

MAX_CAUSES = 10
"""Faults whose causes are followed to the inputs."""

MAX_FIXED_NUMBERS = 8
"""Numbers in inputs that a hint proposes to fix."""

MAX_DEPTH = 100
"""Of bodies within bodies."""

_CONTROL = ("If", "Loop", "Scan")
"""Operators that run graphs of their own."""


def from_onnx(
    data: bytes,
    *,
    shapes: Mapping[str, AskedShape] | None = None,
    states: Mapping[str, str] | None = None,
    constants: Mapping[str, Fixed] | None = None,
    custom: FindImporter = no_importer,
    folder: Path | None = None,
    import_limit: int = IMPORT_LIMIT,
) -> ImportedModel:
    """Import an ONNX model.

    Where its QDQ form allows, arithmetic between QuantizeLinear and DequantizeLinear becomes that of integers: see
    `to_integers`. Every expression that a node becomes has the node's name as its layer, or that of its first output.

    Args:
        data: the file.
        shapes: of inputs whose dimensions the model leaves open, by input name; or one extent of all dimensions to
            which the file gives a name, by that. One that is a range is a parameter of the module.
        states: as for `keep_states`; an input with an initialiser begins with its value.
        constants: values that inputs are fixed to, by input name: what depends on them alone is known at import.
        custom: finds importers of operators that are not the core's.
        folder: where files are that the model keeps initialisers in; None for one that has no others.
        import_limit: bytes of constants, and scalar operations, for each byte of the model: see
            `uma.support.import_budget`.

    Raises:
        UsageError: the package ``onnx`` is not installed, or ``shapes``, ``states`` or ``constants`` do not fit
            the model.
        ModelError: the file is malformed, an input's shape is not known, or there are nodes that are wrong or not
            supported: all of them are listed.
    """
    import numpy as np

    # Hostile numbers overflow; what comes of them is checked where it matters.
    with np.errstate(all="ignore"):
        graph = read_graph(data, states or {}, folder)
        check_fixed(constants or {}, (value.name for value in graph.inputs), states or {}, graph.initializers)
        importer = _Importer(graph, shapes or {}, constants or {}, custom, import_limit)
        try:
            imported = importer.run()
        except UnknownShape as error:
            asked, fixed = shapes or {}, constants or {}
            open_ = [
                value
                for value in graph.inputs
                if value.name not in asked and leaves_open(value) and not hasattr(fixed.get(value.name), "shape")
            ]
            tried = proposed(open_, lambda more: _Importer(graph, {**asked, **more}, fixed, custom, import_limit).run())
            raise error.to_error(tried) from None
        with importing_within(importer.budget):
            module, notes = to_integers(imported)
            initial = {value.name: _initial(graph, value) for value in graph.inputs if value.name in graph.initializers}
    module, literal = (keep_states(one, states or {}, initial) for one in (module, imported))
    sentences = importer.simplified.sentences()
    return ImportedModel(module, notes, importer.constants, sentences, literal)


def _initial(graph: Graph, value: Input) -> np.ndarray:
    """What an input begins with that an initialiser gives a value."""
    array = graph.constant(value.name)
    return array if value.narrow is None else value.narrow.to_stored(array)


class _Importer:
    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[str, AskedShape],
        constants: Mapping[str, Fixed],
        custom: FindImporter,
        import_limit: int,
    ) -> None:
        self.constants: dict[str, np.ndarray] = {}
        """What inputs were fixed to."""
        self.simplified = Simplified(unneeded=list(graph.unneeded))
        names = [value.name for value in graph.inputs]
        used = {name for node in graph.nodes for name in node.needs} | set(graph.outputs)
        self.simplified.note_unused([n for n in graph.initializers if n not in names], names, used)
        self._fixed = constants
        self._graph = graph
        self._custom = custom
        self._declared = dict(graph.shapes)
        self._shapes = RequestedShapes(graph.inputs, shapes)
        self._symbols: list[str] = []
        self._values: dict[str, Value] = {}
        # Of tensors that are of a narrow type.
        self._narrow: dict[str, Narrow] = {}
        self._inputs_of: dict[Expr, str] = {}
        # Values that would have to be known at import.
        self._causes: list[Expr] = []
        self._spans = Spans()
        self._counts = Counts(())
        self._uses = Counter([name for node in graph.nodes for name in (*node.inputs, *node.captured)])
        self._uses.update({*graph.outputs})
        # Of QuantizeLinear by its output, of DequantizeLinear by its input; None where two disagree.
        self._parameters: dict[str, Parameters | None] = {}
        self._constants: dict[str, Expr] = {}
        self.budget = Budget(graph.size_bytes, _declared_bytes(graph), import_limit)
        self._functions: dict[str, Function] = {}
        self._taken_params: set[str] = set()
        self._number = itertools.count()
        self._taken = {name for node in graph.nodes for name in (*node.needs, *node.outputs)}

    def run(self) -> IRModule:
        """The module, quantisation taken literally."""
        with importing_within(self.budget):
            return self._run()

    def _run(self) -> IRModule:
        params = self._params()
        self._taken_params = {param.name for param in params}
        names = distinct_names(self._graph.outputs)
        self._counts = Counts((*self._taken_params, *self._taken, *names))
        self._convert_all()
        results = [self._result(name) for name in self._graph.outputs]
        computed = self._counts.symbols_in(*(result.tensor for result in results))
        results = self._with_counts([*results, *map(self._counts.value, computed)])
        body = results[0] if len(results) == 1 else Tuple(results)
        outputs = [replace(self._info(old), name=new) for old, new in zip(self._graph.outputs, names, strict=True)]
        signature = Signature(
            (
                *(self._info(value.name) for value in self._graph.inputs if value.name not in self._fixed),
                *map(TensorInfo, self._symbols),
            ),
            (*outputs, *(TensorInfo(symbol.name) for symbol in computed)),
        )
        return IRModule.from_functions({"main": Function(params, body), **self._functions}, self._spans, signature)

    def _with_counts(self, results: list[Expr]) -> list[Expr]:
        """``results`` with what computes extents in the place of the variables that stand for these."""
        replacements: dict[Expr, Expr] = {}
        for var, count in self._counts.values.items():
            replacements[var] = rewrite(count, lambda old: replacements.get(old), self._spans.record_rewrite)
        return (
            [rewrite(result, lambda old: replacements.get(old), self._spans.record_rewrite) for result in results]
            if replacements
            else results
        )

    def _params(self) -> list[Var]:
        import numpy as np

        params = []
        names = variable_names([*(value.name for value in self._graph.inputs), *self._shapes.symbols])
        symbol_names = dict(zip(self._shapes.symbols, names[len(self._graph.inputs) :], strict=True))
        used: dict[str, Var] = {}
        for value, name in zip(self._graph.inputs, names, strict=False):
            fixed = self._fixed.get(value.name)
            fixed_shape = getattr(fixed, "shape", None) if leaves_open(value) else None
            shape = resolved(value, self._shapes.shape_for(value, symbol_names) or fixed_shape)
            used.update((s.name, Var(s.name, TensorType((1,), "int32"))) for s in symbols_of(shape))
            if value.narrow is not None:
                self._narrow[value.name] = value.narrow
            try:
                if fixed is not None and is_open(shape):
                    raise ModelError("it is a constant, and its shape is open")
                if fixed is None and 0 in shape:
                    # There is nothing to feed, and all is known of it.
                    self.constants[value.name] = np.empty(limited(upper_bounds(shape), value.dtype), value.dtype)
                    held_dtype = value.dtype if value.narrow is None else value.narrow.value_dtype
                    self._values[value.name] = np.empty(upper_bounds(shape), held_dtype)
                    continue
                type_ = TensorType(shape, value.dtype)
                if fixed is not None:
                    self._fix(value, fixed, upper_bounds(shape))
                    continue
                params.append(Var(name, type_))
                self._inputs_of[params[-1]] = value.name
            except ModelError as error:
                raise ModelError(error.what, where=f"input {value.name!r}", hint=error.hint) from error
            self._values[value.name] = widened(params[-1], value.narrow)
        self._symbols = [symbol for symbol, name in symbol_names.items() if name in used]
        return [*params, *(used[symbol_names[symbol]] for symbol in self._symbols)]

    def _fix(self, value: Input, fixed: Fixed, shape: tuple[int, ...]) -> None:
        narrow = value.narrow
        if narrow is not None and isinstance(fixed, (bool, int, float)):
            array = narrow.to_stored(fixed_array(value.name, fixed, narrow.value_dtype, shape))
        else:
            array = fixed_array(value.name, fixed, value.dtype, shape)
        self.constants[value.name] = array
        self._values[value.name] = array if narrow is None else narrow.nearest(narrow.values(array))

    def _result(self, name: str) -> Expr:
        try:
            value = self._value(name)
            if is_open_value(value) and not isinstance(value, Expr):
                return dimension_values(value)
            value = value if isinstance(value, Expr) else const(value)
            result = stored(value, self._narrow.get(name))
            self._spans.record_rewrite(value, result)
            return result
        except ModelError as error:
            raise ModelError(error.what, where=f"output {name!r}", hint=error.hint) from error

    def _value(self, name: str) -> Value:
        if name not in self._values:
            self._values[name] = self._graph.constant(name)
            narrow = self._graph.narrow(name)
            if narrow is not None:
                self._narrow[name] = narrow
        return self._values[name]

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _convert_all(self) -> None:
        faults = self._convert_nodes(self._graph.nodes)
        if faults:
            many = f"{len(faults)} operators" if len(faults) > 1 else "an operator"
            message = "\n".join([f"the model has {many} that cannot be imported:", *faults.values()])
            raise ModelError(
                message, hint=QDQ_HINT if any(map(_is_quantised, self._graph.nodes)) else self._constants_hint()
            )

    def _convert_nodes(self, nodes: Sequence[Node]) -> dict[str, str]:
        """What is wrong with nodes, one line each; those that are right are converted."""
        faults: dict[str, str] = {}
        failed: set[str] = set()
        # What failed, and would not have been known at import.
        computed: set[str] = set()
        waiting = deque(nodes)
        while waiting:
            node = waiting.popleft()
            at_import = self._is_known(node, computed)
            try:
                body = self._body(node) if not failed.intersection(node.needs) else None
                if body is not None:
                    waiting.extendleft(reversed(self._expanded(node, body)))
                    continue
                if node.op in _CONTROL and not node.domain:
                    if not failed.intersection(node.needs):
                        self._control(node)
                        continue
                else:
                    converter = self._converter(node)
                    if not failed.intersection(node.needs):
                        self._convert(node, converter)
                        continue
            except BudgetError as error:
                error.where = error.where or clean_text(f"{node.layer!r} ({node.described})")
                raise
            except ModelError as error:
                self._note_cause(node, error)
                hint = f" ({error.hint})" if error.hint else ""
                if isinstance(error, OpenExtentError) and "open extents" not in error.what:
                    error.what = f"it takes no such open extents: {error.what}"
                location = f" within {node.enclosing[0]}" if node.enclosing else ""
                fault = clean_text(f"  {node.layer!r} ({node.described}{location}): {error.what}{hint}")
                # What follows from the first fault of a body says nothing more.
                faults.setdefault(node.layer if node.enclosing else fault, fault)
            failed.update(filter(None, node.outputs))
            if not at_import:
                computed.update(filter(None, node.outputs))
        return faults

    def _note_cause(self, node: Node, error: ModelError) -> None:
        """Note the value that an error would not be there without, if it were known at import."""
        condition = node.inputs[0] if node.op == "If" and not node.domain and node.inputs else None
        value = error.value if isinstance(error, ComputedAtRunTime) else self._values.get(condition or "")
        if isinstance(value, Expr) and len(self._causes) < MAX_CAUSES:
            self._causes.append(value)

    def _constants_hint(self) -> str | None:
        """Return a hint that names the inputs that the causes of the faults depend on; None if they are large."""
        named: dict[str, None] = {}
        for cause in self._causes:
            variables = free_vars(cause)
            names = [self._inputs_of.get(variable, "") for variable in variables]
            if all(names) and sum(math.prod(upper_bounds(v.shape)) for v in variables) <= MAX_FIXED_NUMBERS:
                named.update(dict.fromkeys(names))
        if not named:
            return None
        options = " ".join(f"--constant {clean_text(name)}=VALUE" for name in named)
        return f"a shape or a branch depends on the value of an input: fix it, {options}"

    def _body(self, node: Node) -> Body | None:
        """Return the definition of a node that is not an operator of its own; None for operators and unknown nodes."""
        if node.op == "If" and not node.domain:
            condition = self._value(node.inputs[0]) if node.inputs and node.inputs[0] else None
            if condition is None or isinstance(condition, Expr):
                return None
            if condition.size != 1:
                raise ModelError(f"its condition has the shape {condition.shape}")
            return branch(node, bool(condition.reshape(())), {**self._graph.opsets, node.domain: node.opset})
        if node.op == "Scan" and not node.domain:
            form = scan_form(node, self._inputs(node))
            return None if form.turns > MAX_TURNS else scan(node, form, self._graph.opsets, self._fresh)
        if node.op == "Loop" and not node.domain:
            return None
        if node.domain and self._custom("onnx", f"{node.domain}::{node.op}") is not None:
            return None
        function = self._graph.functions.get((node.domain, node.op, node.overload))
        if function is not None:
            return function_body(node, function, self._graph.opsets)
        if node.domain == "com.microsoft" and node.op in BODIES:
            check_attributes(node)
            return BODIES[node.op](node, self._inputs(node), self._graph.opsets)
        if _is_quantised(node):
            return None
        results = RESULTS.get(node.op, len(node.outputs))
        kinds = list(map(self._narrow.get, node.inputs))
        stepwise = node.op in STEPWISE and any(kind is not None and kind.is_float for kind in kinds)
        converted = node.op in FOLDERS or (node.op in CONVERTERS and not any(node.outputs[results:]))
        if not node.domain and converted and not stepwise:
            return None
        if not node.domain:
            check_attributes(node)
        return schema_body(node, self._inputs(node), kinds, self._graph.opsets)

    def _control(self, node: Node) -> None:
        """Convert an If, a Loop or a Scan whose branches or turns a run decides."""
        check_attributes(node)
        values, opsets = self._inputs(node), self._graph.opsets
        results: Sequence[Value]
        if node.op == "If":
            condition = self._value(node.inputs[0]) if node.inputs and node.inputs[0] else None
            if len(node.inputs) != 1 or not isinstance(condition, Expr):
                raise ModelError("its condition is missing")
            results = branches(node, condition, self._values, opsets, self)
        elif node.op == "Loop":
            results = loop(node, values, opsets, self)
        else:
            form = scan_form(node, values)
            results = scan_loop(node, form, [value for value in values if value is not None], opsets, self)
        if len(node.outputs) > len(results):
            raise ModelError(f"it has {len(node.outputs)} results of {len(results)}")
        for name, value in zip(node.outputs, results, strict=False):  # optional results may be left out
            self._values[name] = value

    def converted(self, node: Node, body: Body, arguments: Sequence[Value]) -> list[Value]:
        """What the nodes of a body give: see `control.Importing`."""
        if len(node.enclosing) >= MAX_DEPTH:
            raise ModelError(f"bodies are within bodies, over {MAX_DEPTH} deep")
        formals, results = tuple(map(self._fresh, body.inputs)), tuple(map(self._fresh, body.outputs))
        self._values.update(zip(formals, arguments, strict=True))
        self._counts.apart += 1
        nodes = expanded(replace(node, inputs=formals, outputs=results), body, self._fresh, is_apart=True)
        with_arguments(nodes, self._declared)
        self._uses.update(name for n in nodes for name in n.needs)
        self._uses.update(results)
        faults = self._convert_nodes(nodes)
        self._counts.apart -= 1
        if faults:
            raise ModelError(f"in its body {next(iter(faults.values())).strip()}")
        return [self._value(name) for name in results]

    def variable(self, type_: TensorType) -> Var:
        """A variable of no other function of the model."""
        name = f"b{next(self._number)}"
        while name in self._taken_params:
            name = f"b{next(self._number)}"
        return Var(name, type_)

    def function(self, name: str, function: Function) -> GlobalVar:
        """The function under a name of its own."""
        var = GlobalVar(f"{name}_{len(self._functions)}", func_type(function))
        self._functions[var.name] = function
        return var

    def note(self, expr: Expr, layer: str) -> None:
        """Note that ``expr`` belongs to a layer."""
        self._spans.add(expr, [layer])

    def record_rewrite(self, old: Expr, new: Expr) -> None:
        """Note that ``new`` is ``old`` within a function."""
        self._spans.record_rewrite(old, new)

    def _inputs(self, node: Node) -> list[Value | None]:
        return [self._value(name) if name else None for name in node.inputs]

    def _expanded(self, node: Node, body: Body) -> tuple[Node, ...]:
        # (Branches and turns are graphs within graphs: they have an end.)
        if body.what in node.enclosing and node.op not in ("If", "Scan"):
            raise ModelError(f"{body.what} is a part of its own body")
        if len(node.enclosing) >= MAX_DEPTH:
            raise ModelError(f"bodies are within bodies, over {MAX_DEPTH} deep")
        nodes = expanded(node, body, self._fresh)
        with_arguments(nodes, self._declared)
        self._uses.subtract(node.needs)
        self._uses.update(name for n in nodes for name in n.needs)
        return nodes

    def _fresh(self, name: str) -> str:
        """A name that no tensor of the model has, from one within a body."""
        self._taken.add(name)
        while name in self._taken:
            name = f"{name}.{next(self._number)}"
        self._taken.add(name)
        return name

    def _is_known(self, node: Node, computed: Collection[str]) -> bool:
        """Whether a node's results are known at import, but for its faults, and all is that is not in ``computed``."""
        if node.op in OF_SHAPES and not node.domain:
            return True
        return not any(name in computed or isinstance(self._values.get(name), Expr) for name in node.needs)

    def _converter(self, node: Node) -> Converter | None:
        """How a node becomes expressions; None for one that is always known at import, or whose parameters are."""
        if not node.domain:
            op = modern_op(node)
            if op not in CONVERTERS and op not in FOLDERS:
                raise ModelError("this operator is not supported")
            check_attributes(node)
            return CONVERTERS.get(op)
        importer = self._custom("onnx", f"{node.domain}::{node.op}")
        if importer is None and _is_quantised(node):
            raise ModelError("this operator is not supported")
        if importer is None and (row := OTHER_DOMAINS.get(node.domain, {}).get(node.op)) is not None:
            require_attributes(node, row[1].split())
            return row[0]
        if importer is None:
            hint = "no plugin of this build imports it: name a target of the one that does"
            if node.domain == "com.microsoft.nchwc":
                hint = _PACKED_HINT
            raise ModelError("this operator is not supported", hint=hint)
        return partial(convert_custom, importer)

    def _convert(self, node: Node, converter: Converter | None) -> None:
        declared = [self._declared.get(name) for name in node.outputs]
        inputs = self._inputs(node)  # of initialisers the types are known from here on
        narrow = list(map(self._narrow.get, node.inputs))
        context = Context(node, inputs, self._uses, self._constants, self._counts, declared, narrow)
        if not node.domain:
            context = modern(context)
            converter = at_run_time(context, converter)
        kinds = narrow_results(node, narrow)
        results = self._apply_converter(context, converter)
        self._counts.require_founded(context.built)
        results = [
            fitted(context, value, kind) for value, kind in zip(results, kinds, strict=False)
        ]  # results are left out
        self._narrow.update((name, kind) for name, kind in zip(node.outputs, kinds, strict=True) if kind is not None)
        for position, name in enumerate(node.outputs[len(results) :], len(results)):
            if name and self._uses[name]:
                raise ModelError(f"its result {position} is used, which is not supported")
        for name, value in zip(node.outputs, results, strict=False):  # optional results may be left out
            self._values[name] = value
        if not any(isinstance(value, Expr) for value in results):
            self.simplified.computed.update([node.op] if node.op != "Constant" else [])
        elif any(results[0] is value for value in context.values) and not any(
            self._uses[n] for n in node.outputs[1:] if n
        ):
            self.simplified.idle.append((node.layer, node.op))
        self.simplified.results += [
            (name, node.layer, node.op) for name in node.outputs if name and not self._uses[name]
        ]
        for expr in context.built:
            self._spans.add(expr, [node.layer])
        for old, new in context.replaced:
            self._spans.record_rewrite(old, new)

    def _apply_converter(self, context: Context, converter: Converter | None) -> Sequence[Value]:
        op, is_own = context.node.op, not context.node.domain
        folded = fold(context) if is_own else None
        if folded is not None:
            return [folded]
        of_open = any(map(is_open_value, context.values))
        if converter is None and of_open:
            converter = OPEN_CONVERTERS.get(op)
        if converter is None:
            raise ModelError(f"it has {len(context.node.outputs)} results; one is supported")
        results = converter(context)
        known_only = not of_open and not any(isinstance(value, Expr) for value in context.values)
        is_core = is_own or converter is OTHER_DOMAINS.get(context.node.domain, {}).get(op, (None,))[0]
        if is_core and op not in _KEPT_QUANTISED and known_only:
            results = _computed(context, results)
        if is_own and op in QUANT:
            stored = context.node.outputs[0] if op == "QuantizeLinear" else context.node.inputs[0]
            quantisation = parameters(context) if are_known(context) else None
            known_already = self._parameters.setdefault(stored, quantisation)
            self._parameters[stored] = quantisation if known_already == quantisation else None
        return results if isinstance(results, Sequence) else [results]

    def _info(self, name: str) -> TensorInfo:
        quantisation = self._parameters.get(name)
        if quantisation is None or len(quantisation.scale) > 1:
            return TensorInfo(name)
        return TensorInfo(name, quantisation.scale[0], quantisation.zero_point[0])


def _is_quantised(node: Node) -> bool:
    """Whether it is an operator on integers, as onnxruntime's quantiser writes them in its forms other than QDQ."""
    return node.domain in ("", "com.microsoft") and node.op.startswith(_QUANTISED)


def _computed(context: Context, converted: Value | Sequence[Value]) -> Sequence[Value]:
    """What a node makes of what is known: arrays, unless they are too large to be computed at import."""
    results = converted if isinstance(converted, Sequence) else [converted]
    for result in results:
        if not isinstance(result, Expr) and not any(result is value for value in context.values):
            spend_memory(result.nbytes)
    exprs = [result for result in results if isinstance(result, Expr)]
    folded = fold_exprs(exprs) if exprs else None
    if folded is None:
        return results
    values = iter(folded)
    arrays = [next(values) if isinstance(result, Expr) else result for result in results]
    for array in folded:
        spend_memory(array.nbytes)
    context.built.clear()
    return arrays


def _declared_bytes(graph: Graph) -> int:
    """The size of the inputs, and of the tensors whose shapes the file declares, which have four bytes an element."""
    inputs = (value.dims for value in graph.inputs)
    extents = [[dim for dim in dims if isinstance(dim, int)] for dims in inputs if dims is not None]
    return 4 * sum(math.prod(shape) for shape in (*extents, *graph.shapes.values()))
