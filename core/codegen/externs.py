"""Externs in C: a function for each, which calls the routine of its target, and the tables that calls give to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..contract.drivers import Routine
from ..relay.extern import Extern
from ..support.c_text import C_TYPES
from ..tir.form.ctext import fill, placeholders
from ..tir.form.nodes import HOST_SCOPES, Param

__all__ = ["bases_table", "extern_source", "takes_bases"]


def takes_bases(routine: Routine) -> bool:
    """Whether a call of it comes with a table of the memory that it may touch."""
    return bool({"bases", "n_bases"} & placeholders(routine.call))


def extern_source(name: str, extern: Extern, routine: Routine) -> str:
    """The definition of a static function.

    Args:
        name: of the function, an identifier of C.
        extern: what it calls the routine with. Parameters are pointers, in the order of `Extern.parameters`, ``const``
            for inputs and constants, and ``uint32_t`` byte addresses for what is in a memory of the device.
        routine: whose call it is. Where that drives a device, a ``uma_device *`` comes first, and the function returns
            an ``int32_t``, 0 or a fault code of the device. Where it takes a table of bases, that and its length come
            last.
    """
    values: dict[str, str] = {}
    declared: list[str] = []
    if routine.drives_device:
        values["device"] = _local("device")
        declared.append(f"uma_device *{values['device']}")
    for param in extern.parameters:
        values[param.buffer.name] = _local(param.buffer.name)
        declared.append(f"{_type(param)}{values[param.buffer.name]}")
    if takes_bases(routine):
        values |= {"bases": _local("bases"), "n_bases": _local("n_bases")}
        declared += [f"const uma_region *{values['bases']}", f"int32_t {values['n_bases']}"]
    used = placeholders(routine.call)
    unused = [f"    (void){local};" for placeholder, local in values.items() if placeholder not in used]
    values |= {f"{blob.name}_bytes": f"{len(blob.data)}u" for blob in extern.blobs}
    values |= {scalar: _number(value) for scalar, value in extern.scalars.items()}
    call = fill(routine.call, values)
    result, lines = "void", [f"(void)({call});"]
    if routine.drives_device:
        operands = [param for param in extern.parameters if param.buffer.scope in HOST_SCOPES]
        results = [param for param in operands if param.role == "output" and extern.queue is None]
        cleaned, invalidated = (
            [f"{function}({values['device']}, {values[one.buffer.name]}, {one.buffer.nbytes}u);" for one in params]
            for function, params in (("uma_clean", operands), ("uma_invalidate", results))
        )
        result = "int32_t"
        lines = [*cleaned, f"UMA_TRY({call});", *invalidated, "return 0;"]
        unused = [line for line in unused if line.strip() != f"(void){values['device']};"]
    separator = ",\n    "
    body = [*unused, *(f"    {line}" for line in lines)]
    return "\n".join([f"static {result} {name}(", f"    {separator.join(declared)})", "{", *body, "}", ""])


def bases_table(regions: Sequence[tuple[str, str, bool]]) -> Iterator[str]:
    """The declaration of the table ``bases``, from the pointer, the size in bytes and whether it may be written of
    each."""
    yield "const uma_region bases[] = {"
    yield from (f"    {{(void *){at}, {size}, {int(writable)}}}," for at, size, writable in regions)
    yield "};"


def _local(name: str) -> str:
    # Neither a keyword nor a macro of anybody's headers, nor what a routine calls.
    return f"uma_{name}_"


def _type(param: Param) -> str:
    if param.buffer.scope not in HOST_SCOPES:
        return "uint32_t "
    const = "const " if param.role in ("input", "constant") else ""
    return f"{const}{C_TYPES[param.buffer.dtype]} *"


def _number(value: int | float) -> str:
    """A scalar: a double, or an integer of the least type that holds it."""
    if isinstance(value, float):
        return f"({value!r})" if value < 0 else repr(value)
    # C has no negative constants, and the smallest number without its sign does not fit.
    if value == -(2**63):
        return "(-INT64_C(9223372036854775807) - 1)"
    if value == -(2**31):
        return "(-2147483647 - 1)"
    text = str(abs(value)) if abs(value) < 2**31 else f"INT64_C({abs(value)})"
    return f"(-{text})" if value < 0 else text
