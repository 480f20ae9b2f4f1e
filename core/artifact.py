"""What a build returns: C sources, weights and a description, in one immutable object that runs, saves and loads.

The sources are the artifact. The shared library that runs on this machine is made from them when it is first needed,
kept in the cache, and made again where CPU or compiler differ; it is never part of what is saved.

Loading an artifact reads it as hostile data and runs nothing of it. Running it compiles and executes its C: run only
what you trust.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from . import json_schema
from .drivers import Library
from .errors import InternalError, ModelError, UmaError, UsageError
from .runtime.cache import Cache, library_key
from .runtime.elf import text_bytes
from .runtime.libraries import require_library
from .runtime.toolchain import (
    KNOWN_COMPILERS,
    Part,
    compile_shared,
    find_compiler,
    native_flags,
    refused_file_names,
    refused_flags,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .runtime.native import DeviceInfo, NativeModel, Session, TensorInfo

__all__ = ["METADATA_FILE", "SCHEMA_VERSION", "Artifact", "CallTime", "Profile", "load"]

METADATA_FILE = "metadata.json"
"""The one file of a saved artifact that describes all others."""

SCHEMA_VERSION = 4
"""Of the metadata; its form is in ``artifact_schema.json``."""

_MAX_METADATA_BYTES = 1 << 25


@dataclass(frozen=True)
class CallTime:
    """How long one call of a run takes.

    Args:
        kernel: the kernel's name.
        layers: the model's layers that it computes.
        median_ns: over all runs that were measured, in nanoseconds.
        host: label of the host that runs it, or drives the device.
        device: label of the device that it drives; None for the host alone.
    """

    kernel: str
    layers: tuple[str, ...]
    median_ns: float
    host: str
    device: str | None = None


@dataclass(frozen=True)
class Profile:
    """What `Artifact.profile` found.

    Args:
        calls: in the order in which they run.
        outputs: of the runs, as `Artifact.run` gives them.
        counters: what each device counted in one run: its label -> name of the counter -> value.
    """

    calls: tuple[CallTime, ...]
    outputs: Mapping[str, npt.NDArray[np.generic]]
    counters: Mapping[str, Mapping[str, int]]


class Artifact:
    """A compiled model.

    Args:
        files: name to content of every file: C sources, headers, weights, example. Text is kept as UTF-8. A Makefile is
            added if there is none.
        metadata: as ``artifact_schema.json`` has it, but for ``files``, which is computed here.

    Raises:
        InternalError: the two do not agree with the schema or with each other.
        ModelError: the names in the metadata are too long to be written.
    """

    def __init__(self, files: Mapping[str, str | bytes], metadata: Mapping[str, Any]) -> None:
        try:
            contents = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
            record = json.loads(json.dumps({**metadata, "files": _table(contents)}, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InternalError(f"the artifact cannot be written down: {error}") from error
        if reason := _problem(record):
            raise InternalError(f"the artifact is not sound: {reason}")
        if "Makefile" not in contents:
            contents["Makefile"] = _makefile(record).encode()
            record["files"] = _table(contents)
        self._text = json.dumps(record, indent=1, sort_keys=True) + "\n"
        if len(self._text) > _MAX_METADATA_BYTES:  # only names that come from the model can be this long
            raise ModelError(
                f"the names of the model's layers take more than {_MAX_METADATA_BYTES} bytes",
                where=record["name"],
                hint="shorten the names in the model",
            )
        self._record: dict[str, Any] = json.loads(self._text)
        self.files: Mapping[str, bytes] = MappingProxyType(dict(sorted(contents.items())))
        self._lock = threading.RLock()
        self._model: NativeModel | None = None
        self._session: Session | None = None

    def __repr__(self) -> str:
        return f"<Artifact {self.name}: {', '.join(self._record['targets'])}>"

    @property
    def name(self) -> str:
        """The model's name, a C identifier."""
        return str(self._record["name"])

    @property
    def metadata(self) -> dict[str, Any]:
        """What ``metadata.json`` says, as a copy that is the caller's own."""
        copy: dict[str, Any] = json.loads(self._text)
        return copy

    @property
    def arena_bytes(self) -> int:
        """Working memory of one run, in bytes; inputs and outputs are not in it."""
        return int(self._record["arena_bytes"])

    @property
    def state_bytes(self) -> int:
        """What one context keeps from one run to the next, in bytes."""
        return 0 if self._record["state"] is None else int(self._record["state"]["bytes"])

    @property
    def constant_bytes(self) -> int:
        """Weights and tables, in bytes."""
        return int(self._record["constant_bytes"])

    @property
    def code_bytes(self) -> int:
        """Machine code of the library as this machine compiles it (its section ``.text``), in bytes.

        Raises:
            ToolchainError: the library cannot be made, or is not ELF.
        """
        return text_bytes(self._library())

    def source(self, name: str) -> str:
        """The text of the file `name`.

        Raises:
            UsageError: there is no such file, or it is not text.
        """
        if name not in self.files:
            raise UsageError(f"the artifact {self.name!r} has no file {name!r}", hint=f"it has {', '.join(self.files)}")
        try:
            return self.files[name].decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"the file {name!r} is not text", hint="its bytes are in Artifact.files") from error

    def session(self) -> Session:
        """A context of the model with buffers of its own; see `uma.runtime.native.Session`.

        Raises:
            ToolchainError: the model cannot be compiled or loaded on this machine.
            ModelError: the sources hold another model than the metadata says.
            UsageError: a device is at an address of the machine that the model was built for.
        """
        from .runtime.native import Session

        with self._lock:
            if self._model is None:
                self._model = self._load(self._library())
            return Session(self._model)

    def run(self, inputs: Any = None) -> dict[str, npt.NDArray[np.generic]]:
        """Run the model once, on this machine; may be called from several threads, which then take turns.

        All runs are those of one session. A model that keeps something from one run to the next goes on where the run
        before left off, until `reset`; for several streams take a `session` for each.

        Args:
            inputs: input name to array; or one array, for a model with one input; or None, for one without. An array is
                a numpy array or has ``__dlpack__``, and has exactly the model's shape and dtype.

        Returns:
            Output name to array, in the model's order.

        Raises:
            ModelError: an input is missing, unknown, or of the wrong kind, shape or dtype.
            ToolchainError: the model cannot be compiled or loaded on this machine.
            DeviceError: a device stopped the run, or could not be opened.
            UsageError: a run was stopped half-way, and what it kept needs a `reset`.
        """
        with self._lock:
            return self._own_session().run(inputs)

    def reset(self) -> None:
        """Have `run` begin again with what the model says it keeps before the first run.

        Raises:
            ToolchainError, DeviceError: as for `run`.
        """
        with self._lock:
            self._own_session().reset()

    def profile(self, inputs: Any = None, repeat: int = 10) -> Profile:
        """Run the model with a clock between its calls, in a library of its own: about 20 ns more for each call.

        These runs begin as after `reset`, and those of `run` do not see them.

        Args:
            inputs: as for `run`.
            repeat: how many runs to measure, after one that is not.

        Raises:
            UsageError: `repeat` is not positive.
            ModelError, ToolchainError, DeviceError: as for `run`.
        """
        import numpy as np

        from .runtime.native import Session

        if repeat < 1:
            raise UsageError(f"{repeat} runs cannot be measured", hint="measure one or more")
        calls = self._record["calls"]
        with self._lock:
            model = self._load(self._library("profile"))
            kept = None
            if self._session is not None and model.devices:  # hardware is there once
                kept = self._session.save() if model.states else None
                self._session.close()
                self._session = None
            try:
                with Session(model) as session:
                    outputs = session.run(inputs)
                    totals_ns = [model.step_ns()]
                    for _ in range(repeat):
                        session.invoke()
                        totals_ns.append(model.step_ns())
                    counters = session.counters()
            finally:
                if kept is not None:
                    self._own_session().restore(kept)
        if totals_ns[0].shape != (len(calls),):
            what = f"the model has {totals_ns[0].size} steps, its metadata says {len(calls)} calls"
            raise ModelError(what, where=self.name)
        medians_ns = np.median(np.diff(totals_ns, axis=0), axis=0).tolist()
        times = (
            CallTime(call["kernel"], tuple(call["layers"]), ns, call["host"], call["device"])
            for call, ns in zip(calls, medians_ns, strict=True)
        )
        return Profile(tuple(times), outputs, counters)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the artifact as the folder `path`, whole or not at all.

        An artifact that is there already is replaced, unless it was changed or something was added to it.

        Returns:
            The folder.

        Raises:
            UsageError: something else is at `path`, or it cannot be written.
        """
        try:
            folder = Path(os.path.realpath(path))
            _refuse_to_replace(folder)
            missing = [parent for parent in folder.parents if not parent.exists()]  # the innermost first
            staged = folder.parent / f".uma-save-{secrets.token_hex(8)}"
            try:
                staged.mkdir(parents=True)
                for name, content in self.files.items():
                    staged.joinpath(name).write_bytes(content)
                staged.joinpath(METADATA_FILE).write_text(self._text, encoding="utf-8", newline="\n")
                _move(staged, folder)
            except BaseException:
                shutil.rmtree(staged, ignore_errors=True)
                for parent in missing:
                    with contextlib.suppress(OSError):  # never made, or another's file is in it by now
                        parent.rmdir()
                raise
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise UsageError(f"cannot write the artifact: {reason}", where=os.fspath(path)) from error
        return folder

    def _own_session(self) -> Session:
        if self._session is None:
            self._session = self.session()
        return self._session

    def _tensors(self, rows: list[dict[str, Any]]) -> list[TensorInfo]:
        from .runtime.native import TensorInfo

        return [TensorInfo(row["name"], row["dtype"], tuple(row["shape"])) for row in rows]

    def _devices(self) -> list[DeviceInfo]:
        from .runtime.native import DeviceInfo

        return [
            DeviceInfo(
                row["label"],
                f"{row['kind']}, {row['impl']}",
                {fault["code"]: fault["meaning"] for fault in row["faults"]},
                tuple(row["counters"]),
            )
            for row in self._record["devices"]
        ]

    def _load(self, library: Path) -> NativeModel:
        from .runtime.native import NativeModel

        for row in self._record["devices"]:
            if row["base"] is not None:
                raise UsageError(
                    f"device {row['label']!r} ({row['kind']}, {row['impl']}) is at address {row['base']:#x} of another "
                    "machine, which Python does not reach",
                    where=self.name,
                    hint="compile what Artifact.save writes for that machine; to run it here, build it for a simulator",
                )
        state = self._record["state"]
        model = NativeModel(
            library,
            name=self.name,
            inputs=self._tensors(self._record["inputs"]),
            outputs=self._tensors(self._record["outputs"]),
            states=self._tensors([] if state is None else state["tensors"]),
            model_digest=None if state is None else state["model"],
            devices=self._devices(),
            layers=[call["layers"] for call in self._record["calls"]],
        )
        if model.arena_bytes != self.arena_bytes:
            raise ModelError(
                f"the model needs an arena of {model.arena_bytes} bytes, its metadata says {self.arena_bytes}",
                where=self.name,
            )
        return model

    def _library(self, variant: Literal["plain", "profile"] = "plain") -> Path:
        """The shared library for this machine, from the cache."""
        how = self._record["compile"]
        first, *others = how["hosts"]
        own = how["profile"] if variant == "profile" else [*first["sources"], how["library_entry"]]
        parts = [
            Part(find_compiler(host["compiler"]), sources, host["flags"])
            for host, sources in ((first, own), *((other, other["sources"]) for other in others))
        ]
        digests = {name: row["sha256"] for name, row in self._record["files"].items()}
        wanted = [Library(row["name"], row["package"], tuple(row["symbols"])) for row in how["libraries"]]
        libraries = [require_library(library, parts[0].compiler, f"model {self.name}") for library in wanted]
        key = library_key(digests, parts, libraries)

        def build(output: Path) -> None:
            compile_shared(parts, self.files, output, libraries=libraries)

        return Cache().library(key, build)


def load(path: str | os.PathLike[str]) -> Artifact:
    """Read an artifact that `Artifact.save` wrote. Nothing of it is compiled or run.

    Only files that the metadata lists are read; each must be a plain file of the size and digest given there.

    Raises:
        UsageError: there is no artifact at `path`.
        ModelError: it is damaged, was changed, is not sound, or was made by a newer version of UMA.
    """
    folder = Path(path)
    if not folder.is_dir() or not os.path.lexists(folder / METADATA_FILE):
        raise UsageError(
            f"there is no artifact at {os.fspath(path)!r}",
            hint=f"give a folder written by Artifact.save: {METADATA_FILE} is in it",
        )
    where = folder / METADATA_FILE
    record = _parse(_read(where, range(_MAX_METADATA_BYTES + 1)), where)
    if reason := _problem(record):
        raise ModelError(f"the artifact is not sound: {reason}", where=str(where))
    table = record.pop("files")
    files = {}
    for name, row in table.items():
        files[name] = _read(folder / name, range(row["bytes"], row["bytes"] + 1))
        if hashlib.sha256(files[name]).hexdigest() != row["sha256"]:
            raise ModelError(
                "the file was changed or damaged: its digest is not the one in the metadata",
                where=str(folder / name),
                hint="build the model again; to work on the C, copy it out of the artifact",
            )
    return Artifact(files, record)


@functools.cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("artifact_schema.json").read_text(encoding="utf-8"))
    return schema


def _table(contents: Mapping[str, bytes]) -> dict[str, dict[str, int | str]]:
    return {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in contents.items()
    }


def _problem(record: Any) -> str | None:
    """Why `record` is not the metadata of an artifact, in one line; None if it is."""
    if reason := json_schema.problem(record, _schema()):
        return reason
    how, files = record["compile"], record["files"]
    for host in how["hosts"]:
        if host["compiler"] is not None and not KNOWN_COMPILERS.fullmatch(host["compiler"]):
            return f"host {host['label']!r} has the compiler {host['compiler']!r}, which is no known name of one"
        if refused := refused_flags(host["flags"]):
            return f"host {host['label']!r} has the flag {refused[0]!r}, which is not allowed"
    if bad := refused_file_names([METADATA_FILE, *{**files, "Makefile": None}]):
        return f"files has {bad[0]!r}, a name that is not allowed or there twice"
    sources = [name for host in how["hosts"] for name in host["sources"]]
    plain, timed = [*sources, how["library_entry"], how["example"]], how["profile"]
    if missing := [name for name in (*plain, *timed) if name not in files]:
        return f"compile names {missing[0]!r}, which is not among the files"
    if any(len(set(names)) != len(names) for names in (plain, timed)):
        return "compile names one file twice"
    states = [] if record["state"] is None else record["state"]["tensors"]
    for role, rows in (("inputs", record["inputs"]), ("outputs", record["outputs"]), ("states", states)):
        for field in ("name", "identifier"):
            values = [row[field] for row in rows]
            if len(set(values)) != len(values):
                return f"{role} have one {field} twice"
    hosts = [host["label"] for host in how["hosts"]]
    if len(set(hosts)) != len(hosts):
        return "hosts have one label twice"
    if strange := [call["host"] for call in record["calls"] if call["host"] not in hosts]:
        return f"a call is for the host {strange[0]!r}, which is not among the hosts"
    return _device_problem(record["devices"], record["calls"])


def _device_problem(devices: list[dict[str, Any]], calls: list[dict[str, Any]]) -> str | None:
    labels = [device["label"] for device in devices]
    if len(set(labels)) != len(labels):
        return "devices have one label twice"
    for device in devices:
        codes = [fault["code"] for fault in device["faults"]]
        memories = [memory["name"] for memory in device["memories"]]
        for what, names in (("counter", device["counters"]), ("fault code", codes), ("memory", memories)):
            if len(set(names)) != len(names):
                return f"device {device['label']!r} has one {what} twice"
    for call in calls:
        if call["device"] is not None and call["device"] not in labels:
            return f"a call is for the device {call['device']!r}, which is not among the devices"
    if idle := [label for label in labels if all(call["device"] != label for call in calls)]:
        return f"no call is for the device {idle[0]!r}"
    return None


def _makefile(record: Mapping[str, Any]) -> str:
    """Builds a static library and the example for any CPU of the compiler's family, with the flags of the metadata."""
    how = record["compile"]
    first, *rest = how["hosts"]
    library, program = f"lib{record['name']}.a", f"{record['name']}_example"
    sources = [name for host in how["hosts"] for name in host["sources"]]
    objects = " ".join(f"{name}.o" for name in sources)
    compiled = [*sources, how["example"]]
    others = " ".join(sorted(set(record["files"]) - {*compiled, *how["profile"], how["library_entry"], "Makefile"}))
    rules = "\n".join(
        f"{name}.o: {name} $(INCLUDED)\n\t$(CC) $(CPPFLAGS) $(CFLAGS) -c {name} -o $@\n" for name in compiled
    )
    libraries = " ".join(f"-l{name}" for name in (*dict.fromkeys(row["name"] for row in how["libraries"]), "m"))
    own = "".join(
        f"{name}.o: {line}\n" for host in rest for name in host["sources"] for line in _settings(host).splitlines()
    )
    return f"""# Builds the model and its example program. For another machine: make CC=... CFLAGS=... LDFLAGS=...
{_settings(first)}LDLIBS = {libraries}
OBJECTS = {objects}
INCLUDED = {others}

all: {library} {program}

{library}: $(OBJECTS)
	$(AR) rcs $@ $(OBJECTS)

{program}: {how["example"]}.o {library}
	$(CC) $(LDFLAGS) -o $@ {how["example"]}.o {library} $(LDLIBS)

{rules}
{own}clean:
	rm -f {library} {program} $(OBJECTS) {how["example"]}.o

.PHONY: all clean
"""


def _settings(host: Mapping[str, Any]) -> str:
    """The lines of a Makefile that choose the compiler of a host, where there is one to choose, and its flags."""
    native = native_flags(host["flags"])
    choice = f"CC = {host['compiler']}\n" if host["compiler"] not in (None, "ziglang") else ""
    return f"{choice}CFLAGS = {' '.join(flag for flag in host['flags'] if flag not in native)}\n"


def _read(path: Path, sizes: range) -> bytes:
    """The bytes of the plain file `path`, whose size must be one of `sizes`; known before memory is taken for it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ModelError(f"a file of the artifact cannot be read: {error.strerror}", where=str(path)) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ModelError("an entry of the artifact is not a plain file", where=str(path))
        if status.st_size not in sizes:
            limit = f"expected {sizes[0]}" if len(sizes) == 1 else f"at most {sizes[-1]} are allowed"
            raise ModelError(f"a file of the artifact has {status.st_size} bytes, {limit}", where=str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size)
    finally:
        os.close(descriptor)


def _parse(raw: bytes, where: Path) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ValueError("an object has one name twice")
        return made

    try:
        record = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"the metadata is not JSON: {error}", where=str(where)) from error
    version = record.get("schema_version") if isinstance(record, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ModelError(
            "the artifact was made by a newer version of UMA",
            where=str(where),
            hint="upgrade uma-core, or build the model again",
        )
    return record


def _refuse_to_replace(folder: Path) -> None:
    """Raise UsageError unless `folder` is free, empty, or an artifact as it was written."""
    if not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        old = load(folder)
    except UmaError as error:
        raise UsageError(
            f"the folder is not an artifact that may be replaced: {error.what}",
            where=str(folder),
            hint="choose another, or remove it",
        ) from error
    if extra := sorted({item.name for item in folder.iterdir()} - {METADATA_FILE, *old.files}):
        raise UsageError(
            f"the artifact there may not be replaced: it has files of another origin, {_few(extra)}",
            where=str(folder),
            hint="choose another folder, or run make clean in it and move away what is left",
        )


def _few(names: Iterable[str]) -> str:
    first, *rest = names
    return repr(first) + (f" and {len(rest)} more" if rest else "")


def _move(staged: Path, folder: Path) -> None:
    """Put `staged` where `folder` is; if that fails, what was there stays or comes back."""
    if not folder.exists() or not any(folder.iterdir()):
        os.rename(staged, folder)
        return
    retired = staged.with_name(staged.name + ".old")
    os.rename(folder, retired)
    try:
        os.rename(staged, folder)
    except OSError:
        os.rename(retired, folder)
        raise
    shutil.rmtree(retired, ignore_errors=True)
