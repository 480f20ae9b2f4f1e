"""C compilers and what they make: finding them and libraries, compiling, reading objects, caching.

Plugins of hosts and of libraries find here the machines, compilers, flags and emulators that the core knows.
"""

from ..support.compiler_flags import KNOWN_COMPILERS, X86_EXTENSIONS, refused_flags
from ..support.machines import RUNNERS, Machine, cpu_features, find_runner, same_triple
from ..support.regular_files import write_whole
from .cpu import compiler_features
from .libraries import find_library

__all__ = [
    "KNOWN_COMPILERS",
    "RUNNERS",
    "X86_EXTENSIONS",
    "Machine",
    "compiler_features",
    "cpu_features",
    "find_library",
    "find_runner",
    "refused_flags",
    "same_triple",
    "write_whole",
]
