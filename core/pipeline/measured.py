"""What hosts compute, timed: built alone for its host, run here, and kept on disk by what it was made from.

For a host that is another machine the instructions are counted in its emulator, at its clock. Only one of these
programs is timed at a time on a machine; what was timed once is not timed again, by any process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from ..artifact import Artifact
from ..artifact.random_inputs import random_inputs
from ..errors import UsageError
from ..lowering.members import Member, Members
from ..machines import Machine
from ..relay.module import IRModule
from ..toolchain.cache import Cache
from ..toolchain.discovery import find_compiler, host_cpu_id

__all__ = ["measured_ns"]

REPEAT = 50
"""How often a kernel is run; the median counts."""

_FOLDER = "costs"


def measured_ns(module: IRModule, member: Member) -> float:
    """How long one run of a model takes on a host, in nanoseconds, the calls of all its kernels together.

    Args:
        module: canonical relay.
        member: the host.

    Raises:
        UsageError: this machine cannot run what is built for the host.
        ModelError, PluginError, ToolchainError: it cannot be built.
    """
    from .driver import LoadedModel, build_loaded  # which needs `stages`, and this

    artifact = build_loaded(LoadedModel(module, "kernel"), Members((member,)))
    kept = _kept(artifact)
    with contextlib.suppress(OSError, ValueError):
        found: object = json.loads(kept.read_text(encoding="utf-8"))["ns"]
        if isinstance(found, (int, float)) and not isinstance(found, bool) and 0 <= found < 1e18:
            return float(found)
    with _alone(kept.parent):
        profile = artifact.profile(random_inputs(artifact.record.inputs, {}), repeat=REPEAT)
    if profile.uncounted is not None:
        raise UsageError(f"its instructions cannot be counted: {profile.uncounted}")
    ns = float(sum(call.median_ns * call.times for call in profile.calls))
    _keep(kept, ns)
    return ns


def _kept(artifact: Artifact) -> Path:
    """The file in which a time is, or will be: by all that the program is made from, and by this machine."""
    record = artifact.record
    digest = hashlib.sha256()
    for name in sorted(artifact.files):
        content = artifact.files[name]
        raw = content
        digest.update(b"%d %s %d\n" % (len(raw), name.encode(), REPEAT))
        digest.update(raw)
    machines = [host.machine for host in record.compile.hosts]
    compilers = [
        find_compiler(host.compiler, None if host.machine is None else Machine.parse(host.machine)).identity
        for host in record.compile.hosts
    ]
    told = [record.uma_version, record.plugins, record.targets, machines, compilers, host_cpu_id()]
    flags = [list(host.flags) for host in record.compile.hosts]
    digest.update(json.dumps([told, flags, [asdict(one) for one in record.compile.libraries]], sort_keys=True).encode())
    folder = Cache().folder / _FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"{digest.hexdigest()}.json"


def _keep(path: Path, ns: float) -> None:
    """Write a time down, whole or not at all."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        json.dump({"ns": ns}, file)
    os.replace(file.name, path)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Within, no other process times anything that keeps its costs there; where there are no locks, it may."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(folder / "timing.lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
