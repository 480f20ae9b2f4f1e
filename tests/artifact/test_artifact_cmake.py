"""The CMakeLists.txt of an artifact."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path

import pytest
from tests._support.cmake import CMAKE, needs_cmake
from tests._support.scale_artifact import FILES, METADATA, artifact_of, changed

HELPER = {"helper.c": "int scale_helper(void);\nint scale_helper(void) { return NEAR; }\n"}
WEIGHTS = {
    "scale_weights.S": '.globl scale_weights\nscale_weights:\n.incbin "scale_weights.bin"\n',
}


def cmake(source: Path, build: Path, *options: str) -> str:
    """Configures and builds; what CMake printed."""
    assert CMAKE is not None
    said = ""
    for command in ([CMAKE, "-S", str(source), "-B", str(build), *options], [CMAKE, "--build", str(build)]):
        done = subprocess.run(command, capture_output=True, text=True)
        said += done.stdout + done.stderr
        if done.returncode != 0:
            break
    return said


def another_host(machine: str | None, label: str = "other") -> list[dict[str, object]]:
    first = copy.deepcopy(METADATA["compile"]["hosts"][0])
    first["sources"].append("scale_weights.S")
    flags = ["-O1", "-std=c99", "-DNEAR=4"]
    return [first, {**first, "label": label, "machine": machine, "flags": flags, "sources": ["helper.c"]}]


@needs_cmake
@pytest.mark.needs("g++")
def test_the_example_alone_and_the_library_in_a_project(tmp_path: Path) -> None:
    files = {**FILES, **HELPER, **WEIGHTS}
    saved = artifact_of(files, changed("compile.hosts", another_host(None))).save(tmp_path / "scale")
    said = cmake(saved, tmp_path / "build")
    done = subprocess.run([tmp_path / "build" / "scale_example"], capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"1 2 3 4 "), said
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(firmware C)\nadd_subdirectory(scale)\n"
        "add_executable(firmware scale/main.c)\ntarget_link_libraries(firmware scale)\n"
    )
    said = cmake(tmp_path, tmp_path / "project", "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_COMPILER=clang")
    done = subprocess.run([tmp_path / "project" / "firmware"], capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"1 2 3 4 "), said
    assert not (tmp_path / "project" / "scale" / "scale_example").exists()


@needs_cmake
def test_a_library_for_each_machine(tmp_path: Path) -> None:
    record = changed("compile.hosts", another_host("aarch64-linux-gnu"))
    saved = artifact_of({**FILES, **HELPER, **WEIGHTS}, record).save(tmp_path / "scale")
    said = cmake(saved, tmp_path / "build")
    assert {path.name for path in (tmp_path / "build").glob("*.a")} == {"libscale.a"}, said
    said = cmake(saved, tmp_path / "other", "-Dscale_HOST=other")
    assert {path.name for path in (tmp_path / "other").glob("*.a")} == {"libscale_on_other.a"}, said
    assert "scale_HOST is not a host of the model" in cmake(saved, tmp_path / "none", "-Dscale_HOST=none")


def test_it_names_no_cpu_of_this_machine_and_the_libraries() -> None:
    text = artifact_of(FILES, METADATA).source("CMakeLists.txt")
    assert "native" not in text
    assert "target_compile_options(scale PRIVATE -O3 -Wall -Wextra -Werror)" in text
    assert "target_link_libraries(scale PUBLIC -lm)" in text
    assert "project(scale LANGUAGES C)" in text


def test_bare_machines_have_no_example() -> None:
    hosts = [{**METADATA["compile"]["hosts"][0], "machine": "arm-none-eabi cortex-m0"}]
    assert "add_executable" not in artifact_of(FILES, changed("compile.hosts", hosts)).source("CMakeLists.txt")


def test_that_of_a_plugin_stays() -> None:
    assert artifact_of({**FILES, "CMakeLists.txt": "# mine"}, METADATA).source("CMakeLists.txt") == "# mine"
