"""A browser without a window, where there is one."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Browser", "find_browser"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_QUIET = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
_ALONE = "--host-resolver-rules=MAP * ~NOTFOUND"
"""Nobody is asked for anything, whoever asks."""


@dataclass(frozen=True)
class Browser:
    """A browser that opens pages.

    Args:
        path: of its program.
        profile: a folder of its own.
    """

    path: str
    profile: Path

    def open(self, page: Path, *options: str) -> str:
        """Open a page; gives what was printed, and said on the console."""
        command = [self.path, "--headless=new", "--no-sandbox", "--disable-gpu", *_QUIET, _ALONE]
        command += [f"--user-data-dir={self.profile}", "--enable-logging=stderr", "--hide-scrollbars"]
        done = subprocess.run(
            [*command, *options, page.resolve().as_uri()], capture_output=True, text=True, timeout=300, check=True
        )
        return done.stdout + done.stderr


def find_browser(profile: Path) -> Browser | None:
    """Chromium or Chrome; None where there is neither."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    return None if found is None else Browser(found, profile)
