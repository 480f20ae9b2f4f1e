"""Parts of a model whose time another process is asked for: as text and numbers, and what it answers, likewise.

A request is a JSON object: the text of the part, its targets, what it is to be as one region, and the versions by which
it is to be built. The contents of constants are an uncompressed archive of arrays beside it, by digest. An answer is a
JSON object: the versions that were there, and what a run takes, or why that is not known.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..errors import ModelError, PluginError, ToolchainError, UmaError, UsageError
from ..lowering.build_targets import Members, resolve_targets
from ..partition import RoundingOptIn
from ..plugins import default_host
from ..relay.expr import Constant, Expr, Var
from ..relay.module import IRModule
from ..relay.pattern import Graph
from ..relay.text import parse_module, print_module
from ..support.json_record import to_json
from ..toolchain.discovery import find_compiler, host_cpu_id
from ..version import __version__
from .measurement import REPEAT, artifact_of, as_this_machine, cache_path, measure_artifact, ran_of
from .region_measurement import RegionRefused, WholeModelPartitioner, measure_region

__all__ = ["Request", "answer", "read_answer", "request_of", "versions_of"]

_FORM = 2
_ONE_AT_A_TIME = threading.Lock()
"""A worker may have several threads; a build has the process for itself."""

_LOST = (ModelError, PluginError, ToolchainError)


@dataclass(frozen=True)
class Request:
    """A part whose time is asked for.

    Args:
        text: what is asked, as JSON.
        constants: the contents of the part's larger constants.
    """

    text: str
    constants: bytes

    @cached_property
    def digest(self) -> str:
        """Of all that is asked, versions included; the contents of constants are named by theirs."""
        return hashlib.sha256(f"{REPEAT} {self.text}".encode()).hexdigest()

    @cached_property
    def told(self) -> dict[str, Any]:
        """What is asked, as plain data."""
        found: dict[str, Any] = json.loads(self.text)
        return found

    @property
    def targets(self) -> str:
        """For what the part is built."""
        return ", ".join(f"{label}: {one['kind']}" for label, one in self.told["targets"])


def request_of(
    module: IRModule, members: Members, consent: RoundingOptIn | None = None, *, or_here: bool = False
) -> Request:
    """The request for the time of a model.

    Args:
        module: canonical relay.
        members: one host; or one host, an accelerator and `WholeModelPartitioner`.
        consent: as of the build that it is a part of.
        or_here: whether a host that cannot be run may be the worker's machine instead.
    """
    import numpy as np

    text, constants = print_module(module)
    content = io.BytesIO()
    np.savez(content, **constants)  # type: ignore[arg-type]  # its stub takes keywords for options only
    region = None
    if isinstance(members.partition, WholeModelPartitioner):
        numbers = {expr: number for number, expr in enumerate(_computed(module))}
        region = [[name, sorted(numbers[expr] for expr in nodes)] for name, nodes in members.partition.wanted]
    told = {
        "form": _FORM,
        "versions": versions_of(members),
        "targets": [[member.label, member.target.to_json()] for member in members.all],
        "model": text,
        "region": region,
        "consent": None if consent is None else [consent.everything, dict(consent.layers)],
        "or_here": or_here,
    }
    return Request(json.dumps(told, sort_keys=True), content.getvalue() if constants else b"")


def versions_of(members: Members) -> dict[str, str]:
    """What must be the same for a time to be the same: versions of this and of plugins, the C compiler, the CPU."""
    try:
        found = find_compiler()
        compiler = f"{found.version.splitlines()[0]} for {found.target}"
    except ToolchainError:
        compiler = "none"
    cpu = f"{platform.machine()} {host_cpu_id()[:12]}"
    return {"uma-core": __version__, **members.versions, "the C compiler": compiler, "the CPU": cpu}


def answer(text: str, constants: bytes, only_build: bool = False) -> str:
    """Answer a request, in the process of a worker: what one run takes.

    Args:
        text, constants: of the request.
        only_build: True for the digest of what is built instead, by which times are kept.
    """
    with _ONE_AT_A_TIME:
        return json.dumps(_answered(json.loads(text), constants, only_build))


def _answered(told: dict[str, Any], constants: bytes, only_build: bool) -> dict[str, Any]:
    if told.get("form") != _FORM:
        return {"versions": {"uma-core": __version__}}
    try:
        members = resolve_targets(dict(told["targets"]), default_host())
    except UmaError as error:  # the plugin is missing, or has no such attribute
        return {"versions": {"uma-core": __version__}, "lacks": error.what}
    found: dict[str, Any] = {"versions": versions_of(members)}
    if found["versions"] != told["versions"]:
        return found
    try:
        with members.known_ops():
            return {**found, **_taken(told, members, constants, only_build)}
    except RegionRefused:
        return {**found, "refused": True}
    except UmaError as error:
        kind = next((one.__name__ for one in _LOST if isinstance(error, one)), None)
        return {**found, "error": {"kind": kind, "what": error.what, "where": error.where, "hint": error.hint}}


def _taken(told: dict[str, Any], members: Members, constants: bytes, only_build: bool) -> dict[str, Any]:
    import numpy as np

    arrays = {}
    if constants:
        with np.load(io.BytesIO(constants), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    module = parse_module(told["model"], arrays, "the part")
    consent = None
    if told["consent"] is not None:
        consent = RoundingOptIn(*told["consent"])
    if told["region"] is not None:
        computed = _computed(module)
        wanted = [(name, frozenset(computed[number] for number in numbers)) for name, numbers in told["region"]]
        members = Members(members.hosts, members.accelerators, partition=WholeModelPartitioner(wanted))
    if only_build:
        return {"digest": cache_path(artifact_of(module, members, consent)).stem}
    if told["region"] is not None:
        taken = measure_region(module, members, consent)
    else:
        try:
            taken = measure_artifact(artifact_of(module, members))
        except UsageError:
            if not told["or_here"]:
                raise
            taken = measure_artifact(artifact_of(module, Members((as_this_machine(members.host),))))
    answer: dict[str, Any] = to_json(taken)
    return answer


def read_answer(text: str) -> dict[str, Any]:
    """What a worker answers, as plain data.

    Raises:
        ValueError: it is no answer.
    """
    found: Any = json.loads(text)
    if not _is_answer(found):
        raise ValueError(f"{text[:60]!r} is no answer")
    return dict(found)


def _is_answer(found: Any) -> bool:
    if not isinstance(found, dict) or not isinstance(found.get("versions"), dict):
        return False
    error = found.get("error")
    if error is not None and (not isinstance(error, dict) or error.keys() != {"kind", "what", "where", "hint"}):
        return False
    return "ns" not in found or ran_of(found) is not None


def _computed(module: IRModule) -> list[Expr]:
    """What the model computes, in order."""
    return [expr for expr in Graph(module.main).order if not isinstance(expr, (Var, Constant))]
