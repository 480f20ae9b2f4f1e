"""What the metadata of installed distributions say of this one: what can be added to it, and what stands in its way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .package_metadata import Distribution

__all__ = ["CORE", "conflicting_distributions", "extra_hint"]

CORE = "uma-core"
"""The name of the distribution."""

_PACKAGE = (__package__ or "uma").partition(".")[0]
_OURS = re.compile(rf'^"?(\./)*{_PACKAGE}(/|\.py\b)', re.MULTILINE)


def extra_hint(extra: str, packages: str) -> str:
    """How to add an extra: by its name where the distribution has it, else by the names of its packages."""
    from .package_metadata import PackageNotFoundError, metadata

    try:
        headers = metadata(CORE)
    except PackageNotFoundError:  # it runs from its sources
        return f"pip install {packages}"
    offered = extra in (headers.get_all("Provides-Extra") or ())
    return f"pip install '{headers['Name']}[{extra}]'" if offered else f"pip install {packages}"


def conflicting_distributions() -> Iterator[tuple[str, str, str]]:
    """Name, version and place of each other distribution that installs files into the import package of this one."""
    from .package_metadata import distributions, headers, read

    for distribution in distributions():
        name, version = headers(distribution, "Name", "Version")
        if name is None or name.lower().replace("_", "-") == CORE:
            continue
        if read(distribution, _has_ours):
            yield name, version or "(no version)", str(distribution.locate_file(_PACKAGE))


def _has_ours(distribution: Distribution) -> bool:
    # (`files` looks for each of them on the disk: thousands, of which next to none are of interest.)
    record = distribution.read_text("RECORD")
    if record is not None and not _OURS.search(record):
        return False
    return any(file.parts[:1] in ((_PACKAGE,), (f"{_PACKAGE}.py",)) for file in distribution.files or ())
