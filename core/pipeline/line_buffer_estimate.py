"""What a model takes by rows at the least, estimated of the graph: without loops, their workspaces and the distances by
which results overlap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..lowering.fuse import kernels_of
from ..partition.record import Owner
from ..program.chain_partition import Cuts, Read, Tensor, Work
from ..relay.expr import Call, Constant, Expr, Tuple, TupleGetItem
from ..relay.module import IRModule
from ..relay.op import Op
from ..relay.pattern import Graph
from ..relay.transform.strips import COLUMNS, ROWS, Window, window_of
from ..relay.types import TensorType, TupleType, Type
from ..relay.views import is_view
from ..tir.form.rows import RowParam

__all__ = ["least_peak"]


def least_peak(module: IRModule, hosts: Sequence[Owner], outside: bool = True) -> int:
    """The bytes of the arena at the least.

    Args:
        module: in canonical form, with static shapes.
        hosts: who groups kernels, in order of priority.
        outside: whether inputs and outputs are outside of the arena.
    """
    return Cuts(*_Works(module, hosts, outside).collect()).lowest().peak


class _Works:
    def __init__(self, module: IRModule, hosts: Sequence[Owner], outside: bool) -> None:
        self.main, self.outside = module.main, outside
        self.graph = graph = Graph(self.main)
        calls = [expr for expr in graph.order if isinstance(expr, Call) and not is_view(expr)]
        self.kernel: dict[Expr, tuple[Expr, ...]] = {call: (call,) for call in calls}
        for kernel in kernels_of(graph, hosts, [one for one in calls if one.pin in (None, hosts[0].label)]):
            self.kernel.update(dict.fromkeys(kernel, kernel))
        self.numbers: dict[Expr, int] = {}
        self.tensors: list[Tensor] = []
        body = self.main.body
        self.results = {_held(field) for field in (body.fields if isinstance(body, Tuple) else (body,))}

    def collect(self) -> tuple[list[Tensor], list[Work]]:
        for param in self.main.params:
            self.add(param, 0 if self.outside else _nbytes(param.type))
        works = []
        for expr in self.graph.order:
            kernel = self.kernel.get(expr, ())
            if kernel and kernel[-1] is expr:
                works.append(self.work(kernel))
        return self.tensors, works

    def add(self, expr: Expr, nbytes: int) -> int:
        self.numbers[expr] = len(self.tensors)
        kept = expr in self.results
        self.tensors.append(Tensor(nbytes, _rows(expr) or 1, kept and not self.outside))
        return self.numbers[expr]

    def work(self, kernel: tuple[Expr, ...]) -> Work:
        last = kernel[-1]
        operands = dict.fromkeys(
            arg for one in kernel if isinstance(one, Call) for arg in one.args if arg not in kernel
        )
        known = [arg for arg in operands if _held(arg) in self.numbers]
        number = self.add(last, 0 if self.outside and last in self.results else _nbytes(last.type))
        windows = _windows(kernel)
        extent, by_rows = _rows(last) if windows is not None else 0, True
        if windows is None and (picture := next(filter(_rows, known), None)) is not None and _is_sum(kernel):
            extent, by_rows = _rows(picture), False
            windows = {picture: Window()}
        reads = []
        for arg in known:
            window, height = (windows or {}).get(arg), _rows(arg)
            rows = None
            if extent and window is not None and height and arg is _held(arg):
                rows = RowParam("x", height, min(window.size, height), window.stride, window.before)
            reads.append(Read(self.numbers[_held(arg)], rows))
        return Work(tuple(reads), (number,), extent, by_rows, overlaps=tuple(self.overlaps(kernel, windows, number)))

    def overlaps(
        self, kernel: tuple[Expr, ...], windows: dict[Expr, Window] | None, position: int
    ) -> Iterator[tuple[int, int, int]]:
        """What the result of a kernel may lie over: what it reads element by element, or the first of what it joins."""
        last = kernel[-1]
        joins = isinstance(last, Call) and last.op_name == "concatenate"
        for arg, window in (windows or {}).items():
            size = _nbytes(arg.type)
            if arg in self.numbers and window == Window() and (joins or size == _nbytes(last.type)):
                yield position, self.numbers[arg], max(0, _nbytes(last.type) - size)
                return


def _held(expr: Expr) -> Expr:
    """What has the memory of a value."""
    while is_view(expr) or isinstance(expr, TupleGetItem):
        expr = expr.tuple if isinstance(expr, TupleGetItem) else expr.args[0]  # type: ignore[attr-defined]  # a call
    return expr


def _nbytes(type_: Type) -> int:
    fields = type_.fields if isinstance(type_, TupleType) else (type_,)
    return sum(field.bound.nbytes for field in fields if isinstance(field, TensorType))


def _rows(expr: Expr) -> int:
    """How many rows a picture has; 0 of what is none."""
    if not isinstance(expr.type, TensorType) or expr.type.is_open:
        return 0
    shape = expr.type.shape
    return int(shape[ROWS]) if len(shape) == 4 and shape[0] == 1 and shape[ROWS] > 1 else 0


def _windows(kernel: Sequence[Expr]) -> dict[Expr, Window] | None:
    """What of the rows of each picture that a kernel is given a row of its result is made of; None where it is made of
    more than some of them."""
    reached: dict[Expr, Window] = {kernel[-1]: Window()}
    for expr in reversed(kernel):
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or not _rows(expr) or expr not in reached:
            return None
        over = reached[expr]
        for arg in expr.args:
            call_window = _window(expr, arg)
            if call_window is None:
                if not isinstance(arg, Constant) and _rows(arg):
                    return None
                continue
            size, stride = (over.size - 1) * call_window.stride + call_window.size, over.stride * call_window.stride
            combined = Window(size, stride, over.before * call_window.stride + call_window.before)
            if arg in reached:
                other = reached[arg]
                before = max(combined.before, other.before)
                behind = max(combined.size - combined.before, other.size - other.before)
                if combined.stride != other.stride:
                    return None
                combined = Window(before + behind, combined.stride, before)
            reached[arg] = combined
    return {expr: window for expr, window in reached.items() if expr not in kernel}


def _window(expr: Call, arg: Expr) -> Window | None:
    """What a call looks at of the rows of what it is given; None where it does not go by these."""
    assert isinstance(expr.op, Op)
    if not _rows(arg):
        return None
    name, attrs = expr.op_name or "", expr.attrs
    if name.endswith(("conv2d", "_pool2d")) or name == "nn.pad":
        window = window_of(expr, ROWS)
        return Window(window.size, window.stride, window.before)
    if name == "strided_slice":
        whole = attrs.begin[ROWS] == 0 and attrs.strides[ROWS] == 1 and _rows(arg) == _rows(expr)
        return Window() if whole else None
    if name == "concatenate":
        return Window() if attrs.axis % 4 >= COLUMNS else None
    return Window() if expr.op.kind in ("elementwise", "broadcast") and _rows(arg) == _rows(expr) else None


def _is_sum(kernel: Sequence[Expr]) -> bool:
    ops = [expr.op for expr in kernel if isinstance(expr, Call) and isinstance(expr.op, Op)]
    return any(op.kind == "reduction" and op.macs is None for op in ops)
