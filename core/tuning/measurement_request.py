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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..errors import ModelError, PluginError, ToolchainError, UmaError, UsageError
from ..lowering.build_targets import BuildTargets, resolve_targets
from ..partition import RoundingOptIn
from ..plugins import default_host
from ..relay.expr import Constant, Expr, Var
from ..relay.module import IRModule
from ..relay.pattern import Graph
from ..relay.text import parse_module, print_module
from ..support.json_record import from_json, json_schema_of, to_json
from ..support.json_schema import first_error
from ..toolchain.discovery import find_compiler, host_cpu_id
from ..version import __version__
from .measurement import REPEAT, Measurement, artifact_of, as_this_machine, cache_path, measure_artifact
from .region_measurement import RegionRefused, WholeModelPartitioner, measure_region

__all__ = ["REMOTE_ERRORS", "Question", "Request", "WorkerAnswer", "answer", "read_answer", "request_of", "versions_of"]

_FORM = 2
_ONE_AT_A_TIME = threading.Lock()
"""A worker may have several threads; a build has the process for itself."""

REMOTE_ERRORS = {one.__name__: one for one in (ModelError, PluginError, ToolchainError)}
"""The errors of a worker that are errors of the request, by name."""


@dataclass(frozen=True)
class Question:
    """A request without its constants.

    Args:
        versions: as `versions_of` returns them.
        targets: label and JSON of each target.
        model: the text of the part.
        region: pattern and op numbers of each match, for a part that is one region.
        consent: the fields of the `RoundingOptIn` of the build.
        or_here: whether a host that cannot be run may be the worker's machine instead.
        form: the version of this record.
    """

    versions: Mapping[str, str]
    targets: tuple[Any, ...]
    model: str
    region: tuple[Any, ...] | None = None
    consent: tuple[Any, ...] | None = None
    or_here: bool = False
    form: int = _FORM


@dataclass(frozen=True)
class WorkerError:
    """An error of a worker; ``kind`` is None for one that another worker might not have."""

    kind: str | None
    what: str
    where: str | None
    hint: str | None


@dataclass(frozen=True)
class WorkerAnswer:
    """The answer to a request.

    Args:
        versions: those of the worker.
        lacks: why it cannot build for the targets.
        refused: whether the owner of the region refuses it.
        error: why the time is unknown.
        digest: identifies the program that was built, if only that was asked.
        measured: the time.
    """

    versions: Mapping[str, str]
    lacks: str | None = None
    refused: bool = False
    error: WorkerError | None = None
    digest: str | None = None
    measured: Measurement | None = None


@dataclass(frozen=True)
class Request:
    """A part whose time is asked for.

    Args:
        question: the request.
        constants: the contents of the part's larger constants.
    """

    question: Question
    constants: bytes

    @cached_property
    def text(self) -> str:
        """The question as JSON."""
        return json.dumps(to_json(self.question), sort_keys=True)

    @cached_property
    def digest(self) -> str:
        """Of all that is asked, versions included; the contents of constants are named by theirs."""
        return hashlib.sha256(f"{REPEAT} {self.text}".encode()).hexdigest()

    @property
    def targets(self) -> str:
        """For what the part is built."""
        return ", ".join(f"{label}: {one['kind']}" for label, one in self.question.targets)


def request_of(
    module: IRModule, members: BuildTargets, consent: RoundingOptIn | None = None, *, or_here: bool = False
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
        region = tuple((name, sorted(numbers[expr] for expr in nodes)) for name, nodes in members.partition.wanted)
    question = Question(
        versions_of(members),
        tuple((member.label, member.target.to_json()) for member in members.all),
        text,
        region,
        None if consent is None else (consent.everything, dict(consent.layers)),
        or_here,
    )
    return Request(question, content.getvalue() if constants else b"")


def versions_of(members: BuildTargets) -> dict[str, str]:
    """What must be the same for a time to be the same: versions of this and of plugins, the C compiler, the CPU."""
    try:
        detected = find_compiler()
        compiler = f"{detected.version.splitlines()[0]} for {detected.target}"
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
        return json.dumps(to_json(_answered(json.loads(text), constants, only_build)))


def _answered(record: dict[str, Any], constants: bytes, only_build: bool) -> WorkerAnswer:
    if record.get("form") != _FORM:
        return WorkerAnswer({"uma-core": __version__})
    question = from_json(Question, record)
    try:
        members = resolve_targets(dict(question.targets), default_host())
    except UmaError as error:  # the plugin is missing, or has no such attribute
        return WorkerAnswer({"uma-core": __version__}, lacks=error.what)
    plain = WorkerAnswer(versions_of(members))
    if plain.versions != question.versions:
        return plain
    try:
        with members.known_ops():
            measured = _measured(question, members, constants, only_build)
    except RegionRefused:
        return replace(plain, refused=True)
    except UmaError as error:
        kind = next((name for name, one in REMOTE_ERRORS.items() if isinstance(error, one)), None)
        return replace(plain, error=WorkerError(kind, error.what, error.where, error.hint))
    return replace(plain, digest=measured) if isinstance(measured, str) else replace(plain, measured=measured)


def _measured(question: Question, members: BuildTargets, constants: bytes, only_build: bool) -> Measurement | str:
    """Return the time of the part, or the digest of the program that was built."""
    import numpy as np

    arrays = {}
    if constants:
        with np.load(io.BytesIO(constants), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    module = parse_module(question.model, arrays, "the part")
    consent = None if question.consent is None else RoundingOptIn(*question.consent)
    if question.region is not None:
        computed = _computed(module)
        wanted = [(name, frozenset(computed[number] for number in numbers)) for name, numbers in question.region]
        members = BuildTargets(members.hosts, members.accelerators, partition=WholeModelPartitioner(wanted))
    if only_build:
        return cache_path(artifact_of(module, members, consent)).stem
    if question.region is not None:
        return measure_region(module, members, consent)
    try:
        return measure_artifact(artifact_of(module, members))
    except UsageError:
        if not question.or_here:
            raise
        return measure_artifact(artifact_of(module, BuildTargets((as_this_machine(members.host),))))


def read_answer(text: str) -> WorkerAnswer:
    """Return the answer of a worker.

    Raises:
        ValueError: the text is not an answer.
    """
    record: Any = json.loads(text)
    if isinstance(record, dict) and "versions" in record:  # that of another version of UMA may have no other members
        record = {**to_json(WorkerAnswer({})), **record}
    if first_error(record, json_schema_of(WorkerAnswer)) is not None:
        raise ValueError(f"{text[:60]!r} is not an answer")
    return from_json(WorkerAnswer, record)


def _computed(module: IRModule) -> list[Expr]:
    """What the model computes, in order."""
    return [expr for expr in Graph(module.main).order if not isinstance(expr, (Var, Constant))]
