"""What is wrong gives one clear error with the right exit code, and leaves nothing behind."""

from __future__ import annotations

import os
import pickle
import platform
import re
import signal
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests._support.small_models import NET, Uma

from uma import build, load
from uma.errors import UmaError
from uma.runtime.files import read_arrays
from uma.toolchain import discovery as toolchain
from uma.toolchain.discovery import find_compiler

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
BUILD = ("--target", "c", "-o", "out")


@pytest.mark.usefixtures("files")
class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "what"),
        [
            ([], "the following arguments are required: COMMAND"),
            (["buld"], "unknown command 'buld'"),
            (["build"], "the following arguments are required: MODEL, --target"),
            (["build", "net.py"], "the following arguments are required: --target"),
            (["build", "net.py", "--targ", "c"], "unknown flag '--targ'"),
            (["build", "net.py", "--target", "c", "--fast"], "unknown flag '--fast'"),
            (["build", "net.py", "--target", "c", "-z"], "unrecognized arguments: -z"),
            (["build", "net.py", "--target", "c", "-q", "-v"], "not allowed with argument"),
            (["run", "net.py", "--target", "c", "--repeat", "many"], "invalid int value: 'many'"),
            (["verify", "net.py", "--target", "c", "--against", "oracle"], "invalid choice: 'oracle'"),
        ],
    )
    def test_what_the_parser_finds(self, uma: Uma, arguments: list[str], what: str) -> None:
        said = uma(*arguments).error(2)
        assert what in said.splitlines()[0]
        hint = said.splitlines()[1]
        assert hint.startswith("  hint: ") and ("see uma " in hint or "choose from " in hint)

    @pytest.mark.parametrize(
        ("arguments", "name"),
        [
            (["buld", "net.py"], "build"),
            (["build", "net.py", "--tragets", "c"], "--target"),
            (["build", "net.py", "--target", "c", "--require-ofload=9"], "--require-offload"),
            (["verify", "net.py", "--target", "c", "--against", "litertt"], "litert"),
        ],
    )
    def test_the_nearest_name_is_suggested(self, uma: Uma, arguments: list[str], name: str) -> None:
        assert f"  hint: did you mean '{name}'? " in uma(*arguments).error(2)

    def test_plurals_and_underscores_are_accepted(self, uma: Uma) -> None:
        build = ("build", "net.py", "--targets", "c", "--stop_after", "import", "--no-warn", "-q")
        assert "unknown flag '--no-warn'" in uma(*build).error(2)
        assert uma(*(word for word in build if word != "--no-warn")).code == 0
        assert "unrecognized arguments: " in uma("build", "net.py", "--target", "c", "--", "--target").error(2)

    @pytest.mark.parametrize(
        ("arguments", "what"),
        [
            (["build", "net.py", "--target", ""], "a target begins with its kind"),
            (["build", "net.py", "--target", "d"], "there is no target kind 'd'"),
            (["build", "net.py", "--target", "c -optt=2"], "did you mean 'opt'?"),
            (["build", "net.py", "--target", "c -opt=7"], "it takes one of 0, 1, 2, 3, s"),
            (["build", "net.py", "--target", "c -cc=/bin/sh"], "does not fit attribute 'cc'"),
            (["run", "net.py", "--target", "d"], "there is no target kind 'd'"),
            (["verify", "net.py", "--target", "d"], "there is no target kind 'd'"),
            (["targets", "d"], "there is no target kind 'd'"),
            (["targets", "--explain", "c -opt"], "'-opt' is not an attribute"),
            (["targets", "c", "--explain", "c"], "--explain takes a whole target"),
            (["build", "net.py", *BUILD, "--name", "two words"], "'two words' is not a name for a model"),
            (["build", "net.py", *BUILD, "--name", "int"], "for example m_int"),
            (["build", "net.py", *BUILD, "--name", ""], "'' is not a name for a model"),
            (["build", "net.py", "--target", "c", "--stop-after", "fus"], "there is no stage 'fus'"),
            (["build", "net.py", *BUILD, "--stop-after", "fuse"], "--stop-after makes no artifact"),
            (["build", "net.py", *BUILD, "--shape", "x"], "--shape 'x' is not a shape"),
            (["build", "net.py", *BUILD, "--shape", "x=1,0"], "--shape 'x=1,0' is not a shape"),
            (["build", "net.py", *BUILD, "--shape", "=1"], "--shape '=1' is not a shape"),
            (["build", "net.py", *BUILD, "--shape", "x=1", "--shape", "x=2"], "--shape gives 'x' twice"),
            (["build", "net.py", *BUILD, "--shape", "x=1"], "leaves none open"),
            (["build", "net.py", *BUILD, "--pin", "x"], "--pin 'x' is not a pair of a layer and a label"),
            (["build", "net.py", *BUILD, "--pin", "=c"], "--pin '=c' is not a pair of a layer and a label"),
            (["run", "net.py", "--target", "c", "--pin", "x="], "--pin 'x=' is not a pair of a layer and a label"),
            (["explain", "net.py", "--target", "c", "--pin", "x=c", "--pin", "x=d"], "--pin gives 'x' twice"),
            (["verify", "net.py", "--target", "c", "--pin", "x*=c"], "no layer is called 'x*', which is pinned to 'c'"),
            (["build", "net.py", *BUILD, "--pin", "*=npu1"], "'*' is pinned to 'npu1', which is not a target of this"),
            (["run", ".", "--pin", "x=c"], "an artifact is built already"),
            (["run", "net.py"], "running a model file needs --target"),
            (["run", "net.py", "--target", "c", "--repeat", "0"], "--repeat 0 is not positive"),
            (["run", "none"], "there is no file none"),
            (["run", "x" * 300], "cannot read the file: File name too long"),
            (["run", "net.py/x", "--target", "c"], "cannot read the file: Not a directory"),
            (["run", "."], "there is no artifact at '.'"),
            (["run", ".", "--target", "c"], "an artifact is built already"),
            (["run", "net.py", "--target", "c", "--input", "image"], "names no input"),
            (["run", "net.py", "--target", "c", "--input", "img=random:1"], "its inputs: 'image:0'"),
            (["run", "net.py", "--target", "c", "--input", "image:0=3"], "'3' is not a source for the input 'image:0'"),
            (["run", "net.py", "--target", "c", "--input", "image:0=random:-1"], "is not a source"),
            (["run", "net.py", "--target", "c", "--input", "image:0=random:" + "9" * 5000], "is not a source"),
            (["run", "net.py", "--target", "c", "--input", "image:0=random:\N{SUPERSCRIPT TWO}"], "is not a source"),
            (["run", "net.py", "--target", "c", "--input", "image:0=@none.npy"], "there is no file none.npy"),
            (["run", "net.py", "--target", "c", *["--input", "image:0=random:1"] * 2], "gives 'image:0' twice"),
            (["run", "net.py", "--target", "c", "--inputs", "none.npz"], "there is no file none.npz"),
            (["run", "net.py", "--target", "c", "--inputs", "."], "is a folder"),
            (["run", "net.py", "--target", "c", "--outputs", "no/out.npz"], "cannot write the outputs: No such file"),
            (["run", "net.py", "--target", "c", "--outputs", "."], "the path is not a plain file"),
            (["verify", "net.py", "--target", "c", "--against", "onnxruntime"], "onnxruntime does not take the model"),
            (["verify", "net.py", "--target", "c", "--against", "litert"], "LiteRT does not read the model"),
        ],
    )
    def test_what_the_commands_find(self, uma: Uma, arguments: list[str], what: str) -> None:
        assert what in uma(*arguments).error(2)

    def test_as_json(self, uma: Uma) -> None:
        for arguments in (["build"], ["targets", "cc"]):
            done = uma(*arguments, "--json")
            error = done.json["error"]
            assert done.code == error["exit_code"] == 2
            assert error["what"] and error["hint"]
            assert "uma: error: " in done.err


@pytest.mark.usefixtures("files")
class TestModels:
    @pytest.mark.parametrize("command", ["build", "verify", "run"])
    def test_no_such_file(self, uma: Uma, command: str) -> None:
        assert "there is no file none.onnx" in uma(command, "none.onnx", "--target", "c").error(2)

    @pytest.mark.parametrize("name", [".", "net.py/net", "x" * 300, "nul\0"])
    def test_what_cannot_be_opened(self, uma: Uma, name: str) -> None:
        uma("build", name, *BUILD).error(2)

    @pytest.mark.parametrize("name", ["x.py", "nul\0.py", "none/x.py", "net.py/x.py"])
    def test_text_that_cannot_be_opened(self, uma: Uma, name: str) -> None:
        assert re.search("there is no file|cannot read the file", uma("build", name, *BUILD).error(2))


def rejected(uma: Uma, folder: Path, name: str, content: bytes) -> str:
    """The error of a build of a file with this content, which changes nothing else."""
    (folder / name).write_bytes(content)
    before = sorted(folder.rglob("*"))
    said = uma("build", name, *BUILD).error(3)
    assert sorted(folder.rglob("*")) == before
    return said


class TestModelContents:
    @pytest.mark.parametrize("suffix", [".onnx", ".tflite", ""])
    @pytest.mark.parametrize("content", [b"", b"\0", b"not a model", bytes(100), b"\x18\0\0\0TFL3", b"\xff" * 1000])
    def test_no_model(self, uma: Uma, folder: Path, suffix: str, content: bytes) -> None:
        assert f"model{suffix}" in rejected(uma, folder, f"model{suffix}", content)

    @pytest.mark.parametrize("part", [0.01, 0.5, 0.9, 0.999])
    def test_truncated(self, uma: Uma, folder: Path, part: float) -> None:
        content = DIGITS.read_bytes()
        rejected(uma, folder, "model.onnx", content[: int(len(content) * part)])

    def test_a_model_with_the_wrong_suffix_is_read_by_its_content(self, uma: Uma, folder: Path) -> None:
        (folder / "model.tflite").write_bytes(DIGITS.read_bytes())
        assert uma("build", "model.tflite", *BUILD, "--stop-after", "import", "--dump", "d").code == 2  # -o with it
        assert uma("build", "model.tflite", "--target", "c", "--stop-after", "import", "-q").code == 0

    def test_a_model_as_text(self, uma: Uma, folder: Path) -> None:
        assert "the text is not UTF-8" in rejected(uma, folder, "model.py", DIGITS.read_bytes())

    @pytest.mark.parametrize(
        ("old", "new", "place", "what"),
        [
            ("nn.relu", "nn.rellu", "net.py:5:46", "did you mean 'nn.relu'?"),
            ("multiply(v1", "multiply(v9", "net.py:7:37", "v9"),
            ("pool_size=(2, 2)", "pool_size=(2, -2)", "net.py:6:27", "pool_size"),
            ("return v5", "return v5 + 1", "net.py:11:12", ""),
            ("[0.5, -0.25]", "__import__('os')", "net.py:7:", ""),
            ("    v5", "  v5", "net.py:10:", ""),
        ],
    )
    def test_text_has_line_column_and_caret(
        self, uma: Uma, folder: Path, old: str, new: str, place: str, what: str
    ) -> None:
        said = rejected(uma, folder, "net.py", NET.replace(old, new).encode())
        head, line, caret = said.splitlines()[:3]
        assert head.startswith(place)
        assert line.strip() in NET.replace(old, new) and caret.strip() == "^"
        assert what in said

    def test_a_missing_constant(self, uma: Uma, folder: Path) -> None:
        text = NET.replace("[0.5, -0.25]", f"'{'0' * 64}', (2,)")
        assert "0000" in rejected(uma, folder, "net.py", text.encode())

    @pytest.mark.parametrize("content", [b"", b"PK", b"PK\5\6" + bytes(18), bytes(1000)])
    def test_damaged_constants(self, uma: Uma, folder: Path, content: bytes) -> None:
        uma("build", "net.py", "--target", "c", "--stop-after", "import", "--dump", ".")
        text = (folder / "1-import.py").read_text().replace("[0.5, -0.25]", f"'{'0' * 64}', (2,)")
        (folder / "constants.npz").write_bytes(content)
        rejected(uma, folder, "net.py", text.encode())

    def test_compressed_constants(self, uma: Uma, folder: Path) -> None:
        with zipfile.ZipFile(folder / "constants.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", bytes(1 << 20))
        assert "the constants are compressed, as no dump is" in rejected(uma, folder, "net.py", NET.encode())


class TestInputFiles:
    def said(self, uma: Uma, code: int, *arguments: str, model: str = "pair.py") -> str:
        return uma("run", model, "--target", "c", *arguments).error(code)

    @pytest.mark.parametrize(
        ("arrays", "what"),
        [
            ({"a": np.zeros(4, np.int8), "c": np.zeros(4)}, "the model has no input 'c'"),
            ({"a": np.zeros(5, np.int8)}, "input 'a' is int8[5], expected int8[4]"),
            ({"b": np.zeros(4, np.float32)}, "input 'b' is float32[4], expected int8[4]"),
            ({"b": np.array(["x"] * 4)}, "input 'b' is <U1[4], expected int8[4]"),
            ({"a": np.array([object()] * 4)}, "Object arrays cannot be loaded"),
        ],
    )
    def test_npz(self, uma: Uma, folder: Path, arrays: dict[str, np.ndarray], what: str) -> None:
        np.savez(folder / "in.npz", **arrays)  # type: ignore[arg-type]  # its stub takes keywords for options only
        assert what in self.said(uma, 3, "--inputs", "in.npz")

    def test_one_array_for_all_and_several_for_one(self, uma: Uma, folder: Path) -> None:
        np.save(folder / "x.npy", np.zeros(4, np.int8))
        np.savez(folder / "x.npz", a=np.zeros(4, np.int8))
        assert "the file holds one array, without a name" in self.said(uma, 3, "--inputs", "x.npy")
        assert "the file holds arrays with names" in self.said(uma, 3, "--input", "a=@x.npz")

    @pytest.mark.parametrize("content", [b"", b"x", b"\x93NUMPY", b"PK\3\4", b"\x80\4N.", bytes(64)])
    def test_no_arrays(self, uma: Uma, folder: Path, content: bytes) -> None:
        (folder / "x.npy").write_bytes(content)
        for arguments in (["--input", "a=@x.npy"], ["--inputs", "x.npy"]):
            assert "the file does not hold arrays" in self.said(uma, 3, *arguments)

    def test_more_than_there_is_memory_for(self, uma: Uma, folder: Path) -> None:
        with (folder / "x.npy").open("wb") as file:
            header = {"descr": "|i1", "fortran_order": False, "shape": (10**13,)}
            np.lib.format.write_array_header_1_0(file, header)
        self.said(uma, 3, "--input", "a=@x.npy")

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
    @given(st.booleans(), st.integers(0, 400), st.binary(max_size=6))
    def test_mutated_arrays(self, tmp_path: Path, several: bool, at: int, patch: bytes) -> None:
        path = tmp_path / "x.npz"
        with path.open("wb") as file:
            np.savez(file, a=np.arange(4)) if several else np.save(file, np.arange(4))
        raw = path.read_bytes()
        path.write_bytes(raw[:at] + patch + raw[at + len(patch) :])
        try:
            read_arrays(path)
        except UmaError as error:
            assert error.exit_code in (2, 3)

    def packed(self, path: Path, member: bytes, method: int, times: int = 1) -> None:
        with zipfile.ZipFile(path, "w", method) as archive:
            for number in range(times):
                archive.writestr(f"a{number}.npy", member)

    @pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_packed_in_another_way(self, uma: Uma, folder: Path, method: int) -> None:
        self.packed(folder / "x.npz", b"", method)
        assert "it is compressed as numpy does not do it" in self.said(uma, 3, "--inputs", "x.npz")

    def test_a_small_file_that_fills_the_memory(self, uma: Uma, folder: Path) -> None:
        self.packed(folder / "x.npz", bytes(1 << 26), zipfile.ZIP_DEFLATED, 9)
        assert (folder / "x.npz").stat().st_size < 1 << 20
        assert "they would fill more than 512 MiB, unpacked" in self.said(uma, 3, "--inputs", "x.npz")

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_two_of_one_name(self, uma: Uma, folder: Path) -> None:
        with zipfile.ZipFile(folder / "x.npz", "w") as archive:
            for _ in range(2):
                with archive.open("a.npy", "w") as file:
                    np.lib.format.write_array(file, np.zeros(4, np.int8))
        assert "two of them are called 'a'" in self.said(uma, 3, "--inputs", "x.npz")

    def test_nothing_is_unpickled(self, uma: Uma, folder: Path) -> None:
        class Trap:
            def __reduce__(self) -> tuple[object, ...]:
                return os.mkdir, (str(folder / "sprung"),)

        (folder / "raw.npz").write_bytes(pickle.dumps(Trap()))
        assert "it begins like neither an .npy nor an .npz file" in self.said(uma, 3, "--inputs", "raw.npz")
        np.save(folder / "x.npy", np.array([Trap()], dtype=object), allow_pickle=True)
        assert "Object arrays cannot be loaded" in self.said(uma, 3, "--input", "a=@x.npy")
        assert not (folder / "sprung").exists()


@pytest.mark.usefixtures("folder")
class TestWhatIsNoFile:
    """A pipe is never read, which might take for ever, nor a device without an end."""

    @pytest.fixture(autouse=True, params=["pipe", "/dev/zero"])
    def link(self, folder: Path, request: pytest.FixtureRequest) -> None:
        os.mkfifo(folder / "pipe")
        for name in ("m.onnx", "m.py", "t.json", "x.npy", "dumped/constants.npz"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).symlink_to(folder / request.param)

    @pytest.mark.parametrize(
        "arguments",
        [
            ("build", "m.onnx", *BUILD),
            ("build", "m.py", *BUILD),
            ("run", "m.onnx", "--target", "c"),
            ("build", "net.py", "--target", "t.json"),
            ("run", "pair.py", "--target", "c", "--input", "a=@x.npy"),
            ("run", "pair.py", "--target", "c", "--inputs", "x.npy"),
            ("build", "dumped/net.py", *BUILD),
        ],
    )
    def test_is_refused(self, uma: Uma, folder: Path, arguments: tuple[str, ...]) -> None:
        (folder / "dumped" / "net.py").write_text((folder / "net.py").read_text())
        assert "it is not a plain file" in uma(*arguments).error(2)


@pytest.mark.usefixtures("files")
class TestPlaces:
    @pytest.fixture(autouse=True)
    def places(self, folder: Path) -> None:
        (folder / "file").touch()
        (folder / "thesis").mkdir()
        (folder / "thesis" / "chapter1").write_text("precious")

    @pytest.mark.parametrize(
        ("place", "what"),
        [
            ("file", "not an artifact that may be replaced"),
            ("thesis", "not an artifact that may be replaced"),
            ("file/out", "cannot write the artifact: Not a directory"),
            ("new/" + "x" * 300, "cannot write the artifact: File name too long"),
        ],
    )
    def test_artifact(self, uma: Uma, place: str, what: str) -> None:
        assert what in uma("build", "net.py", "--target", "c", "-o", place).error(2)

    @pytest.mark.parametrize("place", ["file", "file/d"])
    def test_dump(self, uma: Uma, place: str) -> None:
        assert "cannot write the dump: " in uma("build", "net.py", *BUILD, "--dump", place).error(2)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_read_only(self, uma: Uma, folder: Path) -> None:
        (folder / "thesis").chmod(0o500)
        assert "Permission denied" in uma("build", "net.py", "--target", "c", "-o", "thesis/out").error(2)
        assert "Permission denied" in uma("build", "net.py", *BUILD, "--dump", "thesis/d").error(2)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


class TestToolchain:
    @pytest.fixture(autouse=True)
    def own_cache(self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path_factory.mktemp("own") / "cache"))

    def test_no_compiler(self, uma: Uma, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(folder))
        locate = toolchain._locate
        monkeypatch.setattr(toolchain, "_locate", lambda name: None if name == "ziglang" else locate(name))
        done = uma("build", "net.py", "--target", "c", "-o", "out")  # the C needs none
        assert done.code == 0
        assert "nothing was compiled, as no C compiler was found: install gcc or clang" in done.out
        assert "bytes without the code: weights" in done.out and "stack unknown" in done.out
        assert load("out").files == build("net.py", "c").files
        said = uma("run", "out").error(6)
        assert "no C compiler was found" in said and "install gcc or clang" in said

    @pytest.mark.skipif(platform.machine() != "x86_64", reason="the CPU is one of x86")
    def test_a_cpu_that_this_machine_is_not(self, uma: Uma, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "cpuinfo").write_text("flags : fpu sse sse2\n")
        monkeypatch.setattr("uma.support.machines._CPUINFO", folder / "cpuinfo")
        target = ("--target", "c -mcpu=x86-64-v4 -opt=0")
        assert uma("build", "net.py", *target, "-o", "out").code == 0
        for command in (["run", "out"], ["run", "out", "--profile"], ["verify", "net.py", *target]):
            assert "with instructions that this machine's has not: abm, avx, avx2, " in uma(*command).error(2)

    def test_nothing_is_compiled_where_nobody_wants_it(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CC", "/none/cc")
        done = uma("build", "net.py", "--target", "c", "-o", "out", "--no-compile", "--json")
        assert (done.code, done.json["code_bytes"]) == (0, None)
        assert uma("build", "net.py", "--target", "c -mcpu=cortex-m4", "--no-compile", "--weights", "array").code == 0
        assert not Path("build/net/objects").exists() and Path("build/net/net_weights.c").exists()

    @pytest.mark.usefixtures("files")
    @pytest.mark.parametrize(
        ("chosen", "code", "what"),
        [
            ("gcc-99", 6, "the C compiler 'gcc-99' is not installed"),
            ("/none/cc", 6, "cannot start the C compiler 'cc': No such file"),
            ("gcc -O9", 2, "is neither a known name of a C compiler nor an absolute path"),
        ],
    )
    def test_a_compiler_that_is_not_there(
        self, uma: Uma, monkeypatch: pytest.MonkeyPatch, chosen: str, code: int, what: str
    ) -> None:
        monkeypatch.setenv("CC", chosen)
        assert what in uma("build", "net.py", *BUILD).error(code)

    @pytest.mark.parametrize(
        ("behaviour", "what"),
        [
            ("exit 1", "fails when asked for --version (exit status 1)"),
            ("echo hello", "does not say that it is gcc or clang, but 'hello'"),
            (
                "case $1 in --version) echo Free Software Foundation;; -d*) echo x;; *) exit 3;; esac",
                "could not compile",
            ),
        ],
    )
    def test_a_broken_compiler(
        self, uma: Uma, folder: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, what: str
    ) -> None:
        monkeypatch.setenv("CC", str(script(folder / "cc", behaviour)))
        before = sorted(folder.rglob("*"))
        assert what in uma("build", "net.py", *BUILD).error(6)
        assert sorted(folder.rglob("*")) == before

    def test_the_plugin_asks_for_a_compiler_that_is_not_there(self, uma: Uma) -> None:
        assert "'clang-99' is not installed" in uma("build", "net.py", "--target", "c -cc=clang-99").error(6)

    @pytest.mark.parametrize("command", ["run", "verify"])
    def test_run_and_verify_say_so_too(self, uma: Uma, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CC", "gcc-99")
        uma(command, "net.py", "--target", "c").error(6)


class TestTextForms:
    def test_no_model(self, uma: Uma, folder: Path) -> None:
        (folder / "empty.py").touch()
        said = uma("build", "empty.py", *BUILD).error(3)
        assert said.startswith("the module has no function 'main'\n  where: empty.py\n")

    def test_python_does_not_warn_besides(self, uma: Uma, folder: Path) -> None:
        (folder / "odd.py").write_text("x = 1if 2else '\\d'\n")
        assert uma("build", "odd.py", *BUILD).error(3).startswith("odd.py:1:1: ")


class TestFaultsOfOurs:
    def test_an_unexpected_exception(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*arguments: object, **options: object) -> None:
            raise ZeroDivisionError("unexpected")

        monkeypatch.setattr("uma.pipeline.driver.plan", fail)
        said = uma("build", "net.py", *BUILD).error(1)
        assert said.startswith("internal error: ZeroDivisionError: unexpected\n  hint: this is a fault of UMA")
        assert "Traceback" not in said
        assert "Traceback" in uma("build", "net.py", *BUILD, "-v").err

    def test_no_memory(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*arguments: object, **options: object) -> None:
            raise MemoryError

        monkeypatch.setattr("uma.pipeline.driver.plan", fail)
        assert uma("build", "net.py", *BUILD).error(4).startswith("there is not enough memory\n  hint: ")

    @pytest.mark.parametrize("place", ["threading.Timer.start", "concurrent.futures.ThreadPoolExecutor.submit"])
    def test_no_threads(self, uma: Uma, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str) -> None:
        def fail(*arguments: object, **options: object) -> None:
            raise RuntimeError("can't start new thread")

        find_compiler()  # asks the compiler what it is, and remembers
        monkeypatch.setenv("UMA_CACHE_DIR", str(tmp_path / "empty"))
        monkeypatch.setattr(place, fail)
        assert uma("build", "net.py", *BUILD).error(4).startswith("the C compiler cannot be watched: can't start new")

    def test_names_without_end(self, uma: Uma, folder: Path) -> None:
        (folder / "long.py").write_text(NET.replace("nn.relu", "nn." + "x" * 5000))
        said = uma("build", "long.py", *BUILD)
        assert len(said.error(3)) < 4000
        assert "x" * 5000 in uma("build", "long.py", *BUILD, "-v").err

    def test_an_interrupt_that_an_import_swallowed(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*arguments: object, **options: object) -> None:
            try:
                signal.raise_signal(signal.SIGTERM)
            except KeyboardInterrupt as error:
                raise ImportError("a module was not imported") from error

        monkeypatch.setattr("uma.pipeline.driver.plan", fail)
        done = uma("build", "net.py", *BUILD)
        assert (done.code, done.out, done.err) == (128 + signal.SIGTERM, "", "uma: interrupted\n")

    def test_an_interrupt_in_a_finaliser(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        """Python discards what a signal handler raises in a finaliser; the command ends nevertheless."""

        class Finalised:
            def __del__(self) -> None:
                signal.raise_signal(signal.SIGTERM)

        def work(*arguments: object, **options: object) -> None:
            Finalised()
            time.sleep(20)
            raise AssertionError("the interrupt was lost")

        monkeypatch.setattr("uma.pipeline.driver.plan", work)
        done = uma("build", "net.py", *BUILD)
        assert (done.code, done.out, done.err) == (128 + signal.SIGTERM, "", "uma: interrupted\n")

    def test_an_unraisable_error_of_another_kind(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        class Faulty:
            def __del__(self) -> None:
                raise ValueError("not an interrupt")

        def work(*arguments: object, **options: object) -> None:
            Faulty()
            raise KeyboardInterrupt

        reported: list[object] = []
        monkeypatch.setattr("sys.unraisablehook", lambda unraisable: reported.append(unraisable.exc_type))
        monkeypatch.setattr("uma.pipeline.driver.plan", work)
        assert uma("build", "net.py", *BUILD).code == 130
        assert reported == [ValueError]

    def test_an_interrupt(self, uma: Uma, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*arguments: object, **options: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("uma.pipeline.driver.plan", fail)
        done = uma("build", "net.py", *BUILD)
        assert (done.code, done.out, done.err) == (130, "", "uma: interrupted\n")


@pytest.mark.parametrize("option", ["--input", "--inputs"])
def test_an_unknown_input_suggests_the_nearest(option: str, uma: Uma, folder: Path) -> None:
    np.savez("x.npz", imege=np.zeros(1))
    (folder / "net.py").write_text(NET.replace("image:0", "image"))
    done = uma("run", "net.py", "--target", "c", option, "x.npz" if option == "--inputs" else "imege=random:0")
    assert "the model has no input 'imege'" in done.err
    assert "did you mean 'image'? its inputs: 'image'" in done.err
