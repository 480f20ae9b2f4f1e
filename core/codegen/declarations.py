"""How a kernel, its parameters and its buffers are declared in C."""

from __future__ import annotations

import re

from ..support.c_text import C_TYPES
from ..tir.form.dtype import itemsize
from ..tir.form.nodes import HOST_SCOPES, Buffer, Param, PrimFunc, Var
from ..tir.form.visit import declared, fresh_name, uses_device

__all__ = [
    "INDENT",
    "c_name",
    "declare_local",
    "find_row_buffers",
    "find_row_variables",
    "find_shared_names",
    "kernel_prototype",
]

INDENT = "    "
"""One level of it in generated C."""


def kernel_prototype(name: str, func: PrimFunc, *, in_threads: bool = False) -> str:
    """How the function that `kernel_source` defines is declared, without ``static``, line break and semicolon; with
    functions of ranges where it is run in threads."""
    shared = find_shared_names(func)
    params = ["uma_threads *threads"] if in_threads else []
    params += [_param(param, param.buffer.name in shared) for param in func.params]
    params += [f"int32_t {c_name(var)}" for var in find_row_variables(func)]
    on_device = uses_device(func)
    if on_device:
        params.insert(0, "uma_device *device")
    start = f"{'int32_t' if on_device else 'void'} {name}"
    prototype = f"{start}({', '.join(params)})"
    if len(prototype) > 110:
        prototype = f"{start}({','.join(f'{chr(10)}{INDENT}{param}' for param in params)})"
    return prototype


_PLAIN = re.compile(r"[a-z]+[0-9]+")
# These names of that form may mean something else in C: functions of math.h, and macros that compilers define when
# they are not asked for strict C.
_TAKEN = ("j0", "j1", "y0", "y1", "atan2", "exp2", "exp10", "expm1", "log2", "log10", "pow10", "i386", "mc68000")


def c_name(symbol: Var | Buffer) -> str:
    """The identifier for a variable or buffer: itself, or one that nothing else has."""
    name = symbol.name
    if name.startswith("_"):
        return f"u{name}_0"
    # No other name of the language or its headers ends in an underscore.
    return name if _PLAIN.fullmatch(name) and name not in _TAKEN else f"{name}_"


def find_shared_names(func: PrimFunc) -> set[str]:
    """The names of the parameters that may be the same memory as another, or overlap it."""
    return {name for pair in func.may_alias for name in pair} | {name for pair in func.overlaps for name in pair[:2]}


def find_row_buffers(func: PrimFunc) -> list[Buffer]:
    """The parameters that lie by rows, in the order of the row form."""
    buffers = {param.buffer.name: param.buffer for param in func.params}
    return [] if func.rows is None else [buffers[row.name] for row in func.rows.params]


def find_row_variables(func: PrimFunc) -> list[Var]:
    """The row, and of each parameter that lies by rows the first element that is held; nothing for other functions."""
    if func.rows is None:
        return []
    names = declared(func)
    firsts = (f"{buffer.name}_from" for buffer in find_row_buffers(func))
    return [func.rows.var, *(Var(fresh_name(name, names) if name in names else name) for name in firsts)]


def _param(param: Param, may_alias: bool) -> str:
    buffer = param.buffer
    if buffer.scope not in HOST_SCOPES:
        return f"uint32_t {c_name(buffer)}"
    const = "const " if param.role in ("input", "constant") else ""
    return f"{const}{C_TYPES[buffer.dtype]} *{'' if may_alias else 'restrict '}{c_name(buffer)}"


def declare_local(buffer: Buffer) -> str:
    """Return the declaration of a buffer on the stack, without a semicolon."""
    aligned = f" UMA_ALIGNED({buffer.alignment})" if buffer.alignment > itemsize(buffer.dtype) else ""
    size = f"[{buffer.size}]" if buffer.shape else ""
    return f"{C_TYPES[buffer.dtype]} {c_name(buffer)}{size}{aligned}"
