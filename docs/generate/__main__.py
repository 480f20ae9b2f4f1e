"""Writes what Sphinx builds the site from, or what of it is kept in the repository.

``python -m docs.generate FOLDER`` is the former, ``python -m docs.generate --committed`` the latter.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from .committed import committed
from .pictures import pictures
from .site import PAGES, sources


def write(files: Mapping[str, str], folder: Path) -> None:
    """Write files, by their paths below ``folder``."""
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--committed":
        write(committed(), PAGES)
    else:
        folder = Path(sys.argv[1])
        write(sources() | {f"pictures/{name}": text for name, text in pictures().items()}, folder)
        shutil.copytree(PAGES / "screenshots", folder / "screenshots", dirs_exist_ok=True)
