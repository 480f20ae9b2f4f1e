"""The shared fixtures, run as a test author meets them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

CONFTEST = Path(__file__).resolve().parent.parent / "conftest.py"


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.Pytester]:
    """A project with our conftest.py, seen from outside a soak run; its pytest runs in this process, which is quick."""
    profile = hypothesis.settings.get_current_profile_name()
    for name in ("UMA_SOAK", "UMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    pytester.makeini("[pytest]\nmarkers = soak: long")
    yield pytester
    hypothesis.settings.load_profile(profile)


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    return project.runpytest_inprocess("-p", "no:cacheprovider", *args)


def test_golden_is_written_compared_and_explained(project: pytest.Pytester) -> None:
    test = "def test_a(golden):\n    golden('one\\ntwo\\n', 'a.txt')\n"
    path = project.makepyfile(test_g=test).parent / "golden" / "test_g" / "a.txt"

    missing = run(project)
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["there is no golden file *a.txt", "*pytest --update-golden 'test_g.py::test_a'*"])

    run(project, "--update-golden").assert_outcomes(passed=1)
    assert path.read_bytes() == b"one\ntwo\n"
    run(project).assert_outcomes(passed=1)

    path.write_bytes(b"one\nthree\n")
    differs = run(project)
    differs.assert_outcomes(failed=1)
    differs.stdout.fnmatch_lines(["-three", "+two", "*pytest --update-golden 'test_g.py::test_a'*"])


def test_soak_tests_run_only_when_asked_for(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    project.makepyfile("import pytest\n@pytest.mark.soak\ndef test_a(): pass\n")
    skipped = run(project, "-rs")
    skipped.assert_outcomes(skipped=1)
    skipped.stdout.fnmatch_lines(["*set UMA_SOAK=1, or run `make soak`*"])
    monkeypatch.setenv("UMA_SOAK", "1")
    run(project).assert_outcomes(passed=1)


def test_what_tests_measured_is_shown(project: pytest.Pytester) -> None:
    source = "def test_%s(record_property):\n    record_property('measured', '%s')\n    assert %s\n"
    project.makepyfile(test_m=source % ("b", "second", True) + source % ("a", "first", False))
    run(project).stdout.fnmatch_lines(["*= measured =*", "first", "second"])
    project.makepyfile(test_m="def test_nothing(): pass\n")
    run(project).stdout.no_fnmatch_line("*= measured =*")


def test_models_are_named_found_or_said_to_be_missing(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile("def test_a(models):\n    assert models.is_dir()\n")
    skipped = run(project, "-rs")
    skipped.assert_outcomes(skipped=1)
    skipped.stdout.fnmatch_lines(["*no real models: there is no *shared?models, and UMA_MODELS is not set*"])

    monkeypatch.setenv("UMA_MODELS", str(project.mkdir("mine")))
    run(project).assert_outcomes(passed=1)

    monkeypatch.setenv("UMA_MODELS", "nowhere")
    wrong = run(project)
    wrong.assert_outcomes(errors=1)
    wrong.stdout.fnmatch_lines(["*UMA_MODELS names nowhere, which is no folder"])


def test_compilers_are_those_on_the_path(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    project.makepyfile("def test_a(compilers):\n    assert compilers == ('clang',)\n")
    tool = project.mkdir("bin") / "clang"
    tool.write_text("")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    run(project).assert_outcomes(passed=1)

    tool.unlink()
    none = run(project, "-rs")
    none.assert_outcomes(skipped=1)
    none.stdout.fnmatch_lines(["*neither gcc nor clang is on PATH*"])
