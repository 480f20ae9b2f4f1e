"""From a model and a target to an artifact: what is taken, what is refused, what the plugin decides."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import installed_host
from tests._support.records import without_work
from tests._support.small_models import NET, PAIR

import uma
from uma.errors import ModelError, PluginError, TextError, UsageError
from uma.hookspecs import TargetCode, hookimpl
from uma.pipeline import STAGES
from uma.pipeline.driver import DEFAULT_FLAGS, build_loaded, lower_loaded
from uma.pipeline.dump import Dumper, read_dump
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost, default_host
from uma.program import Program, parse_program, print_program
from uma.relay import parse_module, print_module
from uma.support.regular_files import write_whole
from uma.targets import Target, TargetKind
from uma.tir.form.nodes import PrimFunc

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(NET)
    return path


class TestModels:
    def test_a_module(self) -> None:
        artifact = uma.build(parse_module(PAIR, {}), "c")
        assert artifact.name == "model"
        outputs = artifact.run({"a": np.array([1, 2, 3, 4], np.int8), "b": np.array([5, 6, 7, 8], np.int8)})
        assert {name: array.tolist() for name, array in outputs.items()} == {
            "sum": [6, 8, 10, 12],
            "a again": [1, 2, 3, 4],
            "file": [6, 8, 10, 12],
        }
        quantised = [row["quantization"] for row in artifact.metadata["inputs"]]
        assert quantised == [{"scale": 0.5, "zero_point": 3}, None]

    def test_an_onnx_file(self) -> None:
        artifact = uma.build(DIGITS, "c")
        assert artifact.name == "digits"
        assert [row["name"] for row in artifact.metadata["inputs"]] == ["scan"]
        layers = [layer for call in artifact.metadata["calls"] for layer in call["layers"]]
        assert {"conv1", "block1_depthwise", "pool", "logits"} <= set(layers)

    @pytest.mark.parametrize(
        ("file", "name"), [("net.py", "net"), ("7-b c.py", "n7_b_c"), ("int.py", "m_int"), ("é.py", "unnamed")]
    )
    def test_the_name_is_the_files_made_an_identifier(self, file: str, name: str, net: Path) -> None:
        path = net.rename(net.with_name(file))
        assert load_model(path).name == name
        assert load_model(path, name="chosen").name == "chosen"

    @pytest.mark.parametrize("name", ["a b", "1", "int", "uma", "", "é", "a/b", "x" * 61])
    def test_a_name_that_is_no_identifier(self, name: str, net: Path) -> None:
        with pytest.raises(UsageError, match="is not a name for a model") as caught:
            load_model(net, name=name)
        assert caught.value.hint is not None

    def test_shapes_of_what_leaves_none_open(self, net: Path) -> None:
        for model in (net, parse_module(NET, {})):
            with pytest.raises(UsageError, match="leaves none open"):
                load_model(model, shapes={"x": (1,)})

    def test_notes_of_the_front_end(self) -> None:
        assert load_model(DIGITS).notes == ()
        assert load_model(parse_module(NET, {})).notes == ()

    def test_a_program_keeps_its_name_unless_it_gets_another(self, net: Path, tmp_path: Path) -> None:
        lower_loaded(load_model(net), installed_host(), dump=tmp_path / "d")
        text = tmp_path / "d" / f"{len(STAGES)}-sequence.py"
        loaded = load_model(text)
        assert isinstance(loaded.form, Program)
        assert loaded.name == loaded.form.name == "net"
        assert load_model(text, name="other").form == Program("other", *list(vars(loaded.form).values())[1:])
        text.write_text(text.read_text().replace("def net():", "def int():"))
        assert load_model(text).name == "m_int"


class TestStages:
    def test_progress_tells_each_stage_once(self, net: Path) -> None:
        told: list[str] = []
        build_loaded(load_model(net), installed_host(), progress=told.append)
        assert told == [*STAGES[1:], "plan", "generate"]
        told.clear()
        lower_loaded(load_model(net), installed_host(), "fuse", progress=told.append)
        assert told == ["canonicalise", "partition", "fuse"]

    def test_an_unknown_stage(self, net: Path) -> None:
        with pytest.raises(UsageError, match="there is no stage 'link'") as caught:
            lower_loaded(load_model(net), installed_host(), "link")
        assert caught.value.hint == f"stages: {', '.join(STAGES)}"
        with pytest.raises(UsageError, match="there is no stage 'link'"):
            uma.build("no-such-file.onnx", "c", stop_after="link")

    def test_stop_after_gives_the_form_which_can_be_printed_read_and_built_on(self, net: Path) -> None:
        module = uma.build(net, "c", stop_after="fuse")
        text, constants = print_module(module)
        assert parse_module(text, constants) == module
        program = uma.build(net, "c", stop_after="sequence")
        assert isinstance(program, Program)
        text, raw = print_program(program)
        assert parse_program(text, raw) == program
        assert uma.build(module, "c", name="net").files == uma.build(net, "c").files

    @pytest.mark.parametrize("model", ["net", pytest.param("digits", marks=pytest.mark.soak)])
    def test_every_dump_continues_to_the_same_artifact(self, model: str, net: Path, tmp_path: Path) -> None:
        path = net if model == "net" else DIGITS
        plain = uma.build(path, "c", dump=tmp_path / "d")
        dumps = sorted((tmp_path / "d").glob("*.py"))
        assert len(dumps) == len(STAGES)
        for dump in dumps:
            again = uma.build(dump, "c", name=plain.name)
            assert again.files == plain.files
            if dumps.index(dump) < STAGES.index("lower"):
                assert again.metadata == plain.metadata
            assert without_work(again.metadata) == without_work(plain.metadata)


class TestDumps:
    def test_nothing_half_written(self, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "d"
        dumper = Dumper(folder)
        dumper("import", load_model(net).form)
        before = (folder / "1-import.py").read_bytes()

        def fail(self: Path, target: Path) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Path, "replace", fail)
        with pytest.raises(KeyboardInterrupt):
            dumper("import", load_model(DIGITS).form)
        assert os.listdir(folder) == ["1-import.py"]
        assert (folder / "1-import.py").read_bytes() == before

    def test_constants_come_before_the_text_that_names_them(self, tmp_path: Path) -> None:
        Dumper(tmp_path)("import", load_model(DIGITS).form)
        assert (tmp_path / "constants.npz").stat().st_mtime_ns <= (tmp_path / "1-import.py").stat().st_mtime_ns
        (tmp_path / "constants.npz").unlink()
        with pytest.raises(TextError, match="constant"):
            read_dump(tmp_path / "1-import.py")

    def test_a_text_that_is_too_large(self, tmp_path: Path) -> None:
        path = tmp_path / "x.py"
        path.touch()
        os.truncate(path, (1 << 30) + 1)
        with pytest.raises(ModelError, match="the text is larger than 1073741824 bytes"):
            read_dump(path)

    def test_a_file_goes_through_a_link_and_never_over_a_device(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("file")
        write_whole(tmp_path / "link", b"content")
        assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"content"
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="not a plain file"):
            write_whole(tmp_path / "pipe", b"content")
        assert sorted(os.listdir(tmp_path)) == ["file", "link", "pipe"]

    def test_fuzzed_constants(self, tmp_path: Path) -> None:
        data = np.arange(20, dtype=np.float32)
        digest = hashlib.sha256(data.tobytes()).hexdigest()
        text = f"""\
@function
def main(x: Tensor[(20,), float32]) -> Tensor[(20,), float32]:
    v0 = add(x, const('{digest}', (20,), float32))
    return v0
"""
        Dumper(tmp_path)("import", parse_module(text, {digest: data}))
        good = (tmp_path / "constants.npz").read_bytes()
        rng = np.random.default_rng(0)
        for _ in range(300):
            bad = bytearray(good)
            for _ in range(int(rng.integers(1, 4))):
                bad[int(rng.integers(len(bad)))] = int(rng.choice([0, 1, 127, 255, int(rng.integers(256))]))
            (tmp_path / "constants.npz").write_bytes(bytes(bad[: int(rng.integers(len(bad) // 2, len(bad) + 1))]))
            try:
                read_dump(tmp_path / "1-import.py")
            except (ModelError, UsageError):
                pass  # anything else would be a fault


class Plugin:
    """A plugin that answers `tir_to_runtime` as a test wants."""

    def __init__(self, code: TargetCode | None, *, is_host: bool = True) -> None:
        self.code, self.is_host = code, is_host

    def host(self, monkeypatch: pytest.MonkeyPatch) -> PluginHost:
        module: Any = ModuleType("uma_test_answer")

        @hookimpl
        def register_target() -> list[TargetKind]:
            return [TargetKind("answer", help="answers", is_host=self.is_host)]

        @hookimpl
        def tir_to_runtime(module: uma.IRModule, target: Target) -> TargetCode | None:
            assert Target.current() is target
            assert module.functions and all(isinstance(f, PrimFunc) for f in module.functions.values())
            return self.code

        module.register_target, module.tir_to_runtime = register_target, tir_to_runtime
        monkeypatch.setitem(sys.modules, "uma_test_answer", module)
        return PluginHost(lambda: [PluginEntry("answer", "uma_test_answer", "uma-answer", "1.2.3")])


class TestTargets:
    @pytest.mark.parametrize(
        ("code", "flags", "compiler"),
        [
            (None, list(DEFAULT_FLAGS), None),
            (TargetCode(), list(DEFAULT_FLAGS), None),
            (TargetCode(cc="gcc"), list(DEFAULT_FLAGS), "gcc"),
            (TargetCode(cflags=("-O1", "-g")), ["-O1", "-g"], None),
        ],
    )
    def test_what_a_plugin_leaves_open_is_the_cores_choice(
        self,
        code: TargetCode | None,
        flags: list[str],
        compiler: str | None,
        net: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        artifact = uma.build(net, "answer", plugins=Plugin(code).host(monkeypatch))
        assert artifact.metadata["compile"]["hosts"][0]["flags"] == ["-std=c99", *flags]
        assert artifact.metadata["compile"]["hosts"][0]["compiler"] == compiler
        assert artifact.metadata["plugins"] == {"uma-answer": "1.2.3"}
        assert artifact.metadata["targets"] == ["answer"]

    @pytest.mark.parametrize(
        ("code", "what"),
        [
            (
                TargetCode(cflags=("-O2", "-fplugin=x.so")),
                "wants the compiler flag '-fplugin=x.so', which is not allowed",
            ),
            (TargetCode(cc="tcc"), "wants the compiler 'tcc', which is not a known one"),
        ],
    )
    def test_what_a_plugin_may_not_want(
        self, code: TargetCode, what: str, net: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(PluginError, match=what) as caught:
            uma.build(net, "answer", plugins=Plugin(code).host(monkeypatch))
        assert "uma-answer 1.2.3" in caught.value.what
        assert "pip install --upgrade uma-answer" in str(caught.value.hint)

    def test_what_is_no_host_cannot_run_a_model(self, net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(UsageError, match="'answer' cannot run a whole model alone"):
            uma.build(net, "answer", plugins=Plugin(None, is_host=False).host(monkeypatch))

    def test_the_target_is_judged_before_the_model(self) -> None:
        with pytest.raises(UsageError, match="there is no target kind 'd'"):
            uma.build("none.onnx", "d")
        with pytest.raises(UsageError, match="3 is not a target"):
            uma.build("none.onnx", 3)  # type: ignore[call-overload]  # a number is not a target

    def test_a_target_object(self, net: Path) -> None:
        target = default_host().target("c -opt=1")
        assert uma.build(net, target).metadata["targets"] == ["c -opt=1"]


BUILD = """
import hashlib, json, sys
import uma
digests = {}
for path in sys.argv[1:]:
    artifact = uma.build(path, "c", name="model")
    files = {**artifact.files, "metadata": json.dumps(artifact.metadata).encode()}
    digests[path] = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
print(json.dumps(digests))
"""


def digests(python: str, seed: int, *models: Path) -> dict[str, dict[str, str]]:
    """SHA-256 of every file of the artifacts that another process builds."""
    env = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, "-c", BUILD, *map(str, models)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def some_models(request: pytest.FixtureRequest) -> list[Path]:
    """The digits model, and one TFLite model where there are real ones."""
    try:
        folder: Path = request.getfixturevalue("models")
    except pytest.skip.Exception:
        return [DIGITS]
    return [DIGITS, folder / "mlperf-tiny" / "kws_ref_model.tflite"]


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_two_hash_seeds_give_the_same_bytes(count: int, request: pytest.FixtureRequest) -> None:
    models = some_models(request)[:count]
    first, second = (digests(sys.executable, seed, *models) for seed in (1, 2))
    assert first == second
    assert len(first[str(DIGITS)]) > 5


def other_python() -> str:
    """Another version of Python in which UMA works: of ``$UMA_PYTHONS`` (separated as PATH is), else on PATH."""
    named = os.environ.get("UMA_PYTHONS", "")
    known = [*named.split(os.pathsep)] if named else [f"python3.{minor}" for minor in range(10, 15)]
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    check = "import sys, onnx, numpy, cffi, uma; uma.build; print('%d.%d' % sys.version_info[:2])"
    for name in known:
        path = shutil.which(name)
        if path is None:
            continue
        done = subprocess.run([path, "-c", check], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() != ours:
            return path
    pytest.skip(f"no other Python than {ours} has UMA installed: name one with UMA_PYTHONS")


def test_two_versions_of_python_give_the_same_bytes(request: pytest.FixtureRequest) -> None:
    models = some_models(request)
    assert digests(other_python(), 3, *models) == digests(sys.executable, 4, *models)
