"""The same asked in a process of its own, where sets and addresses are in another order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

__all__ = ["NoAnswer", "ask_child_process"]

_SECONDS = 120.0


class NoAnswer(Exception):
    """The other process gave no answer; the text says why."""


def ask_child_process(code: str, value: object) -> Any:
    """What Python code prints last, as JSON; what it is given as JSON is its standard input.

    Raises:
        NoAnswer: it printed nothing that could be read, or did not end within two minutes.
    """
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(
            command, input=json.dumps(value), capture_output=True, text=True, env=environment, timeout=_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoAnswer(str(error)) from error
    lines = (done.stdout if done.returncode == 0 else done.stderr).splitlines()
    if done.returncode != 0:
        raise NoAnswer(lines[-1] if lines else f"it ended with {done.returncode}")
    try:
        return json.loads(lines[-1])
    except (ValueError, IndexError) as error:
        raise NoAnswer(f"what it printed is not JSON: {error}") from error
