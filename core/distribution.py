"""What the metadata of installed distributions say of this one: what can be added to it, and what stands in its way."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["CORE", "extra_hint", "rivals"]

CORE = "uma-core"
"""The name of the distribution."""

_PACKAGE = (__package__ or "uma").partition(".")[0]


def extra_hint(extra: str, packages: str) -> str:
    """How to add an extra: by its name where the distribution has it, else by the names of its packages."""
    from .metadata import PackageNotFoundError, metadata

    try:
        found = metadata(CORE)
    except PackageNotFoundError:  # it runs from its sources
        return f"pip install {packages}"
    offered = extra in (found.get_all("Provides-Extra") or ())
    return f"pip install '{found['Name']}[{extra}]'" if offered else f"pip install {packages}"


def rivals() -> Iterator[tuple[str, str, str]]:
    """Name, version and place of each other distribution that installs files into the import package of this one."""
    from .metadata import distributions, headers, read

    for found in distributions():
        name, version = headers(found, "Name", "Version")
        if name is None or name.lower().replace("_", "-") == CORE:
            continue
        if any(
            file.parts[:1] in ((_PACKAGE,), (f"{_PACKAGE}.py",)) for file in read(found, lambda one: one.files) or ()
        ):
            yield name, version or "(no version)", str(found.locate_file(_PACKAGE))
