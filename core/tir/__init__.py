"""Loops: the form in which kernels are written, transformed and printed as C.

`nodes` says what a `PrimFunc` consists of and means, `verify` what it must be, `text` how it is written. Kernels come
from tensor expressions (`te`). `simplify` is exact, `interpret` runs any function, slowly and strictly. A `Machine` is
what an accelerator has: each `Memory`, `Queue` and `Intrinsic`, which `Copy`, `Wait` and `Exec` use; `parse_machine`
reads one. `unroll`, `flatten` and `hoist_scratch` bring a function into the form that the code generator and the memory
planner take. `schedule` gives loops that are right another form that is fast. `count_commands` tells what loops have an
accelerator do.
"""

from __future__ import annotations

from . import schedule, te
from .form.functions import FUNCTIONS
from .form.interp import InterpreterError, interpret
from .form.machine import Machine
from .form.nodes import (
    BINARY,
    COMPARISONS,
    INDEX,
    Alloc,
    Axis,
    Bin,
    Bind,
    Block,
    Buffer,
    Call,
    Cast,
    Copy,
    Exec,
    Expr,
    For,
    If,
    Imm,
    Intrinsic,
    Load,
    Memory,
    Param,
    PrimFunc,
    Queue,
    Select,
    Seq,
    Stmt,
    Store,
    Un,
    Update,
    Var,
    View,
    Wait,
    const,
    maximum,
    minimum,
    seq,
)
from .form.text import parse_func, parse_machine, print_func
from .form.verify import verify
from .form.visit import (
    accesses,
    bodies,
    buffers,
    buffers_read,
    buffers_written,
    intrinsics,
    map_expressions,
    mapped,
    operands,
    rebuild,
    rewrite,
    substitute,
    uses_device,
    variables,
    views,
    walk,
)
from .proofs.bounds import Bounds, Interval, interval
from .proofs.commands import Copied, Executed, count_commands, elapsed_cycles
from .rewrites.flatten import flatten
from .rewrites.scratch import hoist_scratch
from .rewrites.simplify import simplify, simplify_expr
from .rewrites.unroll import unroll

__all__ = [
    "BINARY",
    "COMPARISONS",
    "FUNCTIONS",
    "INDEX",
    "Alloc",
    "Axis",
    "Bin",
    "Bind",
    "Block",
    "Bounds",
    "Buffer",
    "Call",
    "Cast",
    "Copied",
    "Copy",
    "Exec",
    "Executed",
    "Expr",
    "For",
    "If",
    "Imm",
    "InterpreterError",
    "Interval",
    "Intrinsic",
    "Load",
    "Machine",
    "Memory",
    "Param",
    "PrimFunc",
    "Queue",
    "Select",
    "Seq",
    "Stmt",
    "Store",
    "Un",
    "Update",
    "Var",
    "View",
    "Wait",
    "accesses",
    "bodies",
    "buffers",
    "buffers_read",
    "buffers_written",
    "const",
    "count_commands",
    "elapsed_cycles",
    "flatten",
    "hoist_scratch",
    "interpret",
    "interval",
    "intrinsics",
    "map_expressions",
    "mapped",
    "maximum",
    "minimum",
    "operands",
    "parse_func",
    "parse_machine",
    "print_func",
    "rebuild",
    "rewrite",
    "schedule",
    "seq",
    "simplify",
    "simplify_expr",
    "substitute",
    "te",
    "unroll",
    "uses_device",
    "variables",
    "verify",
    "views",
    "walk",
]
