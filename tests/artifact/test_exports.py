"""`Artifact.export` for build systems: CMake's package is built and found; Arduino's and PlatformIO's libraries are
compiled as these tools do; Zephyr's module and ESP-IDF's component are run through the commands that they document."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests._support import fake_device as fake
from tests._support.cmake import CMAKE, needs_cmake
from tests._support.model_c import network, remembering
from tests._support.program_artifact import metadata_of
from tests._support.scale_artifact import artifact_of

from uma.artifact import Artifact
from uma.artifact.export.systems import SYSTEMS
from uma.contract.devices import Device
from uma.errors import UsageError

ARM = "arm-none-eabi-"
needs_arm = pytest.mark.needs(f"{ARM}g++")
FIRMWARE = ["arduino", "platformio", "zephyr", "esp-idf"]

ARDUINO_H = """\
#pragma once
#include <stdio.h>
struct Port {
    void begin(unsigned long) {}
    operator bool() const { return true; }
    void print(const char *text) { fputs(text, stdout); }
    void print(long value) { printf("%ld", value); }
    void print(double value, int digits) { printf("%.*f", digits, value); }
};
static Port Serial __attribute__((unused));
void setup();
void loop();
"""
"""What the examples use of Arduino's core."""


def changed(path: str, value: Any, files: Mapping[str, bytes] | None = None) -> Artifact:
    """The artifact of `network` with one entry of its metadata replaced, and with more files."""
    contents, record = metadata_of(network())
    record = copy.deepcopy(record)
    *steps, last = path.split(".")
    place: Any = record
    for step in steps:
        place = place[int(step) if step.isdigit() else step]
    place[last] = value
    return artifact_of({**contents, **(files or {})}, record)


@pytest.fixture(scope="module")
def net() -> Artifact:
    """Weights, an arena, and flags that say what its C means."""
    return changed(
        "compile.hosts.0.flags", ["-std=c99", "-O1", "-march=native", "-ffp-contract=off", "-DNEAR=4", "-DFAR"]
    )


@pytest.fixture(scope="module")
def driven() -> Artifact:
    """Two devices, simulated."""
    program = fake.chain("a", "b", name="driven")
    return artifact_of(*metadata_of(program, fake.devices(a=fake.runtime(), b=fake.runtime())))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def numbers(text: str) -> list[str]:
    """The first values of each output, as an example program prints them."""
    return [line.rpartition(":")[2].strip() for line in text.splitlines() if "arena" not in line]


@needs_cmake
@pytest.mark.needs("g++")
def test_a_package_for_cmake_is_built_installed_and_found(net: Artifact, tmp_path: Path) -> None:
    package = net.export("cmake", tmp_path / "package")
    prefix = tmp_path / "prefix"
    run(CMAKE, "-S", package, "-B", tmp_path / "build", f"-DCMAKE_INSTALL_PREFIX={prefix}")
    run(CMAKE, "--build", tmp_path / "build", "--target", "install")
    installed = {str(path.relative_to(prefix)) for path in prefix.rglob("*.*") if path.is_file()}
    assert {"include/net/net.h", "include/net/uma_runtime.h"} <= installed
    assert {Path(name).name for name in installed} >= {"libnet.a", "netConfig.cmake", "netConfigVersion.cmake"}
    shutil.rmtree(tmp_path / "build")
    shutil.move(package / "examples", tmp_path / "examples")
    shutil.rmtree(package)  # what is installed is enough
    run(CMAKE, "-S", tmp_path / "examples", "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run(CMAKE, "--build", tmp_path / "build")
    by_c, by_cxx = (run(tmp_path / "build" / program) for program in ("net_c", "net_cpp"))
    assert numbers(by_c) == numbers(by_cxx) == ["0 0 0 0 0 0"]
    assert by_cxx == "out_0: 0 0 0 0 0 0\n"


@needs_arm
@pytest.mark.parametrize("form", ["arduino", "platformio"])
def test_a_library_is_compiled_and_linked_by_arm_gcc(
    form: str, net: Artifact, driven: Artifact, tmp_path: Path
) -> None:
    """As their builders do: each source by itself, C by gcc and the sketch by g++, then all of it linked."""
    (tmp_path / "Arduino.h").write_text(ARDUINO_H)
    (tmp_path / "main.cpp").write_text('#include "Arduino.h"\nint main() { setup(); loop(); return 0; }\n')
    for artifact in (net, driven):
        library = artifact.export(form, tmp_path / artifact.name)
        folders = [folder for folder in ("src", "include") if (library / folder).is_dir()]
        given = [
            "-mcpu=cortex-m4",
            "-mthumb",
            "-Os",
            "-ffunction-sections",
            "-fdata-sections",
            "-Wall",
            "-Werror",
            "-c",
        ]
        given += [f"-I{library / folder}" for folder in folders]
        if form == "platformio":
            given += json.loads((library / "library.json").read_text())["build"]["flags"]
        objects = []
        for source in sorted((library / "src").iterdir()):
            if source.suffix in (".c", ".S"):
                objects.append(tmp_path / f"{source.name}.o")
                run(f"{ARM}gcc", "-std=gnu11", *given, source, "-o", objects[-1])
        sketch = library / ("examples/run/run.ino" if form == "arduino" else "examples/run/src/main.cpp")
        plain = [] if form == "arduino" else [[]]
        for how in (["-DARDUINO=100", "-include", "Arduino.h", f"-I{tmp_path}"], *plain):
            flags = [*given, "-std=gnu++11", "-fno-exceptions", "-fno-rtti", *how]
            run(f"{ARM}g++", *flags, "-x", "c++", sketch, "-o", tmp_path / "sketch.o")
            if how:
                run(f"{ARM}g++", *flags, tmp_path / "main.cpp", "-o", tmp_path / "main.o")
            image = tmp_path / "image"
            linked = [*([tmp_path / "main.o"] if how else []), tmp_path / "sketch.o", *objects, "-lm", "-o", image]
            # By gcc, as Debian's g++ for Arm has no library of C++, and these need none.
            run(f"{ARM}gcc", "-mcpu=cortex-m4", "-mthumb", "--specs=rdimon.specs", "-Wl,--gc-sections", *linked)
            assert image.stat().st_size > 0


def test_the_sketch_runs_its_devices(driven: Artifact, tmp_path: Path) -> None:
    library = driven.export("arduino", tmp_path / "library")
    (tmp_path / "Arduino.h").write_text(ARDUINO_H)
    (tmp_path / "main.cpp").write_text('#include "Arduino.h"\nint main() { setup(); loop(); return 0; }\n')
    objects = []
    for source in sorted((library / "src").glob("*.c")):
        objects.append(tmp_path / f"{source.name}.o")
        run("gcc", "-std=gnu11", "-Wall", "-Werror", f"-I{library / 'src'}", "-c", source, "-o", objects[-1])
    sketch = library / "examples" / "run" / "run.ino"
    sketch.write_text(sketch.read_text().replace("input_x[driven_INPUT_x_ELEMENTS]", "input_x[] = {1, -2, 3, 4}"))
    included = ["-include", "Arduino.h", f"-I{tmp_path}", f"-I{library / 'src'}"]
    run("g++", "-Wall", "-Werror", *included, "-x", "c++", sketch, tmp_path / "main.cpp", "-x", "none", *objects, "-o",
        tmp_path / "sketch")  # fmt: skip
    assert run(tmp_path / "sketch") == "y: 4 -8 12 16\n"
    sketch.write_text(sketch.read_text().replace("#define DRIVER_BYTES 256", "#define DRIVER_BYTES 1"))
    run("g++", *included, "-x", "c++", sketch, tmp_path / "main.cpp", "-x", "none", *objects, "-o", tmp_path / "sketch")
    assert run(tmp_path / "sketch") == "DRIVER_BYTES is too little for the device a\n"


FRAMEWORKS = """\
cmake_minimum_required(VERSION 3.15)
project(frameworks LANGUAGES C)
# The commands, as Zephyr and ESP-IDF document them.
function(zephyr_include_directories)
  include_directories(${ARGV})
  set_property(GLOBAL PROPERTY headers ${ARGV})
endfunction()
macro(zephyr_library_named name)
  add_library(${name} STATIC)
  set(ZEPHYR_CURRENT_LIBRARY ${name})
endmacro()
macro(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGV})
endmacro()
macro(idf_component_register)
  cmake_parse_arguments(component "" "" "SRCS;INCLUDE_DIRS" ${ARGV})
  if(component_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "not documented: ${component_UNPARSED_ARGUMENTS}")
  endif()
  get_filename_component(name ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  add_library(idf_${name} ${component_SRCS})
  target_include_directories(idf_${name} PUBLIC ${component_INCLUDE_DIRS})
endmacro()
set(CONFIG_UMA_NET y)
add_subdirectory(module/zephyr)
add_subdirectory(component)
get_property(headers GLOBAL PROPERTY headers)
add_executable(zephyr_run module/samples/run/src/main.c)
target_include_directories(zephyr_run PRIVATE ${headers})
target_link_libraries(zephyr_run PRIVATE uma_net m)
add_executable(idf_run component/examples/run/main/main.c app.c)
target_link_libraries(idf_run PRIVATE idf_component m)
"""


@needs_cmake
def test_a_module_for_zephyr_and_a_component_for_esp_idf_build_by_their_commands(net: Artifact, tmp_path: Path) -> None:
    net.export("zephyr", tmp_path / "module")
    net.export("esp-idf", tmp_path / "component")
    (tmp_path / "CMakeLists.txt").write_text(FRAMEWORKS)
    (tmp_path / "app.c").write_text("void app_main(void);\nint main(void) { app_main(); return 0; }\n")
    run(CMAKE, "-S", tmp_path, "-B", tmp_path / "build", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    run(CMAKE, "--build", tmp_path / "build")
    for program in ("zephyr_run", "idf_run"):
        assert run(tmp_path / "build" / program) == "out_0: 0 0 0 0 0 0\n"
    commands = json.loads((tmp_path / "build" / "compile_commands.json").read_text())
    models = [row["command"] for row in commands if row["file"].endswith("/net.c")]
    assert len(models) == 2 and all("-ffp-contract=off -DNEAR=4 -DFAR" in command for command in models)


def test_zephyr_finds_what_it_looks_for(net: Artifact, tmp_path: Path) -> None:
    module = net.export("zephyr", tmp_path / "module")
    assert (module / "zephyr" / "module.yml").read_text() == (
        "name: uma_net\nbuild:\n  cmake: zephyr\n  kconfig: zephyr/Kconfig\nsamples:\n  - samples\n"
    )
    kconfig = (module / "zephyr" / "Kconfig").read_text()
    assert kconfig.startswith('config UMA_NET\n\tbool "The neural network net"\n\tdepends on !BIG_ENDIAN\n')
    assert "CONFIG_UMA_NET=y\n" in (module / "samples" / "run" / "prj.conf").read_text()
    sample = (module / "samples" / "run" / "CMakeLists.txt").read_text()
    assert (
        sample.index("ZEPHYR_EXTRA_MODULES") < sample.index("find_package(Zephyr") < sample.index("target_sources(app")
    )
    assert '- "out_0:"' in (module / "samples" / "run" / "sample.yaml").read_text()


def test_esp_idf_finds_what_it_looks_for(net: Artifact, tmp_path: Path) -> None:
    component = net.export("esp-idf", tmp_path / "component")
    manifest = (component / "idf_component.yml").read_text()
    assert re.fullmatch(r'version: "1\.0\.0"\ndescription: .*\ndependencies:\n  idf: ">=5\.0"\n', manifest)
    project = (component / "examples" / "run" / "CMakeLists.txt").read_text()
    assert project.index("EXTRA_COMPONENT_DIRS") < project.index("project.cmake") < project.index("project(run)")
    assert "void app_main(void)" in (component / "examples" / "run" / "main" / "main.c").read_text()


def test_arduino_and_platformio_find_what_they_look_for(net: Artifact, tmp_path: Path) -> None:
    library = net.export("arduino", tmp_path / "a")
    properties = dict(line.split("=", 1) for line in (library / "library.properties").read_text().splitlines())
    required = {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url", "architectures"}
    assert required <= set(properties) and properties["includes"] == "net.h"
    assert (
        (library / "src" / "net.c")
        .read_text()
        .startswith(
            "#define NEAR 4\n#define FAR 1\n#if defined(__GNUC__) && !defined(__clang__)\n"
            '#pragma GCC optimize("-ffp-contract=off")\n#endif\n'
            "#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n#endif\n"
        )
    )
    manifest = json.loads((net.export("platformio", tmp_path / "p") / "library.json").read_text())
    assert (manifest["name"], manifest["version"], manifest["headers"]) == ("net", "1.0.0", "net.h")
    assert manifest["build"] == {"flags": ["-ffp-contract=off", "-DNEAR=4", "-DFAR"]}
    [example] = manifest["examples"]
    assert all((tmp_path / "p" / example["base"] / file).is_file() for file in example["files"])


def test_names_are_what_the_tools_take(tmp_path: Path) -> None:
    artifact = changed("name", "net")
    files = {name.replace("net", "__A_b__"): content for name, content in artifact.files.items()}
    record = json.loads(json.dumps(artifact.metadata).replace('"net', '"__A_b__'))
    for name in ("Makefile", "CMakeLists.txt"):
        del files[name]
    named = artifact_of(dict(files), {**record, "files": {}})
    properties = (named.export("arduino", tmp_path / "a") / "library.properties").read_text()
    assert properties.startswith("name=A_b\n")
    assert json.loads((named.export("platformio", tmp_path / "p") / "library.json").read_text())["name"] == "A-b"


@pytest.mark.parametrize("form", SYSTEMS)
def test_an_export_is_the_same_each_time_and_says_the_sizes(form: str, tmp_path: Path) -> None:
    artifact = artifact_of(*metadata_of(remembering()))
    first, second = (tree(artifact.export(form, tmp_path / name)) for name in ("first", "second"))
    assert first == second
    assert not any(str(tmp_path).encode() in content for content in first.values())
    told = first["README.md"].decode()
    assert f"| RAM: state | {artifact.state_bytes:,} |\n" in told
    assert f"| RAM: arena | {artifact.arena_bytes:,} |\n" in told
    assert "| input `x` | int32 | 4 | - | - |\n" in told
    assert "RAM: stack" not in told and "Code and stack are as the compiler makes them." in told
    every = b"".join(first.values())
    assert b"metadata.json" not in every and b"digests" not in every


def test_the_readme_lists_quantisation_and_the_sizes_that_the_build_knows(tmp_path: Path) -> None:
    artifact = changed("inputs.0.quantization", {"scale": 0.0078125, "zero_point": -128})
    known = artifact.footprint()
    told = (artifact.export("cmake", tmp_path / "out") / "README.md").read_text()
    name, shape = artifact.record.inputs[0].identifier, ", ".join(map(str, artifact.record.inputs[0].shape))
    assert f"| input `{name}` | {artifact.record.inputs[0].dtype} | {shape} | 0.0078125 | -128 |\n" in told
    assert f"| ROM: code | {known.code_bytes:,} |\n" in told and f"| RAM: stack | {known.stack_bytes:,} |\n" in told


def test_what_a_target_says_stays_in_its_block(tmp_path: Path) -> None:
    artifact = changed("targets", ["c\n```\n# a title"])
    told = (artifact.export("cmake", tmp_path / "out") / "README.md").read_text()
    assert "c?????# a title\n```\n" in told


class TestRefused:
    @pytest.mark.parametrize("form", SYSTEMS)
    def test_several_machines(self, form: str, tmp_path: Path) -> None:
        _, record = metadata_of(network())
        [host] = record["compile"]["hosts"]
        other = {**host, "label": "far", "machine": "aarch64-linux-gnu", "sources": ["far.c"]}
        artifact = changed("compile.hosts", [host, other], {"far.c": b""})
        with pytest.raises(UsageError, match="the model is for several machines, 'c' and 'far': it is no one library"):
            artifact.export(form, tmp_path / "out")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("form", FIRMWARE)
    @pytest.mark.parametrize(
        ("path", "value", "file", "why"),
        [
            ("compile.hosts.0.objects", ["made.o"], "made.o", "a plugin made 'made.o' of it, which is not a source"),
            (
                "compile.libraries",
                [{"name": "blas", "package": None, "symbols": ["f"]}],
                "x.h",
                "it calls the library 'blas', which",
            ),
            ("compile.hosts.0.sources", ["net.c"], "x.h", "its weights are a file, which the program loads"),
            ("notes", [], "uma_uio.h", "a device of it is reached through files of Linux"),
        ],
    )
    def test_what_is_not_c_alone(self, form: str, path: str, value: Any, file: str, why: str, tmp_path: Path) -> None:
        artifact = changed(path, value, {file: b""})
        if "weights" in why:
            record = artifact.metadata
            record["compile"]["profile"] = [name for name in record["compile"]["profile"] if name != "net_weights.S"]
            artifact = artifact_of({n: c for n, c in artifact.files.items() if n != "net_weights.S"}, record)
        with pytest.raises(UsageError, match=f"the model cannot be a package of C: {why}"):
            artifact.export(form, tmp_path / "out")
        assert list(tmp_path.iterdir()) == []

    def test_cmake_takes_these(self, tmp_path: Path) -> None:
        artifact = changed(
            "compile.libraries", [{"name": "blas", "package": None, "symbols": ["f"]}], {"uma_uio.h": b""}
        )
        package = artifact.export("cmake", tmp_path / "out")
        assert "target_link_libraries(net PUBLIC -lblas)" in (package / "CMakeLists.txt").read_text()
        assert not (package / "examples" / "main.cpp").exists()
        assert "LANGUAGES C)" in (package / "examples" / "CMakeLists.txt").read_text()

    def test_flags_that_differ(self, tmp_path: Path) -> None:
        _, record = metadata_of(network())
        [host] = record["compile"]["hosts"]
        other = {**host, "label": "other", "flags": ["-fwrapv"], "sources": ["other.c"]}
        artifact = changed("compile.hosts", [host, other], {"other.c": b""})
        with pytest.raises(UsageError, match="PlatformIO: its sources are compiled with different flags"):
            artifact.export("platformio", tmp_path / "out")
        lines = (artifact.export("esp-idf", tmp_path / "out") / "CMakeLists.txt").read_text()
        assert 'set_source_files_properties(src/other.c PROPERTIES COMPILE_OPTIONS "-fwrapv")' in lines

    def test_weights_of_no_alignment(self, tmp_path: Path) -> None:
        artifact = changed("notes", [], {"net_weights.S": b".incbin 1"})
        with pytest.raises(UsageError, match=r"net_weights\.S does not say how the weights are aligned"):
            artifact.export("zephyr", tmp_path / "out")

    def test_a_device_of_hardware_needs_no_memory(self, tmp_path: Path) -> None:
        program = fake.chain("npu", name="driven")
        device = Device("npu", "fake", "mmio", fake.runtime(), base=0x4000)
        artifact = artifact_of(*metadata_of(program, {"npu": device}))
        sketch = (artifact.export("arduino", tmp_path / "out") / "examples" / "run" / "run.ino").read_text()
        assert "static void *const buses[1] = {NULL};" in sketch and "bus_npu" not in sketch
