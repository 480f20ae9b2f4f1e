"""The C that takes inputs row by row from the caller."""

from __future__ import annotations

from collections.abc import Sequence

from ..tir.form.dtype import itemsize
from .emission import Emission
from .header import Port

__all__ = ["taken_row", "taking_text"]


def taking_text(model: Emission, port: Port) -> str:
    """The function that takes a row of an input from the caller."""
    name, number = model.name, [one.buffer.name for one in model.inputs].index(port.buffer.name)
    broken = "    context->broken = 1;\n" if model.breaks else ""
    return f"""\
/* Takes a row of the input {port.identifier} from the caller; gives 0 if that gives another one. */
static int {_taking(name, port)}({name}_context *context, const {name}_inputs *inputs, int32_t row, {port.c_type} *to)
{{
    const int32_t given = inputs->{port.identifier}.row(inputs->{port.identifier}.user, row, to);

    if (given == row) return 1;
    context->lacking.input = {number};
    context->lacking.row = row;
    context->lacking.given = given;
{broken}\
    return 0;
}}"""


def taken_row(model: Emission, position: int, to: str, row: Sequence[str]) -> list[str]:
    """The lines that take a row from the caller.

    Args:
        model: what it is of.
        position: of the step, one of `Emission.streams`.
        to: the C of a pointer to the buffer that takes it.
        row: the row, and the first element held of the input and of that buffer.
    """
    stream, port = model.streams[position]
    elements = stream.row_bytes // itemsize(port.buffer.dtype)
    at = f"{row[0]} * {elements}" if row[2] == "0" else f"({row[0]} * {elements} - {row[2]})"
    return [f"if (!{_taking(model.name, port)}(context, inputs, {row[0]}, {to} + {at})) return UMA_ERR_ROWS;"]


def _taking(model: str, port: Port) -> str:
    return f"{model}_take_{port.identifier}"
