"""The judge: every planted difference is noticed, and only what a row allows is allowed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import onnx
import pytest
from tests.same import allowed, builds, corpus, driver, environments
from tests.same.__main__ import ROOT, list_sources, main
from tests.same.builds import TOO_LONG, Build, Outcome, Store
from tests.same.comparison import KINDS, Difference, compare
from tests.same.configurations import CONFIGURATIONS
from tests.same.environments import Side
from tests.same.errors import SameError
from tests.same.report import Report
from tests.same.sizes import estimate_ram_bytes

BUILD = Build(corpus.Model("net-0", "net-0.onnx", "0"), CONFIGURATIONS[0])

METADATA = {"arena_bytes": 64, "calls": [{"name": "one", "work": 5}, {"name": "two", "work": 6}]}
FILES = {
    "out/net_0.c": b'/* first */\nint one; // note\nconst char *text = "/* no comment */";\n',
    "out/net_0.h": b"extern int one;\n",
    "out/Makefile": b"# how to build\nall: net_0.o\n",
    "out/net_0_weights.S": b"/* weights */\n.byte 1\n",
    "out/net_0_weights.bin": b"\xff\x00\x01",
    "dump/1-import.py": b"# stage\nv0 = nn.relu(x)\n",
    "dump/constants.npz": b"PK\xff\x00",
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "same")


Make = Callable[..., Outcome]


@pytest.fixture
def outcome(store: Store) -> Make:
    """Makes an outcome with files, which the metadata list as an artifact's do."""

    def make(
        changes: Mapping[str, bytes | None] = {}, metadata: object = METADATA, code: int | None = 0, message: str = ""
    ) -> Outcome:
        contents = {name: content for name, content in {**FILES, **changes}.items() if content is not None}
        digests = {name: driver.store(store.objects, content) for name, content in contents.items()}
        sizes = {name: len(content) for name, content in contents.items()}
        listed = {
            name[4:]: {"bytes": sizes[name], "sha256": digests[name]} for name in sizes if name.startswith("out/")
        }
        assert isinstance(metadata, dict)
        text = json.dumps({**metadata, "files": listed}, indent=1).encode()
        digests["out/metadata.json"] = driver.store(store.objects, text)
        return Outcome(code, message, digests, sizes=sizes)

    return make


CHANGES: dict[str, tuple[str, dict[str, object]]] = {
    "a statement": ("code", {"changes": {"out/net_0.c": FILES["out/net_0.c"].replace(b"int one", b"int two")}}),
    "a string": ("code", {"changes": {"out/net_0.c": FILES["out/net_0.c"].replace(b"no comment", b"comment")}}),
    "a declaration": ("code", {"changes": {"out/net_0.h": b"extern int two;\n"}}),
    "a rule": ("code", {"changes": {"out/Makefile": b"# how to build\nall: net_1.o\n"}}),
    "assembler": ("code", {"changes": {"out/net_0_weights.S": b"/* weights */\n.byte 2\n"}}),
    "a comment": ("comments", {"changes": {"out/net_0.c": FILES["out/net_0.c"].replace(b"first", b"second")}}),
    "a comment of make": ("comments", {"changes": {"out/Makefile": b"all: net_0.o\n"}}),
    "a blank line": ("comments", {"changes": {"out/net_0.h": b"\nextern int one;\n"}}),
    "weights": ("data", {"changes": {"out/net_0_weights.bin": b"\xff\x00\x02"}}),
    "a stage": ("dump", {"changes": {"dump/1-import.py": b"# stage\nv0 = nn.tanh(x)\n"}}),
    "no stage": ("dump", {"changes": {"dump/1-import.py": None}}),
    "constants": ("dump", {"changes": {"dump/constants.npz": b"PK\xff\x01"}}),
    "one file more": ("file", {"changes": {"out/more.c": b"int more;\n"}}),
    "one file less": ("file", {"changes": {"out/net_0.h": None}}),
    "metadata": ("metadata", {"metadata": {**METADATA, "arena_bytes": 65}}),
    "the order of metadata": ("metadata", {"metadata": dict(reversed(METADATA.items()))}),
    "a message": ("message", {"message": "uma: warning: slow\n"}),
    "an error": ("outcome", {"code": 4, "message": "uma: error: no\n"}),
    "a fault": ("outcome", {"code": None}),
}
"""A planted difference, and the kinds that it must have."""


@pytest.mark.parametrize("planted", CHANGES)
def test_a_planted_difference_has_its_kind(planted: str, outcome: Make, store: Store) -> None:
    kind, change = CHANGES[planted]
    differences = list(compare(BUILD, outcome(), outcome(**change), store.text))
    listed = [one for one in differences if one.key.startswith("files.")]  # a file that is there on one side only
    assert {one.kind for one in differences if one not in listed} == {kind}
    assert bool(listed) == (kind == "file")
    assert all(one.show() for one in differences)


def test_equal_outcomes_have_no_difference(outcome: Make, store: Store) -> None:
    assert not list(compare(BUILD, outcome(), outcome(), store.text))


def test_metadata_that_are_no_json(outcome: Make, store: Store) -> None:
    digest = driver.store(store.objects, b"{")
    damaged = replace(outcome(), files={**outcome().files, "out/metadata.json": digest})
    (difference,) = compare(BUILD, outcome(), damaged, store.text)
    assert (difference.kind, difference.key) == ("metadata", "(no JSON)")


def test_a_digest_of_no_file_is_compared(outcome: Make, store: Store) -> None:
    before, after = (outcome(metadata={**METADATA, "model": {"sha256": digit * 64}}) for digit in "12")
    (difference,) = compare(BUILD, before, after, store.text)
    assert difference.key == "model.sha256"


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_explains_its_kind_and_no_other(kind: str, outcome: Make, store: Store) -> None:
    row = allowed.Row("a reason", kinds=(kind,))
    seen = set()
    for _, change in CHANGES.values():
        for difference in compare(BUILD, outcome(), outcome(**change), store.text):
            unexplained, (count,) = allowed.explain([row], [difference])
            assert count == (difference.kind == kind) == (not unexplained)
            seen.add(difference.kind)
    assert seen == set(KINDS)


def differences_of(outcome: Make, store: Store, metadata: object) -> list[Difference]:
    return list(compare(BUILD, outcome(), outcome(metadata=metadata), store.text))


@pytest.mark.parametrize(("name", "explained"), [("cost", True), ("other", False)])
def test_a_renamed_key_of_metadata(name: str, explained: bool, outcome: Make, store: Store) -> None:
    calls = [{"name": call["name"], "cost": call["work"]} for call in METADATA["calls"]]  # type: ignore[index,attr-defined]
    differences = differences_of(outcome, store, {**METADATA, "calls": calls})
    assert [one.key for one in differences] == [f"calls[{i}].{key}" for i in (0, 1) for key in ("cost", "work")]
    row = allowed.Row("renamed", renamed=("calls[].work", f"calls[].{name}"))
    assert allowed.explain([row], differences) == (([], [4]) if explained else (differences, [0]))


def test_a_renamed_key_with_another_value(outcome: Make, store: Store) -> None:
    calls = [{"name": "one", "cost": 5}, {"name": "two", "cost": 7}]
    differences = differences_of(outcome, store, {**METADATA, "calls": calls})
    unexplained, counts = allowed.explain([allowed.Row("r", renamed=("calls[].work", "calls[].cost"))], differences)
    assert [one.key for one in unexplained] == ["calls[1].cost", "calls[1].work"] and counts == [2]


@pytest.mark.parametrize(
    ("patterns", "explained"),
    [
        ({"models": ("net-*",)}, True),
        ({"models": ("other-*",)}, False),
        ({"configurations": ("x86-64", "aarch64")}, True),
        ({"configurations": ("cortex-*",)}, False),
        ({"files": ("out/*.json",)}, True),
        ({"files": ("*.c",)}, False),
        ({"keys": ("calls[].work",)}, True),
        ({"keys": ("calls[].name",)}, False),
        ({"changes": ("changed",)}, True),
        ({"changes": ("added", "removed")}, False),
    ],
)
def test_patterns_of_a_row(patterns: dict[str, Sequence[str]], explained: bool, outcome: Make, store: Store) -> None:
    calls = [METADATA["calls"][0], {"name": "two", "work": 7}]  # type: ignore[index]
    differences = differences_of(outcome, store, {**METADATA, "calls": calls})
    unexplained, (count,) = allowed.explain([allowed.Row("r", **patterns)], differences)  # type: ignore[arg-type]
    assert (not unexplained) == bool(count) == explained


def test_the_report_counts_and_groups(outcome: Make, store: Store) -> None:
    planned = [replace(BUILD, configuration=how) for how in CONFIGURATIONS[:4]]
    comment, statement = (outcome(**CHANGES[name][1]) for name in ("a comment", "a statement"))
    before = {build.key: outcome() for build in planned}
    after = dict(zip(before, [outcome(), comment, statement, statement], strict=True))
    rows = [allowed.Row("comments are rewritten", kinds=("comments",)), allowed.Row("messages too", kinds=("message",))]
    report = Report(planned, before, after, rows, store.text)
    text = "\n".join(report.lines())
    assert "allowed, 1 differences: comments are rewritten" in text
    assert "allowed, explains nothing: messages too" in text
    assert "2 differences in 2 builds are not allowed" in text
    assert "code changed in out/net_0.c: 2 times" in text
    assert "configurations: avx512-vnni, aarch64\n" in text and "| -int one; // note" in text
    assert [len(report.unexplained), *report.counts] == [2, 1, 0]
    *_, numbers, verdict = Report(planned, before, before, [], store.text).lines()
    assert verdict == "no difference" and numbers.split()[:6] == ["all", "4", "0", "4", "0", "0"]


# --- the file of rows ------------------------------------------------------------------------------------------------


def test_the_rows_of_this_repository_can_be_read() -> None:
    assert all(row.reason for row in allowed.read())


def test_a_row_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "allowed.toml"
    path.write_text('[[allowed]]\nreason = "issue 1"\nkinds = ["comments"]\nmodels = ["a*", "b"]\n')
    assert allowed.read(path) == [allowed.Row("issue 1", kinds=("comments",), models=("a*", "b"))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[allowed]", "is not TOML"),
        ('[[allowed]]\nkinds = ["code"]', "row 1 of .* has no reason"),
        ('[[allowed]]\nreason = "r"', "row 1 of .* allows every difference"),
        ('[[allowed]]\nreason = "r"\nmodel = ["x"]', "has the key 'model'"),
        ('[[allowed]]\nreason = "r"\nkinds = ["comment"]', "has the kind 'comment'"),
        ('[[allowed]]\nreason = "r"\nmodels = "x"', "models is not a list of texts"),
        ('[[allowed]]\nreason = "r"\nrenamed = ["x"]', "renamed has not two keys"),
    ],
)
def test_a_wrong_row(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "allowed.toml"
    path.write_text(text)
    with pytest.raises(SameError, match=f"{message}(?s:.*)hint: "):
        allowed.read(path)


# --- the corpus ------------------------------------------------------------------------------------------------------


def test_a_seed_reproduces_the_corpus(tmp_path: Path) -> None:
    first, again, other = (list(corpus.draw_models(seed, 0.02)) for seed in (5, 5, 6))
    assert first == again and len(first) == len(other) == len(corpus.FAMILIES)
    assert all(a.content != b.content for a, b in zip(first, other, strict=True) if not a.name.startswith("tflite"))
    folder, models = corpus.write(tmp_path, first)
    assert corpus.write(tmp_path, again) == (folder, models) and list(tmp_path.iterdir()) == [folder]
    assert [(folder / model.file).read_bytes() for model in models] == [source.content for source in first]


@pytest.mark.soak
def test_the_corpus_has_many_operators() -> None:
    models = list(corpus.draw_models(0))
    assert len(models) == corpus.COUNT and models == list(corpus.draw_models(0))
    files = [source.content for source in models if source.name.endswith(".onnx")]
    operators = {node.op_type for content in files for node in onnx.load_from_string(content).graph.node}
    assert len(operators) > 70


def test_families_add_up() -> None:
    assert sum(count for count, _ in corpus.FAMILIES.values()) == corpus.COUNT
    assert len(CONFIGURATIONS) == 16 and len({how.name for how in CONFIGURATIONS}) == 16


def test_what_a_configuration_builds() -> None:
    is_open = corpus.Model("open-01", "open-01.onnx", "1", ("steps=9",), ("steps=1..9",), 99)
    fixed = corpus.Model("image-01", "image-01.onnx", "2", ram_bytes=77)
    planned = {
        (build.configuration.name, build.model.name): build for build in builds.plan([is_open, fixed], CONFIGURATIONS)
    }
    assert "steps=1..9" in planned["dynamic", "open-01"].arguments
    assert "steps=9" in planned["x86-64", "open-01"].arguments
    assert "--max-ram 77 " in " ".join(planned["max-ram", "image-01"].arguments)
    assert ("dynamic", "image-01") not in planned and ("ultra-trail", "image-01") not in planned
    assert len({build.key for build in planned.values()}) == len(planned)


def test_a_limit_of_ram() -> None:
    """Input and output, and a share of what the larger of two operators reads and writes."""
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 8])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    weight = onnx.numpy_helper.from_array(np.zeros((8, 100), np.float32), "w")
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["v"]), onnx.helper.make_node("Relu", ["v"], ["y"])]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y], [weight]))
    content = model.SerializeToString()
    assert estimate_ram_bytes(content, ("n=2",)) == 2 * 8 * 4 + 2 * 100 * 4 + 2 * 2 * 100 * 4 * 2 // 5
    assert estimate_ram_bytes(content, ("x=3,8",)) == 3 * 8 * 4 + 3 * 100 * 4 + 2 * 3 * 100 * 4 * 2 // 5


def test_there_are_no_real_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UMA_MODELS", str(tmp_path / "nowhere"))
    with pytest.raises(SameError, match=r"no real models in .*nowhere\n  hint: .*UMA_MODELS="):
        list_sources(0, sample=True)
    with pytest.raises(SameError, match=r"no models in .*\n  hint: .*UMA_MODELS="):
        list(corpus.read_models(tmp_path))


# --- processes that build --------------------------------------------------------------------------------------------

STUB = """
import json, os, sys, time
for line in sys.stdin:
    (model,) = [word for word in json.loads(line)["arguments"] if word.startswith("models/")]
    with open({log!r}, "a") as log:
        log.write(model + "\\n")
    if "crash" in model:
        os.abort()
    if "slow" in model:
        time.sleep(60)
    print(json.dumps(dict(code=0, message="", files={{}}, sizes={{}}, cpu_seconds=0, peak_kib=0)), flush=True)
"""


def test_a_build_that_crashes_or_takes_too_long_does_not_end_the_run(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is known is not built again, except what took too long, also after a line that was cut off."""
    stub, log = tmp_path / "stub.py", tmp_path / "log"
    stub.write_text(STUB.format(log=str(log)))
    monkeypatch.setattr(builds, "DRIVER", stub)
    side = Side("stub", "stub", Path(sys.executable))

    def run(*names: str, seconds: float) -> Report:
        planned = builds.plan([corpus.Model(name, name, name) for name in names], CONFIGURATIONS[:1])
        outcomes = builds.run(side, planned, store, tmp_path, 1, seconds=seconds)
        codes.append([outcomes[build.key].code for build in planned])
        return Report(planned, outcomes, outcomes, [], store.text)

    codes: list[list[int | str | None]] = []
    run("a", "crash", "b", seconds=60)
    with store.log("stub").open("a") as file:
        file.write('{"key": "cut off')
    report = run("a", "crash", "slow", "b", seconds=0)
    assert not report.is_complete and not report.unexplained
    assert codes == [[0, "crash: signal 6", 0], [0, "crash: signal 6", TOO_LONG, 0]]
    assert len(store.outcomes("stub")) == 3
    assert not {"models/a", "models/crash", "models/b"} & set(log.read_text().splitlines()[3:])
    shown = "\n".join(report.lines())
    assert shown.endswith("no difference in what did not take too long: run it again")
    assert "  slow for x86-64: time-out" in shown and "  crash for x86-64: crash: signal 6" in shown


def test_the_driver_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """With what a command printed, wrote and raised, and nothing of the environment's path."""
    monkeypatch.chdir(tmp_path)

    def command(words: list[str]) -> int:
        print(f"in {Path(sys.prefix).parent}/tree: {words[0]}")
        if words[0] == "raise":
            raise RuntimeError("wrong")
        if words[0] == "exit":
            raise SystemExit(3)
        Path("out").mkdir()
        Path("out", "a.c").write_text("int a;\n")
        return 0

    def answers() -> Iterator[dict[str, object]]:
        requests = (json.dumps({"arguments": [word]}) for word in ("build", "raise", "exit"))
        yield from driver.serve(requests, command, tmp_path / "objects")

    with capfd.disabled():
        saved = [os.dup(number) for number in (1, 2)]
        try:
            built, raised, left = answers()
        finally:
            for number, copy in zip((1, 2), saved, strict=True):
                os.dup2(copy, number)
                os.close(copy)
    digest = driver.hashlib.sha256(b"int a;\n").hexdigest()
    assert (built["code"], built["files"], built["sizes"]) == (0, {"out/a.c": digest}, {"out/a.c": 7})
    assert (raised["code"], raised["files"]) == (None, {}) and "RuntimeError: wrong" in str(raised["message"])
    assert left["code"] == 3
    assert Store(tmp_path).text(digest) == "int a;\n"


def test_words_are_spelled_as_the_tree_has_them() -> None:
    words = {"--target": ["--targets"], "-q": [], "c": ["c", "-O3"]}
    spellings = (driver.Spelling("json", words), driver.Spelling("no_such_module", {"build": ["make"]}))
    assert driver.spell(["build", "--target", "c", "-q"], spellings) == ["build", "--targets", "c", "-O3"]


def test_only_text_is_kept(store: Store) -> None:
    assert store.text(driver.store(store.objects, b"int a;\n")) == "int a;\n"
    assert store.text(driver.store(store.objects, b"\x00\x01")) is None
    assert store.text(driver.store(store.objects, b"\xff")) is None


# --- environments ----------------------------------------------------------------------------------------------------


def test_there_is_no_such_commit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-commit", "--folder", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "has no commit 'no-such-commit'\n  hint: name a commit" in error and error.count("error") == 1


def test_there_is_no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SameError, match=r"there is no git\n  hint: install git"):
        environments.find_commit(ROOT, "HEAD")


def test_a_folder_without_a_repository(tmp_path: Path) -> None:
    with pytest.raises(SameError, match=r"git ls-files fails in .*\n  hint: run it in a clone"):
        environments.work_side(tmp_path / "same", tmp_path)


def test_an_environment_that_was_left_half_made_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments.venv.EnvBuilder, "create", lambda self, folder: folder.mkdir())
    monkeypatch.setattr(environments, "_install", _links_here)
    (tmp_path / "work" / "venv").mkdir(parents=True)
    fills: list[Path] = []
    for _ in range(2):
        assert environments._prepare(tmp_path / "work", fills.append) == tmp_path / "work" / "venv" / "bin" / "python"
    assert fills == [tmp_path / "work" / "tree"]


def test_old_environments_are_removed_unless_they_are_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments.venv.EnvBuilder, "create", lambda self, folder: folder.mkdir())
    monkeypatch.setattr(environments, "_install", lambda python, place: None)
    monkeypatch.setattr(environments, "_run", lambda command: CompletedProcess([], 0, "", ""))
    for number in range(6):  # all of this process, which holds a lock on each
        environments._prepare(tmp_path / f"in-use-{number}", lambda tree: None)
    for number in range(6):
        (tmp_path / f"old-{number}").mkdir()
        (tmp_path / f"old-{number}" / "complete").touch()
        os.utime(tmp_path / f"old-{number}" / "complete", (number, number))
    environments._prepare(tmp_path / "new", lambda tree: None)
    assert {path.name for path in tmp_path.iterdir()} == {*(f"in-use-{number}" for number in range(6)), "new", "lock"}


def _links_here(python: Path, place: Path) -> None:
    """Runs this interpreter, which finds uma through its own environment."""
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)


def test_an_environment_that_is_damaged(tmp_path: Path) -> None:
    python = tmp_path / "base" / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (tmp_path / "base" / "complete").touch()
    python.write_text("#!/bin/sh\necho no module >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(
        SameError, match=r"(?s)base cannot import uma.cli: no module.*hint: remove .*base, and run again"
    ):
        environments._prepare(tmp_path / "base", lambda tree: pytest.fail("it is complete"))


def test_an_installation_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for a complete one."""
    monkeypatch.setattr(environments.venv.EnvBuilder, "create", lambda self, folder: folder.mkdir())
    failure = CompletedProcess([], 1, "", "no index\n")
    monkeypatch.setattr(environments, "_run", lambda command: failure)
    place = tmp_path / "base"
    for _ in range(2):
        with pytest.raises(SameError, match=r"(?s)base cannot be installed into .*venv:\n  no index\n  hint: "):
            environments._prepare(place, lambda tree: None)
    assert not (place / "complete").exists()


# --- builds ----------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_sample_does_not_depend_on_the_process(models: Path, tmp_path: Path) -> None:
    """On the order of sets, the locale, the time zone, the folder, or what else the process has built."""
    folder, listed = corpus.write(tmp_path / "corpus", list_sources(0, sample=True))
    planned = builds.plan(listed, CONFIGURATIONS)
    store, side = Store(tmp_path), environments.current_side()
    other = {**builds.VARIABLES, "PYTHONHASHSEED": "7", "LC_ALL": "C", "TZ": "Asia/Tokyo", "COLUMNS": "40"}
    before = builds.run(replace(side, key="one"), planned, store, folder, 2)
    after = builds.run(replace(side, key="two"), planned[::-1], store, folder, 2, other)
    report = Report(planned, before, after, [], store.text)
    assert not report.unexplained, "\n".join(report.lines())
    assert all(before[build.key].code in (0, 4) for build in planned)


@pytest.mark.soak
def test_a_sample_is_as_the_last_commit_has_it(models: Path, tmp_path: Path) -> None:
    try:
        side = environments.base_side(tmp_path, ROOT, environments.find_commit(ROOT, "HEAD"))
    except SameError as error:
        pytest.skip(f"there is no environment of the last commit: {error}")
    folder, listed = corpus.write(tmp_path / "corpus", list_sources(0, sample=True))
    planned, store = builds.plan(listed, CONFIGURATIONS), Store(tmp_path)
    before, after = (builds.run(one, planned, store, folder, 2) for one in (side, environments.current_side()))
    report = Report(planned, before, after, allowed.read(), store.text)
    assert not report.unexplained, "\n".join(report.lines())
