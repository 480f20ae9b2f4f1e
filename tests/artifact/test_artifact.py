"""Artifacts: what they say, what is found to be wrong with them, and that they run."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.scale_artifact import (
    FILES,
    METADATA,
    PROFILE_C,
    SCALE_C,
    SCALE_H,
    STATE,
    X,
    Y,
    artifact_of,
    changed,
)
from tests._support.tools import skip_without

from uma.artifact import Artifact, ArtifactRecord, CallTime, Peaks, Ticks, load, local_build, schema
from uma.artifact.folder import file_table
from uma.artifact.record import METADATA_FILE, SCHEMA_VERSION
from uma.artifact.record_verifier import first_error
from uma.errors import InternalError, ModelError, ToolchainError, UsageError
from uma.support import json_record
from uma.toolchain.cache import Cache

pytestmark = pytest.mark.usefixtures("cache_folder")


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
            artifact.files["scale.c"] = b""  # type: ignore[index]  # read-only: the test is about that

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
        assert json_record.to_json(artifact.record) == artifact.metadata
        assert json_record.from_json(ArtifactRecord, artifact.metadata) == artifact.record

    def test_the_schema_is_the_callers_own(self) -> None:
        assert schema()["properties"]["schema_version"]["const"] == SCHEMA_VERSION
        schema()["properties"].clear()
        assert set(schema()["required"]) == set(schema()["properties"]) == {*METADATA, "files"}


SECOND = {**METADATA["inputs"][0], "name": "w", "identifier": "w"}


class TestUnsound:
    @pytest.mark.parametrize(
        ("path", "value", "reason"),
        [
            ("schema_version", 3, "schema_version is 3, expected 12"),
            ("name", "a-b", "name is 'a-b', which does not match"),
            ("name", "a\n", "name is 'a\\n', which does not match"),
            ("plugins", {"x": "1;2"}, "plugins.x is '1;2'"),
            ("targets", [], "targets has 0 items"),
            ("inputs.0.dtype", "float12", "inputs[0].dtype is 'float12', expected one of bool, int8"),
            ("inputs.0.shape", [-1], "inputs[0].shape[0] is -1, expected at least 0"),
            ("inputs.0.extra", 1, "inputs[0] has an unknown entry 'extra'"),
            ("inputs.0.quantization", {"scale": 1}, "inputs[0].quantization lacks 'zero_point'"),
            ("outputs.0.name", "\ud800", "outputs[0].name is '\\ud800', expected string"),
            ("inputs", [METADATA["inputs"][0]] * 2, "inputs have one name twice"),
            ("inputs.0.extents", "4; 5", "inputs[0].extents is '4; 5', which does not match"),
            ("inputs.0.extents", "n[5:4]", "'x:0': 'n[5:4]' is not an extent"),
            ("inputs.0.extents", "n[1:5]", "'x:0' has shape [4] and the extents n[1:5]"),
            ("inputs.0.extents", "2*n[1:2]", "the extents of input 'x:0' are computed: 2*n[1:2]"),
            ("outputs.0.extents", "n[1:4]", "inputs and outputs hold the extents [], and there are ['n']"),
            ("inputs.0.holds", "n", "inputs and outputs hold the extents ['n'], and there are []"),
            ("outputs.0.holds", "n", "inputs and outputs hold the extents ['n'], and there are []"),
            (
                "inputs",
                [{**METADATA["inputs"][0], "holds": "n"}, {**SECOND, "extents": "n[1:4]"}],
                "input 'x:0', which holds an extent, is int8 [4]",
            ),
            (
                "inputs",
                [{**METADATA["inputs"][0], "extents": "n[1:4]"}, {**SECOND, "shape": [3], "extents": "n[1:3]"}],
                "extent 'n' has other bounds in 'w'",
            ),
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
            ("calls.0.way", "end", "branches and loops among the calls do not begin and end as they should"),
            ("calls.0.way", "maybe", "calls[0].way is 'maybe'"),
            ("buffers.1.offset", 1, "buffer 't0' reaches beyond its memory 'ram', which has 16 bytes"),
            ("buffers.2.bytes", 5, "buffer 'c0' reaches beyond its memory 'weights', which has 4 bytes"),
            ("buffers.1.pool", "npu.scratch", "beyond its memory 'npu.scratch', which has 0 bytes"),
            ("buffers.1.role", "state", "buffer 't0' reaches beyond its memory 'ram', which has 0 bytes"),
            ("buffers.1.pool", None, "buffer 't0' has only one of pool and offset"),
            ("inputs.0.rows", 4, "0 inputs are given row by row, and 1 inputs, outputs and states have rows"),
            ("outputs.0.rows", 4, "0 inputs are given row by row, and 1 inputs, outputs and states have rows"),
            ("buffers.1.last_step", 1, "buffer 't0' is held from step 0 to step 1"),
            ("calls.0.finished_step", 1, "call 0 has finished in step 1 of 1"),
            ("buffers.1.first_step", 1, "buffer 't0' is held from step 1 to step 0"),
            ("buffers.1.role", "scratch", "buffers[1].role is 'scratch', expected one of input, output, state"),
            ("calls.0.arguments", ["x", "z"], "a call is given 'z', which is not among the buffers"),
            ("calls.0.macs", -1, "calls[0].macs is -1, expected at least 0"),
            ("calls.0", {"kernel": "k"}, "calls[0] lacks 'layers'"),
            ("compile.hosts.0.compiler", "/bin/gcc", "host 'c' has the compiler '/bin/gcc', which is not a known name"),
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
        table = {name: json_record.to_json(row) for name, row in file_table(dict.fromkeys(FILES, b"")).items()}
        found = first_error({**changed(path, value), "files": table})
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
        monkeypatch.setattr(local_build, "compile_shared", None)
        np.testing.assert_array_equal(load(saved).run(X)["y:0"], Y)

    def test_library_is_made_again_for_another_cpu_or_compiler(
        self, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = artifact._compiled.library()
        for name in ("gcc", "clang"):
            skip_without(name)
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
            patch.setattr(local_build, "compile_shared", lambda parts, files, output, **_: output.write_bytes(b"x"))
            with pytest.raises(ToolchainError):
                use(artifact)
        use(artifact)

    def test_profile(self, artifact: Artifact) -> None:
        profile = artifact.profile(X, repeat=3)
        work = {"op": "multiply", "macs": 0, "nbytes": 4 + 16 + 4 + 16, "constant_bytes": 4}
        [call] = profile.calls
        assert call == CallTime("scale_mul_0", ("block/mul", "Größe\n"), 1000.0, "c", **work)
        assert profile.ticks == Ticks("a counter of the test", 1e9, 7.0)
        assert call.gops is None and not call.is_simulated
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

    def test_profile_by_a_counter_that_says_nothing_of_its_rate(self) -> None:
        """It is compared with the system's clock; one that stands still is refused."""
        own = PROFILE_C.replace("STEPS", "1").replace("*hz = 1000000000", "*hz = 0")
        moving = own.replace("*now = 0", "*now = (uint64_t)clock()").replace(
            "static uint64_t", "#include <time.h>\nstatic uint64_t", 1
        )
        ticks = artifact_of({**FILES, "scale_profile.c": moving}, METADATA).profile(X, repeat=1).ticks
        assert ticks is not None and ticks.hz > 0
        with pytest.raises(ModelError, match="is timed by does not count: a counter of the test"):
            artifact_of({**FILES, "scale_profile.c": own}, METADATA).profile(X)

    def test_work_in_time(self) -> None:
        peaks = Peaks(50.0, 200.0)
        call = CallTime("k", (), 1000.0, "c", op="qnn.conv2d", macs=5000)
        assert (call.gops, call.peak_gops(peaks)) == (10.0, 200.0)
        assert replace(call, op="nn.conv2d").peak_gops(peaks) == 50.0
        for without in ({"macs": None}, {"macs": 0}, {"median_ns": 0.0}, {"is_simulated": True}):
            assert replace(call, **without).gops is None

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


def test_cache_is_used(artifact: Artifact, cache_folder: Path) -> None:
    assert Cache().folder == cache_folder
    assert artifact._compiled.library().parent == cache_folder
