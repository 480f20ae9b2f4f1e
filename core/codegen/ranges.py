"""Loops that several threads run, as C: functions of ranges of their iterations.

What a range uses of the function that its loop stands in is handed to it in a structure, which lies on that function's
stack until all ranges have been run. There are two functions: one with parameters as a kernel has them, so that
pointers are ``restrict``, and one that takes the structure apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..tir.form.nodes import For, PrimFunc
from ..tir.form.visit import statements, uses_device

__all__ = ["Handed", "Ranges", "has_ranges"]


@dataclass(frozen=True)
class Handed:
    """A variable or a buffer that a range is handed.

    Args:
        name: what the C calls it, here and there.
        declared: the parameter for it: ``const float *restrict x``.
        alignment: of a pointer, where the compiler is told, in bytes; else 0.
    """

    name: str
    declared: str
    alignment: int = 0


@dataclass
class Ranges:
    """The functions of the ranges of one kernel.

    Args:
        name: of the one with that number. Nothing else of the C is called so, nor so with ``_of`` or ``_args``.

    Attributes:
        sources: the C of each.
    """

    name: Callable[[int], str]
    sources: list[str] = field(default_factory=list)

    def add(self, handed: Sequence[Handed], loop: Sequence[str]) -> str:
        """The function whose body is the lines of a loop from ``begin`` to ``end``; gives its name."""
        name = self.name(len(self.sources))
        params = [*(one.declared for one in handed), "int32_t begin", "int32_t end"]
        arguments = [*(f"given->{one.name}" for one in handed), "begin", "end"]
        lines = [f"struct {name}_args {{", *(f"    {one.declared.replace('restrict ', '')};" for one in handed), "};"]
        aligned = [one for one in handed if one.alignment]
        self.sources.append(
            "\n".join(
                [
                    *([*lines, ""] if handed else []),
                    "UMA_NOINLINE",
                    f"static void {name}_of(",
                    *(f"    {one}," for one in params[:-1]),
                    f"    {params[-1]})",
                    "{",
                    *(f"    {one.name} = UMA_ASSUME_ALIGNED({one.name}, {one.alignment});" for one in aligned),
                    *loop,
                    "}",
                    "",
                    f"static void {name}(const void *args, int32_t begin, int32_t end)",
                    "{",
                    *([f"    const struct {name}_args *const given = args;", ""] if handed else ["    (void)args;"]),
                    f"    {name}_of({', '.join(arguments)});",
                    "}",
                ]
            )
        )
        return name


def has_ranges(func: PrimFunc) -> bool:
    """Whether loops of a function can be run by several threads: parallel ones of what the host does itself, for all of
    its rows."""
    marked = (part for part in statements(func.body) if isinstance(part, For) and part.kind == "parallel")
    return func.rows is None and not uses_device(func) and next(marked, None) is not None
