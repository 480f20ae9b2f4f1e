"""``uma doctor``: whether this installation can build and run models, and what to do where it cannot."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import PluginError, RequirementError, ToolchainError, UmaError, UsageError
from ..support.distribution import conflicting_distributions, extra_hint
from ..support.json_record import from_json
from ..version import __version__
from .isolated_call import PLUGIN_SECONDS, ChildFailed, run_in_child
from .output import Output
from .shared_options import add_output_arguments, add_plugin_arguments, plugin_host

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from ..plugins import PluginHost, PluginStatus
    from ..support.package_metadata import Distribution

__all__ = ["add"]

_NEEDED_BYTES = 100 << 20


@dataclass(frozen=True)
class Finding:
    """What was looked at, and how it is.

    Args:
        check: what it is part of.
        status: ``ok``; ``note``, where nothing needs to be done; or ``fault``.
        what: how it is, in words.
        where: the place; None where there is none.
        hint: what to do.
        exit_code: of a fault.
    """

    check: str
    status: Literal["ok", "note", "fault"]
    what: str
    where: str | None = None
    hint: str | None = None
    exit_code: int = 0


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "doctor",
        help="look for what is wrong with this installation",
        description="Look at Python, packages, the C compiler, plugins, the cache, folders and the project, and say "
        "what to do where something is wrong. Imports every plugin.",
        allow_abbrev=False,
    )
    add_plugin_arguments(parser)
    add_output_arguments(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, out: Output) -> int:
    host = plugin_host(args)
    checks: dict[str, Callable[[str], Iterator[Finding]]] = {
        "python": _python,
        "packages": _packages,
        "compiler": _compiler,
        "plugins": partial(_plugins, host),
        "loops": partial(_loops, host),
        "cache": _cache,
        "folders": _folders,
        "project": partial(_project, host),
    }
    findings: list[Finding] = []
    for name, check in checks.items():
        out.step(name)
        try:
            new = list(check(name))
        except UmaError as error:
            new = [_fault(name, error)]
        new = [finding for finding in new if finding.what not in {known.what for known in findings}]
        for finding in new:
            out.line(f"{finding.status:<5}  {finding.what}")
            for word, text in (("where", finding.where), ("hint", finding.hint)):
                if text is not None and finding.status != "ok":
                    out.line(f"         {word}: {text}")
        findings += new
    faults = [finding for finding in findings if finding.status == "fault"]
    count = {0: "nothing is wrong", 1: "one thing is wrong"}.get(len(faults), f"{len(faults)} things are wrong")
    out.line(f"{count}, with uma-core {__version__}")
    out.result({"findings": findings, "faults": len(faults)})
    return faults[0].exit_code if faults else 0


def _fault(check: str, error: UmaError) -> Finding:
    return Finding(check, "fault", error.what, error.where, error.hint, error.exit_code)


def _python(check: str) -> Iterator[Finding]:
    import platform

    system = f"{platform.system()} on {platform.machine()}"
    what = f"Python {platform.python_version()}, {sys.maxsize.bit_length() + 1} bit, {system}"
    if os.name == "posix":
        yield Finding(check, "ok", what, sys.executable)
    else:
        hint = "use Linux, macOS, or the Windows Subsystem for Linux"
        yield Finding(check, "fault", f"{what}: models are compiled and run on POSIX systems only", None, hint, 6)


_EXTRAS = {
    "onnx": "ONNX models are read",
    "quantize": "float models are quantised",
    "tflite": "TFLite models are read",
}
"""What an extra adds."""


def _packages(check: str) -> Iterator[Finding]:
    """What uma-core requires, and of each extra that adds something to it, whether it is there."""
    from packaging.requirements import Requirement

    from ..support.package_metadata import PackageNotFoundError, distribution

    for name, version, place in conflicting_distributions():
        what = f"{name} {version}, another project's distribution, installs an import package 'uma' as well, over ours"
        hint = f"pip uninstall {name}, then pip install --force-reinstall --no-deps uma-core"
        yield Finding(check, "fault", what, place, hint, UsageError.exit_code)
    try:
        lines = distribution("uma-core").requires or ()
    except PackageNotFoundError:
        hint = "pip install uma-core"
        yield Finding(check, "note", "uma-core runs from its sources, and is not installed", __file__, hint)
        return
    requirements = [Requirement(line) for line in lines]
    for requirement in requirements:
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _package(check, requirement)
    for extra, use in _EXTRAS.items():
        wanted = [r for r in requirements if r.marker is not None and r.marker.evaluate({"extra": extra})]
        missing = [r.name for r in wanted if (r.marker and not r.marker.evaluate({"extra": ""})) and not _has(r)]
        if missing:
            what = f"the extra {extra!r} is not installed: without {', '.join(missing)} no {use}"
            yield Finding(check, "note", what, None, extra_hint(extra, " ".join(missing)))
        else:
            yield Finding(check, "ok", f"{use}: the extra {extra!r} is installed")


def _installed(name: str) -> Distribution | None:
    from ..support.package_metadata import PackageNotFoundError, distribution, headers

    try:
        package = distribution(name)
    except PackageNotFoundError:
        return None
    return package if all(headers(package, "Version")) else None  # one that was removed half-way


def _has(requirement: Requirement) -> bool:
    package = _installed(requirement.name)
    return package is not None and requirement.specifier.contains(package.version, prereleases=True)


def _package(check: str, requirement: Requirement) -> Finding:
    from importlib import import_module

    name, package = requirement.name, _installed(requirement.name)
    wanted = f"{name}{requirement.specifier}"
    if package is None or not _has(requirement):
        what = (
            f"uma-core needs {wanted}, and {'it is missing' if package is None else f'{package.version} is installed'}"
        )
        return Finding(check, "fault", what, None, f"pip install '{wanted}'", 1)
    try:
        import_module(name.replace("-", "_"))
    except Exception as error:  # noqa: BLE001 - what a broken package raises when it is imported is anything
        what = f"{name} {package.version} cannot be imported: {type(error).__name__}: {error}"
        return Finding(check, "fault", what, None, f"pip install --force-reinstall '{wanted}'", 1)
    return Finding(check, "ok", f"{name} {package.version}")


def _compiler(check: str) -> Iterator[Finding]:
    from ..toolchain.compile import refused_program
    from ..toolchain.discovery import find_compiler

    chosen = find_compiler()
    version = chosen.version.partition("\n")[0]
    where = chosen.command[0]
    said = refused_program(chosen)
    if said is None:
        yield Finding(check, "ok", f"the C compiler {chosen.name}: {version}", where)
    else:
        what = f"the C compiler {chosen.name} cannot make a program of a few lines\n{said[:2000]}"
        hint = "install the C library's development files (libc6-dev, glibc-devel), or another compiler"
        yield Finding(check, "fault", what, where, hint, ToolchainError.exit_code)
    for name in ("gcc", "clang", "ziglang"):
        if name == chosen.name:
            continue
        try:
            other = find_compiler(name)
        except ToolchainError as error:
            yield Finding(check, "note", f"{error.what}: targets cannot ask for it", error.where, error.hint)
        else:
            yield Finding(
                check, "ok", f"the C compiler {name}: {other.version.partition(chr(10))[0]}", other.command[0]
            )


def _plugins(host: PluginHost, check: str) -> Iterator[Finding]:
    """Each plugin, imported in a child of its own: it may take for ever, or end its process."""
    from ..plugins import loading  # noqa: F401 - so that no child has to import it

    has_host = False
    for name, entry in {status.entry.distribution: status.entry for status in host.plugins()}.items():
        try:
            rows, is_host = run_in_child(partial(_examined, host, check, name), PLUGIN_SECONDS)
        except ChildFailed as how:
            error = host.set_aside(entry, str(how))
            yield Finding(check, "fault", error.what, entry.location, error.hint, error.exit_code)
            continue
        has_host |= is_host
        yield from (from_json(Finding, row) for row in rows)
    for name, by in host.unknown_disabled:
        yield Finding(check, "note", f"no plugin is called {name!r}, which is disabled {by}", None, "mend the name")
    if not has_host:
        what = "no plugin brings a host, which every build needs"
        hint = "install the plugin of one: pip install PLUGIN"
        yield Finding(check, "fault", what, None, hint, PluginError.exit_code)


def _examined(host: PluginHost, check: str, name: str) -> tuple[list[Finding], bool]:
    """What there is to say of the plugins of a distribution, and whether one brings a host."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        statuses = host.examine(name)
    matching = [status for status in statuses if status.entry.distribution == name]
    results = [_plugin(check, status) for status in matching]
    hint = f"remove the others: pip uninstall {name}, once for each"
    shadows = dict.fromkeys(status.entry.shadow for status in matching)
    results += [Finding(check, "note", shadow, None, hint) for shadow in shadows if shadow is not None]
    results += [Finding(check, "note", str(w.message), None, "tell the authors of the plugin") for w in caught]
    kinds = [kind for status in statuses if status.plugin for kind in status.plugin.kinds.values()]
    return results, any(kind.is_host for kind in kinds)


def _plugin(check: str, status: PluginStatus) -> Finding:
    entry = status.entry
    name = f"plugin {entry.distribution} {entry.version}"
    if status.error is not None:
        return _fault(check, status.error)
    if status.state == "disabled":
        return Finding(check, "note", f"{name} is disabled {status.reason}", entry.location)
    if status.reason is not None:
        hint = "remove all but one (pip uninstall PLUGIN) or disable them (--disable-plugin PLUGIN)"
        return Finding(check, "fault", f"{name}: {status.reason}", entry.location, hint, PluginError.exit_code)
    return Finding(check, "ok", f"{name}: {', '.join(one.kind for one in status.entries)}", entry.location)


def _loops(host: PluginHost, check: str) -> Iterator[Finding]:
    """What compilers make of the loops that builds print, on this CPU."""
    from .compiler_check import judge

    for verdict in judge(host):
        if not verdict.wrong:
            yield Finding(check, "ok", f"{verdict.target} computes on this CPU what is meant")
            continue
        what = f"{verdict.target} computes wrong numbers on this CPU: {', '.join(dict.fromkeys(verdict.wrong))}"
        hint = "use another compiler, or another version of this one"
        if verdict.mended_by is not None:
            hint = f"build for '{verdict.mended_by}', or use another compiler or version"
        yield Finding(check, "fault", what, None, hint, ToolchainError.exit_code)


def _cache(check: str) -> Iterator[Finding]:
    import shutil

    from ..toolchain.cache import Cache, default_folder

    wanted = default_folder()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cache = Cache()
    if caught:
        hint = "mend the folder's owner and mode, or choose another with UMA_CACHE_DIR"
        yield Finding(check, "fault", str(caught[0].message), str(wanted), hint, UsageError.exit_code)
        return
    entries = cache.entries()
    size = f"{sum(entry.size_bytes for entry in entries) / 1e6:.1f} of {cache.max_bytes / 1e6:.0f} MB"
    yield Finding(check, "ok", f"the cache has {len(entries)} compiled libraries, {size}", str(cache.folder))
    if os.statvfs(cache.folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        what = "the cache folder is on a file system that is mounted noexec: nothing in it can be run"
        hint = "choose another folder with UMA_CACHE_DIR"
        yield Finding(check, "fault", what, str(cache.folder), hint, ToolchainError.exit_code)
    if (free := shutil.disk_usage(cache.folder).free) < _NEEDED_BYTES:
        what = f"the cache folder has {free / 1e6:.0f} MB left"
        hint = "make room there, or choose another folder with UMA_CACHE_DIR"
        yield Finding(check, "fault", what, str(cache.folder), hint, ToolchainError.exit_code)


def _folders(check: str) -> Iterator[Finding]:
    import tempfile

    try:
        with tempfile.TemporaryDirectory(prefix="uma-doctor-") as name:
            Path(name, "file").write_text("")
        yield Finding(check, "ok", "temporary files can be written", tempfile.gettempdir())
    except OSError as error:
        hint = "make room there, or choose another folder with TMPDIR"
        what = f"temporary files cannot be written: {error.strerror}"
        yield Finding(check, "fault", what, os.environ.get("TMPDIR"), hint, ToolchainError.exit_code)
    try:
        here = os.getcwd()
    except OSError:
        what, hint = "the current folder is not there any more", "go to another one"
        yield Finding(check, "fault", what, None, hint, UsageError.exit_code)
        return
    if os.access(".", os.W_OK):
        yield Finding(check, "ok", "the current folder can be written", here)
    else:
        what, hint = "the current folder cannot be written", "name another one for artifacts: uma build -o OUT"
        yield Finding(check, "note", what, None, hint)
    for folder in filter(None, os.environ.get("UMA_LIBRARY_PATH", "").split(os.pathsep)):
        if not os.path.isdir(folder):
            what = "a folder of UMA_LIBRARY_PATH is not there"
            yield Finding(check, "note", what, folder, "mend or unset the variable")


def _project(host: PluginHost, check: str) -> Iterator[Finding]:
    from ..support.project_file import find_project, ignored_projects
    from ..targets.project import project_targets

    for path, reason, remedy in ignored_projects():
        yield Finding(check, "note", f"settings for UMA in {path} are ignored, because {reason}", path, remedy)
    project = find_project()
    if project is None:
        yield Finding(check, "ok", "no project file is in force, here or above")
        return
    has = "in force" if project.settings else "without settings for UMA"
    yield Finding(check, "ok", f"the project file {project.path} is {has}", project.path)
    try:
        host.check_required()
    except RequirementError as error:
        yield _fault(check, error)
    targets = project_targets()
    for name in targets:
        try:
            row = run_in_child(partial(_named_target, host, check, name, project.path), PLUGIN_SECONDS)
        except ChildFailed as how:
            what = f"target {name}: a plugin that it names {how}"
            yield Finding(check, "fault", what, str(project.path), "disable that plugin", PluginError.exit_code)
        else:
            yield from_json(Finding, row)
    if not targets:
        yield Finding(check, "ok", "the project names no targets", project.path)


def _named_target(host: PluginHost, check: str, name: str, path: object) -> Finding:
    from ..targets import read_targets

    try:
        read_targets(name, host.lookup)
    except UmaError as error:
        return Finding(check, "fault", f"target {name}: {error.what}", str(path), error.hint, error.exit_code)
    return Finding(check, "ok", f"target {name}, which the project names", str(path))
