"""What a build returns: C sources, weights and a description, in one immutable object that runs, saves and loads.

The sources are the artifact. The shared library that runs on this machine is made from them when it is first needed,
kept in the cache, and made again where CPU or compiler differ; it is never part of what is saved.

Loading an artifact reads it as hostile data and runs nothing of it. Running it compiles and executes its C: run only
what you trust.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import InternalError, ModelError, UsageError
from ..runtime.objects import MODEL_FOLDER, OBJECTS_FOLDER
from ..support import json_record
from ..support.argument_checks import path_of
from ..support.formatting import format_value
from ..toolchain.cache import on_trial
from ..toolchain.compile import STACK_SYMBOL
from ..toolchain.elf import code_bytes, symbol_value, text_bytes
from ..toolchain.origins import NO_ORIGINS, Origins
from ..toolchain.stack import stacks_below
from .archive import is_archive, names_archive, read_archive, write_archive
from .execution_counts import control_times, count_runs, has_control_flow
from .export.cmake import cmake_text
from .export.makefile import makefile_text
from .folder import MAX_METADATA_BYTES, file_table, read_folder, write_folder
from .footprint import Footprint, footprint
from .local_build import Compiled
from .model_folder import SIZES_FILE, ModelSource, SavedModel, read_sizes, sizes_file
from .profile import Profile, TicksSince, call_times, clocks_of
from .record import ArtifactRecord
from .record_verifier import first_error

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..plugins import PluginHost
    from ..runtime.emulator import EmulatedModel
    from ..runtime.model_process import IsolatedModel, Isolation
    from ..runtime.native import NativeModel
    from ..runtime.open_shapes import OpenShapes
    from ..runtime.peaks import Peaks
    from ..runtime.session import ModelSession

__all__ = ["Artifact", "load"]


class Artifact:
    """A compiled model.

    Args:
        files: name to content of every file: C sources, headers, weights, example. Text is kept as UTF-8. A Makefile
            and a CMakeLists.txt are added if there are none.
        record: what it says of itself, but for ``files``, which is computed here.
        built_from: the model that it was built from, and how; None if that is unknown.
        origins: the plugins that bring some of its C, for errors; nothing of it is saved.

    Attributes:
        record: all that it says of itself; read only.
        files: name to content of every file.
        built_from: as given.

    Raises:
        InternalError: the two do not agree with the schema or with each other.
        ModelError: the names in the record are too long to be written.
    """

    record: ArtifactRecord
    files: Mapping[str, bytes]

    def __init__(
        self,
        files: Mapping[str, str | bytes],
        record: ArtifactRecord,
        built_from: ModelSource | None = None,
        origins: Origins = NO_ORIGINS,
    ) -> None:
        try:
            contents = {name: text.encode() if isinstance(text, str) else text for name, text in files.items()}
            record = dataclasses.replace(record, files=file_table(contents))
            plain = json.loads(json.dumps(json_record.to_json(record), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InternalError(f"the artifact cannot be written down: {error}") from error
        if reason := first_error(plain):
            raise InternalError(f"the artifact is not sound: {reason}")
        for name, text in (("Makefile", makefile_text), ("CMakeLists.txt", cmake_text)):
            contents.setdefault(name, text(record).encode())
        self.record = dataclasses.replace(record, files=file_table(contents))
        self._text = json.dumps(json_record.to_json(self.record), indent=1, sort_keys=True) + "\n"
        if len(self._text) > MAX_METADATA_BYTES:  # only names that come from the model can be this long
            raise ModelError(
                f"the names of the model's layers take more than {MAX_METADATA_BYTES} bytes",
                where=record.name,
                hint="shorten the names in the model",
            )
        self.files = MappingProxyType(dict(sorted(contents.items())))
        self.origins = origins
        self._compiled = Compiled(self.record, self.files, origins)
        self.built_from = built_from
        self._sizes: tuple[int | None, int | None] | None = None
        self._lock = threading.RLock()
        self._model: NativeModel | EmulatedModel | None = None
        self._session: ModelSession | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """It is pickled and copied as its files: what was compiled or is running stays where it is, and so does a model
        that is in memory."""
        return Artifact, (
            dict(self.files),
            self.record,
            self.built_from if isinstance(self.built_from, SavedModel) else None,
            self.origins,
        )

    def __repr__(self) -> str:
        return f"<Artifact {self.name}: {', '.join(self.record.targets)}>"

    def _repr_html_(self) -> str:
        from .notebook import artifact_html

        return artifact_html(self.record)

    @property
    def name(self) -> str:
        """The model's name, a C identifier."""
        return self.record.name

    @property
    def metadata(self) -> dict[str, Any]:
        """What ``metadata.json`` says, the `record` as JSON has it, as a copy that is the caller's own."""
        copy: dict[str, Any] = json.loads(self._text)
        return copy

    @property
    def arena_bytes(self) -> int:
        """Working memory of one run, in bytes; inputs and outputs are in it where it was built so: `ArtifactRecord.io`
        tells."""
        return self.record.arena_bytes

    @property
    def state_bytes(self) -> int:
        """What one context keeps from one run to the next, in bytes."""
        return 0 if self.record.state is None else self.record.state.bytes

    @property
    def constant_bytes(self) -> int:
        """Weights and tables, in bytes."""
        return self.record.constant_bytes

    @property
    def code_bytes(self) -> int:
        """Machine code of the library as this machine compiles it (its section ``.text``), in bytes; where other
        machines run it, or some of it, that of its `objects`.

        Raises:
            ToolchainError: the library or the objects cannot be made, or are not ELF.
        """
        if objects := self.objects():
            size = sum(map(code_bytes, objects.values()))
        else:
            library = self._compiled.library()
            with on_trial(library):
                size = text_bytes(library)
        self._sizes = size, None if self._sizes is None else self._sizes[1]
        return size

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
            size = self._stacks().get(f"{self.name}_run")
        else:
            library = self._compiled.library()
            with on_trial(library):
                size = symbol_value(library, STACK_SYMBOL)
        self._sizes = None if self._sizes is None else self._sizes[0], size
        return size

    @property
    def kernel_stack_bytes(self) -> Mapping[str, int]:
        """Stack that each kernel takes, with what it calls, in bytes, by the kernel's name; otherwise as `stack_bytes`.

        A kernel that the compiler made a part of the run has no stack of its own, and is not among them; nor is any of
        a model that this machine runs, or where the compiler does not tell.

        Raises:
            ToolchainError: the objects cannot be made.
        """
        stacks = self._stacks() if self.objects() else {}
        kernels = dict.fromkeys(call.kernel for call in self.record.calls)
        return {one: stacks[symbol] for one in kernels if (symbol := f"{self.name}_k_{one}") in stacks}

    def _stacks(self) -> dict[str, int]:
        """Of the run and what it calls, as the objects have them."""
        apart = {host.label for host in self.record.compile.remote_hosts}
        objects = [one for name, one in self._compiled.objects.items() if name.partition("/")[0] not in apart]
        return stacks_below(objects, f"{self.name}_run")

    def footprint(self) -> Footprint:
        """The memory that it takes, compiled on this machine: see `code_bytes` and `stack_bytes`.

        Raises:
            ToolchainError: the library or the objects cannot be made, or are not ELF.
        """
        return footprint(self.record, self.code_bytes, self.stack_bytes)

    def known_footprint(self) -> Footprint:
        """Return the same, with the sizes of code and stack only if they are known already: they were asked for, or the
        artifact was saved with them, as `uma build` does. Nothing is compiled.

        Raises:
            ModelError: the folder ``model`` of the saved artifact is damaged.
        """
        if self._sizes is None:
            self._sizes = read_sizes(b"" if self.built_from is None else self.built_from.files().get(SIZES_FILE, b""))
        return footprint(self.record, *self._sizes)

    @property
    def emulator(self) -> str | None:
        """The emulator that runs it, by its name; None where it runs on this machine, or not at all."""
        return None if self.is_native else self.record.compile.hosts[0].runner

    @property
    def is_native(self) -> bool:
        """Whether this machine itself runs it."""
        return self._compiled.machine is None

    def objects(self) -> dict[str, bytes]:
        """What is compiled where other machines than this one run the model, or some of it.

        Returns:
            ``LABEL/NAME.c.o`` to the object, for each host and source; nothing where this machine runs it all.

        Raises:
            ToolchainError: a compiler is missing, or does not take the sources.
            PluginError: it does not take those of a plugin.
        """
        with self._lock:
            return {name: one.content for name, one in self._compiled.objects.items()}

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

    def session(self, *, trace: str | os.PathLike[str] | None = None, threads: int | None = None) -> ModelSession:
        """A context of the model with buffers of its own: on this machine, or in the emulator that its target names.

        Args:
            trace: a file for what the drivers do to their devices: registers, memory, interrupts, with the model's
                steps. It is written when the session is closed, and replaces one that is there. Such a session is one
                of this machine.
            threads: how many threads run the model on this machine, the caller's included: as many as it is built for
                (``-threads``), or fewer; None for so many as that, and as there are processors that this process may
                use. Results are the same to the last bit. In an emulator there is one.

        Raises:
            ToolchainError: the model cannot be compiled or loaded on this machine, or the emulator is missing.
            PluginError: C of a plugin is the reason.
            ModelError: the sources hold another model than the metadata says.
            RequirementError: the emulated board has less memory than the model takes.
            UsageError: the model is for another machine, and names no emulator; or for a CPU with instructions that
                this one's has not; or a device is at an address of the machine that it was built for; or there is no
                device to trace, or the file cannot be written; or there are not so many threads.
        """
        if trace is not None:
            return self._traced_session(path_of(trace, "a trace"), threads)
        with self._lock:
            if self._model is None:
                build = self._compiled
                self._model = build.load(build.library()) if self.is_native else build.emulated()
            session = self._model.session(threads)
            session.open_shapes = self._open_shapes()
            return session

    def _traced_session(self, path: Path, threads: int | None) -> ModelSession:
        from ..runtime.recording import TracedSession

        if self.emulator is not None:
            raise UsageError(
                f"the model runs in the emulator {self.emulator!r}, where devices are not traced",
                where=f"model {self.name}",
                hint="build it for a host that is this machine",
            )
        if not self.record.devices:
            raise UsageError(
                "there is nothing to trace: the model runs on no device with a driver",
                where=f"model {self.name}",
                hint="build it for an accelerator",
            )
        with self._lock:
            model = self._compiled.load(self._compiled.library("traced"))
            session = TracedSession(model, path, self.constant_bytes, threads)
            session.open_shapes = self._open_shapes()
            return session

    def _open_shapes(self) -> OpenShapes | None:
        from ..runtime.open_shapes import OpenShapes

        return OpenShapes.from_rows(self.name, self.record.inputs, self.record.outputs)

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
        from ..runtime.model_process import IsolatedModel

        return IsolatedModel(isolation, self._compiled.image(arena, state))

    def run(self, inputs: Any = None) -> dict[str, npt.NDArray[np.generic]]:
        """Run the model once, on this machine or in the emulator that its target names.

        It may be called from several threads, which then take turns.

        All runs are those of one session. A model that keeps something from one run to the next goes on where the run
        before left off, until `reset`; for several streams take a `session` for each.

        Args:
            inputs: input name to array; or one array, for a model with one input; or None, for one without. An array is
                a numpy array or has ``__dlpack__``, and has exactly the model's shape and dtype; an extent that is open
                may be any in its range.

        Returns:
            Output name to array, in the model's order.

        Raises:
            ModelError: an input is missing, unknown, or of the wrong kind, shape or dtype.
            ToolchainError, RequirementError: as for `session`.
            DeviceError: a device stopped the run, or could not be opened.
            UsageError: as for `session`; or a run was stopped half-way, and what it kept needs a `reset`.
        """
        with self._lock:
            session = self._session
            return (self._own_session() if session is None else session).run(inputs)

    def reset(self) -> None:
        """Have `run` begin again with what the model says it keeps before the first run.

        Raises:
            ToolchainError, DeviceError: as for `run`.
        """
        with self._lock:
            self._own_session().reset()

    def profile(self, inputs: Any = None, repeat: int = 10, *, threads: int | None = None) -> Profile:
        """Run the model with a clock between its calls, in a library of its own; `Profile.ticks` tells what that costs.

        These runs begin as after `reset`, and those of `run` do not see them.

        A model in an emulator runs once, and the instructions of each call are counted: the emulator does not take the
        time that the machine takes. Times are estimates then, see `CallTime`.

        Args:
            inputs: as for `run`.
            repeat: how many runs to measure, after one that is not. In an emulator all runs are alike.
            threads: as for `session`. What a step takes is the time from its begin to its end, by all of them.

        Raises:
            UsageError: `repeat` is not positive, the model is for another machine and names no emulator, or there are
                not so many threads.
            ModelError, ToolchainError, DeviceError: as for `run`.
        """
        import numpy as np

        from ..runtime.native import Session

        if not isinstance(repeat, int):
            raise UsageError(f"{format_value(repeat)} is not a number of runs", hint="measure one or more")
        if repeat < 1:
            raise UsageError(f"{repeat} runs cannot be measured", hint="measure one or more")
        if not self.is_native:
            from .instruction_profile import counted_profile

            with self._lock, contextlib.closing(self._compiled.emulated(counted=True).session(threads)) as emulated:
                emulated.open_shapes = self._open_shapes()
                stacks = {} if self.record.compile.remote_hosts else self.kernel_stack_bytes
                return counted_profile(self.record, emulated, emulated.run(inputs), stacks)
        calls = self.record.calls
        with self._lock:
            model = self._compiled.load(self._compiled.library("profile"))
            kept = None
            if self._session is not None and model.devices:  # hardware is there once
                kept = self._session.save() if model.states else None
                self._session.close()
                self._session = None
            try:
                with Session(model, threads) as session:
                    session.open_shapes = self._open_shapes()
                    outputs = session.run(inputs)
                    since = TicksSince(model)
                    totals = [model.step_ticks()]
                    turns = [model.step_turns()] if has_control_flow(calls) else []
                    for _ in range(repeat):
                        session.invoke()
                        totals.append(model.step_ticks())
                        if turns:
                            turns.append(model.step_turns())
                    ticks = since.ticks()
                    counters = session.counters()
                    counts = model.step_counts().tolist() if model.devices else []
            finally:
                if kept is not None:
                    self._own_session().restore(kept)
        if totals[0].shape != (len(calls),):
            text = f"the model has {totals[0].size} steps, its metadata says {len(calls)} calls"
            raise ModelError(text, where=self.name)
        devices = {info.label: info for info in model.devices}
        expected = sum(devices[call.device].n_counters for call in calls if call.device is not None)
        if len(counts) != expected:
            text = f"the model counts {len(counts)} things in its steps, its metadata says {expected}"
            raise ModelError(text, where=self.name)
        medians_ns = (np.median(np.diff(totals, axis=0), axis=0) * 1e9 / ticks.hz).tolist()
        times: list[int] = []
        if turns:
            counted = np.sort(np.diff(turns, axis=0), axis=0)[(repeat - 1) // 2]
            times = count_runs(calls, counted.tolist())
        measured = call_times(self.record, medians_ns, counts, devices, times)
        return Profile(measured, outputs, counters, clocks_of(self.record), ticks, control_times(calls, measured))

    def peaks(self) -> Mapping[str, Peaks]:
        """What one core of this machine does of multiply-accumulates and nothing else, by the label of each host, whose
        compiler and flags count. Measured once, in a process of its own, and kept as compiled models are.

        Raises:
            UsageError: the model is for another machine.
            ToolchainError: what measures it cannot be compiled, or fails.
        """
        return self._compiled.peaks()

    def save(self, path: str | os.PathLike[str], *, objects: bool = False) -> Path:
        """Write the artifact as the folder `path`, or as that file if its name ends in ``.zip``; whole or not at all.

        The model that it was built from goes into the folder ``model``, if it is known: `uma.verify`, `uma.explain` and
        `uma.report` build it again from there.

        An archive has the same bytes each time. An artifact that is there already is replaced, with what its Makefile
        made, unless it was changed or something was added to it. Of several processes that save to
        one place the last one's artifact stays; one that is killed leaves the old artifact or the new one, whole.

        Args:
            path: the folder, or the archive.
            objects: write the `objects` as well, if there are any, into its folder ``objects``. They are not part of
                the artifact: `load` does not read them.

        Returns:
            The folder, or the archive.

        Raises:
            UsageError: something else is at `path`, or it cannot be written.
            ToolchainError: as for `objects`.
        """
        path = path_of(path, "an artifact")
        write = write_archive if names_archive(path) else write_folder
        folders = {OBJECTS_FOLDER: self.objects() if objects else {}, MODEL_FOLDER: self._model_files()}
        return write(path, self.files, self._text, folders)

    def _model_files(self) -> Mapping[str, bytes]:
        """The content of the folder ``model``, with the sizes that are known."""
        files = {} if self.built_from is None else self.built_from.files()
        code_bytes, stack_bytes = self._sizes or (None, None)
        return files if not files or code_bytes is None else {**files, SIZES_FILE: sizes_file(code_bytes, stack_bytes)}

    def export(self, format: str, path: str | os.PathLike[str], *, plugins: PluginHost | None = None) -> Path:
        """Write the artifact as the folder `path`, whole or not at all, in the form of a build system, or in one that a
        plugin brings; which is then imported, and its code runs.

        Args:
            format: ``cmake``, ``arduino``, ``platformio``, ``zephyr``, ``esp-idf``; or the name of a plugin's exporter,
                which begins with a target kind: ``KIND.NAME``.
            path: the folder; it is new, or empty.
            plugins: where to find plugins; those that are installed, by default.

        Returns:
            The folder.

        Raises:
            UsageError: there is no such format, the artifact has no such form, something is at `path`, or it cannot be
                written.
            PluginError: the plugin cannot be used, or its exporter is at fault.
            ToolchainError: what the exporter needs is missing on this machine.
        """
        from .export.formats import export

        return export(self, format, path_of(path, "an export"), plugins)

    def _own_session(self) -> ModelSession:
        if self._session is None:
            self._session = self.session()
        return self._session


def load(path: str | os.PathLike[str]) -> Artifact:
    """Read an artifact that `Artifact.save` wrote. Nothing of it is compiled or run.

    Only files that the metadata lists are read; each must be a plain file of the size and digest given there. Of an
    archive nothing is unpacked to a disk.

    Raises:
        UsageError: there is no artifact at `path`.
        ModelError: it is damaged, was changed, is not sound, or was made by a newer version of UMA.
    """
    path = path_of(path, "an artifact")
    return Artifact(*(read_archive(path) if is_archive(path) else read_folder(path)), SavedModel(path))
