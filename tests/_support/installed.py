"""Distributions as an installer leaves them, in a folder that is put on the path: metadata, and modules beside them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from uma.plugins import GROUP

__all__ = ["install"]


def install(
    folder: Path,
    name: str,
    kinds: Mapping[str, str] | Sequence[str] = (),
    source: str | None = None,
    *,
    version: str = "1.0",
    requires: Sequence[str] = ("uma-core>=0.1,<0.2",),
    files: Mapping[str, str] | None = None,
    info: str = "{stem}-{version}.dist-info",
) -> Path:
    """Install a distribution with one module, which has its name.

    Args:
        folder: where.
        name: of the distribution.
        kinds: names of entry points, which lead to the module; or what each leads to.
        source: of the module; None for none.
        version, requires: of the metadata.
        files: other files of the metadata by name, or other content of those that there are.
        info: the name of the folder of metadata.

    Returns:
        The folder of metadata.
    """
    module = name.replace("-", "_").lower()
    points = kinds if isinstance(kinds, Mapping) else dict.fromkeys(kinds, module)
    if source is not None:
        (folder / f"{module}.py").write_text(textwrap.dedent(source))
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    content = {
        "METADATA": "\n".join([*metadata, *(f"Requires-Dist: {line}" for line in requires), ""]),
        "entry_points.txt": "\n".join([f"[{GROUP}]", *(f"{kind} = {value}" for kind, value in points.items()), ""]),
        **(files or {}),
    }
    path = folder / info.format(stem=name.replace("-", "_"), version=version)
    path.mkdir(parents=True)
    for file, text in content.items():
        (path / file).write_text(text)
    return path
