"""The shared fixtures, run as a test author meets them."""

from __future__ import annotations

import os
import subprocess
import sys
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
    pytester.makeini("[pytest]\nmarkers =\n  soak: long\n  few(count): few")
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


def test_few_of_the_cases_run_outside_of_a_soak(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.few(3)
        @pytest.mark.parametrize("case", range(7))
        def test_a(case):
            print("ran", case)

        @pytest.mark.few(1)
        @pytest.mark.parametrize("case", "xy")
        def test_b(case):
            print("ran", case)
        """
    )
    found = run(project, "-s")
    found.assert_outcomes(passed=4, skipped=5)
    found.stdout.fnmatch_lines(["*ran 0", "*ran 3", "*ran 6", "*ran x"])
    monkeypatch.setenv("UMA_SOAK", "1")
    run(project, "-m", "soak").assert_outcomes(passed=5, deselected=4)


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
    wrong.stdout.fnmatch_lines(["*UMA_MODELS names nowhere, which is not a folder"])


def test_compilers_are_those_on_the_path(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    project.makepyfile("def test_a(compilers):\n    assert compilers == ('clang',)\n")
    tool = project.mkdir("bin") / "clang"
    tool.write_text("#!/bin/sh\necho 'clang version 14'\necho 'Target: x86_64-linux-gnu'\n")  # it makes any program
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    run(project).assert_outcomes(passed=1)

    tool.unlink()
    none = run(project, "-rs")
    none.assert_outcomes(skipped=1)
    none.stdout.fnmatch_lines(["*neither gcc nor clang can be used: gcc is not installed, clang is not installed*"])


def test_the_environment_does_not_matter(pytester: pytest.Pytester) -> None:
    """What a shell, a build, or another project has set reaches neither the tests nor what they start."""
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    pytester.makeini("[pytest]\nmarkers =\n  soak: long\n  few(count): few")
    pytester.makepyfile(
        """
        import os, signal, subprocess, sys
        HERE = "import os; print(*sorted(set(os.environ) & set(%r)), oct(os.umask(0)))"
        def test_it():
            names = os.environ["NAMES"].split(",")
            out = subprocess.run([sys.executable, "-c", HERE % names], capture_output=True, text=True, check=True)
            assert (out.stdout.split(), out.stderr) == (["UMA_MODELS", "0o22"], "")
            assert os.environ["LC_ALL"] == "C.UTF-8"
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        """
    )
    hostile = {
        "CC": "/no/cc", "CFLAGS": "-Wno", "MAKEFLAGS": "-j4 --print-directory", "CPATH": "/no", "PIP_NO_INDEX": "1",
        "PYTHONWARNINGS": "error", "PYTHONIOENCODING": "latin-1", "PYTEST_ADDOPTS": "-q", "SOURCE_DATE_EPOCH": "0",
        "UMA_DISABLE_PLUGINS": "c", "UMA_CACHE_DIR": "/no", "UMA_LIBRARY_PATH": "/no", "UMA_MODELS": "kept",
        "LANG": "tr_TR.ISO-8859-9", "TZ": "Asia/Kathmandu", "XDG_CACHE_HOME": "/no", "UV_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1", "FORCE_COLOR": "1", "COLUMNS": "20", "TERM": "dumb",
    }  # fmt: skip
    environment = {**os.environ, **hostile, "NAMES": ",".join(hostile)}
    command = [
        "sh",
        "-c",
        'trap "" INT; umask 000 && exec "$0" -W ignore -m pytest -p no:cacheprovider',
        sys.executable,
    ]
    done = subprocess.run(command, cwd=pytester.path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
