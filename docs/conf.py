"""Settings of Sphinx for the site that ``make docs`` builds; the pages come from `docs.generate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pygments.lexers.python import PythonLexer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from uma.version import __version__

project = "UMA"
release = version = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 4
smartquotes = False  # an option is --target, and text in quotes is to be copied
html_theme = "furo"
html_title = f"UMA {release}"
html_copy_source = False
html_show_sphinx = False


def setup(app: Any) -> None:
    """The text form of the graph is a subset of Python."""
    app.add_lexer("relay", PythonLexer)
