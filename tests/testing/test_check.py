"""The conformance kit and ``uma check``: what is found, in which part, how it is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests._support.planted import ROOT, Edit, host_entries, planted, stand_in
from tests._support.plugins import accelerator

import uma.testing
from uma.hookspecs import Claims, Clause, Pattern, Runtime
from uma.plugins import PluginHost
from uma.relay.pattern import op, wildcard
from uma.targets import Attribute, ListOf, MapOf, Target, TargetKind
from uma.testing import Conformance, Finding
from uma.testing.child_process import NoAnswer, ask_child_process
from uma.testing.fault_injection import RegisterAccess
from uma.testing.fingerprint import fingerprint, first_difference
from uma.testing.suite.faults import cases_of
from uma.testing.suite.limits import limits_of, wrong_values


def found(
    folder: Path, *edits: Edit, only: Sequence[str], package: str = "uma_matrix_unit", **options: Any
) -> tuple[Finding, ...]:
    """What is wrong with a plugin in which a few lines are others."""
    host = planted(folder / "plugin", package, edits)
    made = uma.testing.check(
        package.replace("_", "-"), plugins=host, folder=folder / "found", only=only, target=options.get("target")
    )
    return tuple(finding for one in made for finding in one.findings)


def checked(host: PluginHost, *only: str, plugin: str = "npu", target: str = "npu -host=c") -> Conformance:
    [one] = uma.testing.check(plugin, plugins=host, only=only, target=target)
    return one


# --- What is found ---


class TestRegistration:
    def test_an_honest_plugin_has_no_finding(self) -> None:
        [one] = uma.testing.check("null_unit", only=["registration", "documentation"])
        assert one.passed and [result.name for result in one.results] == ["registration", "documentation"]
        assert (one.distribution, one.target, one.host) == ("uma-null", "null_unit", "c")

    def test_a_hook_that_counts_its_calls_is_found(self) -> None:
        calls: list[int] = []

        def claims(target: Target) -> Claims:
            calls.append(1)
            return Claims(tolerance=float(len(calls)))

        one = checked(stand_in(accelerator("npu"), claims=claims), "registration")
        assert {finding.part for finding in one.findings} == {"registration"}
        assert "hook claims gives something else when it is called a second time" in one.findings[0].what
        assert one.findings[0].repeat == "uma check uma-npu --only registration --target npu"

    def test_what_another_target_leaves_behind_is_found(self) -> None:
        kind = TargetKind("npu", (Attribute("lanes", int, default=4, low=1, high=8, help="lanes"),), help="a device")
        widest = [0]

        def claims(target: Target) -> Claims:
            widest[0] = max(widest[0], target.get_attr("lanes"))
            return Claims(tolerance=float(widest[0]))

        one = checked(stand_in(kind, claims=claims), "registration")
        assert [finding.check for finding in one.findings] == ["registration.hooks"]
        assert "after it was called for other targets: .tolerance: 4.0, then 8.0" in one.findings[0].what

    def test_a_hook_that_fails_at_a_limit_is_found_with_the_attribute(self) -> None:
        kind = TargetKind("npu", (Attribute("lanes", int, default=4, low=0, high=8, help="lanes"),), help="a device")

        def patterns(target: Target) -> list[Pattern]:
            assert 64 // target.get_attr("lanes") > 0
            return []

        one = checked(stand_in(kind, patterns=patterns), "registration")
        assert any("hook patterns fails for a target at the limits" in finding.what for finding in one.findings)
        assert {finding.where for finding in one.findings} >= {"attribute lanes"}

    def test_a_canonicaliser_that_forgets_is_found(self) -> None:
        numbers = iter(range(1000))
        kind = TargetKind(
            "npu",
            (Attribute("id", int, help="which one"),),
            help="a device",
            canonicalise=lambda target: {"id": next(numbers)},
        )
        one = checked(stand_in(kind), "registration")
        assert {finding.check for finding in one.findings} >= {"registration.round_trips"}

    @pytest.mark.parametrize(
        ("attribute", "limits", "wrong"),
        [
            (Attribute("n", int, low=3, high=20, multiple_of=4, help="n"), [4, 20], [-1, 24, 5, "no number"]),
            (Attribute("f", float, default=0.5, low=0.0, help="f"), [0.5, 0.0], [-1.0, "no number"]),
            (Attribute("b", bool, default=True, help="b"), [True, False], ["perhaps"]),
            (Attribute("c", ("x", "y"), default="x", help="c"), ["x", "y"], ["no such choice"]),
            (Attribute("c", (1, 2), help="c"), [1, 2], [3]),
            (Attribute("t", str, help="t"), ["text with a blank"], []),
            (Attribute("l", ListOf(int), low=1, high=2, help="l"), [[1], [2]], [[0], [3], ["no number"]]),
            (Attribute("m", MapOf(bool), help="m"), [{"key": False}, {"key": True}], [{"key": "perhaps"}]),
            (Attribute("a", int, help="a"), [1], ["no number"]),
        ],
    )
    def test_limits_of_attributes_and_values_beyond_them(
        self, attribute: Attribute, limits: list[Any], wrong: list[Any]
    ) -> None:
        assert limits_of(attribute) == limits
        assert list(wrong_values(attribute)) == wrong

    def test_what_hooks_give_is_told_by_its_parts(self) -> None:
        def made(bound: int) -> Pattern:
            clause = Clause("few", lambda m: m.root.shape[0] < bound, "few rows")
            return Pattern("npu.relu", op("nn.relu")(wildcard("int8")), [clause])

        assert fingerprint(made(4)) == fingerprint(made(4))
        difference = first_difference(fingerprint(made(4)), fingerprint(made(5)))
        assert difference is not None and difference.endswith(".bound: 4, then 5")
        assert first_difference(fingerprint([1]), fingerprint([1, 2])) == "the whole: 1 items, then 2 items"
        runtime = Runtime(header="a.h", sources={"a.h": "x" * 5000})
        other = Runtime(header="a.h", sources={"a.h": "y" * 5000})
        assert first_difference(fingerprint(runtime), fingerprint(other)) is not None
        assert first_difference(["a = 1"], ["a = 1", "b = 2"]) == "1 parts, then 2"

    @pytest.mark.soak
    def test_a_hook_that_depends_on_the_order_of_a_set_is_found(self, tmp_path: Path) -> None:
        info = tmp_path / "uma_odd-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: uma-odd\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[uma.plugins]\nodd = uma_odd\n")
        (tmp_path / "uma_odd.py").write_text(
            "from uma.hookspecs import Claims, hookimpl\n"
            "from uma.targets import TargetKind\n\n\n"
            "@hookimpl\n"
            "def register_target():\n"
            "    return [TargetKind('odd', help='odd', default_host='c')]\n\n\n"
            "@hookimpl\n"
            "def claims():\n"
            "    return Claims(counter=''.join({str(number) for number in range(40)}))\n"
        )
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-m", "uma", "check", "odd", "--only", "registration"],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "7"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 7
        assert "hook claims gives something else in another process" in done.stdout


class TestDocumentation:
    def test_faults_and_counters_that_no_page_has_are_found(self, tmp_path: Path) -> None:
        fault = ("__init__.py", "FAULTS = {\n", 'FAULTS = {\n    23: "a new one",\n')
        counter = ("__init__.py", 'COUNTERS = ("cycles",', 'COUNTERS = ("cycles", "stalls",')
        told = found(tmp_path, fault, counter, only=["documentation"])
        assert [(one.part, one.check) for one in told[:2]] == [
            ("documentation", "documentation.faults"),
            ("documentation", "documentation.counters"),
        ]
        assert "fault 23 (a new one)" in told[0].what and "stalls" in told[1].what

    def test_attributes_and_defaults_are_compared_with_the_readme(self, tmp_path: Path) -> None:
        project = tmp_path / "uma-null"
        shutil.copytree(ROOT / "examples" / "uma-null", project, ignore=shutil.ignore_patterns("__pycache__"))
        text = "# A device\n\n| attribute | default | |\n| --- | --- | --- |\n| `lanes` | 16 | wide |\n"
        (project / "README.md").write_text(text)
        kind = TargetKind(
            "npu",
            (
                Attribute("lanes", int, default=8, low=1, high=64, help="lanes"),
                Attribute("depth", int, default=1, low=1, help="depth"),
            ),
            help="a device",
        )
        entries = host_entries(stand_in(kind))
        host = PluginHost(
            lambda: [
                entry._replace(distribution="uma-null") if entry.kind == "npu" else entry
                for entry in entries
                if entry.kind != "null_unit"
            ]
        )
        told = [
            finding.what
            for one in uma.testing.check(str(project), plugins=host, target="npu -host=c", only=["documentation"])
            for finding in one.findings
        ]
        assert told == [
            "the README does not name the kind npu",
            "the README does not name the attribute depth of npu",
            "the README says that the default of lanes is 16, and it is 8",
        ]
        (project / "README.md").unlink()
        [one] = uma.testing.check(str(project), plugins=host, target="npu -host=c", only=["documentation"])
        assert "there is no README" in one.findings[0].what


class TestPackaging:
    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        pytest.importorskip("hatchling", reason="hatchling, which builds the wheels, is not installed")
        project = tmp_path / "uma-matrix-unit"
        source = ROOT / "examples" / "uma-matrix-unit"
        shutil.copytree(source, project, ignore=shutil.ignore_patterns("__pycache__", "tests"))
        return project

    def told(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        # Types are checked by a test of their own: it takes long.
        monkeypatch.setattr("uma.testing.suite.packaging._types", lambda *_: None)
        made = uma.testing.check(str(project), only=["packaging"], target="matrix_unit")
        assert {finding.part for one in made for finding in one.findings} <= {"packaging"}
        return [finding.what for one in made for finding in one.findings]

    def test_a_wheel_that_lacks_files_bounds_and_a_licence_is_found(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = project / "pyproject.toml"
        text = path.read_text()
        text = text.replace(
            'packages = ["src/uma_matrix_unit"]', 'packages = ["src/uma_matrix_unit"]\nexclude = ["*.c"]'
        )
        text = text.replace('"uma-core>=0.1,<0.2"', '"uma-core"').replace('license = "Apache-2.0"\n', "")
        text = text.replace('license-files = ["LICENSE"]\n', "license-files = []\n")
        text = text.replace('matrix_unit = "uma_matrix_unit"', 'matrix = "uma_matrix_unit"')
        text = text.replace("uma-accelerator:matrix_unit:npu", "uma-accelerator:matrix_unit:dsp")
        path.write_text(text)
        (project / "src" / "uma_matrix_unit" / "py.typed").unlink()
        told = self.told(project, monkeypatch)
        assert len(told) == 9
        for part in (
            "lacks the C files uma_matrix_unit/csrc/mxu_driver.c, ",
            "has no py.typed",
            "name no licence",
            "no file with the text of the licence",
            "has no entry point for 'matrix_unit'",
            "uma-core has no lower bound",
            "uma-core has no upper bound",
            "lack the keyword 'uma-accelerator:matrix_unit:npu'",
            "have the keyword 'uma-accelerator:matrix_unit:dsp', which the plugin does not register",
        ):
            assert any(part in one for one in told), (part, told)

    def test_a_project_that_cannot_be_built_is_found(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = project / "pyproject.toml"
        path.write_text(path.read_text().replace('readme = "README.md"', 'readme = "NONE.md"'))
        assert any("the wheel cannot be built" in one for one in self.told(project, monkeypatch))

    @pytest.mark.soak
    def test_types_that_are_wrong_are_found(self, tmp_path: Path) -> None:
        pytest.importorskip("mypy", reason="mypy is not installed")
        edit = ("__init__.py", "_SIMULATOR_BYTES = 2048", "_SIMULATOR_BYTES: str = 2048")
        told = found(tmp_path, edit, only=["packaging"])
        assert [one.check for one in told] == ["packaging.types"]


LEAKED = "#define POLLS 2\nint32_t leaked(void);\nint32_t leaked(void) { %s return 0; }"
POLL = "    if (!uma_poll("


class TestC:
    @pytest.mark.soak
    def test_warnings_and_variables_of_the_whole_program_are_found(self, tmp_path: Path) -> None:
        counted = ("csrc/mxu_driver.c", POLL, f"    static int32_t runs;\n    runs++;\n{POLL}")
        unused = ("csrc/mxu_sim.c", "#define POLLS 2", LEAKED % "int unused;")
        told = found(tmp_path, counted, unused, only=["c"])
        assert {one.part for one in told} == {"driver"}
        assert any("is a variable of the whole program" in one.what and one.where == "mxu_driver.c" for one in told)
        assert any("unused" in one.what and one.where == "mxu_sim.c" for one in told)

    @pytest.mark.soak
    def test_a_lowering_that_counts_its_calls_is_found(self, tmp_path: Path) -> None:
        edit = (
            "layer.py",
            "records = np.stack([layer.bias,",
            "CALLS.append(1)\n    records = np.stack([layer.bias + len(CALLS),",
        )
        told = found(tmp_path, edit, ("layer.py", "__all__ = ", "CALLS: list[int] = []\n\n__all__ = "), only=["c"])
        assert [(one.part, one.check) for one in told] == [("lowering", "c.repeated")]

    @pytest.mark.soak
    def test_names_memory_and_a_write_beyond_an_array_are_found(self, tmp_path: Path) -> None:
        named = ("csrc/mxu_sim.c", "#define POLLS 2", LEAKED % "")
        assert [one.check for one in found(tmp_path / "a", named, only=["c"])] == ["c.names"]
        heap = ("csrc/mxu_driver.c", POLL, f"    free((void *)device->memory_bytes);\n{POLL}")
        header = ("csrc/mxu_driver.c", '#include "mxu_driver.h"', '#include "mxu_driver.h"\n#include <stdlib.h>')
        assert found(tmp_path / "b", heap, header, only=["c"])[0].check == "c.memory"
        write = "    ((volatile char *)device->memory)[device->memory_bytes] = 0;\n"
        told = found(tmp_path / "c", ("csrc/mxu_driver.c", POLL, f"{write}{POLL}"), only=["c"])
        assert [one.check for one in told] == ["c.sanitizers"] and "heap-buffer-overflow" in told[0].what


class TestFaults:
    def test_changes_are_of_what_a_driver_did(self) -> None:
        run = [
            RegisterAccess(False, 0, 0, 0x1234, False),
            RegisterAccess(True, 0, 8, 3, False),
            RegisterAccess(True, 0, 16, 0x1000, True),
            RegisterAccess(True, 0, 20, 0, True),
            RegisterAccess(True, 0, 24, 5, False),
        ]
        cases = list(cases_of(run, 8, seed=0, reads=True))
        assert cases == list(cases_of(run, 8, seed=0, reads=True))
        kinds = {case.kind for case in cases}
        assert {"nothing", "less", "read", "reads", "stuck", "unreachable", "memory", "drop", "twice", "set"} <= kinds
        assert "constant" in kinds and "insert" in kinds
        # Half an address is nothing that a device could tell from another one.
        assert not [case for case in cases if case.kind in ("set", "drop", "insert") and case.offset in (16, 20)]
        fewer = {case.kind for case in cases_of(run, 0, seed=0, reads=False)}
        assert not fewer & {"read", "reads", "stuck", "constant"}

    @pytest.mark.soak
    def test_an_honest_driver_reaches_its_faults(self) -> None:
        [one] = uma.testing.check("matrix_unit", only=["faults"], target="matrix_unit")
        assert one.findings == ()
        assert any("of 15 that are declared" in note for note in one.results[0].notes)

    @pytest.mark.soak
    def test_mistakes_of_drivers_are_found(self, tmp_path: Path) -> None:
        hang = (
            "csrc/mxu_driver.c",
            "if (!uma_poll(device, MXU_STATUS, UINT32_MAX, 0, POLL_LIMIT)) return MXU_FAULT_TIMEOUT;",
            "while (uma_read32(device, MXU_STATUS) != 0) uma_wait(device);\n    (void)POLL_LIMIT;",
        )
        other = ("__init__.py", '    9: "a register was written while', '    90: "a register was written while')
        told = found(tmp_path / "hang", hang, only=["faults"], target="matrix_unit")
        assert [(one.part, one.check) for one in told] == [("driver", "faults.hang")]
        told = found(tmp_path / "other", other, only=["faults"], target="matrix_unit")
        assert [(one.part, one.check) for one in told] == [("driver", "faults.undeclared")] and "fault 9" in told[
            0
        ].what

    @pytest.mark.soak
    def test_claims_that_explain_no_fault_are_found(self, tmp_path: Path) -> None:
        edit = ("__init__.py", "cycles=0.0)", 'cycles=0.0, faults={99: "never"})')
        told = found(tmp_path, edit, only=["faults"], target="matrix_unit")
        assert [one.check for one in told] == ["faults.claims"]


class TestElsewhere:
    @pytest.mark.parametrize(
        ("code", "said"),
        [
            ("print('a word')", "what it printed is not JSON"),
            ("raise ValueError('not today')", "ValueError: not today"),
            ("import os; os._exit(3)", "it ended with 3"),
        ],
    )
    def test_a_process_that_gives_no_answer_is_told(self, code: str, said: str) -> None:
        with pytest.raises(NoAnswer, match=said):
            ask_child_process(code, None)

    def test_a_process_that_cannot_be_started_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(NoAnswer, match="No such file"):
            ask_child_process("print(1)", None)


class TestCost:
    @pytest.mark.soak
    def test_a_constant_estimate_is_found_though_nothing_is_claimed(self, tmp_path: Path) -> None:
        constant = ("__init__.py", "    return Cost.total(", "    return Cost(cycles=1000.0) or Cost.total(")
        silent = ("__init__.py", "cycles=0.0)", ")")
        told = found(tmp_path, constant, silent, only=["cost"], target="matrix_unit")
        assert [(one.part, one.check) for one in told] == [("cost", "cost.growth")]
        assert "1000 cycles, and 1000 for 4 times the work" in told[0].what and told[0].layer.startswith("@function")

    @pytest.mark.soak
    def test_an_estimate_beyond_what_is_claimed_is_found(self, tmp_path: Path) -> None:
        edit = ("cost.py", "    return Cost(cycles=elapsed,", "    return Cost(cycles=1.5 * elapsed,")
        told = found(tmp_path, edit, only=["cost"], target="matrix_unit")
        assert [one.check for one in told] == ["cost.cycles"] and "50.0% off" in told[0].what

    @pytest.mark.soak
    def test_an_estimate_that_is_another_one_each_time_is_found(self, tmp_path: Path) -> None:
        edits = (
            ("cost.py", "__all__ =", "_asked: list[int] = []\n\n__all__ ="),
            (
                "cost.py",
                "    return Cost(cycles=elapsed,",
                "    _asked.append(1)\n    return Cost(cycles=elapsed + len(_asked),",
            ),
            ("__init__.py", "cycles=0.0)", ")"),
        )
        told = found(tmp_path, *edits, only=["cost"], target="matrix_unit")
        assert [(one.part, one.check) for one in told] == [("cost", "cost.repeated")]
        assert "hook estimate_cost gives something else a second time" in told[0].what

    @pytest.mark.soak
    def test_claims_of_a_counter_that_is_not_there_are_found(self, tmp_path: Path) -> None:
        edit = ("__init__.py", "cycles=0.0)", 'cycles=0.0, counter="ticks")')
        told = found(tmp_path, edit, only=["cost"], target="matrix_unit")
        assert "by the counter 'ticks', which the Runtime does not have" in told[0].what

    @pytest.mark.soak
    def test_an_estimate_in_another_process_is_the_same(self) -> None:
        """Nothing is noted: that process gave an answer."""
        [one] = uma.testing.check("matrix_unit", only=["cost"], target="matrix_unit")
        assert one.passed and not [note for note in one.results[0].notes if "another process" in note]

    def test_cycles_that_are_claimed_and_not_estimated_are_found(self) -> None:
        host = stand_in(accelerator("npu"), claims=lambda: Claims(cycles=0.1))
        told = checked(host, "cost").findings
        assert [one.part for one in told] == ["cost", "cost"]
        assert "hook estimate_cost is not there" in told[1].what
