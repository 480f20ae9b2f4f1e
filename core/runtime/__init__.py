"""The host side of a compiled model: calling it, in this process, in one of its own, or in an emulator.

`native` needs cffi and numpy and is imported where a model is run.
"""

from pathlib import Path

CSRC = Path(__file__).with_name("csrc")
"""The folder of C that every model shares."""
