"""Which values in the arena may lie over which others by a distance, and which do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ..tir.form.nodes import PrimFunc
from .program import Call, Program, arguments
from .row_schedule import chains, overlaps

__all__ = ["between_chains", "of_step", "overlap_pairs", "with_those_in_use"]

Ranges = Mapping[str, tuple[int, int]]


def overlap_pairs(program: Program, ranges: Ranges, used: Ranges) -> dict[tuple[str, str], int]:
    """The pairs (output, input) of steps, and of blocks of rows, that may overlap, each with the bytes that the input
    must begin behind the output.

    Args:
        program: a program that `verify` accepts.
        ranges: first and last step of each buffer in the arena.
        used: of those that use it; what is live longer is needed in the next turn of a loop.
    """
    buffers = {buffer.name: buffer for buffer in program.buffers}
    passed = [pair for _, step in program.calls for pair in arguments(program, step)]
    writes = Counter(name for param, name in passed if param.role == "output")
    # A buffer that holds a few rows of what the function works on is placed by the schedule of these rows.
    parts = {name for param, name in passed if buffers[name].nbytes != param.buffer.nbytes}
    distances: dict[tuple[str, str], int] = {}
    for position, step in program.calls:
        for out, source, distance in of_step(program, step):
            over, under = buffers[out], buffers[source]
            if not parts.isdisjoint((out, source)) or writes[out] != 1:
                continue
            if over.is_planned and under.is_planned and over.pool == under.pool:
                # (What a block of rows makes is there from its beginning on.)
                dies = ranges[source][1] == used[source][1] == position
                if dies and ranges[out][0] == position:
                    distances[out, source] = distance
    for block in chains(program):
        for (out, source), distance in overlaps(program, block.begin).items():
            over, under = buffers[out], buffers[source]
            if over.is_planned and under.is_planned and over.pool == under.pool:
                dies = ranges[source][1] == block.end and used[source][0] < block.begin
                if dies and ranges[out][0] == block.begin:
                    distances[out, source] = distance
    return distances


def between_chains(chains: Sequence[Sequence[str]], pairs: Mapping[tuple[str, str], int]) -> dict[tuple[int, int], int]:
    """``pairs`` of buffers by the positions of the chains that they are in, each of buffers that take the place of one
    another: what lies over something begins a chain, what lies under it ends one."""
    heads = {chain[0]: position for position, chain in enumerate(chains)}
    tails = {chain[-1]: position for position, chain in enumerate(chains)}
    return {(heads[out], tails[x]): d for (out, x), d in pairs.items() if out in heads and x in tails}


def with_those_in_use(program: Program, offsets: Mapping[str, int]) -> Program:
    """``program``, the functions of which say of no overlaps but those that a plan makes use of: only these pointers
    may be of one memory.

    Args:
        program: a program.
        offsets: of its buffers, in their pools.
    """
    places = {b.name: (b.pool, offsets[b.name], offsets[b.name] + b.nbytes) for b in program.buffers if b.in_arena}
    used_pairs: dict[str, set[tuple[str, str]]] = {}
    for _, step in program.calls:
        names = {param.buffer.name: name for param, name in arguments(program, step)}
        for out, source, _ in _overlaps(program, step):
            over, under = places.get(names[out]), places.get(names[source])
            if over and under and over[0] == under[0] and over[1] < under[2] and under[1] < over[2]:
                used_pairs.setdefault(step.function, set()).add((out, source))
    functions = {
        name: replace(function, overlaps=tuple(one for one in function.overlaps if one[:2] in used_pairs.get(name, ())))
        if isinstance(function, PrimFunc)
        else function
        for name, function in program.functions.items()
    }
    return replace(program, functions=functions)


def _overlaps(program: Program, step: Call) -> tuple[tuple[str, str, int], ...]:
    function = program.functions[step.function]
    return function.overlaps if isinstance(function, PrimFunc) and step.queue is None else ()


def of_step(program: Program, step: Call) -> Iterator[tuple[str, str, int]]:
    """The buffers that a step is given for an output and an input which may overlap, wherever the input is passed, and
    the greatest of the distances."""
    distances = {(out, source): distance for out, source, distance in _overlaps(program, step)}
    passed: dict[str, list[str]] = {}  # a buffer may be passed for several parameters
    for param, name in arguments(program, step):
        passed.setdefault(name, []).append(param.buffer.name)
    for param, out in arguments(program, step) if distances else ():
        if param.role == "output" and len(passed[out]) == 1:
            for name, params in passed.items():
                asked = [distances.get((param.buffer.name, source)) for source in params]
                if name != out and None not in asked:
                    yield out, name, max(distance for distance in asked if distance is not None)
