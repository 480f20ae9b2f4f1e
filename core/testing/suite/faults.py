"""Whether what goes wrong ends in a fault that is declared, and whether the device is fit to be used afterwards.

The accesses of a driver to its device are changed, one at a time: writes left out, changed, exchanged, reads that say
something else, memory that the device does not reach. What is wrong in any case: a code that nobody declared, a run
that does not end though the device only says nothing, a device that gives other results after a fault.
"""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Iterator, Sequence

from ...errors import ToolchainError, UmaError
from ...hookspecs import Runtime
from ...runtime.devices import CORE_FAULTS
from ...toolchain.origins import PluginCodeError
from ..fault_injection import Case, Ending, Perturbed, RegisterAccess
from ..fuzz.layer import Layer
from ..outcome import Check, Outcome, Progress
from ..sample_layers import artifact_of, built, small_layers

__all__ = ["FAULTS"]

_CASE_S = 5
"""How long a run with a change may take, in seconds of the processor: a driver that polls gives up long before."""

_LAYERS, _TOGETHER, _OF_SEVERAL = 3, 6, 80
"""Layers that are run by themselves; those of one image, and how many changes are tried with that."""
_PER_REGISTER, _RANDOM, _MEMORY, _CONSTANTS, _COMMANDS = 2, 150, 12, 200, 64
_ONES = 0xFFFFFFFF
_STUCK = frozenset({"reads", "stuck", "drop", "less", "unreachable"})
"""Changes after which nothing is left that could go on for ever."""


def _faults(outcome: Outcome, progress: Progress) -> None:
    subject = outcome.subject
    runtime = subject.member.runtime
    if runtime is None or runtime.driver is None:
        outcome.skipped = "the target has no driver"
        return
    for code in subject.claims.faults:
        if code not in runtime.faults:
            outcome.find(
                "driver", f"the claims explain fault {code}, which Runtime.faults does not have", about="claims"
            )
    if subject.target.get_attr("impl") == "mmio":
        outcome.skipped = "registers in memory have no simulator to run"
        return
    layers = small_layers(subject, progress, _TOGETHER)
    images = [[layer] for layer in layers[:_LAYERS]]
    if len(layers) > 1:
        images.append(layers)  # after a fault of one the others are right as well
    reached: set[int] = set()
    has_bus = False
    outcome.unchecked = "no layer was found that reaches the device"
    for number, image in enumerate(images):
        is_done = number > 0 and not set(runtime.faults) - reached - set(subject.claims.faults)
        if is_done and len(image) == 1:
            continue  # what a driver does wrong shows in any layer
        progress(f"{subject.kind.name}: accesses changed, {_title(image)}")
        try:
            _, program = built(image, subject.members)
            if subject.member.label not in program.devices:
                continue
            harness = Perturbed(artifact_of(program, subject.members))
        except ToolchainError as error:
            outcome.unchecked = f"nothing can be run: {error.what.splitlines()[0]}"
            return
        except PluginCodeError:
            raise
        except UmaError as error:
            outcome.note(f"{_title(image)} was left out: {error.what}")
            continue
        with harness:
            accesses = harness.record()
            if isinstance(accesses, str):
                outcome.note(f"{_title(image)} was left out: {accesses}")
                continue
            has_bus, outcome.unchecked = has_bus or bool(accesses), ""
            cases = list(cases_of(accesses, harness.constant_bytes, subject.seed + number, reads=number == 0))
            if len(image) > 1:
                cases = random.Random(subject.seed).sample(cases, min(len(cases), _OF_SEVERAL))
            codes, stop = _changed(outcome, runtime, _title(image), harness, cases)
            reached |= codes
            if stop:
                break
    if not outcome.unchecked:
        _reached(outcome, runtime, reached, has_bus)


FAULTS = Check("faults", "faults: reached, declared, survived; devices that hang", "driver", _faults, "target")


def _title(image: Sequence[Layer]) -> str:
    return image[0].title if len(image) == 1 else f"{len(image)} layers"


def _changed(
    outcome: Outcome, runtime: Runtime, title: str, harness: Perturbed, cases: Sequence[Case]
) -> tuple[set[int], bool]:
    """The codes that are reached with the layers of one image, and whether enough was found."""
    endings = harness.endings(cases, _CASE_S)
    crashed = sum(one.signal not in (0, signal.SIGALRM) for one in endings)
    outcome.note(
        f"{title}: {len(cases)} accesses changed, {sum(map(_is_fault, endings))} faults"
        + (f", {crashed} where the simulator left its memory" if crashed else "")
    )
    codes: set[int] = set()
    said: set[object] = set()
    for case, ending in zip(cases, endings, strict=True):
        message = _wrong(case, ending, runtime)
        if ending.code and not _is_told(case, ending):
            codes.add(ending.code)
        if message is None or (message[0], ending.code) in said:
            continue
        said.add((message[0], ending.code))
        outcome.find("driver", f"{message[1]}, where {case.shown}", f"layer {title}", message[0])
    return codes, bool(said)


def _is_told(case: Case, ending: Ending) -> bool:
    """Whether the code is the number that a register was made to hold: of that the device knows nothing."""
    return case.kind in ("read", "reads") and ending.code & _ONES == case.value & _ONES


def _is_fault(ending: Ending) -> bool:
    return ending.code != 0


def _wrong(case: Case, ending: Ending, runtime: Runtime) -> tuple[str, str] | None:
    """What is wrong with how a case ended: a word for it, and the same as a sentence; None for nothing."""
    if ending.signal == signal.SIGALRM and case.kind in _STUCK:
        return "hang", f"a run does not end within {_CASE_S} s"
    if ending.signal or ending.skipped:
        return None
    if ending.code and not _is_told(case, ending) and ending.code not in {*runtime.faults, *CORE_FAULTS}:
        return "undeclared", f"the driver gives fault {ending.code}, which Runtime.faults does not have"
    if case.kind == "unreachable" and not ending.code:
        return "ignored", "the driver goes on though the device does not reach the memory that it is given"
    if not ending.recovered and case.kind in _STUCK | {"swap", "twice", "read", "nothing", "look"}:
        after = f"after fault {ending.code} " if ending.code else "after a run that went wrong "
        return "recovery", f"{after}the device does not give the results that it gave before"
    return None


def cases_of(accesses: Sequence[RegisterAccess], constant_bytes: int, seed: int, *, reads: bool) -> Iterator[Case]:
    """Changes of what a driver does and sees; those that a device may survive least come first.

    Args:
        accesses: of one run.
        constant_bytes: size of the model's constants.
        seed: of what is drawn.
        reads: whether what is read is changed, too: a driver that polls takes its time over it.
    """
    rng = random.Random(seed)
    yield Case("nothing", 0, 0, 0, 0, "nothing is changed")
    for bytes_ in (0, 64, 1024):
        yield Case("less", 0, 0, 0, bytes_, f"the simulator is given {bytes_} bytes of memory")
    words = range(constant_bytes // 4)
    for word in sorted({*words[:_COMMANDS], *rng.sample(words, min(len(words), _CONSTANTS))}):
        flips = [rng.choice((1, 0xFF, 0x10000, 0x80000000, rng.randrange(1, 1 << 32)))]
        if word < _COMMANDS:
            # Commands, where there are any: each of their fields is turned over.
            flips += [0xFF << shift for shift in (0, 8, 16, 24)]
        for flip in dict.fromkeys(flips):
            shown = f"word {word} of the model's constants is changed by {flip:#x}"
            yield Case("constant", 0, 0, 4 * word, flip, shown)
    writes = [(at, one) for at, one in enumerate(one for one in accesses if one.is_write)]
    if reads:
        yield from _of_reads([(at, one) for at, one in enumerate(one for one in accesses if not one.is_write)])
    yield from _of_addresses(writes)
    yield from _of_writes(writes, rng)


def _some(numbered: Sequence[tuple[int, RegisterAccess]]) -> Iterator[tuple[int, RegisterAccess]]:
    """Of each register the first accesses, and the last."""
    by_register: dict[int, list[tuple[int, RegisterAccess]]] = {}
    for at, one in numbered:
        by_register.setdefault(one.offset, []).append((at, one))
    for some in by_register.values():
        yield from some[:_PER_REGISTER]
        yield from some[_PER_REGISTER:][-1:]


def _of_reads(reads: Sequence[tuple[int, RegisterAccess]]) -> Iterator[Case]:
    for at, one in _some(reads):
        where = f"the register at {one.offset:#x}"
        for value in dict.fromkeys(
            (0, _ONES, one.value ^ 1, one.value // 2, (one.value + 1) & _ONES, one.value ^ 0x80)
        ):
            if value != one.value:
                yield Case("read", one.device, at, one.offset, value, f"read {at}, of {where}, gives {value:#x}")
        yield Case("stuck", one.device, at, one.offset, 0, f"{where} never changes after read {at}, {one.value:#x}")
    first: dict[int, tuple[int, RegisterAccess]] = {}
    for at, one in reads:
        first.setdefault(one.offset, (at, one))
    for at, one in first.values():
        for value in dict.fromkeys((0, _ONES, *(1 << bit for bit in range(5)))):
            shown = f"the register at {one.offset:#x} is always {value:#x}"
            yield Case("reads", one.device, at, one.offset, value, shown)


def _of_addresses(writes: Sequence[tuple[int, RegisterAccess]]) -> Iterator[Case]:
    """Pieces of memory that a device is given: those that it does not reach, and words that are others."""
    halves = sum(one.is_address for _, one in writes)
    device = next((one.device for _, one in writes if one.is_address), 0)
    for piece in range(min(halves // 2, 10)):
        yield Case("unreachable", device, piece, 0, 0, f"piece {piece} of memory is out of the device's reach")
    for piece in range(min(halves // 2, 10)):
        for word in range(_MEMORY):
            for flip in (1, 0xFF):
                shown = f"word {word} of piece {piece} of memory is changed by {flip:#x}"
                yield Case("memory", device, piece, 4 * word, flip, shown)


def _of_writes(writes: Sequence[tuple[int, RegisterAccess]], rng: random.Random) -> Iterator[Case]:
    plain = [(at, one) for at, one in writes if not one.is_address]
    for at, one in _some(plain):
        where = f"write {at}, of {one.value:#x} to {one.offset:#x},"
        yield Case("drop", one.device, at, one.offset, 0, f"{where} is left out")
        yield Case("twice", one.device, at, one.offset, 0, f"{where} comes twice")
        values = (0, 1, one.value + 1, one.value - 1, one.value ^ 4, 1 << 20, 0x7FFFFF80, _ONES)
        for value in dict.fromkeys(value & _ONES for value in values):
            if value != one.value:
                yield Case("set", one.device, at, one.offset, value, f"{where} has {value:#x}")
    for (at, one), (behind, other) in itertools.pairwise(plain):
        if behind == at + 1 and one.offset != other.offset and rng.random() < 0.3:
            shown = f"writes {at} and {behind}, to {one.offset:#x} and {other.offset:#x}, are exchanged"
            yield Case("swap", one.device, at, one.offset, 0, shown)
    offsets = sorted({one.offset for _, one in writes})
    strange = [max(offsets, default=0) + 4, max(offsets, default=0) + 0x100, 1, 0xFFC]
    for _ in range(_RANDOM if plain else 0):
        at, one = rng.choice(plain)
        offset = rng.choice(strange if rng.random() < 0.2 else offsets)
        value = rng.choice((rng.randrange(32), rng.randrange(1 << 16), rng.randrange(1 << 32)))
        if any(other.is_address and other.offset == offset for _, other in writes):
            continue  # an address of nobody's memory is not a fault that a simulator could survive
        shown = f"{value:#x} is written to {offset:#x} before write {at}"
        yield Case("insert", one.device, at, offset, value, shown)
        yield Case("look", one.device, at, offset, 0, f"{offset:#x} is read before write {at}")


def _reached(outcome: Outcome, runtime: Runtime, reached: set[int], has_bus: bool) -> None:
    """Each declared fault was reached, or the plugin says why it cannot be."""
    explained = outcome.subject.claims.faults
    shown = ", ".join(map(str, sorted(reached & set(runtime.faults)))) or "none"
    outcome.note(f"faults reached: {shown} of {len(runtime.faults)} that are declared")
    for code in sorted(reached & set(explained)):
        outcome.note(f"fault {code} was reached, though the claims say that it cannot be: {explained[code]}")
    if not has_bus:
        if runtime.faults:
            outcome.note("no register was accessed: faults cannot be brought about from outside")
        return
    missing = [code for code in runtime.faults if code not in reached and code not in explained]
    # What stopped the check may be why they were not reached.
    if missing and not outcome.findings:
        noun, verb = ("fault", "was") if len(missing) == 1 else ("faults", "were")
        codes = ", ".join(f"{code} ({runtime.faults[code]})" for code in missing[:3])
        more = f" and {', '.join(map(str, missing[3:]))}" if missing[3:] else ""
        message = f"{noun} {codes}{more} {verb} not reached, and the plugin does not say why by Claims.faults"
        outcome.find("driver", message, "Runtime.faults", "reached")
