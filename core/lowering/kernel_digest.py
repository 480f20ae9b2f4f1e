"""The digest that identifies a kernel: kernels with equal digests have equal loops."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from ..contract.fusion import Fusion
from ..relay.expr import Function
from ..relay.module import IRModule
from ..relay.text import print_module
from .build_targets import BuildTarget

__all__ = ["kernel_digest", "source_version"]

_TEXTS: WeakKeyDictionary[Function, str] = WeakKeyDictionary()
"""The texts of functions, which are printed once: a kernel is looked up for each candidate of a build."""


def kernel_digest(fusion: Fusion, host: BuildTarget | None, by_rows: bool | None) -> str:
    """Return the SHA-256 digest of everything that the loops of a kernel are made from.

    That is the text of the fused function with the digests of its constants, the target with its attributes, and the
    sources of the core and of the target's plugin. Layer names are not part of it. The digest is the same in every
    process on one machine.

    Args:
        fusion: the kernel.
        host: whose strategies make the loops; None if the core makes them for no host.
        by_rows: for loops by rows: True if the host's strategies make them, False if the core does; else None.
    """
    function = fusion.function
    if function not in _TEXTS:
        _TEXTS[function] = print_module(IRModule.from_functions({"main": function}))[0]
    constants = {param.name: [str(constant.type), constant.digest] for param, constant in fusion.known.items()}
    target = None
    if host is not None:
        entry = host.plugin.entry
        sources = source_version(entry.value.partition(":")[0])
        target = [host.target.to_json(), entry.distribution, entry.version, sources]
    core = source_version(__name__.partition(".")[0])
    record = [core, target, by_rows, _TEXTS[function], constants]
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


@functools.cache
def source_version(module: str) -> str:
    """Return the SHA-256 digest of the paths, sizes and modification times of the files of a module's package.

    Args:
        module: the full name of a module. One without a file, such as a module that a test made, counts by its name.
    """
    package = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # a module that no import made
        spec = None
    places = () if spec is None else spec.submodule_search_locations or filter(None, [spec.origin])
    rows = [f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}" for place in places for path, stat in _files(place)]
    return hashlib.sha256("\0".join([module, *sorted(rows)]).encode()).hexdigest()


def _files(place: str, below: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files of a package's folder, or a file, with paths from there; compiled modules are left out."""
    if os.path.isfile(place):
        yield below, os.stat(place)
        return
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name == "__pycache__":
                continue
            path = f"{below}/{entry.name}"
            if entry.is_dir():
                yield from _files(entry.path, path)
            else:
                yield path, entry.stat()
