"""The model that an artifact keeps: `uma.verify`, `uma.explain` and `uma.report` of artifacts, saved and in memory."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.onnx_builder import OnnxBuilder
from tests._support.plugins import entry_of, host_kind, toy
from tests._support.small_models import NET

import uma as package
from uma.artifact import Artifact
from uma.artifact.model_folder import SavedModel, read_sizes
from uma.errors import InternalError, ModelError, UmaError, UsageError
from uma.partition import Collage, eager
from uma.pipeline.rebuild import read_kept_model, try_kept_model
from uma.plugins import PluginHost
from uma.plugins.host import default_host

HOST = "c -mcpu=x86-64 -opt=1"
OPTIONS: dict[str, dict[str, Any]] = {
    "shape of an input": {"shapes": {"x": (2, 4)}},
    "shape and constant": {"shapes": {"rows": 3}, "constants": {"scale": 2.5}},
    "open shape": {"shapes": {"rows": "1..8"}},
    "arena": {"shapes": {"rows": 3}, "io": "arena", "name": "other"},
    "array": {"shapes": {"rows": 3}, "weights": "array"},
    "limit": {"shapes": {"rows": 3}, "max_ram": "4K"},
    "collage": {"shapes": {"rows": 3}, "partition": Collage()},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    graph = OnnxBuilder()
    scaled = graph.node("Mul", graph.input("x", ["rows", 4]), graph.input("scale", [1]))
    path.write_bytes(graph.model(graph.node("Relu", scaled)).SerializeToString())
    return path


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model ``net.py``, and the artifact ``out`` of it."""
    folder = tmp_path_factory.mktemp("net")
    (folder / "net.py").write_text(NET)
    return package.build(folder / "net.py", HOST).save(folder / "out").parent


@pytest.fixture
def saved(net: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(net, tmp_path / "net")) / "out"


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [*list(OPTIONS)[:-1], pytest.param("collage", marks=pytest.mark.soak)])
def test_a_saved_artifact_is_built_again(name: str, file: Path, tmp_path: Path) -> None:
    options, suffix = OPTIONS[name], ".zip" if list(OPTIONS).index(name) % 2 else ""
    built = package.build(file, HOST, **options)
    path = built.save(tmp_path / f"out{suffix}")
    kept = read_kept_model(package.load(path), default_host())
    assert kept.loaded.name == built.name and kept.members.texts == {"c": HOST}
    explained, before = package.explain(path), package.explain(built)
    assert [layer.name for layer in explained.layers] == [layer.name for layer in before.layers]
    again = package.load(path).save(tmp_path / f"again{suffix}")
    assert SavedModel(again).files() == SavedModel(path).files() != {}


def test_layer_shapes_are_those_of_the_build(file: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"shapes": {"rows": 3}, "constants": {"scale": 2.5}}
    path = package.build(file, HOST, **options).save(tmp_path / "out.zip")
    reports = [package.report(path, compiled=False), package.report(file, HOST, compiled=False, **options)]
    assert not any(one.of_artifact for one in reports) and reports[0].layers == reports[1].layers
    assert {layer.shape for layer in reports[0].layers} == {(3, 4)}
    found = package.verify(path, inputs={"x": np.ones((3, 4), np.float32)}, samples=2)
    assert found.ok and len(found.samples) == 2


def test_an_accelerators_artifact_keeps_pins(tmp_path: Path) -> None:
    entries = [*toy("npu", "nn.relu"), *entry_of(host_kind("plain"))]
    host = PluginHost(lambda: entries)
    (tmp_path / "net.py").write_text(NET)
    built = package.build(tmp_path / "net.py", ["npu", "plain"], pins={"block/relu": "plain"}, plugins=host)
    path = built.save(tmp_path / "out")
    assert package.explain(path, plugins=host).ops[0].pin == "plain"
    with pytest.raises(UmaError, match="npu"):
        package.explain(path)
    kept, why = try_kept_model(package.load(path), default_host())
    assert kept is None and why is not None and "npu" in why
    assert package.report(path, compiled=False).of_artifact
    assert not package.report(path, plugins=host, compiled=False).of_artifact


def test_a_partitioner_of_the_callers_is_kept_in_memory_only(net: Path, tmp_path: Path) -> None:
    built = package.build(net / "net.py", HOST, partition=lambda problem: eager(problem))
    assert package.explain(built).host == "c"
    loaded = package.load(built.save(tmp_path / "out"))
    assert not (tmp_path / "out" / "model").exists()
    assert try_kept_model(loaded, default_host()) == (None, None)
    with pytest.raises(ModelError, match="does not keep the model that it was built from"):
        package.verify(loaded)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"target": HOST}, "target"),
        ({"shapes": {"rows": 1}}, "shapes"),
        ({"import_limit": 64}, "import_limit"),
        ({"partition": "collage"}, "partition"),
        ({"allow": {"npu.x": "declared"}}, "allow"),
    ],
)
@pytest.mark.parametrize("function", [package.verify, package.explain, package.report])
def test_options_of_the_build_contradict_an_artifact(
    function: Callable[..., object], options: dict[str, Any], name: str, saved: Path
) -> None:
    with pytest.raises(UsageError, match="an artifact is built already") as caught:
        function(package.load(saved), **options)
    assert caught.value.hint == f"leave out {name}; the artifact records how it was built"


@pytest.mark.parametrize("function", [package.verify, package.explain, package.report])
def test_a_model_needs_a_target(function: Callable[..., object], saved: Path) -> None:
    with pytest.raises(UsageError, match="a model needs a target"):
        function(saved.parent / "net.py")


def test_another_runtime_reads_no_artifact(saved: Path) -> None:
    with pytest.raises(UsageError, match="litert reads model files alone"):
        package.verify(saved, against="litert")


def write(folder: Path, name: str, content: bytes) -> None:
    """Write a file of the folder ``model``, with a list of digests that has it."""
    (folder / name).write_bytes(content)
    files = [path for path in folder.iterdir() if path.name != "digests.json"]
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}
    (folder / "digests.json").write_text(json.dumps(digests))


def hybrid(folder: Path) -> None:
    build = json.loads((folder / "build.json").read_text())
    write(folder, "build.json", json.dumps({**build, "options": {"allow": {"hybrid": "other"}}}).encode())


def unknown(folder: Path) -> None:
    build = json.loads((folder / "build.json").read_text())
    write(folder, "build.json", json.dumps({**build, "options": {"dump": "folder"}}).encode())


def edited(folder: Path) -> None:
    (folder / "model.py").write_text((folder / "model.py").read_text() + "\n")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (edited, "'model.py' was changed"),
        (lambda folder: (folder / "build.json").unlink(), "cannot be read: 'build.json' was removed"),
        (lambda folder: (folder / "digests.json").write_text("[]"), "digests.json lists no files"),
        (lambda folder: write(folder, "build.json", b"{}"), "cannot be read: "),
        (lambda folder: write(folder, "build.json", b"\xff"), "cannot be read: "),
        (hybrid, "'other' is not a value of hybrid in allow"),
        (unknown, "'dump' is not an option of a saved model"),
        (lambda folder: write(folder, "plan.json", b"[" * 9999), "cannot be read: "),
        (lambda folder: write(folder, "plan.json", b"{}"), "the file holds no plan"),
        (lambda folder: write(folder, "model.py", b"def"), "model.py:1"),
        (lambda folder: write(folder, "constants.npz", b"PK"), "the constants are damaged"),
        (
            lambda folder: write(folder, "model.py", NET.replace("-0.25", "-0.5").encode()),
            "its model does not give this artifact here: 'net",
        ),
    ],
)
def test_a_damaged_model_is_an_error(change: Callable[[Path], None], what: str, saved: Path) -> None:
    change(saved / "model")
    with pytest.raises(UmaError) as caught:
        package.verify(saved)
    assert what in str(caught.value) and not isinstance(caught.value, InternalError)
    assert package.report(saved, compiled=False).of_artifact


def test_an_archive_of_a_model_is_not_compressed(saved: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in filter(Path.is_file, saved.rglob("*")):
            archive.write(path, path.relative_to(saved))
    with pytest.raises(ModelError, match="cannot be read: it is compressed"):
        package.explain(packed)


def test_versions_that_differ_are_named(saved: Path) -> None:
    loaded = package.load(saved)
    changed = {**loaded.files, "net.c": loaded.files["net.c"] + b"\n"}
    artifact = Artifact(changed, dataclasses.replace(loaded.record, uma_version="0.0.1"), SavedModel(saved))
    with pytest.raises(ModelError, match=r"its model does not give this artifact here: 'net\.c' differs") as caught:
        package.explain(artifact)
    assert "it was built with uma-core 0.0.1 (here" in str(caught.value.hint)


def test_a_folder_without_a_model_is_replaced_and_runs(saved: Path) -> None:
    shutil.rmtree(saved / "model")
    loaded = package.load(saved)
    assert loaded.save(saved) == saved and not (saved / "model").exists()
    (saved / "model").mkdir()
    (saved / "model" / "mine").touch()
    with pytest.raises(UsageError, match="files of another origin, 'model'"):
        loaded.save(saved)


def test_sizes_are_kept(saved: Path) -> None:
    loaded = package.load(saved)
    assert loaded.known_footprint().code_bytes is None
    size = loaded.footprint()
    loaded.save(saved)
    assert package.load(saved).known_footprint() == size
    assert read_sizes(b"[]") == read_sizes(b"\xff") == read_sizes(b'{"code_bytes": "x", "stack_bytes": -1}')
    assert read_sizes(b"[]") == (None, None)
