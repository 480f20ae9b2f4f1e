"""The tools of this machine that tests need: whether they are installed, and whether compilers have a C library."""

from __future__ import annotations

import functools
import re
import shutil

import pytest

from uma.errors import ToolchainError
from uma.support.machines import Machine
from uma.toolchain.compile import refused_program
from uma.toolchain.discovery import find_compiler

__all__ = ["missing", "skip_without"]

_COMPILER = re.compile(r"(?:(?P<triple>.+)-)?(?:gcc|g\+\+|clang)")


def missing(*tools: str) -> str | None:
    """Return why tests that need some tools cannot run here; None if they can.

    Args:
        tools: names of programs. Of compilers, gcc and clang, each must make a program with the C library.
    """
    for tool in tools:
        if (path := shutil.which(tool)) is None:
            return f"{tool} is not installed"
        if name := _COMPILER.fullmatch(tool):
            reason = _unusable(path, tool.replace("g++", "gcc"), name["triple"])
            if reason is not None:
                return reason
    return None


def skip_without(*tools: str) -> None:
    """Skip the test that calls this if one of the tools is missing."""
    if (reason := missing(*tools)) is not None:
        pytest.skip(reason)


@functools.cache
def _unusable(path: str, compiler: str, triple: str | None) -> str | None:
    del path  # of this one: a test may have another one on PATH
    try:
        machine = None if triple is None else Machine.parse(triple if "linux" in triple else f"{triple} generic")
        said = refused_program(find_compiler(compiler, machine), machine)
    except ToolchainError as error:
        return error.what
    return None if said is None else f"{compiler} makes no program with the C library: {said.splitlines()[-1][:200]}"
