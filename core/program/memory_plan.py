"""Memory planning: an offset in its pool for every intermediate, workspace and state, and for the inputs and outputs
that are in the arena.

A buffer is live from the step that writes it until the last step that uses it has finished, a workspace in its one
step; a launch has finished when it was waited for. What a block of rows uses is live from its beginning to its end, but
for what `rows.lives` says. An input is live from before the first step on, an output until behind the last one. Buffers
whose lives overlap do not overlap in memory, except where a kernel allows an output to replace an input that dies, or
to lie over one by a distance.
The pools are the arena of the host, and each memory of each device. States are live all the time, in a pool of their
own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import ModelError
from ..packing.offsets import Block, Budget, Packer, lower_bound, round_up
from ..packing.problem import EngineSource
from .constants import lay_out
from .control_flow import condition_uses, extended
from .overlap_constraints import between_chains, overlap_pairs
from .program import STATE_POOL, Buffer, Call, Program, arguments
from .row_schedule import lives
from .wait_insertion import finish_positions

__all__ = ["Plan", "guard_bytes", "live_ranges", "plan"]

_MAX_WORK = 3_000_000
_WORK_PER_BUFFER = 20_000
"""Budget of each pool, at most half a second or so: spent only while the arena is larger than what is live at once."""

_NO_PEAK = 1 << 62

_MIN_GUARD_BYTES = 256
_MAX_GUARD_BYTES = 1 << 14


@dataclass(frozen=True)
class Plan:
    """Where every intermediate, workspace and state is.

    Args:
        offsets: byte offset of each of them, and of each state, in its pool.
        pool_bytes: bytes needed of each pool that the program uses.
        lower_bound: bytes live at once in each pool at its worst step, where every in-place pair counts once. No plan
            of this program can be smaller.
        constants: byte offset of each constant in the weights.
        constant_bytes: size of the weights.
    """

    offsets: Mapping[str, int]
    pool_bytes: Mapping[str, int]
    lower_bound: Mapping[str, int]
    constants: Mapping[str, int] = field(default_factory=dict)
    constant_bytes: int = 0

    @property
    def host_pools(self) -> tuple[str, ...]:
        """The pools of the arena, which is memory of the host, by name."""
        return tuple(sorted(pool for pool in self.pool_bytes if "." not in pool and pool != STATE_POOL))

    @property
    def arena_bytes(self) -> int:
        """Memory of the host that one run needs."""
        return sum(self.pool_bytes[pool] for pool in self.host_pools)

    @property
    def state_bytes(self) -> int:
        """Memory of the host that one context keeps from run to run."""
        return self.pool_bytes.get(STATE_POOL, 0)


def plan(program: Program, *, reuse: bool = True, guarded: bool = False, engine: EngineSource | None = None) -> Plan:
    """Place the arena buffers of a verified program; the same program gives the same plan.

    Args:
        program: a program that `verify` accepts.
        reuse: False gives every buffer of the host memory of its own, so that all of them can be inspected after a run.
        guarded: without reuse, also leaves bytes of nobody's before, between and behind the buffers of the host, the
            states among them: who writes there shows. They are as many as `guard_bytes` says, or more.
        engine: as for `Packer`.

    Raises:
        ModelError: a memory of a device is too small; it names device, memory and layers.
    """
    ranges = live_ranges(program)
    links = _in_place_links(program, ranges) if reuse else {}
    pairs = overlap_pairs(program, ranges, _used(program)) if reuse else {}
    pools: dict[str, list[Buffer]] = {}
    for buffer in program.buffers:
        if buffer.in_arena:
            pools.setdefault(buffer.pool, []).append(buffer)
            if not reuse and not buffer.in_scratch:
                ranges[buffer.name] = (0, len(program.steps))
    offsets: dict[str, int] = {}
    pool_bytes: dict[str, int] = {}
    bounds: dict[str, int] = {}
    for pool, buffers in sorted(pools.items()):
        if guarded and not reuse and "." not in pool:
            pool_bytes[pool] = bounds[pool] = _place_apart(buffers, offsets, guard_bytes)
            continue
        pool_links = {buffer.name: links[buffer.name] for buffer in buffers if buffer.name in links}
        work = (
            min(_MAX_WORK, _WORK_PER_BUFFER * len(buffers)) if reuse else 0
        )  # nothing can be gained where all is live at once
        pool_offsets, pool_bytes[pool], bounds[pool] = _pack(buffers, ranges, pool_links, pairs, work, engine)
        offsets.update(pool_offsets)
    if program.states:
        gap = guard_bytes if guarded else None
        pool_bytes[STATE_POOL] = bounds[STATE_POOL] = _place_apart(program.states, offsets, gap)
    result = Plan(offsets, pool_bytes, bounds, *lay_out(program))
    _check_memories(program, result)
    return result


def guard_bytes(nbytes: int) -> int:
    """How many bytes of nobody's are on either side of a guarded buffer: half as many as it has, so that a row too many
    does not reach over them, in bounds."""
    return min(max(nbytes // 2, _MIN_GUARD_BYTES), _MAX_GUARD_BYTES)


def _place_apart(buffers: Sequence[Buffer], offsets: dict[str, int], gap: Callable[[int], int] | None) -> int:
    """Put buffers one after the other, the most aligned ones first, so that no byte is lost but at odd sizes, and to
    what ``gap`` leaves on either side of a buffer of so many bytes. Gives where they end."""
    end = gap_behind = 0
    for buffer in sorted(buffers, key=lambda buffer: -buffer.alignment):
        around = 0 if gap is None else gap(buffer.nbytes)
        offsets[buffer.name] = round_up(end + max(gap_behind, around), buffer.alignment)
        end, gap_behind = offsets[buffer.name] + buffer.nbytes, around
    return end + gap_behind


def _check_memories(program: Program, memory_plan: Plan) -> None:
    """ModelError where a step needs more of a device's memory than there is."""
    buffers = {buffer.name: buffer for buffer in program.buffers}
    for _, step in program.calls:
        for memory in program.functions[step.function].memories:
            pool = f"{step.device}.{memory.name}"
            mine = [name for name in step.args if buffers[name].pool == pool]
            needed = max((memory_plan.offsets[name] + buffers[name].nbytes for name in mine), default=0)
            if needed > memory.nbytes:
                raise ModelError(
                    f"{step.function!r} needs {needed} bytes of memory {memory.name!r} of device {step.device!r}, "
                    f"which has {memory.nbytes}",
                    where=f"layers {', '.join(step.layers)}" if step.layers else None,
                    hint="the plugin of the device must work on smaller tiles, or refuse the layer",
                )


def live_ranges(program: Program) -> dict[str, tuple[int, int]]:
    """First and last step of each arena buffer, both included: of those in which it is needed, whatever the turns of
    loops and of rows. Inputs are there before the first step, at -1, and outputs behind the last one."""
    return lives(program, extended(_used(program), program.steps))


def _used(program: Program) -> dict[str, tuple[int, int]]:
    """First and last step that uses each arena buffer; before or behind these, the caller does."""
    in_arena = {buffer.name for buffer in program.buffers if buffer.in_arena}
    finished = finish_positions(program)
    ranges: dict[str, tuple[int, int]] = {}
    for position, step in program.calls:
        for name in step.args:
            if name in in_arena:
                start, end = ranges.get(name, (position, position))
                ranges[name] = start, max(end, finished[position])
    for position, name in condition_uses(program.steps):
        if name in in_arena:
            start, end = ranges.get(name, (position, position))  # of an input perhaps the only use
            ranges[name] = start, max(end, position)
    for buffer in program.placed:
        start, end = ranges.get(buffer.name, (-1, -1))
        ranges[buffer.name] = (-1, end) if buffer.role == "input" else (start, len(program.steps))
    return ranges


def _in_place_links(program: Program, ranges: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Which output may take the memory of which input: values in the arena of one size and pool, at the input's last
    use."""
    buffers = {buffer.name: buffer for buffer in program.buffers}
    finished, used = finish_positions(program), _used(program)
    writes = Counter(n for _, step in program.calls for p, n in arguments(program, step) if p.role == "output")
    uses: dict[str, list[tuple[int, Call]]] = {}
    for position, step in program.calls:
        for name in dict.fromkeys(step.args):
            uses.setdefault(name, []).append((position, step))
    links: dict[str, str] = {}
    for position, step in program.calls:
        may_alias = set(program.functions[step.function].may_alias)
        if not may_alias:
            continue
        passed: dict[str, list[str]] = {}  # a buffer may be passed for several parameters
        for param, name in arguments(program, step):
            passed.setdefault(name, []).append(param.buffer.name)

        def is_last(name: str, position: int = position, step: Call = step) -> bool:
            """Whether all others that use it have finished before this step."""
            queue = None if step.queue is None else (step.device, step.queue)
            # (What a loop needs in its next turn is not at its end, whatever the order of the steps.)
            return ranges[name][1] == used[name][1] and all(
                at == position or finished[at] < position or (at < position and (one.device, one.queue) == queue)
                for at, one in uses[name]
            )

        options: dict[str, list[str]] = {}
        for param, out in arguments(program, step):
            # What several steps write, in branches or turns, is alive where one of them is, and another is not yet.
            if param.role == "output" and buffers[out].is_planned and writes[out] == 1:
                options[out] = [
                    name
                    for name, params in passed.items()
                    if buffers[name].is_planned
                    and buffers[name].role != "output"
                    and is_last(name)
                    and buffers[name].pool == buffers[out].pool
                    and buffers[name].nbytes == buffers[out].nbytes
                    and all((param.buffer.name, param_name) in may_alias for param_name in params)
                ]
        used_inputs: set[str] = set()
        for out in sorted(options, key=lambda out: len(options[out])):
            free = [name for name in options[out] if name not in used_inputs]
            if free:
                links[out] = free[0]
                used_inputs.add(free[0])
    return links


def _merge(
    buffers: Sequence[Buffer], ranges: Mapping[str, tuple[int, int]], links: Mapping[str, str]
) -> tuple[list[list[str]], list[Block]]:
    """Chains of buffers that share memory by ``links`` (output to input), and the block that each chain needs."""
    chains: dict[str, list[Buffer]] = {}
    for buffer in sorted(buffers, key=lambda buffer: ranges[buffer.name][0]):  # an input comes before its output
        chain = chains[links[buffer.name]] if buffer.name in links else []
        chain.append(buffer)
        chains[buffer.name] = chain
    heads = [chains[buffer.name] for buffer in buffers if buffer.name not in links]
    blocks = [
        Block(
            start=ranges[chain[0].name][0],
            end=ranges[chain[-1].name][1],
            size=chain[0].nbytes,
            alignment=max(buffer.alignment for buffer in chain),
        )
        for chain in heads
    ]
    return [[buffer.name for buffer in chain] for chain in heads], blocks


def _pack(
    buffers: Sequence[Buffer],
    ranges: Mapping[str, tuple[int, int]],
    links: Mapping[str, str],
    pairs: Mapping[tuple[str, str], int],
    work: int,
    engine: EngineSource | None,
) -> tuple[dict[str, int], int, int]:
    """Offsets of the buffers of one pool, its size, and the size's lower bound.

    Memory shared in place never raises the lower bound, but a long-lived chain can fragment what lies around it. So
    plans with fewer links compete, and the smallest wins. Buffers that overlap by a distance cost their kernels some
    speed, which is why a plan that is as small without them comes first.
    """
    budget = Budget(work)
    grain = min(buffer.alignment for buffer in buffers)

    def bounded(links: Mapping[str, str], pairs: Mapping[tuple[str, str], int]) -> int:
        chains, blocks = _merge(buffers, ranges, links)
        return lower_bound(blocks, grain, between_chains(chains, pairs))

    apart = bounded(links, {})
    bound = min(bounded(links, pairs), bounded({}, {**pairs, **dict.fromkeys(links.items(), 0)})) if pairs else apart
    shared: list[Mapping[str, str]] = [links, {}] if links else [{}]
    attempts = [(in_place, over) for over in ([pairs, {}] if pairs else [{}]) for in_place in shared]
    if apart == bound and pairs:
        attempts = [*attempts[len(shared) :], *attempts[: len(shared)]]
    offsets: dict[str, int] = {}
    peak = _NO_PEAK
    for position, (in_place, over) in enumerate(attempts):
        chains, blocks = _merge(buffers, ranges, in_place)
        packer = Packer(blocks, bound, grain, budget, between_chains(chains, over), engine)
        packer.greedy()
        packer.search(work * (len(attempts) - 1 - position) // len(attempts))
        if packer.peak < peak:
            offsets = {name: offset for chain, offset in zip(chains, packer.offsets, strict=True) for name in chain}
            peak = packer.peak
        if peak <= bound:
            break
    return offsets, peak, bound
