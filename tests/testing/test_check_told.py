"""How conformance is told: text, JSON, JUnit XML, a page; the command, and what is wrong with what it is given."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests._support.browser import find_browser
from tests._support.planted import host_entries, stand_in
from tests._support.plugins import accelerator

import uma.testing
from uma.cli import main
from uma.errors import PluginError, UsageError, VerificationError
from uma.hookspecs import Claims, Cost, Library, Runtime
from uma.plugins import PluginHost, default_host
from uma.plugins.entry import PluginEntry
from uma.support.json_schema import first_error
from uma.targets import Target
from uma.testing import ClauseCount, Conformance, Finding
from uma.testing.deadline import OutOfTime, place_in, stopped_after
from uma.testing.output.html import as_html
from uma.testing.output.junit import as_junit
from uma.testing.output.text import claims_lines, text_lines
from uma.testing.record import CheckResult, conformance_record, conformance_schema
from uma.testing.runner import check_names


def checked(host: PluginHost, only: str) -> Conformance:
    [one] = uma.testing.check("npu", plugins=host, only=[only], target="npu -host=c")
    return one


WHAT = "1 of 4 elements differs <&>"
FINDING = Finding("machine", "layers", WHAT, "pattern npu.relu", "v0 = nn.relu(x)", "uma check npu")
COUNTS = (ClauseCount("npu.relu", "few", 5, 2, 1), ClauseCount("npu.relu", "even", 7, 0, 0))
RESULTS = (
    CheckResult("layers", "layers three ways", (FINDING,), ("60 layers",), seconds=1.5, clauses=COUNTS),
    CheckResult("faults", "faults", skipped="the target has no driver"),
)
CLAIMS = Claims(targets=("npu -lanes=1",), cycles=0.1, tolerance=1e-5, faults={7: "only hardware \x00 gives it"})
FOUND = Conformance("uma-npu", "1.0", "npu", CLAIMS, RESULTS, "c", 3)


def test_a_finding_fails_a_suite_with_all_that_repeats_it() -> None:
    with pytest.raises(VerificationError, match="machine: 1 of 4 elements differs") as raised:
        RESULTS[0].raise_for_findings()
    assert "repeat: uma check npu" in str(raised.value) and "    v0 = nn.relu(x)" in str(raised.value)
    RESULTS[1].raise_for_findings()
    assert (FOUND.passed, RESULTS[1].passed, len(FOUND.findings)) == (False, True, 1)
    assert [count.clause for count in FOUND.never_decisive] == ["even"]


def test_the_text_names_claims_findings_and_what_was_skipped() -> None:
    text = "\n".join(text_lines(FOUND, verbose=True))
    for part in (
        "uma-npu 1.0: npu, with c",
        "claims: estimated cycles are within 0.1 of those that cycles counts",
        "claims: fault 7 cannot be reached",
        "[machine] 1 of 4 elements differs <&>",
        "| v0 = nn.relu(x)",
        "repeat: uma check npu",
        "note: 60 layers",
        "skipped  faults: the target has no driver",
    ):
        assert part in text
    assert claims_lines(Claims()) == ["nothing of cycles", "results are exact"]


def test_the_json_keeps_to_its_schema() -> None:
    record = json.loads(json.dumps(conformance_record(FOUND)))
    assert first_error(record, conformance_schema()) is None
    assert record["claims"]["faults"][0]["code"] == 7 and record["never_decisive"] == ["npu.relu: even"]


def test_the_junit_file_is_xml_that_says_the_same() -> None:
    root = ElementTree.fromstring(as_junit([FOUND]))
    [suite] = root
    assert (root.get("tests"), root.get("failures"), suite.get("skipped")) == ("2", "1", "1")
    failure = suite.find("testcase/failure")
    assert failure is not None and failure.get("type") == "machine"
    assert failure.text is not None and "v0 = nn.relu(x)" in failure.text
    assert suite.find("testcase/skipped") is not None


def test_the_page_needs_nothing_else_and_shows_text_as_text() -> None:
    page = as_html([FOUND])
    assert "1 of 4 elements differs &lt;&amp;&gt;" in page and "default-src 'none'" in page
    assert not [word for word in ("<script", "http:", "https:", " src=") if word in page]
    assert "\x00" not in page


@pytest.mark.soak
def test_the_page_opens_in_a_browser(tmp_path: Path) -> None:
    browser = find_browser(tmp_path / "profile")
    if browser is None:
        pytest.skip("there is no browser")
    (tmp_path / "page.html").write_text(as_html([FOUND, FOUND]))
    said = browser.open(tmp_path / "page.html", "--dump-dom")
    assert "never decisive" in said and "Refused to" not in said


# --- The command, and what is wrong with what it is given ---


def test_the_command_gives_an_answer_in_each_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = ["--junit", "out.xml", "--html", "out.html"]
    assert main(["check", "null_unit", "--only", "registration", *files, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["passed"] and first_error(record["targets"][0], conformance_schema()) is None
    assert (tmp_path / "out.xml").read_text().startswith("<?xml") and (tmp_path / "out.html").is_file()
    assert main(["check", "null_unit", "--only", "registration"]) == 0
    assert "1 target: no findings" in capsys.readouterr().out


def test_findings_end_with_7(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("uma.testing.runner.check", lambda *_, **__: (FOUND,))
    assert main(["check", "npu"]) == 7
    text = capsys.readouterr().out
    assert "npu.relu" in text and "never decisive in npu.relu: even" in text and "1 finding" in text


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["nonsense"], "there is no plugin 'nonsense'"),
        (["c"], "has no accelerator to check: c runs as a host"),
        (["null_unit", "--target", "c"], "target 'c' is none of uma-null"),
        (["matrix_unit", "--target", "matrix_unit -weight_bytes=1"], "1 does not fit attribute 'weight_bytes'"),
        (["null_unit", "--only", "layer"], "there is no check 'layer'"),
        (["null_unit", "none.onnx"], "there is no file none.onnx"),
        (["null_unit", "--layers", "0"], "0 is less than 1"),
        (["null_unit", "--junit", "none/out.xml"], "there is no folder for the file"),
        (["null_unit", "--html", "."], "there is a folder of that name"),
        (["."], "is not a folder of a plugin's sources"),
        (["./none"], "is not a folder of a plugin's sources"),
        (["null_unit", "--repeat", "none.json"], "there is no file that repeats"),
        (["null_unit", "--repeat", "none.json", "--only", "layers"], "a file says itself what is repeated"),
    ],
)
def test_what_cannot_be_checked_is_one_clear_error(
    arguments: list[str],
    what: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", *arguments]) in (2, 3)
    said = capsys.readouterr().err
    assert what in said and "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("uma.support.regular_files.write_whole", refuse)
    assert main(["check", "null_unit", "--only", "registration", "--junit", str(tmp_path / "out.xml")]) == 2


def test_a_project_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project\n")
    with pytest.raises(UsageError, match="the project cannot be read"):
        uma.testing.check(str(tmp_path))
    (tmp_path / "pyproject.toml").write_text("[project]\nversion = '1'\n")
    with pytest.raises(UsageError, match="the project has no name"):
        uma.testing.check(str(tmp_path))


def test_a_broken_plugin_and_a_disabled_one_are_told() -> None:
    broken = PluginHost(lambda: [PluginEntry("npu", "no_such_module_at_all", "uma-npu", "1.0")])
    with pytest.raises(PluginError, match="cannot be imported"):
        uma.testing.check("npu", plugins=broken)
    with pytest.raises(PluginError, match="is disabled on request"):
        uma.testing.check("null_unit", plugins=default_host().without("null_unit"))


def test_claims_that_cannot_be_had_and_hosts_that_are_not_clear_are_told() -> None:
    host = stand_in(accelerator("npu"), claims=lambda: Claims(targets=("npu -lanes=4",)))
    alone = [entry for entry in host_entries(host) if entry.kind == "npu"]
    with pytest.raises(UsageError, match="which host runs beside npu is not clear"):
        uma.testing.check("npu", plugins=PluginHost(lambda: alone))
    with pytest.raises(PluginError, match="claims the target 'npu -lanes=4', which cannot be had"):
        uma.testing.check("npu", plugins=host)
    other = stand_in(accelerator("npu"), claims=lambda: Claims(targets=("matrix_unit",)))
    with pytest.raises(PluginError, match="it is of kind matrix_unit, not npu"):
        uma.testing.check("npu", plugins=other)


def test_numbers_of_layers_are_checked() -> None:
    with pytest.raises(UsageError, match="is not a number of layers"):
        uma.testing.check("null_unit", layers=0)


def test_what_a_check_has_no_time_for_is_left_out_and_said(tmp_path: Path) -> None:
    [one] = uma.testing.check(
        "matrix_unit", only=["layers"], target="matrix_unit", folder=tmp_path, seconds=0.001, layers=6
    )
    [note] = [note for note in one.results[0].notes if note.startswith("out of time: no layers were made of")]
    assert one.passed and "matrix_unit.conv2d" in note
    assert f"      note: {note}" in text_lines(one)
    with pytest.raises(UsageError, match="the time limit 0 is not positive"):
        uma.testing.check("matrix_unit", seconds=0)


def test_a_hook_that_does_not_come_back_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def runtime(target: Target) -> Runtime:
        while True:
            pass

    monkeypatch.setattr("uma.testing.runner._GRACE_S", 0.3)
    host = stand_in(accelerator("npu"), runtime=runtime)
    [one] = uma.testing.check("npu", plugins=host, only=["c"], target="npu -host=c", seconds=0.1)
    [finding] = one.findings
    assert (finding.part, finding.check) == ("driver", "c.end")
    assert finding.what.startswith("a step had no end, and was stopped after")


def test_timers_of_others_are_left_alone() -> None:
    """Nothing is stopped then."""
    before = signal.signal(signal.SIGALRM, lambda number, frame: None)
    try:
        with stopped_after(0.01):
            time.sleep(0.05)
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(OutOfTime) as caught, stopped_after(0.01):
        time.sleep(5)
    assert place_in("nothing_of_the_kind", caught.tb) == ""
    assert place_in(__name__.partition(".")[0], caught.tb).startswith(f"{__file__}:")
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_a_check_that_cannot_go_on_is_a_finding_of_its_part() -> None:
    def runtime(target: Target) -> Runtime:
        raise ValueError("no runtime today")

    one = checked(stand_in(accelerator("npu"), runtime=runtime), "c")
    assert [(finding.part, finding.check) for finding in one.findings] == [("driver", "c")]
    assert "no runtime today" in one.findings[0].what


def test_a_library_that_is_missing_is_no_finding() -> None:
    def runtime(target: Target) -> Runtime:
        return Runtime(libraries=(Library("surely_not_there"),))

    one = checked(stand_in(accelerator("npu"), runtime=runtime, estimate_cost=lambda region: Cost(cycles=1.0)), "cost")
    assert one.passed and "surely_not_there" in one.results[0].skipped


# --- In a suite of tests ---


def test_checks_are_for_pytest_and_import_no_plugin() -> None:
    code = (
        "import sys, uma.testing; made = uma.testing.checks('matrix_unit');"
        "print(*map(str, made)); print('uma_matrix_unit' in sys.modules, 'pytest' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [" ".join(check_names()), "False False"]


@pytest.mark.parametrize("check", uma.testing.checks("null_unit", only=["registration", "documentation"]), ids=str)
def test_conformance(check: uma.testing.BoundCheck) -> None:
    check.run().raise_for_findings()


def test_checks_of_one_target_are_named_by_it() -> None:
    [one] = uma.testing.checks("matrix_unit", only=["registration"], target="matrix_unit -weight_bytes=4096")
    assert str(one) == "registration-matrix_unit -weight_bytes=4096"
    with pytest.raises(UsageError, match="there is no check 'nothing'"):
        uma.testing.checks("matrix_unit", only=["nothing"])


@pytest.mark.soak
@pytest.mark.parametrize(
    "kind", ["blas", "ethosu_like", "matrix_unit", "null_unit", "onednn", "stream_machine", "ultra_trail"]
)
def test_the_plugins_of_the_repository_pass(kind: str, tmp_path: Path) -> None:
    made = uma.testing.check(kind, folder=tmp_path / "found")
    assert [str(finding) for one in made for finding in one.findings] == []
