"""What parts of a model take when they are run: built alone for their targets, run here, and kept on disk by what they
were made from.

For a host that is another machine the instructions are counted in its emulator, at its clock; for a device its
simulator counts cycles. Only one of these programs is timed at a time on a machine; what was measured once is not
measured again, by any process. Programs of this machine run in a process of their own, and not for ever.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from ..artifact import Artifact
from ..artifact.local_build import Compiled
from ..artifact.profile import clocks_of
from ..artifact.random_inputs import random_inputs
from ..errors import ModelError, UsageError
from ..lowering.build_targets import BuildTarget, BuildTargets
from ..partition import RoundingOptIn
from ..pipeline.driver import build_loaded
from ..pipeline.loading import LoadedModel
from ..relay.module import IRModule
from ..support.json_record import Constraint, from_json, json_schema_of, to_json
from ..support.json_schema import first_error
from ..support.machines import Machine
from ..support.regular_files import write_whole
from ..targets import Target
from ..toolchain.cache import Cache, locked
from ..toolchain.discovery import find_compiler, host_cpu_id
from . import timing_process

__all__ = [
    "REPEAT",
    "Measurement",
    "Unmeasured",
    "artifact_of",
    "as_this_machine",
    "cache_path",
    "costs_folder",
    "measure_artifact",
    "measuring",
    "ran_on",
    "read_kept",
    "real_devices",
    "run_in_turn",
    "simulated",
    "write_kept",
]

REPEAT = 50
"""How often a kernel is run; the median counts. One that takes long is run less often, but `_LEAST` times."""

_LEAST = 3
_TURNS = 200
_ENOUGH_S = 5.0
_MOST_SHARES = 6
"""How much longer many models are timed in turn than two of them."""
_FOLDER = "costs"
_PROCESS = timing_process.TimingProcess()
_TIME = Constraint(minimum=0, maximum=10**18)


class Unmeasured(ModelError):
    """A part was built, and running it had no end: it hung, crashed, or was stopped by its device."""


@dataclass(frozen=True)
class Measurement:
    """What running a model once takes.

    Args:
        ns: nanoseconds, all calls together, without devices that simulators stand in for.
        cycles: what these counted, by label; None for one that counts no cycles.
        clock_hz: cycles per second of a host whose instructions its emulator counted; None where ``ns`` was timed.
    """

    ns: Annotated[float, _TIME]
    cycles: Mapping[str, Annotated[int, _TIME] | None]
    clock_hz: Annotated[float, _TIME] | None = None


@contextlib.contextmanager
def measuring() -> Iterator[None]:
    """Behind it no process is left that parts were timed in."""
    try:
        yield
    finally:
        _PROCESS.close()


def ran_on(module: IRModule, member: BuildTarget) -> Measurement:
    """Build a model for a host alone, and return what one run takes, the calls of all its kernels together.

    Args:
        module: canonical relay.
        member: the host.

    Raises:
        UsageError: this machine cannot run what is built for the host.
        ModelError, PluginError, ToolchainError: it cannot be built, or running it has no end.
    """
    return measure_artifact(artifact_of(module, BuildTargets((member,))))


def as_this_machine(member: BuildTarget) -> BuildTarget:
    """A host as its kind is by default, which is this machine."""
    return replace(member, target=Target(member.target.kind))


def simulated(member: BuildTarget) -> BuildTarget:
    """An accelerator with its default implementation, a simulator, where another one was given."""
    target = member.target
    if target.get_attr("impl") == target.kind.attribute("impl").default:
        return member
    left = {name: value for name, value in target.attrs.items() if name not in ("impl", "base")}
    return replace(member, target=Target(target.kind, left))


def real_devices(member: BuildTarget) -> tuple[str, ...]:
    """The label of an accelerator that its plugin calls real, which is not a stand-in for one."""
    runtime, impl = member.runtime, member.target.get_attr("impl")
    implementation = None if runtime is None else runtime.implementations.get(impl)
    return (member.label,) if implementation is not None and implementation.is_real else ()


def artifact_of(module: IRModule, members: BuildTargets, consent: RoundingOptIn | None = None) -> Artifact:
    """A model built by itself.

    Args:
        module: canonical relay.
        members: its targets.
        consent: as of the build that it is a part of.
    """
    return build_loaded(LoadedModel(module, "kernel", consent=consent), members)


def measure_artifact(artifact: Artifact, real: Collection[str] = ()) -> Measurement:
    """What one run takes; from disk, where it was run before.

    Args:
        artifact: a model.
        real: labels of devices that are there, and take the time here that they take.

    Raises:
        UsageError: this machine cannot run it, or has no simulator of a device.
        Unmeasured: running it has no end.
        ToolchainError: it cannot be compiled.
    """
    for device in artifact.record.devices:
        if not (device.simulated or device.label in real):
            raise UsageError(f"device {device.label!r} ({device.shown}) has no simulator here")
    kept = cache_path(artifact)
    cached = read_kept(kept)
    if cached is not None:
        return cached
    if not artifact.is_native:
        return _written(kept, _emulated(artifact), real)
    Compiled(artifact.record, artifact.files, artifact.origins).library("profile")
    with tempfile.TemporaryDirectory(prefix="uma-timing-") as folder:
        path = artifact.save(Path(folder) / "kernel")
        # Once without a lock: it may hang, or wait for its compiler. What simulators count is the same each time.
        first = _measure_calls(artifact, path, 1)
        if all(call.device is not None and call.device not in real for call in artifact.record.calls):
            return _written(kept, first, real)
        repeat = max(_LEAST, min(REPEAT, int(_ENOUGH_S * 1e9 / max(first.ns, 1.0))))
        with exclusive_lock(kept.parent):
            # Written down within the lock: whoever waits for it finds it then.
            return read_kept(kept) or _written(kept, _measure_calls(artifact, path, repeat), real)


def _written(kept: Path, measurement: Measurement, real: Collection[str]) -> Measurement:
    """What was found, once it is on disk; what real devices count is not part of it."""
    measurement = replace(
        measurement, cycles={label: count for label, count in measurement.cycles.items() if label not in real}
    )
    write_kept(kept, to_json(measurement))
    return measurement


def run_in_turn(artifacts: Sequence[Artifact], *, again: bool = False) -> list[float] | None:
    """What whole runs of some models take that this machine itself runs, in nanoseconds; timed in turn, so that what
    else the machine does is the same for all of them. From disk, where the same ones were timed before. None where one
    of them has no end.

    Args:
        artifacts: the models.
        again: whether to time them in any case.

    Raises:
        ToolchainError: one cannot be compiled.
    """
    digest = hashlib.sha256(" ".join(cache_path(artifact).name for artifact in artifacts).encode()).hexdigest()
    kept = Cache().folder / _FOLDER / f"{digest}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        cached = [float(ns) for ns in json.loads(kept.read_text(encoding="utf-8"))["in_turn_ns"]]
        if not again and len(cached) == len(artifacts) and all(0 <= ns < 1e18 for ns in cached):
            return cached
    with tempfile.TemporaryDirectory(prefix="uma-timing-") as folder:
        paths = [artifact.save(Path(folder) / str(number)) for number, artifact in enumerate(artifacts)]
        for artifact in artifacts:
            Compiled(artifact.record, artifact.files, artifact.origins).library()
        seconds = _ENOUGH_S * max(1.0, min(len(paths) / 2, _MOST_SHARES))
        job = {"do": "whole", "folders": [str(path) for path in paths], "repeat": _TURNS, "seconds": seconds}
        with exclusive_lock(kept.parent):
            answer = _PROCESS.ask(job, timing_process.LIMIT_S + seconds)
    if isinstance(answer, str):
        return None
    write_kept(kept, {"in_turn_ns": answer["ns"]})
    return [float(ns) for ns in answer["ns"]]


def _measure_calls(artifact: Artifact, path: Path, repeat: int) -> Measurement:
    answer = _PROCESS.ask({"do": "calls", "folder": str(path), "repeat": repeat}, timing_process.LIMIT_S)
    if isinstance(answer, str):
        raise Unmeasured(answer)
    return Measurement(answer["ns"], _cycles(artifact, answer["counters"]))


def _emulated(artifact: Artifact) -> Measurement:
    profile = artifact.profile(random_inputs(artifact.record.inputs))
    if profile.counts is None:
        raise UsageError(f"its instructions cannot be counted: {profile.uncounted}")
    ns = float(sum(call.median_ns * call.times for call in profile.calls if not call.is_simulated))
    return Measurement(ns, _cycles(artifact, profile.counters), profile.counts.clock_hz)


def _cycles(artifact: Artifact, counters: Mapping[str, Mapping[str, int]]) -> dict[str, int | None]:
    clocks = clocks_of(artifact.record)
    names = {
        d.label: "cycles" if (clock := clocks.get(d.label)) is None else clock.cycles for d in artifact.record.devices
    }
    return {label: counters.get(label, {}).get(name) for label, name in names.items()}


def cache_path(artifact: Artifact) -> Path:
    """The file in which a time is, or will be: by all that the program is made from, and by this machine."""
    record = artifact.record
    digest = hashlib.sha256()
    for name in sorted(artifact.files):
        raw = artifact.files[name]
        digest.update(b"%d %s %d\n" % (len(raw), name.encode(), REPEAT))
        digest.update(raw)
    machines = [host.machine for host in record.compile.hosts]
    compilers = [
        find_compiler(host.compiler, None if host.machine is None else Machine.parse(host.machine)).identity
        for host in record.compile.hosts
    ]
    facts = [record.uma_version, record.plugins, record.targets, machines, compilers, host_cpu_id()]
    flags = [list(host.flags) for host in record.compile.hosts]
    digest.update(
        json.dumps([facts, flags, [asdict(one) for one in record.compile.libraries]], sort_keys=True).encode()
    )
    return costs_folder() / f"{digest.hexdigest()}.json"


def costs_folder() -> Path:
    """Where times are kept on disk."""
    folder = Cache().folder / _FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def read_kept(path: Path) -> Measurement | None:
    """What was written down; None where nothing was, or what is there is damaged."""
    with contextlib.suppress(OSError, ValueError):
        record = json.loads(path.read_text(encoding="utf-8"))
        return None if first_error(record, json_schema_of(Measurement)) else from_json(Measurement, record)
    return None


def write_kept(path: Path, what: Mapping[str, object]) -> None:
    """Write something down, whole or not at all."""
    write_whole(path, json.dumps(what).encode(), sync=False)


def exclusive_lock(folder: Path) -> AbstractContextManager[None]:
    """Within, no other process times anything that keeps its costs there; where there are no locks, it may."""
    return locked(folder / "timing.lock")
