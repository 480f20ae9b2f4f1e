"""Vectorized loops as C, in the vector types of gcc and clang and the macros of ``uma_vectors.h``.

The body of a vectorized loop is written once. What is the same in all lanes is a scalar, and becomes a vector where it
meets one; what lies side by side is loaded and stored as a vector; a condition is a mask. Anything else is refused with
the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InternalError
from ..support.c_text import C_TYPES
from ..tir.form.dtype import bits, bounds, is_float, is_signed, itemsize
from ..tir.form.exprs import flat_element
from ..tir.form.nodes import (
    COMPARISONS,
    INDEX,
    Alloc,
    Bin,
    Bind,
    Block,
    Buffer,
    Call,
    Cast,
    Expr,
    For,
    If,
    Imm,
    Load,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Store,
    Un,
    Update,
    Var,
)
from ..tir.form.printer import headline, print_expr
from ..tir.form.visit import buffers, intrinsics, may_fault, operands, rewrite, statements, substitute, variables, walk
from ..tir.maths import is_defined
from ..tir.proofs.affine import affine
from ..tir.proofs.intervals import Bounds, Interval, fits
from ..tir.proofs.lanes import register_lanes
from ..tir.rewrites.simplify import simplify_within
from .expressions import C_FUNCTIONS, CHOICE, OPERATORS, PRIMARY, SUFFIXES, UNARY, Printer, Text
from .registers import stored
from .saturation import NARROWED, find_rounded_operand, find_saturated_operand, move_rounding_last

if TYPE_CHECKING:
    from .kernel import Writer

__all__ = ["BY_LANES", "VectorLoop", "VectorPrinter", "headers"]

_SIZES = (16, 32, 64)
"""The bytes of vectors for which the header has forms of their own."""

_WIDENED = ("uint8", "int8", "uint16", "int16")
BY_LANES = ("pow", "sin_far", "cos_far")
"""Functions of float32 that are done lane by lane: their definitions have wider numbers."""
RARE = ("sin_far", "cos_far")
"""Those that are left out where no lane asks for them: what a select gives else."""
_ROUNDED = {"round_even": 8, "floor": 9, "ceil": 10, "trunc": 11}


def headers(func: PrimFunc) -> tuple[str, ...]:
    """The headers that the C of a function needs besides ``uma_math.h`` and those of a device, in order."""
    host, lanes = [intrinsic for intrinsic in intrinsics(func) if intrinsic.is_host], register_lanes(func)
    vectors = bool(host) or any(
        (isinstance(part, For) and part.kind == "vectorized")
        or (isinstance(part, Alloc) and max(lanes.get(part.buffer, ()), default=1) > 1)
        for part in statements(func.body)
    )
    return tuple(dict.fromkeys([*["uma_vectors.h"][: int(vectors)], *(i.include for i in host if i.include)]))


class VectorLoop:
    """Writes a vectorized loop.

    Args:
        writer: of the function.
        loop: the loop; its extent is a constant.
    """

    def __init__(self, writer: Writer, loop: For) -> None:
        self.writer = writer
        self.loop = loop
        assert isinstance(loop.extent, Imm)  # says `verify`
        self.lanes = int(loop.extent.value)
        self.varying: dict[Var | Buffer, int] = {loop.var: 0}  # with the bits of a mask, 0 where it is none
        self.same: dict[Expr, bool] = {}

    def write(self, known: Bounds) -> None:
        """Write it where ``known`` holds."""
        with self.writer.brace(f"/* {self.lanes} lanes of {self.loop.var.name} */"):
            for body, inside in known.children(self.loop):
                self.stmt(body, inside)

    def stmt(self, stmt: Stmt, known: Bounds) -> None:
        write = _WRITTEN.get(type(stmt))
        if write is None:
            raise self.refused("is not a statement of a vector", stmt)
        write(self, stmt, known)

    def refused(self, what: str, stmt: Stmt) -> InternalError:
        return InternalError(
            f"vectorized loop {self.loop.var.name!r} has no C: {what}",
            where=headline(stmt),
            hint="vectorize another loop, or leave this one as it is",
        )

    def varies(self, expr: Expr) -> bool:
        """Whether ``expr`` may differ from lane to lane."""
        varies = self.same.get(expr)
        if varies is None:
            used: tuple[Var | Buffer, ...] = (*variables(expr), *buffers(expr))
            varies = self.same[expr] = not self.varying.keys().isdisjoint(used)
        return varies

    def printer(self, known: Bounds, stmt: Stmt) -> VectorPrinter:
        return VectorPrinter(self, self.writer.printer(known), stmt)

    def sequence(self, stmt: Seq, known: Bounds) -> None:
        for inner in stmt.stmts:
            self.stmt(inner, known)

    def block(self, stmt: Block, known: Bounds) -> None:
        with self.writer.brace(f"/* {stmt.label} */"):
            self.stmt(stmt.body, known)

    def bind(self, stmt: Bind, known: Bounds) -> None:
        vectors, name = self.printer(known, stmt), self.writer.name(stmt.var)
        if not self.varies(stmt.value):
            kind, text = C_TYPES[stmt.var.dtype], vectors.scalars.text(stmt.value)
        elif stmt.var.dtype == "bool":
            mask, width = vectors.mask(stmt.value)
            self.varying[stmt.var] = width
            kind, text = vectors.type(f"int{width}"), mask.text
        else:
            self.varying[stmt.var] = 0
            kind, text = vectors.type(stmt.var.dtype), vectors.vector(stmt.value).text
        self.writer.line(f"const {kind} {name} = {text};")
        inside = known if is_float(stmt.var.dtype) else known.declare(stmt.var, vectors.interval(stmt.value))
        self.declared(stmt.var, stmt.body, inside)

    def alloc(self, stmt: Alloc, known: Bounds) -> None:
        """Each lane has one of its own."""
        buffer = stmt.buffer
        if buffer.shape or buffer.scope not in ("local", "register"):
            raise self.refused("a buffer of several elements is allocated within it: allocate it around the loop", stmt)
        self.varying[buffer] = 0
        self.same.clear()
        self.writer.line(f"{self.printer(known, stmt).type(stored(buffer.dtype))} {self.writer.name(buffer)} = {{0}};")
        self.declared(buffer, stmt.body, known)

    def declared(self, symbol: Var | Buffer, body: Stmt, known: Bounds) -> None:
        position = len(self.writer.lines)
        self.stmt(body, known)
        self.writer.use(symbol, position)

    def store(self, stmt: Store, known: Bounds) -> None:
        if stmt.value is Load(stmt.buffer, stmt.indices):  # compilers warn of a variable that is assigned to itself
            return
        vectors = self.printer(known, stmt)
        self.assign(stmt, vectors, vectors.held(stmt.value).text)

    def update(self, stmt: Update, known: Bounds) -> None:
        vectors, old = self.printer(known, stmt), Load(stmt.buffer, stmt.indices)
        if stmt.op == "add" and stmt.buffer in self.writer.exact:  # no sum of it overflows
            value = Text(f"{vectors.vector(old).text} + {vectors.operand(stmt.value)}", 0)
        else:
            value = vectors.vector(stmt.result(old))
        self.assign(stmt, vectors, value.text)

    def assign(self, stmt: Store | Update, vectors: VectorPrinter, value: str) -> None:
        target, buffer = Load(stmt.buffer, stmt.indices), stmt.buffer
        self.writer.written.add(buffer)
        if buffer in self.varying:
            self.writer.line(f"{self.writer.name(buffer)} = {value};")
        elif not self.varies(target):
            raise self.refused(f"all lanes write one element of {buffer.name!r}", stmt)
        elif buffer.scope == "register":
            vectors.stride(target)
            self.writer.line(f"{self.writer.registers.element(buffer, stmt.indices, is_read=False)} = {value};")
        else:
            kind = f"{SUFFIXES[stored(buffer.dtype)]}, {self.lanes}"
            self.writer.line(f"UMA_STORE({kind}, {vectors.place(target)}, {value});")

    def inner_loop(self, stmt: For, known: Bounds) -> None:
        if self.varies(stmt.extent):
            raise self.refused(f"the extent of the loop over {stmt.var.name!r} differs from lane to lane", stmt)
        self.writer.counted(stmt, known, self.stmt)

    def condition(self, stmt: If, known: Bounds) -> None:
        if self.varies(stmt.condition):
            raise self.refused("a condition differs from lane to lane: a select of values can be written", stmt)
        self.writer.branches(stmt, known, self.stmt)


_WRITTEN: dict[type[Stmt], Callable[[VectorLoop, Any, Bounds], None]] = {
    Seq: VectorLoop.sequence,
    Block: VectorLoop.block,
    Bind: VectorLoop.bind,
    Alloc: VectorLoop.alloc,
    Store: VectorLoop.store,
    Update: VectorLoop.update,
    For: VectorLoop.inner_loop,
    If: VectorLoop.condition,
}


class VectorPrinter:
    """Prints expressions as vectors.

    Args:
        loop: the vectorized loop.
        scalars: prints what is the same in all lanes.
        stmt: that the expressions stand in.
    """

    def __init__(self, loop: VectorLoop, scalars: Printer, stmt: Stmt) -> None:
        self.loop = loop
        self.lanes = loop.lanes
        self.scalars = scalars
        self.known = scalars.known
        self.stmt = stmt
        self._masks: dict[Expr, tuple[Text, int]] = {}

    def type(self, dtype: str) -> str:
        return f"uma_{SUFFIXES[dtype]}x{self.lanes}"

    def vector(self, expr: Expr) -> Text:
        """A value, not of bool, as a vector of its type."""
        if expr.dtype == "bool":
            return self.held(expr)
        if not self.loop.varies(expr):
            return self.macro("SPLAT", expr.dtype, self.scalars.text(expr))
        return _PRINTED[type(expr)](self, expr)

    def held(self, expr: Expr) -> Text:
        """A value as memory and registers hold it: bool as 0 and 1."""
        if expr.dtype != "bool":
            return self.vector(expr)
        return self.cast_to("uint8", Text(f"-{self.fitted(expr, 8)}", UNARY))

    def operand(self, expr: Expr) -> str:
        return _tight(self.vector(expr))

    def refused(self, what: str) -> InternalError:
        return self.loop.refused(what, self.stmt)

    # Texts

    def macro(self, name: str, dtype: str, *args: str) -> Text:
        return Text(f"UMA_{name}({SUFFIXES[dtype]}, {self.lanes}, {', '.join(args)})", PRIMARY)

    def form(self, name: str, dtype: str, *args: str) -> Text:
        """What has a form of its own for this type and width, as `special` says."""
        return Text(f"UMA_{name}_{SUFFIXES[dtype]}x{self.lanes}({', '.join(args)})", PRIMARY)

    def special(self, dtype: str) -> bool:
        return self.lanes * itemsize(dtype) in _SIZES

    def cast_to(self, dtype: str, value: Text) -> Text:
        """The same bits as another type of the same width."""
        return Text(f"({self.type(dtype)}){_tight(value)}", UNARY)

    def convert(self, dtype: str, value: str) -> Text:
        return self.macro("CONVERT", dtype, value)

    def each(self, dtype: str, function: str, *args: str) -> Text:
        """A function of scalars, lane by lane."""
        return self.macro(f"LANES{len(args) if len(args) > 1 else ''}", dtype, function, *args)

    # Memory

    def stride(self, load: Load) -> int:
        """How far apart lanes lie that differ: 1."""
        form = affine(flat_element(load.buffer, load.indices))
        stride = form.stride(self.loop.loop.var)
        others = [term for term in form.terms if term is not self.loop.loop.var and self.loop.varies(term)]
        what = f"the elements of {load.buffer.name!r}"
        if stride is None or others:
            index = print_expr(flat_element(load.buffer, load.indices), INDEX)
            raise self.refused(f"{what} lie wherever {index[:80]!r} says")
        if stride != 1:
            raise self.refused(f"{what} lie {stride} apart, not side by side")
        return stride

    def place(self, load: Load) -> str:
        """The address of the first lane."""
        self.stride(load)
        first = substitute(flat_element(load.buffer, load.indices), {self.loop.loop.var: Imm(0, INDEX)})
        return self.scalars.address(load.buffer, simplify_within(first, self.known))

    def load(self, expr: Load) -> Text:
        buffer = expr.buffer
        if buffer in self.loop.varying:
            self.scalars.read.add(buffer)
            return Text(self.loop.writer.name(buffer), PRIMARY)
        if buffer.scope == "register":
            self.stride(expr)
            return Text(self.loop.writer.registers.element(buffer, expr.indices, is_read=True), PRIMARY)
        return self.macro("LOAD", stored(buffer.dtype), self.place(expr))

    def variable(self, expr: Var) -> Text:
        if expr is self.loop.loop.var:
            return Text(f"UMA_IOTA({SUFFIXES[INDEX]}, {self.lanes})", PRIMARY)
        self.scalars.read.add(expr)
        return Text(self.scalars.names(expr), PRIMARY)

    # Conditions

    def mask(self, expr: Expr) -> tuple[Text, int]:
        """A bool as a mask, and the bits of its lanes."""
        if expr not in self._masks:
            self._masks[expr] = self.plain_mask(expr)
        return self._masks[expr]

    def plain_mask(self, expr: Expr) -> tuple[Text, int]:
        if not self.loop.varies(expr):
            return self.macro("SPLAT", "int32", f"-({self.scalars.text(expr)})"), 32
        if isinstance(expr, Var):
            self.scalars.read.add(expr)
            return Text(self.scalars.names(expr), PRIMARY), self.loop.varying[expr]
        if isinstance(expr, Load):
            return self.compared("ne", self.load(expr), self.macro("SPLAT", "uint8", "0"), 8)
        if isinstance(expr, Cast):
            if expr.a.dtype == "bool":
                return self.mask(expr.a)
            zero = self.macro("SPLAT", expr.a.dtype, "0")
            return self.compared("ne", self.vector(expr.a), zero, bits(expr.a.dtype))
        if isinstance(expr, Un):
            mask, width = self.mask(expr.a)
            return Text(f"~{_tight(mask)}", UNARY), width
        if isinstance(expr, Select):
            return self.chosen_mask(expr)
        assert isinstance(expr, Bin)  # the last kind of bool there is
        if expr.op in COMPARISONS and expr.a.dtype != "bool":
            return self.compared(expr.op, self.vector(expr.a), self.vector(expr.b), bits(expr.a.dtype))
        first, second = expr.a, expr.b
        if expr.op in ("and", "or"):
            second = self.total(second)
            self.check_total(second)
        width = max(self.mask(part)[1] for part in (first, second) if self.loop.varies(part))
        a, b = (Text(self.fitted(part, width), PRIMARY) for part in (first, second))
        if expr.op in COMPARISONS:
            return self.compared(expr.op, a, b, width)
        return Text(f"({_tight(a)} {'&' if expr.op == 'and' else '|'} {_tight(b)})", PRIMARY), width

    def compared(self, op: str, a: Text, b: Text, width: int) -> tuple[Text, int]:
        return self.cast_to(f"int{width}", Text(f"({_tight(a)} {OPERATORS[op][0]} {_tight(b)})", PRIMARY)), width

    def fitted(self, expr: Expr, width: int) -> str:
        """A mask of lanes of so many bits, which binds tightly."""
        if not self.loop.varies(expr):
            return self.macro("SPLAT", f"int{width}", f"-({self.scalars.text(expr)})").text
        mask, mask_width = self.mask(expr)
        return _tight(mask) if mask_width == width else self.convert(f"int{width}", mask.text).text

    def chosen_mask(self, expr: Select) -> tuple[Text, int]:
        expr = self.totally(expr)
        width = max([self.mask(part)[1] for part in operands(expr) if self.loop.varies(part)])
        a, b = self.fitted(expr.a, width), self.fitted(expr.b, width)
        return self.choice(expr, Text(a, PRIMARY), Text(b, PRIMARY), width), width

    def select(self, expr: Select) -> Text:
        if isinstance(expr.b, Call) and expr.b.name in RARE and self.loop.varies(expr.condition):
            mask, a, b = self.fitted(expr.condition, 32), self.vector(expr.a), self.vector(expr.b.args[0])
            return self.macro("RARE", "float32", mask, a.text, f"uma_{expr.b.name}_f32", b.text)
        expr = self.totally(expr)
        a, b = self.vector(expr.a), self.vector(expr.b)
        return self.choice(expr, a, b, bits(expr.dtype))

    def totally(self, expr: Select) -> Select:
        """A selection of values that all lanes can compute, where lanes differ in what they select."""
        if not self.loop.varies(expr.condition):
            return expr
        return Select(expr.condition, self.total(expr.a), self.total(expr.b))

    def choice(self, expr: Select, a: Text, b: Text, width: int) -> Text:
        if not self.loop.varies(expr.condition):
            condition = self.scalars.text(expr.condition)
            condition = f"({condition})" if isinstance(expr.condition, Select) else condition
            return Text(f"{condition} ? {a.text} : {b.text}", CHOICE)
        for part in (expr.a, expr.b):
            self.check_total(part)
        return Text(f"UMA_SELECT({self.fitted(expr.condition, width)}, {a.text}, {b.text})", PRIMARY)

    def total(self, guarded: Expr) -> Expr:
        """What a condition guards, as all lanes can compute it: what is shifted by where the condition does not hold is
        cut to the width, as nobody looks at the result.
        """

        def cut(part: Expr) -> Expr | None:
            if not isinstance(part, Bin) or not may_fault(part):
                return None
            (low, high), last = self.known.interval(part.b), bits(part.dtype) - 1
            return None if low >= 0 and high <= last else Bin(part.op, part.a, part.b & last)

        return rewrite(guarded, cut)

    def check_total(self, guarded: Expr) -> None:
        """What a condition guards is read in all lanes."""
        for part in walk(guarded):
            if isinstance(part, Load) and part.buffer not in self.loop.varying:
                low, high = self.known.interval(flat_element(part.buffer, part.indices))
                if low < 0 or high >= part.buffer.size:
                    what = f"{part.buffer.name!r} is read under a condition, and is not proven to be read within its"
                    raise self.refused(f"{what} {part.buffer.size} elements without it")

    # Operators

    def binary(self, expr: Bin) -> Text:
        op, dtype = expr.op, expr.dtype
        if op in ("min", "max"):
            a, b = self.vector(expr.a).text, self.vector(expr.b).text
            if dtype == "float32" and self.special(dtype):
                return self.form(f"F{op.upper()}", dtype, a, b)
            return self.macro(op.upper(), dtype, a, b)
        if op in ("floordiv", "floormod", "truncdiv"):
            return self.division(expr)
        wraps = op in ("add", "sub", "mul", "shl") and is_signed(dtype) and not is_float(dtype)
        if wraps and op != "shl" and fits(self.known.exact(expr), dtype):
            wraps = False
        if not wraps:
            return self.infix(op, self.vector(expr.a), self.vector(expr.b))
        unsigned = f"u{dtype}"
        parts = [self.cast_to(unsigned, self.vector(part)) for part in (expr.a, expr.b)]
        return self.cast_to(dtype, Text(f"({self.infix(op, *parts).text})", PRIMARY))

    def infix(self, op: str, a: Text, b: Text) -> Text:
        sign, rank = OPERATORS[op]
        return Text(f"{_tight(a)} {sign} {_tight(b)}", rank)

    def division(self, expr: Bin) -> Text:
        op, dtype, size = expr.op, expr.dtype, int(expr.b.value) if isinstance(expr.b, Imm) else 0
        rounds = op != "truncdiv" or not is_signed(dtype) or self.known.interval(expr.a)[0] >= 0
        if size > 0 and size & (size - 1) == 0 and rounds:  # these round to minus infinity
            sign, value = ("&", size - 1) if op == "floormod" else (">>", size.bit_length() - 1)
            splat = self.macro("SPLAT", dtype, str(value))
            return Text(f"{self.operand(expr.a)} {sign} {splat.text}", 0)
        name = "floordiv" if op == "truncdiv" and not is_signed(dtype) else op
        return self.each(dtype, f"uma_{name}_{SUFFIXES[dtype]}", *(self.vector(part).text for part in (expr.a, expr.b)))

    def unary(self, expr: Un) -> Text:
        a, dtype = expr.a, expr.dtype
        if expr.op == "abs" and is_float(dtype):
            mask = f"UMA_SPLAT(i{bits(dtype)}, {self.lanes}, INT{bits(dtype)}_MAX)"
            integer = self.cast_to(f"int{bits(dtype)}", self.vector(a))
            return self.cast_to(dtype, Text(f"({integer.text} & {mask})", PRIMARY))
        if expr.op == "abs":
            return self.each(dtype, f"uma_abs_{SUFFIXES[dtype]}", self.vector(a).text)
        if is_float(dtype) or not self.known.may_wrap(expr):
            value = self.vector(a)
            return Text(f"-{value.text if value.rank == PRIMARY else f'({value.text})'}", UNARY)
        negative = Text(f"(-{_tight(self.cast_to(f'u{dtype}', self.vector(a)))})", PRIMARY)
        return self.cast_to(dtype, negative)

    def function(self, expr: Call) -> Text:
        args, dtype = [self.vector(arg).text for arg in expr.args], expr.dtype
        if is_defined(expr):
            return self.defined(expr.name, *args)
        name = C_FUNCTIONS.get(expr.name, expr.name)
        if expr.name == "clz":
            return self.each(dtype, name, self.cast_to("uint32", self.vector(expr.args[0])).text)
        if expr.name in ("float_bits", "bits_float"):
            return self.cast_to(dtype, self.vector(expr.args[0]))
        name = f"{name}f" if dtype == "float32" else name
        if expr.name in _ROUNDED and self.special(dtype):
            return self.form("WHOLE", dtype, *args, str(_ROUNDED[expr.name]), name)
        if expr.name in ("fma", "mul_high") and self.special(dtype):
            return self.form(expr.name.upper(), dtype, *args)
        return self.each(dtype, name, *args)

    def defined(self, name: str, *args: str) -> Text:
        """A function that `functions` writes."""
        if name in BY_LANES:
            return self.each("float32", f"uma_{name}_f32", *args)
        return self.macro("CALL", "float32", f"uma_{name}_f32x{self.lanes}", *args)

    # Conversions

    def cast(self, expr: Cast) -> Text:
        a, dtype = expr.a, expr.dtype
        if a.dtype == dtype:
            return self.vector(a)
        if "float16" in (a.dtype, dtype):
            return self.each(dtype, f"uma_{SUFFIXES[a.dtype]}_to_{SUFFIXES[dtype]}", self.vector(a).text)
        if a.dtype == "bool":
            width = bits(dtype)
            ones = Text(f"-{self.fitted(a, width)}", UNARY)
            return self.convert(dtype, ones.text) if is_float(dtype) else self.cast_to(dtype, ones)
        if (real := find_rounded_operand(expr)) is not None and self.special("int32"):
            low, high = (f"{limit}.0f" for limit in bounds(dtype))
            cut = self.form("CUT", "float32", self.vector(real).text, low, high)
            return self.form("NARROW", dtype, self.form("NEAREST", "int32", cut.text).text)
        if is_float(a.dtype) and not is_float(dtype):
            return self.truncated(a, dtype)
        if is_float(a.dtype):
            return self.convert(dtype, self.vector(a).text)
        if is_float(dtype):
            small = bits(a.dtype) < 32
            value = self.resized(self.vector(a), a.dtype, "int32") if small else self.vector(a)
            return self.convert(dtype, value.text)
        if dtype in NARROWED and a.dtype == "int32" and self.special("int32"):
            if (inner := find_saturated_operand(a, dtype)) is not None:
                return self.form("NARROW", dtype, self.vector(inner).text)
            if fits(self.interval(a), dtype):
                return self.form("NARROW", dtype, self.vector(a).text)
        return self.resized(self.vector(a), a.dtype, dtype)

    def resized(self, value: Text, dtype: str, wanted: str) -> Text:
        """Integers extended as their own type says, or cut off."""
        if bits(dtype) == bits(wanted):
            return self.cast_to(wanted, value)
        if bits(wanted) == 64 and bits(dtype) < 32:
            value, dtype = self.resized(value, dtype, "int32"), "int32"
        wide = f"int{bits(wanted)}"
        if dtype in _WIDENED and wide in ("int16", "int32") and bits(dtype) < bits(wanted) and self.special(wide):
            resized = Text(f"UMA_WIDEN_{SUFFIXES[dtype]}_{SUFFIXES[wide]}x{self.lanes}({value.text})", PRIMARY)
            return resized if wide == wanted else self.cast_to(wanted, resized)
        return self.convert(wanted, value.text)

    def interval(self, expr: Expr) -> Interval:
        """The values of an integer: also of one that is made of a clamped float, of which `Bounds` knows nothing."""
        if isinstance(expr, Cast) and is_float(expr.a.dtype):
            values, (low, high) = self.scalars.float_interval(expr.a), bounds(expr.dtype)
            return (low, high) if values is None else (_clamped(values[0], low, high), _clamped(values[1], low, high))
        if isinstance(expr, Bin) and expr.op in ("min", "max"):
            pick = min if expr.op == "min" else max
            (a_low, a_high), (b_low, b_high) = self.interval(expr.a), self.interval(expr.b)
            return pick(a_low, b_low), pick(a_high, b_high)
        if isinstance(expr, Bin) and expr.op == "add":
            (a_low, a_high), (b_low, b_high) = self.interval(expr.a), self.interval(expr.b)
            low, high = self.known.interval(expr)
            total = (a_low + b_low, a_high + b_high)
            return (max(low, total[0]), min(high, total[1])) if fits(total, expr.dtype) else (low, high)
        return self.known.interval(expr)

    def truncated(self, a: Expr, dtype: str) -> Text:
        """A float as an integer."""
        a = move_rounding_last(a)
        values, (low, high) = self.scalars.float_interval(a), bounds(dtype)
        in_int32 = bits(dtype) < 32 or dtype == "int32"
        if in_int32 and values is not None and low - 1 < values[0] and values[1] < high + 1:
            if isinstance(a, Call) and a.name == "round_even" and a.dtype == "float32" and self.special("int32"):
                whole = self.form("NEAREST", "int32", self.vector(a.args[0]).text)
            else:
                whole = self.convert("int32", self.vector(a).text)
            if dtype in NARROWED and self.special("int32"):
                return self.form("NARROW", dtype, whole.text)
            return whole if dtype == "int32" else self.resized(whole, "int32", dtype)
        if a.dtype == "float32" and (dtype == "int32" or (dtype in NARROWED and self.special("int32"))):
            whole = Text(f"UMA_f32_TO_i32({self.lanes}, {self.vector(a).text})", PRIMARY)
            return whole if dtype == "int32" else self.form("NARROW", dtype, whole.text)
        return self.each(dtype, f"uma_{SUFFIXES[a.dtype]}_to_{SUFFIXES[dtype]}", self.vector(a).text)


_PRINTED: Mapping[type[Expr], Callable[[VectorPrinter, Any], Text]] = {
    Var: VectorPrinter.variable,
    Load: VectorPrinter.load,
    Bin: VectorPrinter.binary,
    Un: VectorPrinter.unary,
    Cast: VectorPrinter.cast,
    Select: VectorPrinter.select,
    Call: VectorPrinter.function,
}
"""The C of an expression that varies from lane to lane."""


def _tight(value: Text) -> str:
    """A text as an operand of whatever operator."""
    return value.text if value.rank >= UNARY else f"({value.text})"


def _clamped(value: float, low: int, high: int) -> int:
    return int(min(max(value, low), high))
