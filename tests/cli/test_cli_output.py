"""How results, notes, progress and errors are written, whatever the names in them and wherever they go."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests._support.small_models import NET, Uma

from uma.cli.output import Output
from uma.errors import ModelError, UsageError
from uma.targets.values import shorten


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.text(max_size=300), st.integers(4, 80))
def test_shortened_text_keeps_both_ends(text: str, width: int) -> None:
    short = shorten(text, width)
    assert len(short) == min(len(text), width)
    if len(text) > width:
        head, _, tail = short.partition("...")
        assert text.startswith(head)
        assert text.endswith(short[width - (width - 3 + 1) // 2 :])
        assert tail is not None
    else:
        assert short == text


def test_long_names_are_short_for_people_and_whole_for_programs(uma: Uma, folder: Path) -> None:
    name = "StatefulPartitionedCall/" + ";".join(f"model/block_{i}/relu" for i in range(20))
    assert len(name) > 400
    (folder / "net.py").write_text(NET.replace("head/softmax", name))
    for command in (["run", "--profile"], ["verify", "-v"]):
        arguments = [command[0], "net.py", "--target", "c", *command[1:]]
        assert max(map(len, uma(*arguments).out.splitlines())) < 120
    for command in ("build", "verify"):
        rows = uma(command, "net.py", "--target", "c", "--json").json
        assert rows["calls" if command == "build" else "kernels"][-1]["layers"] == [name]


def test_names_do_not_steer_the_terminal(uma: Uma, folder: Path) -> None:
    (folder / "net.py").write_text(NET.replace("'scores'", r"'\x1b[2J\x07\u202egood\t\n'"))
    for arguments in (["run"], ["verify", "-v"]):
        out = uma(arguments[0], "net.py", "--target", "c", *arguments[1:]).out
        assert "good" in out
        assert all(c.isprintable() or c == "\n" for c in out)
    said = uma("run", "\x1b[2J", "--target", "c").error(2)
    assert "\x1b" not in said


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_name_can_be_printed(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    Output(sys.stdout).line("Größe \N{SNOWMAN} \udcff")
    text = raw.getvalue().decode(encoding)
    assert text.startswith("Gr") and text.endswith("\n")
    assert ("ö" in text) == (encoding != "ascii")


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(sys.stdout, as_json=True)
    out.line("text")
    out.table({"a": "b"})
    out.notes(["note"])
    out.result({"x": (1.5, float("nan"), {"y": float("-inf")}), "é": None})
    out.finish()
    record = json.loads(capsys.readouterr().out)
    assert record == {"schema_version": 4, "x": [1.5, "nan", {"y": "-inf"}], "é": None}


def test_an_error_after_the_answer_is_no_second_answer(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(sys.stdout, as_json=True)
    out.result({"a": 1})
    assert out.fail(ModelError("late")) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"schema_version": 4, "a": 1}
    assert captured.err == "uma: error: late\n"


def test_an_error_has_all_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert Output(sys.stdout, as_json=True).fail(UsageError("what", where="here", hint="mend it")) == 2
    captured = capsys.readouterr()
    error = {"what": "what", "where": "here", "hint": "mend it", "exit_code": 2}
    assert json.loads(captured.out) == {"schema_version": 4, "error": error}
    assert captured.err == "uma: error: what\n  where: here\n  hint: mend it\n"


def test_columns_of_numbers_stand_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    Output(sys.stdout).columns(("name", "us", "share"), [("a", "1.5", "9.0%"), ("bcdefg", "100.0", "91.0%")])
    assert capsys.readouterr().out.splitlines() == [
        "  name       us  share",
        "  a         1.5   9.0%",
        "  bcdefg  100.0  91.0%",
    ]


@pytest.mark.parametrize(
    ("notes", "text"),
    [
        ([], ""),
        (["a"], "there is a note on how the model was read: -v shows it all\n"),
        (["a", "b"], "there are 2 notes on how the model was read: -v shows it all\n"),
    ],
)
def test_notes(notes: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Output(sys.stdout).notes(notes)
    assert capsys.readouterr().out == text
    Output(sys.stdout, verbose=True).notes(notes)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "".join(f"note: {note}\n" for note in notes))


class TestProgress:
    @pytest.fixture
    def terminal(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
        """Makes stderr a terminal; called within the test, as pytest gives it a stderr of its own until then."""

        def make() -> Terminal:
            made = Terminal()
            monkeypatch.setattr(sys, "stderr", made)
            return made

        monkeypatch.setenv("TERM", "xterm")
        return make

    def test_a_terminal_shows_what_is_under_way(self, terminal: Callable[[], Terminal]) -> None:
        stderr, out = terminal(), Output(sys.stdout)
        out.step("import")
        assert stderr.getvalue() == "\r\x1b[Kimport ..."
        out.step("compile")
        assert stderr.getvalue().endswith("\r\x1b[K\r\x1b[Kcompile ...")
        out.line("done")
        assert stderr.getvalue().endswith("compile ...\r\x1b[K")

    def test_an_error_replaces_it(self, terminal: Callable[[], Terminal]) -> None:
        stderr, out = terminal(), Output(sys.stdout)
        out.step("import")
        out.fail(ModelError("bad"))
        assert stderr.getvalue() == "\r\x1b[Kimport ...\r\x1b[Kuma: error: bad\n"

    @pytest.mark.parametrize("why", ["quiet", "dumb", "pipe"])
    def test_nothing_else_is_shown_it(
        self, why: str, terminal: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stderr = terminal()
        if why == "dumb":
            monkeypatch.setenv("TERM", "dumb")
        if why == "pipe":
            monkeypatch.setattr(stderr, "isatty", lambda: False)
        out = Output(sys.stdout, quiet=why == "quiet")
        out.step("import")
        out.finish()
        assert stderr.getvalue() == ""

    def test_verbose_says_how_long_each_step_took(self, capsys: pytest.CaptureFixture[str]) -> None:
        out = Output(sys.stdout, verbose=True)
        out.step("import")
        out.step("compile")
        out.finish()
        assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["import", "compile"]


class TestBrokenStreams:
    def test_a_full_disk_behind_stdout(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with open("/dev/full", "w", encoding="utf-8") as full:
            monkeypatch.setattr(sys, "stdout", full)
            with pytest.raises(UsageError, match="cannot write to standard output: No space left on device"):
                Output(sys.stdout).line("text")

    def test_a_reader_that_went_away(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as stream:
            monkeypatch.setattr(sys, "stdout", stream)
            out = Output(sys.stdout)
            with pytest.raises(BrokenPipeError):
                out.line("text")
            out.abandon()  # or closing the stream fails again

    def test_no_streams_at_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdout", None)
        monkeypatch.setattr(sys, "stderr", None)
        out = Output(sys.stdout, verbose=True)
        out.step("import")
        out.line("text")
        out.abandon()
        assert out.fail(ModelError("bad")) == 3
        out.finish()

    def test_an_error_that_nobody_can_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with open("/dev/full", "w", encoding="utf-8") as full:
            monkeypatch.setattr(sys, "stdout", full)
            monkeypatch.setattr(sys, "stderr", full)
            assert Output(sys.stdout, as_json=True).fail(ModelError("bad")) == 3
