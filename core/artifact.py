"""What a build returns: C sources, weights and a description, in one immutable object that runs, saves and loads.

The sources are the artifact. The shared library that runs on this machine is made from them when it is first needed,
kept in the cache, and made again where CPU or compiler differ; it is never part of what is saved.

Loading an artifact reads it as hostile data and runs nothing of it. Running it compiles and executes its C: run only
what you trust.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from .arguments import path_of, told
from .artifact_folder import MAX_METADATA_BYTES, file_table, read_folder, write_folder
from .artifact_record import machine_of, problem
from .codegen.cmake import cmake_text
from .codegen.makefile import makefile_text
from .contract.drivers import Clock, Library, Parts
from .errors import InternalError, ModelError, UsageError
from .machines import Machine, find_runner, runners_for
from .runtime.profile import CallTime, PartCounts, Profile, call_times
from .toolchain.cache import Cache, library_key, on_trial
from .toolchain.compile import STACK_SYMBOL, Part, compile_objects, compile_shared
from .toolchain.cpu import refuse_other_cpu
from .toolchain.discovery import find_compiler
from .toolchain.elf import check_machine, code_bytes, symbol_value, text_bytes
from .toolchain.libraries import require_library
from .toolchain.stack import Measured, stack_bytes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from .runtime.emulator import EmulatedModel
    from .runtime.isolated import IsolatedModel, Isolation
    from .runtime.native import DeviceInfo, NativeModel, TensorInfo
    from .runtime.session import ModelSession

__all__ = ["Artifact", "CallTime", "PartCounts", "Profile", "load"]


class Artifact:
    """A compiled model.

    Args:
        files: name to content of every file: C sources, headers, weights, example. Text is kept as UTF-8. A Makefile
            and a CMakeLists.txt are added if there are none.
        metadata: as ``artifact_schema.json`` has it, but for ``files``, which is computed here.

    Raises:
        InternalError: the two do not agree with the schema or with each other.
        ModelError: the names in the metadata are too long to be written.
    """

    def __init__(self, files: Mapping[str, str | bytes], metadata: Mapping[str, Any]) -> None:
        try:
            contents = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
            record = json.loads(json.dumps({**metadata, "files": file_table(contents)}, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InternalError(f"the artifact cannot be written down: {error}") from error
        if reason := problem(record):
            raise InternalError(f"the artifact is not sound: {reason}")
        for name, text in (("Makefile", makefile_text), ("CMakeLists.txt", cmake_text)):
            contents.setdefault(name, text(record).encode())
        record["files"] = file_table(contents)
        self._text = json.dumps(record, indent=1, sort_keys=True) + "\n"
        if len(self._text) > MAX_METADATA_BYTES:  # only names that come from the model can be this long
            raise ModelError(
                f"the names of the model's layers take more than {MAX_METADATA_BYTES} bytes",
                where=record["name"],
                hint="shorten the names in the model",
            )
        self._record: dict[str, Any] = json.loads(self._text)
        self.files: Mapping[str, bytes] = MappingProxyType(dict(sorted(contents.items())))
        self._lock = threading.RLock()
        self._model: NativeModel | EmulatedModel | None = None
        self._session: ModelSession | None = None
        self._objects: dict[str, Measured] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """It is pickled and copied as its files: what was compiled or is running stays where it is."""
        record = self.metadata
        del record["files"]
        return Artifact, (dict(self.files), record)

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
        """Machine code of the library as this machine compiles it (its section ``.text``), in bytes; where other
        machines run it, or some of it, that of its `objects`.

        Raises:
            ToolchainError: the library or the objects cannot be made, or are not ELF.
        """
        if objects := self.objects():
            return sum(map(code_bytes, objects.values()))
        library = self._library()
        with on_trial(library):
            return text_bytes(library)

    @property
    def stack_bytes(self) -> int | None:
        """Stack that one run takes, in bytes, as this machine compiles the library; where another machine runs it, as
        its `objects` have it.

        It is the largest sum of frames along any chain of calls from ``NAME_run``, as the compiler tells them. Drivers
        of devices, which are called through pointers, and the C library are not in it.

        Returns:
            None where the compiler does not tell, or a frame has no bound.

        Raises:
            ToolchainError: the library or the objects cannot be made, or are not ELF.
        """
        if self.objects():
            hosts = self._record["compile"]["hosts"]
            linked = [host["label"] for host in hosts if host["machine"] == hosts[0]["machine"]]
            made = [one for name, one in (self._objects or {}).items() if name.partition("/")[0] in linked]
            return stack_bytes(made, f"{self.name}_run")
        library = self._library()
        with on_trial(library):
            return symbol_value(library, STACK_SYMBOL)

    @functools.cached_property
    def _machine(self) -> Machine | None:
        """What the first host is compiled for; None for this machine."""
        return _foreign(self._record["compile"]["hosts"][0])

    @property
    def emulator(self) -> str | None:
        """The emulator that runs it, by its name; None where it runs on this machine, or not at all."""
        runner: str | None = self._record["compile"]["hosts"][0]["runner"]
        return None if self._machine is None else runner

    @property
    def is_native(self) -> bool:
        """Whether this machine itself runs it."""
        return self._machine is None

    def objects(self) -> dict[str, bytes]:
        """What is compiled where other machines than this one run the model, or some of it.

        Returns:
            ``LABEL/NAME.c.o`` to the object, for each host and source; nothing where this machine runs it all.

        Raises:
            ToolchainError: a compiler is missing, or does not take the sources.
        """
        with self._lock:
            if self._objects is None:
                hosts = self._record["compile"]["hosts"]
                made = map(self._objects_of, hosts if any(map(_foreign, hosts)) else ())
                self._objects = {name: content for objects in made for name, content in objects.items()}
            return {name: one.content for name, one in self._objects.items()}

    def _objects_of(self, host: Mapping[str, Any]) -> dict[str, Measured]:
        machine = machine_of(host)
        part = Part(find_compiler(host["compiler"], machine), host["sources"], host["flags"])
        made = compile_objects([part], self.files)
        for name, one in made.items():
            if machine is not None:
                check_machine(one.content, machine, name)
        return {f"{host['label']}/{name}": one for name, one in made.items()}

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

    def session(self) -> ModelSession:
        """A context of the model with buffers of its own: on this machine, or in the emulator that its target names.

        Raises:
            ToolchainError: the model cannot be compiled or loaded on this machine, or the emulator is missing.
            ModelError: the sources hold another model than the metadata says.
            RequirementError: the emulated board has less memory than the model takes.
            UsageError: the model is for another machine, and names no emulator; or for a CPU with instructions that
                this one's has not; or a device is at an address of the machine that it was built for.
        """
        with self._lock:
            if self._model is None:
                self._model = self._load(self._library()) if self._machine is None else self._emulated()
            return self._model.session()

    def isolated(
        self,
        isolation: Isolation,
        arena: Mapping[str, tuple[int, int]] | None = None,
        state: Mapping[str, tuple[int, int]] | None = None,
    ) -> IsolatedModel:
        """A context of the model in a process of its own.

        Args:
            isolation: the process.
            arena, state: of a model of which single steps can be run, the extents of its buffers; see `Image`.

        Raises:
            ToolchainError: the model cannot be compiled, or there is no room for what it works on.
            UsageError: the model is for another machine or CPU, or a device is at an address of one.
        """
        from .runtime.isolated import Image, IsolatedModel

        self._check_devices()
        self._check_cpu()
        kept = self._record["state"]
        image = Image(
            self._library(),
            self.name,
            self._tensors(self._record["inputs"]),
            self._tensors(self._record["outputs"]),
            self._tensors([] if kept is None else kept["tensors"]),
            self._devices(),
            [call["layers"] for call in self._record["calls"]],
            [call["parts"] for call in self._record["calls"]],
            self.arena_bytes,
            self.state_bytes,
            arena is not None,
            arena or {},
            state or {},
        )
        return IsolatedModel(isolation, image)

    def run(self, inputs: Any = None) -> dict[str, npt.NDArray[np.generic]]:
        """Run the model once, on this machine or in the emulator that its target names.

        It may be called from several threads, which then take turns.

        All runs are those of one session. A model that keeps something from one run to the next goes on where the run
        before left off, until `reset`; for several streams take a `session` for each.

        Args:
            inputs: input name to array; or one array, for a model with one input; or None, for one without. An array is
                a numpy array or has ``__dlpack__``, and has exactly the model's shape and dtype.

        Returns:
            Output name to array, in the model's order.

        Raises:
            ModelError: an input is missing, unknown, or of the wrong kind, shape or dtype.
            ToolchainError, RequirementError: as for `session`.
            DeviceError: a device stopped the run, or could not be opened.
            UsageError: as for `session`; or a run was stopped half-way, and what it kept needs a `reset`.
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
            UsageError: `repeat` is not positive, or the model is for another machine.
            ModelError, ToolchainError, DeviceError: as for `run`.
        """
        import numpy as np

        from .runtime.native import Session

        if not isinstance(repeat, int):
            raise UsageError(f"{told(repeat)} is no number of runs", hint="measure one or more")
        if repeat < 1:
            raise UsageError(f"{repeat} runs cannot be measured", hint="measure one or more")
        if self._machine is not None:
            raise UsageError(
                f"a model for {self._machine} cannot be timed here: emulators do not take the time that it takes",
                where=self.name,
                hint="build it for this machine to compare layers, or time it on the machine",
            )
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
                    counts = model.step_counts().tolist() if model.devices else []
            finally:
                if kept is not None:
                    self._own_session().restore(kept)
        if totals_ns[0].shape != (len(calls),):
            what = f"the model has {totals_ns[0].size} steps, its metadata says {len(calls)} calls"
            raise ModelError(what, where=self.name)
        devices = {info.label: info for info in model.devices}
        expected = sum(devices[call["device"]].n_counters for call in calls if call["device"] is not None)
        if len(counts) != expected:
            what = f"the model counts {len(counts)} things in its steps, its metadata says {expected}"
            raise ModelError(what, where=self.name)
        medians_ns = np.median(np.diff(totals_ns, axis=0), axis=0).tolist()
        clocks = {row["label"]: Clock(**row["clock"]) for row in self._record["devices"] if row["clock"] is not None}
        times = call_times(calls, medians_ns, counts, devices)
        return Profile(times, outputs, counters, clocks)

    def save(self, path: str | os.PathLike[str], *, objects: bool = False) -> Path:
        """Write the artifact as the folder `path`, whole or not at all.

        An artifact that is there already is replaced, with what its Makefile made, unless it was changed or something
        was added to it. Of several processes that save to one folder the last one's artifact stays; one that is killed
        leaves the old artifact or the new one, whole.

        Args:
            path: the folder.
            objects: write the `objects` as well, if there are any, into its folder ``objects``. They are not part of
                the artifact: `load` does not read them.

        Returns:
            The folder.

        Raises:
            UsageError: something else is at `path`, or it cannot be written.
            ToolchainError: as for `objects`.
        """
        return write_folder(path_of(path, "an artifact"), self.files, self._text, self.objects() if objects else {})

    def _own_session(self) -> ModelSession:
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
                row["parts"] and Parts(**row["parts"]),
            )
            for row in self._record["devices"]
        ]

    def _check_devices(self) -> None:
        """UsageError where a device is not to be had on this machine."""
        for row in self._record["devices"]:
            if row["base"] is not None:
                raise UsageError(
                    f"device {row['label']!r} ({row['kind']}, {row['impl']}) is at address {row['base']:#x} of another "
                    "machine, which Python does not reach",
                    where=self.name,
                    hint="compile what Artifact.save writes for that machine; to run it here, build it for a simulator",
                )

    def _check_cpu(self) -> None:
        """UsageError where this machine's CPU is not one that a host is compiled for."""
        for host in self._record["compile"]["hosts"]:
            refuse_other_cpu(find_compiler(host["compiler"], machine_of(host)), host["flags"], f"model {self.name}")

    def _load(self, library: Path) -> NativeModel:
        from .runtime.native import NativeModel

        self._check_devices()
        self._check_cpu()
        state = self._record["state"]
        with on_trial(library):
            model = NativeModel(
                library,
                name=self.name,
                inputs=self._tensors(self._record["inputs"]),
                outputs=self._tensors(self._record["outputs"]),
                states=self._tensors([] if state is None else state["tensors"]),
                model_digest=None if state is None else state["model"],
                devices=self._devices(),
                layers=[call["layers"] for call in self._record["calls"]],
                parts=[call["parts"] for call in self._record["calls"]],
            )
        if model.arena_bytes != self.arena_bytes:
            raise ModelError(
                f"the model needs an arena of {model.arena_bytes} bytes, its metadata says {self.arena_bytes}",
                where=self.name,
            )
        return model

    def _emulated(self) -> EmulatedModel:
        """The model in a program for the emulator that its first host names."""
        from .runtime.emulator import EmulatedModel
        from .runtime.image import make_image

        how, machine = self._record["compile"], self._machine
        first = how["hosts"][0]
        assert machine is not None
        if first["runner"] is None:
            fits = runners_for(machine)
            emulated = f"; to run it here, build it with -runner={' or -runner='.join(fits)}" if fits else ""
            raise UsageError(
                f"the model is compiled for {machine}, which this machine is not: it does not run here",
                where=self.name,
                hint=f"compile what Artifact.save writes for that machine{emulated}",
            )
        self._check_devices()
        parts = self._parts([*first["sources"], how["library_entry"]])
        runner = find_runner(first["runner"], machine)
        image = make_image(parts, self.files, runner, self._libraries(parts[0]), where=f"model {self.name}")
        state = self._record["state"]
        return EmulatedModel(
            image,
            runner,
            self.name,
            tuple(self._tensors(self._record["inputs"])),
            tuple(self._tensors(self._record["outputs"])),
            tuple(self._tensors([] if state is None else state["tensors"])),
            tuple(self._devices()),
            tuple(tuple(call["layers"]) for call in self._record["calls"]),
            tuple(tuple(call["parts"]) for call in self._record["calls"]),
            self.arena_bytes,
            None if state is None else state["model"],
        )

    def _parts(self, sources: Sequence[str]) -> list[Part]:
        """What is compiled for the machine of the first host, ``sources`` for that one.

        Raises:
            UsageError: another host is another machine.
        """
        first, *others = self._record["compile"]["hosts"]
        for other in others:
            if other["machine"] != first["machine"]:
                raise UsageError(
                    f"the model is for several machines, {first['label']!r} and {other['label']!r}: no one process "
                    "runs them",
                    where=self.name,
                    hint="compile what Artifact.save writes for each of them; or give all hosts one machine",
                )
        return [
            Part(find_compiler(host["compiler"], machine_of(host)), names, host["flags"])
            for host, names in ((first, sources), *((other, other["sources"]) for other in others))
        ]

    def _libraries(self, part: Part) -> list[Path]:
        """The files of the libraries that the model is linked with, ``part`` being what the first host runs."""
        rows = self._record["compile"]["libraries"]
        wanted = [Library(row["name"], row["package"], tuple(row["symbols"])) for row in rows]
        where = f"model {self.name}"
        return [require_library(library, part.compiler, where, part.flags, self._machine) for library in wanted]

    def _library(self, variant: Literal["plain", "profile"] = "plain") -> Path:
        """The shared library for this machine, from the cache."""
        how = self._record["compile"]
        first = how["hosts"][0]
        parts = self._parts(how["profile"] if variant == "profile" else [*first["sources"], how["library_entry"]])
        if variant == "plain":
            parts[0] = replace(parts[0], flags=[*parts[0].flags, "-DUMA_INTERRUPTIBLE"])  # by Ctrl-C, behind each step
        digests = {name: row["sha256"] for name, row in self._record["files"].items()}
        libraries = self._libraries(parts[0])
        key = library_key(digests, parts, libraries)

        def build(output: Path) -> None:
            compile_shared(parts, self.files, output, libraries=libraries, stack_of=f"{self.name}_run")

        return Cache().library(key, build)


def load(path: str | os.PathLike[str]) -> Artifact:
    """Read an artifact that `Artifact.save` wrote. Nothing of it is compiled or run.

    Only files that the metadata lists are read; each must be a plain file of the size and digest given there.

    Raises:
        UsageError: there is no artifact at `path`.
        ModelError: it is damaged, was changed, is not sound, or was made by a newer version of UMA.
    """
    return Artifact(*read_folder(path_of(path, "an artifact")))


def _foreign(host: Mapping[str, Any]) -> Machine | None:
    """The machine that a host is, where it is not this one."""
    machine = machine_of(host)
    return None if machine is None or machine.is_this else machine
