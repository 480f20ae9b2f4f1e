"""Layers made up from a pattern: what its terms ask for, with shapes and attributes that the ops allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import PluginError, UmaError
from ...relay.evaluate import evaluate
from ...relay.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var, const
from ...relay.op import FixedPoint, FloatScale, Op
from ...relay.pattern import Pattern
from ...relay.pattern.conditions import Condition, Fixed
from ...relay.pattern.terms import AnyOf, ConstantTerm, Item, OpTerm, Term, Wildcard, terms_of
from ...relay.types import TensorType, TupleType
from .inputs import ends_of, random_array
from .layer import Layer, with_body
from .values import Sizes, attribute_values, scale_makers

if TYPE_CHECKING:
    import numpy as np

__all__ = ["OPEN_DTYPES", "Choices", "Maker"]

Shape = tuple[int, ...]


class Unmade(Exception):
    """A pattern could not be filled in so; another try may do."""


OPEN_DTYPES = ("int8", "float32", "int32", "uint8", "int16", "bool")
"""Dtypes to try where a pattern names none."""


class Choices:
    """Counts how often each alternative of each term was taken, so that all get their turn: the terms of an `AnyOf`,
    and the dtypes of an input or a constant that names several."""

    def __init__(self, pattern: Pattern) -> None:
        self.counts: dict[tuple[Term, int], int] = {}
        for term in terms_of(*pattern.roots):
            for number in range(len(term.options if isinstance(term, AnyOf) else _dtypes_of(term))):
                self.counts[term, number] = 0

    def dtype(self) -> str | None:
        """The dtype that the terms name and that was taken least often; None where none names several."""
        counts: dict[str, int] = {}
        for (term, number), count in self.counts.items():
            if not isinstance(term, AnyOf):
                dtype = _dtypes_of(term)[number]
                counts[dtype] = counts.get(dtype, 0) + count
        return min(counts, key=lambda dtype: counts[dtype], default=None)

    @property
    def are_all_taken(self) -> bool:
        """Whether each alternative is in a layer that was taken."""
        return all(self.counts.values())

    def note(self, choices: Sequence[tuple[Term, int]]) -> bool:
        """Count the alternatives of a layer; gives whether one of them is new."""
        is_new = any(self.counts[one] == 0 for one in choices)
        for one in choices:
            self.counts[one] += 1
        return is_new


class Maker:
    """Makes one layer of a pattern.

    Args:
        pattern: the pattern.
        choices: what was taken before, least of which is taken now.
        sizes: what may matter to the machine.
        rng: decides all else.
        plain: take the most ordinary value of everything, for the first try.
        dtype: of inputs and constants, where their terms take it; by default one that the pattern suggests.
    """

    def __init__(
        self,
        pattern: Pattern,
        choices: Choices,
        sizes: Sizes,
        rng: np.random.Generator,
        plain: bool = False,
        dtype: str | None = None,
    ) -> None:
        self._pattern, self._choices, self._sizes, self._rng, self._plain = pattern, choices, sizes, rng, plain
        self._wanted = dtype or choices.dtype()
        self._exprs: dict[Term, Expr] = {}
        self._vars = 0
        self.chosen: list[tuple[Term, int]] = []
        self._dtype = "float32"

    def layer(self) -> Layer | None:
        """A layer that the pattern's terms are for; whether its clauses hold is not looked at. None where nothing came
        of it."""
        names = [term.op.name for term in terms_of(*self._pattern.roots) if isinstance(term, OpTerm)]
        integers = any(name.startswith("qnn.") for name in names)
        self._dtype = self._wanted or ("int8" if integers else "float32")
        if not self._plain and self._chance(0.15):
            self._dtype = str(self._rng.choice(OPEN_DTYPES))
        try:
            roots = [self._expr(root, None) for root in self._pattern.roots]
        except (Unmade, UmaError, ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError):
            return None
        body = roots[0] if len(roots) == 1 else Tuple(roots)
        if isinstance(body.type, TupleType) and len(roots) == 1:
            body = Tuple([TupleGetItem(body, at) for at in range(len(body.type.fields))])
        function = with_body(body)
        return Layer(function, self._pattern.name) if function.params else None

    def _chance(self, share: float) -> bool:
        return bool(self._rng.random() < share)

    def _pick(self, values: Sequence[Any]) -> Any:
        """The first, mostly; else any."""
        if not values:
            raise Unmade
        return values[0] if self._plain or self._chance(0.6) else values[int(self._rng.integers(len(values)))]

    # --- terms -----------------------------------------------------------------------------------------------------

    def _expr(self, term: Term, want: Shape | None) -> Expr:
        if term not in self._exprs:
            expr = self._new(term, want)
            if not isinstance(term, AnyOf) and not _holds(term.admits, expr):
                raise Unmade
            self._exprs[term] = expr
        return self._exprs[term]

    def _new(self, term: Term, want: Shape | None) -> Expr:
        if isinstance(term, AnyOf):
            return self._expr(self._option(term), want)
        if isinstance(term, (Wildcard, ConstantTerm)):
            return self._leaf(term, want)
        if isinstance(term, Item):
            return TupleGetItem(self._expr(term.value, want), term.index)
        assert isinstance(term, OpTerm)
        return self._call(term, want)

    def _option(self, term: AnyOf) -> Term:
        """The alternative that was in the fewest layers; it may have been made already, as part of a chain."""
        counts = self._choices.counts
        order = sorted(range(len(term.options)), key=lambda at: (counts[term, at], self._rng.random()))
        number = order[0] if self._plain or self._chance(0.7) else int(self._rng.integers(len(term.options)))
        self.chosen.append((term, number))
        return term.options[number]

    def _leaf(self, term: Term, want: Shape | None) -> Expr:
        dtypes = term.tensor.dtypes
        dtype = self._dtype if dtypes is None or self._dtype in dtypes else dtypes[0]
        if (several := _dtypes_of(term)) and dtype in several:
            self.chosen.append((term, several.index(dtype)))
        shape = self._shape(term, self._ordinary() if want is None else want)
        if isinstance(term, ConstantTerm):
            return const(self._constant(shape, dtype))
        self._vars += 1
        return Var(f"x{self._vars - 1}", TensorType(shape, dtype))

    def _shape(self, term: Term, shape: Shape) -> Shape:
        term_shape = term.tensor.shape
        if term.tensor.rank is not None and term.tensor.rank != len(shape):
            shape = (
                (shape + (3,) * term.tensor.rank)[: term.tensor.rank]
                if len(shape) < term.tensor.rank
                else shape[-term.tensor.rank :]
            )
        if term_shape is None:
            return shape
        shape = (*(1,) * max(0, len(term_shape) - len(shape)), *shape)[-len(term_shape) :] if term_shape else ()
        return tuple(
            extent if _holds(condition.holds, extent) else self._number(condition)
            for extent, condition in zip(shape, term_shape, strict=True)
        )

    def _number(self, condition: Condition) -> int:
        if isinstance(condition, Fixed):
            return int(condition.value)
        numbers = [n for n in (*range(1, 65), 128, 256, 512, 1024) if _holds(condition.holds, n)]
        return int(self._pick(numbers))

    def _extent(self, most: int = 7) -> int:
        return 4 if self._plain else int(self._rng.integers(1, most))

    def _channel_count(self) -> int:
        array = self._sizes.array
        few = [extent for extent in self._sizes.extents if extent <= array + 1]
        return array + 1 if self._plain else int(self._pick([array + 1, *few]))

    def _ordinary(self, rank: int = 4) -> Shape:
        if not self._plain and self._chance(0.3):
            rank = int(self._rng.integers(1, 5))
        return (
            (1, *(self._extent() for _ in range(rank - 2)), self._channel_count())
            if rank > 1
            else (self._channel_count(),)
        )

    def _constant(self, shape: Shape, dtype: str) -> np.ndarray:
        return random_array(self._rng, shape, dtype)

    # --- calls -----------------------------------------------------------------------------------------------------

    def _call(self, term: OpTerm, want: Shape | None) -> Expr:
        op = term.op
        shapes = self._operand_shapes(term, want)
        order = sorted(range(len(term.args)), key=lambda at: (not _computes(term.args[at]), at))
        args: dict[int, Expr] = {}
        for at in order:
            args[at] = self._expr(term.args[at], shapes(at, args))
        operands = [args[at] for at in range(len(term.args))]
        types = [arg.tensor for arg in operands]
        attrs = {
            attr.name: self._attribute(op, at, condition, types, operands, want)
            for at, (attr, condition) in enumerate(zip(op.attrs, term.attrs, strict=True))
        }
        return Call(op, operands, op.make_attrs(self._consistent(op, attrs, types)))

    def _attribute(
        self,
        op: Op,
        at: int,
        condition: Condition,
        types: Sequence[TensorType],
        args: Sequence[Expr],
        want: Shape | None,
    ) -> Any:
        attr = op.attrs[at]
        if isinstance(condition, Fixed):
            return condition.value
        if attr.type.name == "FixedPoint or FloatScale":
            channels = types[0].shape[-1] if op.name == "qnn.requantize" and types[0].shape else 1
            scales = [make() for _, make in scale_makers(self._factor(op, attr.name, args), channels)]
            return self._pick([scale for scale in scales if _holds(condition.holds, scale)])
        fits = op.name == "reshape" and want is not None and math.prod(want) == types[0].size
        if fits and _holds(condition.holds, want):
            return want
        values = [*attribute_values(op, attr, types)]
        if attr.type.name == "dtype" and self._wanted in values:
            values.insert(0, self._wanted)
        if attr.default is not None and not (attr.name.endswith("zero_point") or attr.name == "padding"):
            values.insert(0, attr.default) if repr(attr.default) != "MISSING" else None
        fitting = []
        for value in values:
            try:
                normal = attr.normalise(value, op.name)
            except UmaError:
                continue
            if _holds(condition.holds, normal):
                fitting.append(normal)
        return self._pick(fitting)

    def _factor(self, op: Op, name: str, args: Sequence[Expr]) -> float:
        """A scale that suits what is scaled."""
        if name == "lhs_scale" or name == "rhs_scale":
            return 0.5
        if op.name in ("qnn.add", "qnn.subtract"):
            return 2.0**-18
        if op.name == "qnn.multiply":
            return 1 / 150
        if "softmax" in op.name:
            return 2.0**22
        if op.name != "qnn.requantize":
            return 0.9
        return 100 / max(1.0, largest_of(args[0], self._rng))

    def _consistent(self, op: Op, attrs: dict[str, Any], types: Sequence[TensorType]) -> dict[str, Any]:
        """Attributes that go together: limits in order; the axis of scales is that of channels."""
        if "a_min" in attrs and attrs["a_min"] > attrs["a_max"]:
            attrs = {**attrs, "a_min": attrs["a_max"]}
        scale = attrs.get("scale")
        if op.name == "qnn.requantize" and isinstance(scale, (FixedPoint, FloatScale)) and len(scale) > 1:
            rank = len(types[0].shape)
            if types[0].shape[attrs["axis"]] != len(scale):
                attrs = {**attrs, "axis": rank - 1}
        if op.name == "nn.pad" and len(attrs["pad_width"]) != 2 * len(types[0].shape):
            raise Unmade
        return attrs

    def _operand_shapes(self, term: OpTerm, want: Shape | None) -> Callable[[int, dict[int, Expr]], Shape | None]:
        """What shape each operand should have, once those that are there are known."""
        op = term.op
        name = op.name.rpartition(".")[2]
        if name.startswith("conv"):
            return self._conv_shapes(term, want)
        if name in ("dense", "matmul"):
            rows = (1, *want[1:-1]) if want is not None and len(want) > 1 else (2,)
            depth, outer = self._channel_count() + 3, want[-1] if want else self._channel_count()

            def product(at: int, args: dict[int, Expr]) -> Shape:
                other = args.get(1 - at)
                k = depth if other is None else other.shape[-1 if at == 1 or name == "dense" else -2]
                front = tuple(want[:-1]) if want else rows
                if at == 0:
                    return (*front, k)
                return (outer, k) if name == "dense" else (*front[:-1], k, outer)

            return product
        if name.startswith(("max_pool", "avg_pool", "global")):
            rank = next((r for r in (1, 2, 3) if f"{r}d" in name), 2)
            shape = (1, *(self._extent() + 2 for _ in range(rank)), self._channel_count())
            return lambda at, args: shape
        if name == "reshape":
            return lambda at, args: self._before_reshape(want)
        if op.kind == "broadcast" and len(term.args) == 2:

            def pair(at: int, args: dict[int, Expr]) -> Shape | None:
                sibling = args.get(1 - at)
                if sibling is None or not sibling.shape:
                    return want
                full = tuple(sibling.shape)
                leaf = isinstance(term.args[at], ConstantTerm)
                short = [(full[-1],), (1,), full, (1,) * (len(full) - 1) + (full[-1],)]
                if op.name == "multiply":
                    short = [(1,), (full[-1],), full]
                other = [full, full, (*(1,) * (len(full) - 1), full[-1]), (1,) * len(full)]
                return tuple(self._pick(short if leaf else other))

            return pair
        base = want or (
            self._ordinary()
            if op.inputs[:1] != ("*data",)
            else (1, self._extent(), self._extent(), self._channel_count())
        )
        if op.kind in ("reduction", "opaque") or op.name.startswith(("nn.", "qnn.")):
            base = base if len(base) > 1 else (2, base[0] if base else 3)
        return lambda at, args: base

    def _before_reshape(self, want: Shape | None) -> Shape:
        if want is None:
            return self._ordinary()
        size = math.prod(want)
        side = next((n for n in (2, 3) if size % n == 0), 1)
        return (
            tuple(self._pick([(1, side, 1, size // side), want, (1, 1, 1, size)]))
            if want[:1] == (1,)
            else (want[0], 1, side, size // want[0] // side)
            if size // want[0] % side == 0
            else want
        )

    def _conv_shapes(self, term: OpTerm, want: Shape | None) -> Callable[[int, dict[int, Expr]], Shape | None]:
        rank = next(r for r in (1, 2, 3) if f"{r}d" in term.op.name)
        conditions = {attr.name: c for attr, c in zip(term.op.attrs, term.attrs, strict=True)}
        groups = conditions["groups"]
        is_grouped = not _holds(groups.holds, 1)
        channels = self._channel_count() if not is_grouped else max(2, self._channel_count())
        spatial = tuple(self._extent() + 2 for _ in range(rank))
        kernel = tuple(3 if self._plain else int(self._rng.integers(1, 4)) for _ in range(rank))
        outer = want[-1] if want else self._channel_count()
        batch = 1 if want is None else want[0]

        def shape(at: int, args: dict[int, Expr]) -> Shape:
            if at == 0:
                return (batch, *spatial, channels)
            data = args[0].shape if 0 in args else (batch, *spatial, channels)
            taps = tuple(min(k, n) for k, n in zip(kernel, data[1:-1], strict=True))
            if is_grouped:
                return (*taps, 1, data[-1])
            return (*taps, data[-1], outer)

        return shape


def _dtypes_of(term: Term) -> tuple[str, ...]:
    """The dtypes of which an input or a constant takes any; empty where it is neither, or names only one, or none."""
    dtypes = term.tensor.dtypes if isinstance(term, (Wildcard, ConstantTerm)) else None
    return dtypes if dtypes is not None and len(dtypes) > 1 else ()


def _holds(test: Callable[[Any], bool], value: Any) -> bool:
    """Whether a test of the plugin holds, or raises: the layer is made then, so that its acceptance records that."""
    try:
        return test(value)
    except PluginError:
        return True


def _computes(term: Term) -> bool:
    return any(isinstance(part, OpTerm) for part in terms_of(term))


def largest_of(expr: Expr, rng: np.random.Generator) -> float:
    """About the largest number that an expression gives, on random inputs."""
    import numpy as np

    if isinstance(expr, Constant):
        return float(np.abs(expr.data.astype(np.float64)).max())
    if isinstance(expr, Var):
        return float(ends_of(expr.dtype)[1])
    function = with_body(expr)
    inputs = {param.name: random_array(rng, param.shape, param.dtype) for param in function.params}
    (result, *_) = evaluate(function, inputs)
    magnitudes = np.abs(result.astype(np.float64))
    return float(np.percentile(magnitudes, 90)) if magnitudes.size and np.isfinite(magnitudes).all() else 1.0
