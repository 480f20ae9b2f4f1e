"""``python -m docs.generate FOLDER`` writes what Sphinx builds the site from."""

from __future__ import annotations

import sys
from pathlib import Path

from .site import sources


def main(folder: Path) -> None:
    """Write the pages to ``folder``."""
    for path, page in sources().items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
