"""An artifact as this machine compiles it: its objects, its shared library, and the model in that or in an emulator."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..contract.drivers import Library, PartCounters
from ..errors import ModelError, ToolchainError, UsageError
from ..runtime.peaks import Peaks, measured_peaks
from ..support.machines import Machine, find_runner, runners_for
from ..toolchain.cache import Cache, library_key, on_trial
from ..toolchain.compile import CompileUnit, compile_objects, compile_shared
from ..toolchain.cpu import refuse_other_cpu
from ..toolchain.discovery import find_compiler
from ..toolchain.elf import check_machine
from ..toolchain.libraries import require_library
from ..toolchain.origins import NO_ORIGINS, Origins
from ..toolchain.stack import Measured
from .record import ArtifactRecord, HostRecord, TensorRecord
from .trace_hooks import TRACED_STEPS, traced_steps_text

if TYPE_CHECKING:
    from ..runtime.emulator import EmulatedModel
    from ..runtime.model_process import Image
    from ..runtime.native import DeviceInfo, NativeModel, TensorInfo

__all__ = ["Compiled"]


class Compiled:
    """What is made of an artifact on this machine, each thing when it is asked for.

    Args:
        record: of the artifact.
        files: its files, by name.
        origins: the plugins that bring some of their C.
    """

    def __init__(self, record: ArtifactRecord, files: Mapping[str, bytes], origins: Origins = NO_ORIGINS) -> None:
        self._record, self._files, self._origins = record, files, origins
        self._first = record.compile.hosts[0]
        self._where = f"model {record.name}"

    @contextlib.contextmanager
    def _blaming(self) -> Iterator[None]:
        """Within, C of a plugin that does not compile, link or load is a PluginError that names the plugin."""
        try:
            yield
        except ToolchainError as error:
            fault = self._origins.fault(error, self._files)
            if fault is None:
                raise
            raise fault from error

    @functools.cached_property
    def machine(self) -> Machine | None:
        """What the first host is compiled for; None for this machine."""
        return _foreign(self._first)

    @functools.cached_property
    def objects(self) -> Mapping[str, Measured]:
        """``LABEL/NAME.c.o`` to the object, for each host and source; nothing where this machine runs it all.

        Raises:
            ToolchainError: a compiler is missing, or does not take the sources.
            PluginError: it does not take those of a plugin.
        """
        hosts = self._record.compile.hosts
        compiled = map(self._objects_of, hosts if any(map(_foreign, hosts)) else ())
        return {name: one for objects in compiled for name, one in objects.items()}

    def peaks(self) -> Mapping[str, Peaks]:
        """Of the hosts, by label. For errors see `Artifact.peaks`."""
        self._check_here()
        return {
            host.label: measured_peaks(find_compiler(host.compiler, host.own_machine), host.flags)
            for host in self._record.compile.hosts
        }

    def _objects_of(self, host: HostRecord) -> dict[str, Measured]:
        machine = host.own_machine
        part = CompileUnit(find_compiler(host.compiler, machine), host.sources, host.flags, host.objects)
        with self._blaming():
            compiled = compile_objects([part], self._files)
        for name, one in compiled.items():
            if machine is not None:
                check_machine(one.content, machine, name)
        return {f"{host.label}/{name}": one for name, one in compiled.items()}

    def library(self, variant: Literal["plain", "profile", "traced"] = "plain") -> Path:
        """The shared library for this machine, from the cache.

        Args:
            variant: the model; one that times its steps; or one that tells when they end.

        Raises:
            ToolchainError: it cannot be made.
            PluginError: C of a plugin is the reason.
            UsageError: the model is for several machines.
        """
        how = self._record.compile
        sources, files = [*self._first.sources, how.library_entry], dict(self._files)
        if variant == "traced":
            hooked = self._hooked
            hook_source = traced_steps_text(self._record.name, hooked, has_weights=self._record.constant_bytes > 0)
            files[TRACED_STEPS] = hook_source.encode()
            sources = [TRACED_STEPS, *(name for name in sources if name not in hooked)]
        parts = self._parts(how.profile if variant == "profile" else sources)
        if variant != "profile":
            parts[0] = replace(parts[0], flags=[*parts[0].flags, "-DUMA_INTERRUPTIBLE"])  # by Ctrl-C, behind each step
        digests = {name: row.sha256 for name, row in self._record.files.items()}
        digests |= {name: hashlib.sha256(files[name]).hexdigest() for name in files.keys() - digests.keys()}
        libraries = self._libraries(parts[0])
        key = library_key(digests, parts, libraries)

        def build(output: Path) -> None:
            stack_of = f"{self._record.name}_run"
            compile_shared(parts, files, output, libraries=libraries, stack_of=stack_of, complete=True)

        with self._blaming():
            return Cache().library(key, build)

    def load(self, library: Path) -> NativeModel:
        """The model in a library of it, loaded into this process.

        Raises:
            ToolchainError, ModelError, UsageError: as `Artifact.session`.
        """
        from ..runtime.native import NativeModel

        self._check_here()
        record = self._record
        with self._blaming(), on_trial(library):
            model = NativeModel(
                library,
                name=record.name,
                inputs=_tensors(record.inputs),
                outputs=_tensors(record.outputs),
                states=_tensors(record.states),
                model_digest=None if record.state is None else record.state.model,
                devices=self._devices(),
                layers=record.layers,
                parts=record.parts,
            )
        if model.arena_bytes != record.arena_bytes:
            raise ModelError(
                f"the model needs an arena of {model.arena_bytes} bytes, its metadata says {record.arena_bytes}",
                where=record.name,
            )
        return model

    def emulated(self, *, counted: bool = False) -> EmulatedModel:
        """The model in a program for the emulator that its first host names.

        Args:
            counted: with marks by which its instructions are counted, step by step.

        Raises:
            ToolchainError, UsageError: as `Artifact.session`.
        """
        from ..runtime.emulator import EmulatedModel
        from ..runtime.emulator_image import make_image

        record, first, machine = self._record, self._first, self.machine
        assert machine is not None
        if first.runner is None:
            fits = runners_for(machine)
            emulated = f"; to run it here, build it with -runner={' or -runner='.join(fits)}" if fits else ""
            raise UsageError(
                f"the model is compiled for {machine}, which this machine is not: it does not run here",
                where=record.name,
                hint=f"compile what Artifact.save writes for that machine{emulated}",
            )
        self._check_devices()
        hooks = self._hooked if counted else None
        sources = [name for name in first.sources if hooks is None or name not in hooks]
        parts = self._parts([*sources, record.compile.library_entry])
        runner = find_runner(first.runner, machine)
        libraries = self._libraries(parts[0])
        with self._blaming():
            image = make_image(parts, self._files, runner, libraries, where=self._where, counted=hooks)
        return EmulatedModel(
            image,
            runner,
            record.name,
            _tensors(record.inputs),
            _tensors(record.outputs),
            _tensors(record.states),
            self._devices(),
            record.layers,
            record.parts,
            record.arena_bytes,
            None if record.state is None else record.state.model,
            counted,
        )

    def image(
        self, arena: Mapping[str, tuple[int, int]] | None = None, state: Mapping[str, tuple[int, int]] | None = None
    ) -> Image:
        """The library as `runtime.isolated` takes it. For arguments and errors see `Artifact.isolated`."""
        from ..runtime.model_process import Image

        self._check_here()
        record = self._record
        return Image(
            self.library(),
            record.name,
            _tensors(record.inputs),
            _tensors(record.outputs),
            _tensors(record.states),
            self._devices(),
            record.layers,
            record.parts,
            record.arena_bytes,
            0 if record.state is None else record.state.bytes,
            arena is not None,
            arena or {},
            state or {},
        )

    @property
    def _hooked(self) -> list[str]:
        """The files with the hooks of the model's steps, those that a model that times its steps includes, in the order
        in which one file includes them."""
        return [name for name in self._first.sources if name not in self._record.compile.profile][::-1]

    def _devices(self) -> tuple[DeviceInfo, ...]:
        from ..runtime.native import DeviceInfo

        infos = []
        for device in self._record.devices:
            info = device.parts
            parts = None if info is None else PartCounters(info.count, info.counters, info.locates_faults)
            meanings = {fault.code: fault.meaning for fault in device.faults}
            infos.append(DeviceInfo(device.label, device.shown, meanings, device.counters, parts))
        return tuple(infos)

    def _check_here(self) -> None:
        """UsageError where a device is not to be had on this machine, or its CPU is not one that a host is for."""
        self._check_devices()
        for host in self._record.compile.hosts:
            refuse_other_cpu(find_compiler(host.compiler, host.own_machine), host.flags, self._where)

    def _check_devices(self) -> None:
        for device in self._record.devices:
            if device.base is not None:
                raise UsageError(
                    f"device {device.label!r} ({device.shown}) is at address {device.base:#x} of another machine, "
                    "which Python does not reach",
                    where=self._record.name,
                    hint="compile what Artifact.save writes for that machine; to run it here, build it for a simulator",
                )

    def _parts(self, sources: Sequence[str]) -> list[CompileUnit]:
        """What is compiled for the machine of the first host, ``sources`` for that one.

        Raises:
            UsageError: another host is another machine.
        """
        how = self._record.compile
        if how.remote_hosts:
            raise UsageError(
                f"the model is for several machines, {self._first.label!r} and {how.remote_hosts[0].label!r}: no one "
                "process runs them",
                where=self._record.name,
                hint="compile what Artifact.save writes for each of them; or give all hosts one machine",
            )
        return [
            CompileUnit(find_compiler(host.compiler, host.own_machine), names, host.flags, host.objects)
            for host, names in ((self._first, sources), *((other, other.sources) for other in how.hosts[1:]))
        ]

    def _libraries(self, part: CompileUnit) -> list[Path]:
        """The files of the libraries that the model is linked with, ``part`` being what the first host runs."""
        wanted = [Library(row.name, row.package, row.symbols) for row in self._record.compile.libraries]
        return [require_library(library, part.compiler, self._where, part.flags, self.machine) for library in wanted]


def _tensors(rows: Sequence[TensorRecord]) -> tuple[TensorInfo, ...]:
    from ..runtime.native import TensorInfo

    return tuple(TensorInfo(row.name, row.dtype, row.shape) for row in rows)


def _foreign(host: HostRecord) -> Machine | None:
    """The machine that a host is, where it is not this one."""
    machine = host.own_machine
    return None if machine is None or machine.is_this else machine
