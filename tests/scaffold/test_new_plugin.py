"""``uma new-plugin``: names, folders, files; what it writes is what stands in ``examples/``, and builds models."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests._support.plugins import HOST, accelerator, entry_of
from tests._support.small_models import Uma

import uma as uma_package
from uma.cli import COMMANDS
from uma.errors import UsageError
from uma.plugins import PluginEntry, PluginHost
from uma.relay import FixedPoint, Function, IRModule, TensorType, Var, call, const
from uma.scaffold import DTYPES, LOWERINGS, Names, NewPackage, new_package, package
from uma.scaffold.package import _compatible

ROOT = Path(__file__).parents[2]
CSRC = Path(uma_package.__file__).parent / "runtime" / "csrc"
EXAMPLE = ROOT / "examples" / "uma-mac-array"
HOST_DISTRIBUTION = ("uma-some-host", "0.1.0")
FORMS = sorted(package._FORMS)


def made(kind: str, lowering: str = "loops", dtype: str = "int8") -> NewPackage:
    return new_package(Names(kind), lowering, dtype, host="c", host_distribution=HOST_DISTRIBUTION)


def written(kind: str, folder: Path, lowering: str = "loops", dtype: str = "int8") -> Path:
    new = made(kind, lowering, dtype)
    new.write(folder / new.names.distribution)
    return folder / new.names.distribution


@pytest.mark.parametrize(("lowering", "dtype"), FORMS)
def test_the_keyword_names_the_kind_and_its_device_type(lowering: str, dtype: str) -> None:
    files = made("acme_npu", lowering, dtype).files
    [device_type] = re.findall(r'device_type="(\w+)"', files["src/uma_acme_npu/__init__.py"])
    assert f'\nkeywords = ["uma-accelerator:acme_npu:{device_type}"]\n' in files["pyproject.toml"]


# --- Names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["acme_npu", "acme-npu", "uma-acme-npu", "uma_acme_npu"])
def test_all_names_follow_from_one(given: str) -> None:
    names = Names.from_text(given)
    assert (names.kind, names.package) == ("acme_npu", "uma_acme_npu")
    assert (names.distribution, names.dashed) == ("uma-acme-npu", "acme-npu")
    assert names.put("uma-my-npu uma_my_npu MY_NPU_ID my_npu.conv2d") == (
        "uma-acme-npu uma_acme_npu ACME_NPU_ID acme_npu.conv2d"
    )


@pytest.mark.parametrize(
    ("given", "why", "better"),
    [
        ("", "is not a name of a plugin", "acme_npu"),
        ("x", "is not a name of a plugin", "x_npu"),
        ("AcmeNPU", "is not a name of a plugin", "acme_npu"),
        ("8lanes", "is not a name of a plugin", "lanes"),
        ("acme__npu", "is not a name of a plugin", "acme_npu"),
        ("acme npu", "is not a name of a plugin", "acme_npu"),
        ("../acme", "is not a name of a plugin", "acme"),
        ("acmé", "is not a name of a plugin", "acm"),
        ("a" * 21, "is not a name of a plugin", "a" * 20),
        ("lambda", "is a word of Python", "lambda_npu"),
        ("match", "is a word of Python", "match_npu"),
        ("list", "is a word of Python", "list_npu"),
        ("double", "is a word of C", "double_npu"),
        ("uma-doctor", "is a command of uma", "doctor_npu"),
        ("new-plugin", "is a command of uma", "new_plugin_npu"),
        ("core", "is UMA's own", "core_npu"),
        ("my_npu", "is UMA's own", "acme_npu"),
        ("taken", "is a target kind of an installed plugin already", "taken_2"),
        ("cpu-c", "there is a package uma_cpu_c already", "cpu_c_2"),
    ],
)
def test_names_that_do_not_work(given: str, why: str, better: str) -> None:
    with pytest.raises(UsageError) as refused:
        Names.from_text(given, kinds=["taken"], commands=COMMANDS)
    assert why in refused.value.what
    hint = refused.value.hint or ""
    assert hint.startswith(f"{better} would do; a name is that of a vendor or chip: ")
    assert Names.from_text(better, kinds=["taken"], commands=COMMANDS).kind == better


# --- Folders ---------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def some_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed are a host and an accelerator."""
    plugins = PluginHost(lambda: [*entry_of(HOST), *entry_of(accelerator("npu"))])
    monkeypatch.setattr("uma.plugins.default_host", lambda: plugins)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def uma(folder: Path, capsys: pytest.CaptureFixture[str]) -> Uma:
    """The command line, in an empty folder."""
    return Uma(capsys)


def run(uma: Uma, *arguments: object) -> str:
    done = uma("new-plugin", *arguments, "--host", "plain")
    assert done.code == 0, done.err
    return done.out


def test_it_says_what_to_do_next(uma: Uma, folder: Path) -> None:
    told = run(uma, "acme_npu")
    names = re.findall(r"uma-acme-npu|uma build MODEL --target acme_npu --target plain", told)
    assert names == [*["uma-acme-npu"] * 4, "uma build MODEL --target acme_npu --target plain", "uma-acme-npu"]
    files = [path for path in sorted((folder / "uma-acme-npu").rglob("*")) if path.is_file()]
    assert told.startswith(f"uma-acme-npu: {len(files)} files; target kind acme_npu, package uma_acme_npu\n")
    assert {path.stat().st_mode & 0o111 for path in files} == {0}
    record = uma("new-plugin", "acme_npu", "--host", "plain", "-o", "other", "--json").json
    assert (record["folder"], record["kind"], record["distribution"]) == ("other", "acme_npu", "uma-acme-npu")
    assert record["files"] == [path.relative_to(folder / "uma-acme-npu").as_posix() for path in files]
    assert len(record["next"]) == 4


def test_an_empty_folder_is_filled_and_a_full_one_is_refused(uma: Uma, folder: Path) -> None:
    (folder / "uma-acme-npu").mkdir()
    run(uma, "acme_npu")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = uma("new-plugin", "acme_npu", "--host", "plain", "--dtype", "int8")
    assert done.code == 2 and "the folder is not empty" in done.err and "-o" in done.err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("what", ["file", "link", "dangling"])
def test_what_is_no_folder_stays_as_it_is(uma: Uma, folder: Path, what: str) -> None:
    place, other = folder / "uma-acme-npu", folder / "other"
    if what == "file":
        place.write_text("mine")
    else:
        place.symlink_to(other)
        if what == "link":
            other.mkdir()
    done = uma("new-plugin", "acme_npu", "--host", "plain")
    assert done.code == 2 and "what is there is no folder" in done.err
    assert place.is_symlink() or place.read_text() == "mine"
    assert not other.exists() or list(other.iterdir()) == []


def test_nothing_is_half_written(uma: Uma, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, count = Path.write_text, itertools.count()

    def full_disk(path: Path, *args: Any, **named: Any) -> int:
        if next(count) == 5:
            raise OSError(28, "No space left on device")
        return write(path, *args, **named)

    before = sorted(folder.iterdir())
    monkeypatch.setattr(Path, "write_text", full_disk)
    done = uma("new-plugin", "acme_npu", "--host", "plain")
    assert done.code == 2 and "cannot write the package: No space left on device" in done.err
    assert sorted(folder.iterdir()) == before


def test_a_host_must_be_one(uma: Uma, folder: Path) -> None:
    done = uma("new-plugin", "acme_npu", "--host", "npu")
    assert done.code == 2 and "target kind 'npu' is not a host" in done.err
    assert uma("new-plugin", "acme_npu", "--host", "nobody").code == 2
    assert uma("new-plugin", "NPU", "--host", "plain").code == 2
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("version", "needs"),
    [
        ("0.1.0", ">=0.1,<0.2"),
        ("0.9", ">=0.9,<0.10"),
        ("1.4.2", ">=1.4,<2"),
        ("2", ">=2.0,<3"),
        ("0.3.dev1", ">=0.3,<0.4"),
    ],
)
def test_which_versions_go_together(version: str, needs: str) -> None:
    assert _compatible(version) == needs


def test_a_form_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="there is no template for --lowering loops --dtype bool"):
        made("acme_npu", "loops", "bool")


# --- Files -----------------------------------------------------------------------------------------------------------


def content(folder: Path) -> dict[str, str]:
    """What is kept of a package's folder."""
    listed = subprocess.run(["git", "ls-files", "-z", "."], cwd=folder, capture_output=True, text=True, check=True)
    return {name: (folder / name).read_text(encoding="utf-8") for name in listed.stdout.split("\0") if name}


def test_the_example_is_what_is_written() -> None:
    """Change the template, not the example: then ``uma new-plugin mac-array -o DIR`` is what the example has to be."""
    new = new_package(Names("mac_array"), "loops", "int8", host="c", host_distribution=("uma-cpu-c", "0.1.0"))
    assert content(EXAMPLE) == new.files


@pytest.mark.parametrize(("lowering", "dtype"), FORMS)
@pytest.mark.parametrize("kind", ["ab", "a2345678901234567890"])
def test_files_are_filled_and_well_formed(lowering: str, dtype: str, kind: str, tmp_path: Path) -> None:
    new = made(kind, lowering, dtype)
    for path, text in new.files.items():
        assert "my_npu" not in text.lower() and "my-npu" not in text and "my_npu" not in path, path
        assert re.findall(r"@[A-Z_]+@", text) == [] and text.endswith("\n" * (text != "")), path
        if path.endswith(".py"):
            ast.parse(text, feature_version=(3, 10))
    assert '"uma-some-host>=0.1,<0.2"' in new.files["pyproject.toml"]
    folder = written(kind, tmp_path, lowering, dtype)
    ruff = [sys.executable, "-m", "ruff"]
    settings = ["--config", str(ROOT / "pyproject.toml"), "--config", 'lint.ignore = ["D103", "I001"]']
    for command in (["check", "--no-cache", *settings], ["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        done = subprocess.run([*ruff, *command, str(folder)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.few(3)
@pytest.mark.parametrize(("lowering", "dtype"), FORMS)
def test_its_c_is_free_of_warnings(lowering: str, dtype: str, compilers: tuple[str, ...], tmp_path: Path) -> None:
    folder = written("acme_npu", tmp_path, lowering, dtype)
    for compiler in compilers:
        for source in folder.rglob("*.c"):
            flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{CSRC}"]
            command = [compiler, *flags, "-c", str(source), "-o", str(tmp_path / "out.o")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr


def test_every_form_is_offered() -> None:
    assert FORMS == sorted(itertools.product(LOWERINGS, DTYPES))


def lines_of_code(text: str) -> int:
    """Lines of a Python source but those that are blank, comments or docstrings; texts of loops count."""
    said: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            said |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
    numbered = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and n not in said for n, line in numbered)


def test_an_exact_multiply_accumulate_array_is_few_lines() -> None:
    """What is the author's: machine, patterns, lowering, cost. The bar is the issue's."""
    files = made("acme_npu").files
    counted = {
        name: lines_of_code(files[f"src/uma_acme_npu/{name}.py"]) for name in ("machine", "supported", "lower", "cost")
    }
    assert sum(counted.values()) < 300, counted


# --- Models ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def acme(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PluginHost]:
    """A host of plugins that has what was written, which is not installed."""
    folder = written("acme_npu", tmp_path, *request.param)
    monkeypatch.syspath_prepend(folder / "src")
    entries = [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("acme_npu", "uma_acme_npu", "uma-acme-npu", "0.1.0"),
    ]
    yield PluginHost(lambda: entries)
    for name in [name for name in sys.modules if name.split(".")[0] == "uma_acme_npu"]:
        del sys.modules[name]


def int8_model() -> tuple[IRModule, np.ndarray]:
    """Two convolutions and a dense layer."""
    rng = np.random.default_rng(0)

    def finished(sums: object, channels: int, rounding: str) -> object:
        sums = call("add", sums, const(rng.integers(-999, 999, channels).astype(np.int32)))
        multiplier = rng.integers(2**30, 2**31, channels)
        scale = FixedPoint(tuple(multiplier.tolist()), (-9,) * channels, rounding)
        return call("qnn.requantize", sums, scale=scale, output_zero_point=-3, dtype="int8")

    x = Var("x", TensorType((1, 9, 8, 3), "int8"))
    y = call("qnn.conv2d", x, const(rng.integers(-128, 128, (3, 3, 3, 13)).astype(np.int8)), padding=(1, 0, 1, 1))
    y = call("nn.relu", finished(y, 13, "double"))
    w = const(rng.integers(-128, 128, (3, 2, 13, 9)).astype(np.int8))
    y = finished(call("qnn.conv2d", y, w, strides=(2, 3), input_zero_point=-3), 9, "even")
    y = call("reshape", y, newshape=(1, y.tensor.size))
    w = const(rng.integers(-128, 128, (10, y.shape[1])).astype(np.int8))
    y = finished(call("qnn.dense", y, w, input_zero_point=-3), 10, "up")
    return IRModule.from_functions({"main": Function([x], y)}), rng.integers(-128, 128, (1, 9, 8, 3)).astype(np.int8)


@pytest.mark.few(1)
@pytest.mark.parametrize("acme", [form for form in FORMS if form[1] == "int8"], indirect=True)
def test_a_model_runs_on_it_exactly(acme: PluginHost) -> None:
    module, given = int8_model()
    (expected,) = uma_package.build(module, "c", plugins=acme).run(given).values()
    artifact = uma_package.build(module, "acme_npu", plugins=acme)
    (got,) = artifact.run(given).values()
    np.testing.assert_array_equal(got, expected)
    assert len(np.unique(expected)) > 5
    assert "acme_npu_" in artifact.source("model.c")


def float_model() -> tuple[IRModule, np.ndarray]:
    """A convolution and a dense layer."""
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> np.ndarray:
        return rng.uniform(-1, 1, shape).astype(np.float32)

    x = Var("x", TensorType((1, 9, 8, 3), "float32"))
    y = call("nn.conv2d", x, const(numbers(3, 3, 3, 13)), padding=(1, 0, 1, 1), strides=(2, 1))
    y = call("nn.relu", call("add", y, const(numbers(13))))
    y = call("reshape", y, newshape=(1, y.tensor.size))
    y = call("clip", call("nn.dense", y, const(numbers(10, y.shape[1]))), a_min=-2.0, a_max=3.0)
    return IRModule.from_functions({"main": Function([x], y)}), numbers(1, 9, 8, 3)


@pytest.mark.few(1)
@pytest.mark.parametrize("acme", [form for form in FORMS if form[1] == "float32"], indirect=True)
def test_a_model_of_floats_runs_on_it(acme: PluginHost) -> None:
    module, given = float_model()
    (expected,) = uma_package.build(module, "c", plugins=acme).run(given).values()
    artifact = uma_package.build(module, "acme_npu", plugins=acme)
    (got,) = artifact.run(given).values()
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert "acme_npu_" in artifact.source("model.c") and len(np.unique(expected)) > 3
