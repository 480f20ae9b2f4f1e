"""Artifacts: what they say, that they run, and that what is saved is whole, the same each time, and safe to load."""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uma.runtime
from uma import json_record
from uma.artifact import Artifact, ArtifactRecord, CallTime, compiled, load, schema
from uma.artifact.folder import file_table
from uma.artifact.record import METADATA_FILE, SCHEMA_VERSION
from uma.artifact.soundness import problem
from uma.errors import InternalError, ModelError, ToolchainError, UmaError, UsageError
from uma.toolchain.cache import Cache

RUNTIME_H = (Path(uma.runtime.__file__).parent / "csrc" / "uma_runtime.h").read_text()

SCALE_H = """#include "uma_runtime.h"
const uma_model *scale_model(void);
"""
SCALE_C = """#include "scale.h"
__asm__(".section .rodata\\n.balign 16\\nscale_weights: .incbin \\"scale_weights.bin\\"\\n.text");
extern const int8_t scale_weights[];
static const int32_t shape[] = {4};
static const uma_tensor_info in = {"x:0", "int8", 1, shape, 4, 0.5f, 3}, out = {"y:0", "int32", 1, shape, 16, 0.0f, 0};
static uma_status init(void *context, void *arena, size_t arena_bytes, void *state, size_t state_bytes,
                       struct uma_device *const *devices) {
    (void)state, (void)state_bytes, (void)devices;
    *(int32_t **)context = (int32_t *)arena;
    return arena_bytes < 16 ? UMA_ERR_ARENA : UMA_OK;
}
static uma_status invoke(void *context, const void *const *inputs, void *const *outputs) {
    int32_t *arena = *(int32_t **)context;
    int i;
    for (i = 0; i < 4; i++) arena[i] = ((const int8_t *)inputs[0])[i] * scale_weights[i];
    for (i = 0; i < 4; i++) ((int32_t *)outputs[0])[i] = arena[i];
    return UMA_OK;
}
static const uma_model model = {
    UMA_ABI_VERSION, "scale", 16, 16, 0, 1, sizeof(int32_t *), 1, 1, 0, 0, &in, &out, 0, 0, 0, init, 0, invoke, 0, 0
};
const uma_model *scale_model(void) { return &model; }
"""
ENTRY_C = """#include "scale.h"
const uma_model *uma_model_entry(void);
const uma_model *uma_model_entry(void) { return scale_model(); }
"""
PROFILE_C = """#include "scale_entry.c"
#include "scale.c"
const uint64_t *uma_profile_ns(size_t *steps);
static uint64_t ns[STEPS];
const uint64_t *uma_profile_ns(size_t *steps) {
    int i;
    for (i = 0; i < STEPS; i++) ns[i] += 1000 * (i + 1);
    *steps = STEPS;
    return ns;
}
"""
MAIN_C = """#include "scale.h"
#include <stdio.h>
int main(void) {
    int32_t arena[4], y[4], i;
    void *context;
    const int8_t x[4] = {1, 1, 1, 1};
    const void *inputs[] = {x};
    void *outputs[] = {y};
    const uma_model *model = scale_model();
    if (model->init(&context, arena, sizeof arena, 0, 0, 0) || model->invoke(&context, inputs, outputs)) return 1;
    for (i = 0; i < 4; i++) printf("%d ", (int)y[i]);
    return 0;
}
"""
FILES: dict[str, str | bytes] = {
    "scale.c": SCALE_C,
    "scale.h": SCALE_H,
    "scale_entry.c": ENTRY_C,
    "scale_profile.c": PROFILE_C.replace("STEPS", "1"),
    "uma_runtime.h": RUNTIME_H,
    "scale_weights.bin": bytes([1, 2, 3, 4]),
    "main.c": MAIN_C,
}
PLACED: dict[str, Any] = {"shape": [4], "first_step": 0, "last_step": 0}
METADATA: dict[str, Any] = {
    "schema_version": 6,
    "name": "scale",
    "uma_version": "0.1.0",
    "plugins": {"some-plugin": "0.1.0"},
    "targets": ["c -opt=3"],
    "notes": ["no host was given"],
    "inputs": [
        {
            "name": "x:0",
            "identifier": "x_0",
            "shape": [4],
            "dtype": "int8",
            "quantization": {"scale": 0.5, "zero_point": 3},
        }
    ],
    "outputs": [{"name": "y:0", "identifier": "y_0", "shape": [4], "dtype": "int32", "quantization": None}],
    "arena_bytes": 16,
    "constant_bytes": 4,
    "state": None,
    "buffers": [
        {**PLACED, "name": "x", "role": "input", "dtype": "int8", "pool": None, "offset": None, "bytes": 4},
        {**PLACED, "name": "t0", "role": "intermediate", "dtype": "int32", "pool": "ram", "offset": 0, "bytes": 16},
        {**PLACED, "name": "c0", "role": "constant", "dtype": "int8", "pool": "weights", "offset": 0, "bytes": 4},
        {**PLACED, "name": "y", "role": "output", "dtype": "int32", "pool": None, "offset": None, "bytes": 16},
    ],
    "devices": [],
    "calls": [
        {
            "kernel": "scale_mul_0",
            "layers": ["block/mul", "Größe\n"],
            "host": "c",
            "device": None,
            "parts": [],
            "arguments": ["x", "y", "c0", "t0"],
            "op": "multiply",
            "shape": [4],
            "macs": 0,
            "constant_bytes": 4,
        }
    ],
    "compile": {
        "hosts": [
            {
                "label": "c",
                "compiler": None,
                "flags": ["-O3", "-march=native", "-std=c99", "-Wall", "-Wextra", "-Werror"],
                "machine": None,
                "runner": None,
                "sources": ["scale.c"],
                "objects": [],
                "brought": [],
            }
        ],
        "libraries": [{"name": "m", "package": None, "symbols": ["cos"]}],
        "library_entry": "scale_entry.c",
        "profile": ["scale_profile.c"],
        "example": "main.c",
    },
}
STATE: dict[str, Any] = {"bytes": 16, "model": "0" * 64, "tensors": METADATA["outputs"]}
X = np.array([1, -2, 3, 100], np.int8)
Y = np.array([1, -4, 9, 400], np.int32)


def changed(path: str, value: Any) -> dict[str, Any]:
    """METADATA with one entry replaced, by its path: ``inputs.0.name``."""
    record: Any = copy.deepcopy(METADATA)
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place = record
    for step in steps:
        place = place[step]
    place[last] = value
    return dict(record)


def artifact_of(files: dict[str, str | bytes], metadata: dict[str, Any]) -> Artifact:
    """The artifact of files and what ``metadata.json`` says of them, but for ``files``."""
    return Artifact(files, json_record.read(ArtifactRecord, {**metadata, "files": {}}))


@pytest.fixture(scope="module", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache") / "uma"
        patch.setenv("UMA_CACHE_DIR", str(folder))
        patch.delenv("CC", raising=False)
        yield folder


@pytest.fixture
def artifact() -> Artifact:
    return artifact_of(FILES, METADATA)


@pytest.fixture
def saved(artifact: Artifact, tmp_path: Path) -> Path:
    return artifact.save(tmp_path / "scale")


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the metadata of a saved artifact."""
    path = folder / METADATA_FILE
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


class TestDescription:
    def test_facts(self, artifact: Artifact) -> None:
        assert (artifact.name, artifact.arena_bytes, artifact.constant_bytes) == ("scale", 16, 4)
        assert repr(artifact) == "<Artifact scale: c -opt=3>"
        assert artifact.metadata["inputs"][0]["quantization"] == {"scale": 0.5, "zero_point": 3}
        assert artifact.metadata["calls"] == METADATA["calls"]
        assert list(artifact.files) == sorted([*FILES, "CMakeLists.txt", "Makefile"])
        assert artifact.metadata["files"]["scale_weights.bin"] == {
            "bytes": 4,
            "sha256": hashlib.sha256(b"\1\2\3\4").hexdigest(),
        }

    def test_immutable(self, artifact: Artifact) -> None:
        artifact.metadata["name"] = "other"
        assert artifact.name == artifact.metadata["name"] == "scale"
        with pytest.raises(TypeError):
            artifact.files["scale.c"] = b""  # type: ignore[index]

    def test_source(self, artifact: Artifact) -> None:
        assert artifact.source("scale.h") == SCALE_H
        with pytest.raises(UsageError, match=r"has no file 'scale\.cc'") as error:
            artifact.source("scale.cc")
        assert "it has CMakeLists.txt, Makefile, main.c, scale.c" in str(error.value)
        binary = artifact_of({**FILES, "scale_weights.bin": b"\xff"}, METADATA)
        with pytest.raises(UsageError, match=r"'scale_weights\.bin' is not text"):
            binary.source("scale_weights.bin")

    def test_the_record_is_what_the_metadata_says(self, artifact: Artifact) -> None:
        call, buffers = artifact.record.calls[0], {one.name: one for one in artifact.record.buffers}
        assert (call.op, call.shape, call.macs, call.constant_bytes) == ("multiply", (4,), 0, 4)
        assert [buffers[name].role for name in call.arguments] == ["input", "output", "constant", "intermediate"]
        assert json_record.plain(artifact.record) == artifact.metadata
        assert json_record.read(ArtifactRecord, artifact.metadata) == artifact.record

    def test_the_schema_is_the_callers_own(self) -> None:
        assert schema()["properties"]["schema_version"]["const"] == SCHEMA_VERSION
        schema()["properties"].clear()
        assert set(schema()["required"]) == set(schema()["properties"]) == {*METADATA, "files"}


class TestUnsound:
    @pytest.mark.parametrize(
        ("path", "value", "reason"),
        [
            ("schema_version", 3, "schema_version is 3, expected 6"),
            ("name", "a-b", "name is 'a-b', which does not match"),
            ("name", "a\n", "name is 'a\\n', which does not match"),
            ("plugins", {"x": "1;2"}, "plugins.x is '1;2'"),
            ("targets", [], "targets has 0 items"),
            ("inputs.0.dtype", "float16", "inputs[0].dtype is 'float16', expected one of bool, int8"),
            ("inputs.0.shape", [-1], "inputs[0].shape[0] is -1, expected at least 0"),
            ("inputs.0.extra", 1, "inputs[0] has an unknown entry 'extra'"),
            ("inputs.0.quantization", {"scale": 1}, "inputs[0].quantization lacks 'zero_point'"),
            ("outputs.0.name", "\ud800", "outputs[0].name is '\\ud800', expected string"),
            ("inputs", [METADATA["inputs"][0]] * 2, "inputs have one name twice"),
            (
                "outputs",
                [METADATA["outputs"][0], {**METADATA["outputs"][0], "name": "z"}],
                "outputs have one identifier",
            ),
            ("arena_bytes", 1.0, "arena_bytes is 1.0, expected integer"),
            ("arena_bytes", True, "arena_bytes is True, expected integer"),
            ("arena_bytes", 1 << 99, "arena_bytes is a number of more than 64 bits, expected at most"),
            ("state", {"bytes": 4, "tensors": []}, "state lacks 'model'"),
            ("state", {**STATE, "model": "0" * 63}, "state.model is '000"),
            ("state", {**STATE, "tensors": STATE["tensors"] * 2}, "states have one name twice"),
            ("state", 4, "state is 4, expected object or null"),
            ("buffers.1.name", "x", "buffers have one name twice"),
            ("buffers.1.offset", 1, "buffer 't0' reaches beyond its memory 'ram', which has 16 bytes"),
            ("buffers.2.bytes", 5, "buffer 'c0' reaches beyond its memory 'weights', which has 4 bytes"),
            ("buffers.1.pool", "npu.scratch", "beyond its memory 'npu.scratch', which has 0 bytes"),
            ("buffers.1.role", "state", "buffer 't0' reaches beyond its memory 'ram', which has 0 bytes"),
            ("buffers.1.pool", None, "buffer 't0' has only one of pool and offset"),
            ("buffers.1.last_step", 1, "buffer 't0' is held from step 0 to step 1"),
            ("buffers.1.first_step", 1, "buffer 't0' is held from step 1 to step 0"),
            ("buffers.1.role", "scratch", "buffers[1].role is 'scratch', expected one of input, output, state"),
            ("calls.0.arguments", ["x", "z"], "a call is given 'z', which is not among the buffers"),
            ("calls.0.macs", -1, "calls[0].macs is -1, expected at least 0"),
            ("calls.0", {"kernel": "k"}, "calls[0] lacks 'layers'"),
            ("compile.hosts.0.compiler", "/bin/gcc", "host 'c' has the compiler '/bin/gcc', which is no known name"),
            (
                "compile.hosts.0.flags",
                ["-O3", "-fplugin=x"],
                "host 'c' has the flag '-fplugin=x', which is not allowed",
            ),
            ("compile.libraries.0.name", "-x", "compile.libraries[0].name is '-x', which does not match"),
            ("compile.libraries.0.name", "a/b", "compile.libraries[0].name is 'a/b', which does not match"),
            ("compile.libraries.0.package", "a b", "compile.libraries[0].package is 'a b', which does not match"),
            ("compile.libraries.0.symbols", ["f;"], "compile.libraries[0].symbols[0] is 'f;', which does not match"),
            ("compile.hosts.0.machine", "/bin/sh", "host 'c': '/bin/sh' names no machine"),
            ("compile.hosts.0.machine", "armeb-none-eabi cortex-m3", "host 'c': 'armeb-none-eabi' is a machine that"),
            ("compile.hosts.0.runner", "qemu-arm", "host 'c': 'qemu-arm' is for another machine, and none is named"),
            ("compile.hosts.0.sources", ["../x.c"], "compile.hosts[0].sources[0] is '../x.c', which does not match"),
            ("compile.hosts.0.sources", ["x.c"], "compile names 'x.c', which is not among the files"),
            ("compile.hosts.0.sources", ["main.c"], "compile names one file twice"),
            ("compile.hosts", [], "compile.hosts has 0 items"),
            ("compile.hosts", [METADATA["compile"]["hosts"][0]] * 2, "compile names one file twice"),
            ("calls.0.host", "d", "a call is for the host 'd', which is not among the hosts"),
            ("compile.profile", [], "compile.profile has 0 items"),
            ("compile.profile", ["y.c"], "compile names 'y.c', which is not among the files"),
            ("compile.profile", ["main.c", "main.c"], "compile names one file twice"),
        ],
    )
    def test_metadata(self, path: str, value: Any, reason: str) -> None:
        table = {name: json_record.plain(row) for name, row in file_table(dict.fromkeys(FILES, b"")).items()}
        found = problem({**changed(path, value), "files": table})
        assert found is not None
        assert reason in found

    def test_what_is_made_is_checked(self) -> None:
        with pytest.raises(InternalError, match=r"the artifact is not sound: targets has 0 items"):
            artifact_of(FILES, changed("targets", []))

    @pytest.mark.parametrize("name", ["../x", "/x", ".x", "-x", "a b", "", METADATA_FILE, "MAIN.c", "makefile"])
    def test_file_names(self, name: str) -> None:
        with pytest.raises(InternalError, match="the artifact is not sound"):
            artifact_of({**FILES, name: ""}, METADATA)

    @pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"bytes"])
    def test_what_json_cannot_say(self, value: Any) -> None:
        with pytest.raises(InternalError, match="cannot be written down"):
            artifact_of(FILES, changed("name", value))

    def test_names_without_end(self) -> None:
        with pytest.raises(ModelError, match="take more than 33554432 bytes"):
            artifact_of(FILES, changed("calls.0.layers", ["x" * (1 << 20)] * 32))

    def test_text_that_is_not_unicode(self) -> None:
        with pytest.raises(InternalError, match="cannot be written down"):
            artifact_of({**FILES, "main.c": "\ud800"}, METADATA)


class TestRunning:
    def test_run(self, artifact: Artifact) -> None:
        for inputs in (X, {"x:0": X}):
            result = artifact.run(inputs)
            assert list(result) == ["y:0"]
            np.testing.assert_array_equal(result["y:0"], Y, strict=True)

    def test_wrong_input(self, artifact: Artifact) -> None:
        with pytest.raises(ModelError, match=r"input 'x:0' is int32\[4\], expected int8\[4\]"):
            artifact.run(X.astype(np.int32))

    def test_sessions(self, artifact: Artifact) -> None:
        one, two = artifact.session(), artifact.session()
        one.inputs["x:0"][...] = X
        two.inputs["x:0"][...] = 1
        one.invoke()
        two.invoke()
        np.testing.assert_array_equal(one.outputs["y:0"], Y)
        np.testing.assert_array_equal(two.outputs["y:0"], [1, 2, 3, 4])

    def test_threads_take_turns(self, artifact: Artifact) -> None:
        right: list[bool] = []

        def work(value: int) -> None:
            for _ in range(50):
                right.append(
                    artifact.run(np.full(4, value, np.int8))["y:0"].tolist() == [value, 2 * value, 3 * value, 4 * value]
                )

        threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert right == [True] * 200

    def test_code_bytes(self, artifact: Artifact) -> None:
        assert 50 < artifact.code_bytes < 5000
        more = SCALE_C + "int scale_more(int x);\nint scale_more(int x) { return x * 7 + (x >> 3); }\n"
        assert artifact_of({**FILES, "scale.c": more}, METADATA).code_bytes > artifact.code_bytes

    def test_library_is_made_once_for_all_equal_artifacts(
        self, artifact: Artifact, saved: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        artifact.run(X)
        monkeypatch.setattr(compiled, "compile_shared", None)
        np.testing.assert_array_equal(load(saved).run(X)["y:0"], Y)

    def test_library_is_made_again_for_another_cpu_or_compiler(
        self, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = artifact._compiled.library()
        for name in ("gcc", "clang"):
            if shutil.which(name) is None:
                pytest.skip(f"{name} is not installed")
            other = artifact_of(FILES, changed("compile.hosts.0.compiler", name))
            assert other._compiled.library() != first
            np.testing.assert_array_equal(other.run(X)["y:0"], Y)
        monkeypatch.setattr("uma.toolchain.cache.host_cpu_id", lambda: "another")
        assert artifact._compiled.library() != first

    @pytest.mark.parametrize("use", [lambda made: made.code_bytes, lambda made: made.session()])
    def test_a_library_that_is_none_is_made_again(
        self, use: Callable[[Artifact], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As where the disk was full when a compiler wrote it, which did not say so."""
        monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "cache"))
        artifact = artifact_of(FILES, METADATA)
        with monkeypatch.context() as patch:
            patch.setattr(compiled, "compile_shared", lambda parts, files, output, **_: output.write_bytes(b"x"))
            with pytest.raises(ToolchainError):
                use(artifact)
        use(artifact)

    def test_profile(self, artifact: Artifact) -> None:
        profile = artifact.profile(X, repeat=3)
        assert profile.calls == (CallTime("scale_mul_0", ("block/mul", "Größe\n"), 1000.0, "c"),)
        np.testing.assert_array_equal(profile.outputs["y:0"], Y)
        np.testing.assert_array_equal(artifact.run(X)["y:0"], Y)

    def test_profile_of_no_runs(self, artifact: Artifact) -> None:
        with pytest.raises(UsageError, match="0 runs cannot be measured"):
            artifact.profile(X, repeat=0)

    def test_profile_of_other_calls(self) -> None:
        other = artifact_of({**FILES, "scale_profile.c": PROFILE_C.replace("STEPS", "2")}, METADATA)
        with pytest.raises(ModelError, match="the model has 2 steps, its metadata says 1 calls"):
            other.profile(X)

    def test_profile_without_a_clock(self) -> None:
        other = artifact_of(FILES, changed("compile.profile", ["scale.c", "scale_entry.c"]))
        with pytest.raises(ToolchainError, match="the library does not measure its steps"):
            other.profile(X)

    def test_compiler_error(self) -> None:
        broken = artifact_of({**FILES, "scale.c": "#error no\n"}, METADATA)
        with pytest.raises(ToolchainError, match=r"could not compile scale\.c"):
            broken.run(X)

    def test_sources_of_another_arena(self) -> None:
        with pytest.raises(ModelError, match="needs an arena of 16 bytes, its metadata says 17"):
            artifact_of(FILES, changed("arena_bytes", 17)).run(X)

    def test_sources_of_another_interface(self) -> None:
        with pytest.raises(ModelError, match=r"the library has the inputs \(int8\[4\]\), expected \(int8\[5\]\)"):
            artifact_of(FILES, changed("inputs.0.shape", [5])).run(X)

    def test_other_states(self) -> None:
        with pytest.raises(ModelError, match=r"the library has the states \(\), expected \(int32\[4\]\)"):
            artifact_of(FILES, changed("state", STATE)).run(X)


class TestSaving:
    def test_round_trip(self, artifact: Artifact, saved: Path) -> None:
        assert saved.is_dir()
        assert sorted(os.listdir(saved)) == sorted([*FILES, "CMakeLists.txt", "Makefile", METADATA_FILE])
        again = load(saved)
        assert again.files == artifact.files
        assert again.metadata == artifact.metadata
        np.testing.assert_array_equal(again.run(X)["y:0"], Y)
        other = again.save(saved.parent / "other")
        for name in os.listdir(saved):
            assert (saved / name).read_bytes() == (other / name).read_bytes()

    def test_same_input_same_bytes(self, tmp_path: Path) -> None:
        reverse = {key: METADATA[key] for key in reversed(METADATA)}
        one = artifact_of(FILES, METADATA).save(tmp_path / "one")
        two = artifact_of({key: FILES[key] for key in reversed(FILES)}, reverse).save(tmp_path / "two")
        for name in os.listdir(one):
            assert (one / name).read_bytes() == (two / name).read_bytes()
        text = (one / METADATA_FILE).read_text()
        assert str(tmp_path) not in text
        assert sys.executable not in text

    def test_makefile(self, saved: Path) -> None:
        make = shutil.which("make")
        if make is None:
            pytest.skip("make is not installed")
        text = (saved / "Makefile").read_text()
        assert "native" not in text
        assert "-O3 -std=c99" in text
        subprocess.run([make, "-s"], cwd=saved, check=True, timeout=60)
        result = subprocess.run([saved / "scale_example"], capture_output=True, check=True, timeout=60)
        assert result.stdout == b"1 2 3 4 "
        assert load(saved).name == "scale"  # what make left there does not matter
        subprocess.run([make, "-s", "clean"], cwd=saved, check=True, timeout=60)
        assert sorted(os.listdir(saved)) == sorted([*FILES, "CMakeLists.txt", "Makefile", METADATA_FILE])

    @pytest.mark.parametrize(("compiler", "line"), [("clang-14", "CC = clang-14\n"), ("ziglang", ""), (None, "")])
    def test_makefile_names_the_compiler(self, compiler: str | None, line: str) -> None:
        text = artifact_of(FILES, changed("compile.hosts.0.compiler", compiler)).source("Makefile")
        assert text.splitlines(keepends=True)[1].startswith(line or "CFLAGS")

    @pytest.mark.parametrize(
        ("machine", "compiler", "lines"),
        [
            ("aarch64-linux-gnu", "clang", ["CC = clang --target=aarch64-linux-gnu"]),
            ("aarch64-linux-gnu", None, ["CC = aarch64-linux-gnu-gcc", "AR = aarch64-linux-gnu-ar"]),
            ("aarch64-linux-gnu", "ziglang", []),
            ("arm-none-eabi cortex-m0", "arm-none-eabi-gcc-12", ["CC = arm-none-eabi-gcc-12", "AR = arm-none-eabi-ar"]),
        ],
    )
    def test_makefile_for_another_machine(self, machine: str, compiler: str | None, lines: list[str]) -> None:
        hosts = [{**METADATA["compile"]["hosts"][0], "machine": machine, "compiler": compiler}]
        text = artifact_of(FILES, changed("compile.hosts", hosts)).source("Makefile").splitlines()
        assert text[1 : 2 + len(lines)] == [*lines, next(line for line in text if line.startswith("CFLAGS = "))]
        assert ("all: libscale.a" if "none" in machine else "all: libscale.a scale_example") in text

    def test_makes_parents(self, artifact: Artifact, tmp_path: Path) -> None:
        folder = artifact.save(tmp_path / "a" / "b" / "c")
        assert load(folder).name == "scale"
        assert os.listdir(tmp_path / "a" / "b") == ["c"]

    def test_permissions_are_the_users_usual_ones(self, saved: Path, tmp_path: Path) -> None:
        usual = tmp_path / "usual"
        usual.mkdir()
        assert saved.stat().st_mode == usual.stat().st_mode

    def test_into_an_empty_folder(self, artifact: Artifact, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        assert load(artifact.save(tmp_path / "empty")).name == "scale"

    def test_through_a_link(self, artifact: Artifact, saved: Path) -> None:
        link = saved.parent / "link"
        link.symlink_to(saved)
        assert artifact.save(link) == saved.resolve()
        assert link.is_symlink()
        assert load(link).name == "scale"

    def test_replaces_an_artifact(self, saved: Path) -> None:
        artifact_of({**FILES, "extra.h": "/* */"}, changed("targets", ["c"])).save(saved)
        assert load(saved).metadata["targets"] == ["c"]
        artifact_of(FILES, METADATA).save(saved)
        assert not (saved / "extra.h").exists()
        assert os.listdir(saved.parent) == [saved.name]

    def test_replaces_nothing_else(self, artifact: Artifact, tmp_path: Path) -> None:
        (tmp_path / "thesis").mkdir()
        (tmp_path / "thesis" / "chapter1.tex").write_text("precious")
        with pytest.raises(UsageError, match="not an artifact that may be replaced: there is no artifact at"):
            artifact.save(tmp_path / "thesis")
        (tmp_path / "file").write_text("precious")
        with pytest.raises(UsageError, match="not an artifact that may be replaced"):
            artifact.save(tmp_path / "file")
        assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "precious"
        assert (tmp_path / "file").read_text() == "precious"
        assert len(os.listdir(tmp_path)) == 2

    def test_replaces_no_artifact_that_was_worked_on(self, artifact: Artifact, saved: Path) -> None:
        (saved / "main.c").write_text(MAIN_C.replace("printf", "puts"))
        with pytest.raises(UsageError, match=r"may be replaced: .* has .* bytes, expected"):
            artifact.save(saved)
        (saved / "main.c").write_text(MAIN_C)
        (saved / "notes.txt").touch()
        with pytest.raises(UsageError, match=r"files of another origin, 'notes\.txt'") as error:
            artifact.save(saved)
        assert "move them away" in str(error.value)
        (saved / "more.txt").touch()
        with pytest.raises(UsageError, match=r"'more\.txt' and 1 more"):
            artifact.save(saved)
        assert (saved / "notes.txt").exists()

    @pytest.mark.parametrize("path", ["file/below", "x" * 300, "nul\0"])
    def test_impossible_place(self, artifact: Artifact, tmp_path: Path, path: str) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(UsageError, match="cannot write the artifact") as error:
            artifact.save(f"{tmp_path}/new/{path}" if "/" not in path else f"{tmp_path}/{path}")
        assert error.value.where is not None
        assert os.listdir(tmp_path) == ["file"]

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_folder_that_cannot_be_written(self, artifact: Artifact, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(UsageError, match="cannot write the artifact: Permission denied"):
            artifact.save(tmp_path / "scale")

    def test_full_disk_leaves_nothing(
        self, artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = Path.write_bytes

        def full(self: Path, data: bytes) -> int:
            if self.name == "scale_entry.c":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))
            return write(self, data)

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(UsageError, match="cannot write the artifact: No space left on device") as error:
            artifact.save(tmp_path / "a" / "scale")
        assert error.value.where == str(tmp_path / "a" / "scale")
        assert os.listdir(tmp_path) == []

    def test_interruption_leaves_nothing(
        self, artifact: Artifact, saved: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(*arguments: Any, **options: Any) -> int:
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "write_text", interrupt)
        with pytest.raises(KeyboardInterrupt):
            artifact.save(saved)
        assert os.listdir(saved.parent) == [saved.name]
        assert load(saved).files == artifact.files

    def test_failing_replacement_brings_the_old_one_back(
        self, artifact: Artifact, saved: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rename, calls = os.rename, []
        monkeypatch.setattr("uma.runtime.replace._exchange", lambda *_: False)

        def second_fails(source: Path, target: Path) -> None:
            calls.append(target)
            if len(calls) == 2:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            rename(source, target)

        monkeypatch.setattr(os, "rename", second_fails)
        with pytest.raises(UsageError, match="cannot write the artifact: Input/output error"):
            artifact_of(FILES, changed("targets", ["other"])).save(saved)
        assert load(saved).files == artifact.files
        assert os.listdir(saved.parent) == [saved.name]

    def test_several_save_to_one_folder(self, artifact: Artifact, saved: Path) -> None:
        other = artifact_of(FILES, changed("targets", ["other"]))
        failed = []

        def save(one: Artifact) -> None:
            try:
                for _ in range(20):
                    one.save(saved)
            except UmaError as error:
                failed.append(error)

        threads = [threading.Thread(target=save, args=(one,)) for one in (artifact, other, artifact)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert load(saved).metadata in (artifact.metadata, other.metadata)
        assert os.listdir(saved.parent) == [saved.name]


class TestLoading:
    @pytest.mark.parametrize("path", ["none", "file", "folder", "nul\0"])
    def test_no_artifact(self, tmp_path: Path, path: str) -> None:
        (tmp_path / "file").touch()
        (tmp_path / "folder").mkdir()
        with pytest.raises(UsageError, match="there is no artifact at"):
            load(tmp_path / path)

    def test_a_folder_that_cannot_be_looked_into(self, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "lstat", refuse)
        with pytest.raises(UsageError, match="the artifact cannot be read: Permission denied"):
            load(saved)

    def test_runs_nothing(self, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(subprocess, "Popen", None)
        load(saved)

    def test_digest(self, saved: Path) -> None:
        (saved / "main.c").write_text(MAIN_C.replace("1", "2"))
        with pytest.raises(ModelError, match="the file was changed or damaged") as error:
            load(saved)
        assert error.value.where == str(saved / "main.c")

    def test_size_is_checked_before_reading(self, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        os.truncate(saved / "scale_weights.bin", 1 << 40)
        with pytest.raises(ModelError, match="has 1099511627776 bytes, expected 4"):
            load(saved)

    def test_size_of_the_metadata(self, saved: Path) -> None:
        os.truncate(saved / METADATA_FILE, 1 << 40)
        with pytest.raises(ModelError, match="has 1099511627776 bytes, at most 33554432 are allowed"):
            load(saved)

    def test_missing_file(self, saved: Path) -> None:
        (saved / "scale.h").unlink()
        with pytest.raises(ModelError, match="cannot be read: No such file") as error:
            load(saved)
        assert error.value.where == str(saved / "scale.h")

    @pytest.mark.parametrize("name", ["main.c", METADATA_FILE])
    def test_links_are_not_followed(self, saved: Path, name: str) -> None:
        (saved / name).rename(saved.parent / "elsewhere")
        (saved / name).symlink_to(saved.parent / "elsewhere")
        with pytest.raises(ModelError, match="cannot be read"):
            load(saved)

    @pytest.mark.parametrize(("make", "what"), [(os.mkdir, "Is a directory"), (os.mkfifo, "it is no plain file")])
    def test_what_is_not_a_file(self, saved: Path, make: Callable[[Path], None], what: str) -> None:
        (saved / "main.c").unlink()
        make(saved / "main.c")
        with pytest.raises(ModelError, match=f"a file of the artifact cannot be read: {what}"):
            load(saved)

    @pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", ".", "", "a\0b", "x\n"])
    def test_names_that_escape(self, saved: Path, name: str) -> None:
        rewrite(saved, lambda record: record["files"].update({name: {"bytes": 1, "sha256": "0" * 64}}))
        with pytest.raises(ModelError, match="a name in files is"):
            load(saved)

    def test_two_names_of_one_file(self, saved: Path) -> None:
        rewrite(saved, lambda record: record["files"].update({"MAIN.C": {"bytes": 1, "sha256": "0" * 64}}))
        with pytest.raises(ModelError, match=r"files has 'MAIN\.C', a name that is not allowed or there twice"):
            load(saved)

    def test_flags(self, saved: Path) -> None:
        rewrite(saved, lambda record: record["compile"]["hosts"][0]["flags"].append("-fplugin=evil.so"))
        with pytest.raises(ModelError, match=r"-fplugin=evil\.so"):
            load(saved)

    @pytest.mark.parametrize(("version", "age", "remedy"), [(6, "a newer", "upgrade"), (4, "an older", "build")])
    def test_another_version(self, saved: Path, version: int, age: str, remedy: str) -> None:
        rewrite(saved, lambda record: record.update(schema_version=version, other_things=[]))
        with pytest.raises(ModelError, match=f"made by {age} version of UMA") as error:
            load(saved)
        assert remedy in str(error.value)

    @pytest.mark.parametrize(
        "text",
        [
            b"",
            b"{",
            b"[]",
            b"null",
            b"1",
            b"\xff",
            b'{"a": 1, "a": 2}',
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"9" * 5000,
            b"NaN",
        ],
    )
    def test_what_is_not_metadata(self, saved: Path, text: bytes) -> None:
        (saved / METADATA_FILE).write_bytes(text)
        with pytest.raises(ModelError, match=r"metadata is not JSON|artifact is not sound"):
            load(saved)

    def test_fuzzed_bytes(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        folder = artifact_of(FILES, METADATA).save(tmp_path_factory.mktemp("fuzz") / "scale")
        good = (folder / METADATA_FILE).read_bytes()

        @given(st.integers(0, len(good) - 1), st.integers(0, len(good)), st.binary(max_size=8))
        def check(start: int, length: int, patch: bytes) -> None:
            (folder / METADATA_FILE).write_bytes(good[:start] + patch + good[start + length :])
            loads_or_says_why(folder)

        check()

    def test_fuzzed_values(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        folder = artifact_of(FILES, METADATA).save(tmp_path_factory.mktemp("fuzz") / "scale")
        good = json.loads((folder / METADATA_FILE).read_text())
        values = st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text(max_size=5)
            | st.sampled_from(["..", "main.c", "-O3", "-march=native", "gcc", "int8", 1 << 70, -1, 0]),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=4,
        )

        @given(st.data())
        def check(data: st.DataObject) -> None:
            record = copy.deepcopy(good)
            place: Any = record
            while True:  # down to some entry
                keys = sorted(place) if isinstance(place, dict) else range(len(place))
                key = data.draw(st.sampled_from(keys))
                if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
                    break
                place = place[key]
            if data.draw(st.booleans()):
                place[key] = data.draw(values)
            else:
                del place[key]
            (folder / METADATA_FILE).write_text(json.dumps(record))
            loads_or_says_why(folder)

        check()


def loads_or_says_why(folder: Path) -> None:
    try:
        loaded = load(folder)
    except UmaError as error:
        assert error.exit_code == 3
        assert len(str(error)) < 2000
    else:
        assert Artifact(loaded.files, loaded.record).metadata == loaded.metadata


def test_loads_without_numpy(saved: Path) -> None:
    code = f"import sys; from uma.artifact import load; load({str(saved)!r}); print('numpy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "False"


def test_cache_is_used(artifact: Artifact, cache_folder: Path) -> None:
    assert Cache().folder == cache_folder
    assert artifact._compiled.library().parent == cache_folder
