"""C that does not compile is said to be the plugin's that brings it, and nobody's where nobody does."""

from __future__ import annotations

import pytest
from tests._support.plugins import accelerator, entry_of, members_of

from uma.errors import ToolchainError
from uma.hookspecs import Implementation, Runtime
from uma.lowering.blame import blaming_sources
from uma.lowering.members import Members

RUNTIME = Runtime(
    driver="npu_driver",
    header="npu.h",
    sources={"npu.h": "", "npu.c": ""},
    implementations={"sim": Implementation("npu_bus", {"npu_sim.c": ""}, state_bytes=8)},
)


def blamed(file: str, members: Members | None, hint: str | None = None) -> ToolchainError:
    with pytest.raises(ToolchainError) as caught, blaming_sources(members):
        raise ToolchainError(f"gcc could not compile {file} (exit status 1)", where="gcc -c", hint=hint)
    return caught.value


@pytest.mark.parametrize("file", ["npu.c", "npu_sim.c"])
def test_a_file_of_a_plugin(file: str) -> None:
    error = blamed(file, members_of(entry_of(accelerator("npu"), runtime=lambda: RUNTIME)))
    assert error.where == f"{file} is a file of plugin uma-npu 1.0, target 'npu': gcc -c"
    assert error.hint == "tell its authors, or look for a newer version: pip install --upgrade uma-npu"


def test_what_the_compiler_says_goes_before_what_plugins_authors_can_do() -> None:
    error = blamed("npu.c", members_of(entry_of(accelerator("npu"), runtime=lambda: RUNTIME)), "make room")
    assert error.hint == "make room"


@pytest.mark.parametrize("file", ["model.c", "xnpu.c", "npu.cc"])
def test_a_file_of_nobodys(file: str) -> None:
    error = blamed(file, members_of(entry_of(accelerator("npu"), runtime=lambda: RUNTIME)))
    assert (error.where, error.hint) == ("gcc -c", None)


def test_an_artifact_that_was_built_elsewhere() -> None:
    assert blamed("npu.c", None).where == "gcc -c"
