"""How much stack a function takes: what the compiler says of single frames, summed along the calls of the objects.

One definition, wherever a number of bytes of stack is shown: the largest sum of frames along any chain of calls that
begins with the function, within the objects that are linked together. Frames are the compiler's own numbers
(``-fstack-usage``); calls are those of the objects' relocations, to which end each function has a section of its own.
What is called through pointers (drivers of devices) and what is in other libraries (the C library) is not in it; but
for what the interpreter of models with a table of steps calls, which is known by its names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from ..errors import ToolchainError
from .discovery import Compiler
from .elf import object_calls

__all__ = ["Measured", "measuring_flags", "stack_bytes", "stacks_below"]

_CLANG_VERSION = re.compile(r"clang version ([0-9]+)")
_INTERPRETERS, _INTERPRETED = ("uma_graph_run", "uma_ways_run"), ("uma_step_", "uma_way_")
"""Functions, and what the names of all begin with that these call through pointers."""

_FIRST_CLANG = 11
"""That knows ``-fstack-usage``; gcc has done so since 4.6."""


@dataclass(frozen=True)
class Measured:
    """An object, and what its compiler says of the stack.

    Args:
        content: the object's bytes.
        frames: what ``-fstack-usage`` wrote; None where it wrote nothing.
    """

    content: bytes
    frames: str | None


def measuring_flags(compiler: Compiler) -> tuple[str, ...]:
    """What has a compiler tell of frames; nothing for one that does not. They change no instruction."""
    clang = _CLANG_VERSION.search(compiler.version)
    if compiler.name == "ziglang" or (clang is not None and int(clang[1]) < _FIRST_CLANG):
        return ()
    return "-fstack-usage", "-ffunction-sections"


def stack_bytes(objects: Iterable[Measured], function: str) -> int | None:
    """The stack that ``function`` takes, in bytes; for what that means see the module.

    Args:
        objects: what is linked together.
        function: its name, one of all objects.

    Returns:
        None where that is not known: the function is not there, a compiler told nothing of an object with functions, a
        frame has no bound, or functions call themselves.
    """
    return stacks_below(objects, function).get(function)


def stacks_below(objects: Iterable[Measured], function: str) -> dict[str, int]:
    """The same of ``function`` and of all functions that it leads to, by name; nothing where its own is not known.

    A function that the compiler made a part of its caller is not among them: its frame is its caller's.
    """
    frames: dict[tuple[int, str], int | None] = {}
    calls: dict[tuple[int, str], set[str]] = {}
    shared: dict[str, tuple[int, str]] = {}
    for number, one in enumerate(objects):
        try:
            object_functions = object_calls(one.content)
        except ToolchainError:  # no ELF: nobody knows who calls whom
            return {}
        if one.frames is None and object_functions:
            return {}
        for name, size in _frames(one.frames or ""):
            before = frames.get((number, name), 0)
            frames[number, name] = None if size is None or before is None else before + size
        for name, (is_shared, called) in object_functions.items():
            base = _base(name)
            calls.setdefault((number, base), set()).update(map(_base, called))
            if is_shared:
                shared[base] = number, base
    if function not in shared:
        return {}
    graph = _call_graph(calls, shared, shared[function])
    depths = _depths(graph, frames)
    return {name: depth for (_, name), depth in depths.items()}


def _depths(
    graph: Mapping[tuple[int, str], set[tuple[int, str]]], frames: Mapping[tuple[int, str], int | None]
) -> dict[tuple[int, str], int]:
    """Return the bytes of stack that each function and its callees need; nothing if one has no known frame."""
    depths: dict[tuple[int, str], int] = {}
    try:
        for caller in TopologicalSorter(graph).static_order():
            frame = frames.get(caller)
            if frame is None:
                return {}
            depths[caller] = frame + max((depths[called] for called in graph[caller]), default=0)
    except CycleError:
        return {}
    return depths


def _call_graph(
    calls: Mapping[tuple[int, str], set[str]], shared: Mapping[str, tuple[int, str]], start: tuple[int, str]
) -> dict[tuple[int, str], set[tuple[int, str]]]:
    """Return the functions that ``start`` leads to, each an object's number and a name, with those that each calls.

    Args:
        calls: names of the functions that each function calls.
        shared: by name the functions that other objects may call.
        start: a function.
    """
    graph: dict[tuple[int, str], set[tuple[int, str]]] = {}
    waiting = [start]
    while waiting:
        caller = waiting.pop()
        if caller in graph:
            continue
        local_calls = {(caller[0], name) for name in calls[caller] if (caller[0], name) in calls}
        others = {shared[name] for name in calls[caller] if (caller[0], name) not in calls and name in shared}
        if caller[1] in _INTERPRETERS:
            others |= {one for one in calls if one[1].startswith(_INTERPRETED)}
        graph[caller] = (local_calls | others) - {caller}
        waiting.extend(graph[caller])
    return graph


def _base(name: str) -> str:
    """The function that a compiler's variant of one is made from: ``f`` of ``f.constprop.0`` and ``f.part.1``.

    They count together, as if each called the others, which is at worst more than they take.
    """
    return name.partition(".")[0]


def _frames(text: str) -> Iterable[tuple[str, int | None]]:
    """Names of functions and the bytes of their frames, from ``FILE:LINE[:COLUMN]:NAME <tab> BYTES <tab> KIND``."""
    for line in text.splitlines():
        place, _, rest = line.partition("\t")
        size, _, kind = rest.partition("\t")
        bounded = kind == "static" or kind.endswith("bounded")  # and "dynamic" has no bound
        yield _base(place.rpartition(":")[2]), int(size) if size.isdigit() and bounded else None
