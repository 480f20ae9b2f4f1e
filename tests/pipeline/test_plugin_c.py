"""C of a plugin that does not compile, link or load: the error names the plugin, its file and its function."""

from __future__ import annotations

import copy
import pickle
import textwrap
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests._support.planted import host_entries, subject_of
from tests._support.plugins import accelerator, entry_of, host_kind, module_of

import uma.testing
from uma.artifact import Artifact, local_build
from uma.contract.region import RegionMatch
from uma.errors import PluginError, ToolchainError
from uma.hookspecs import LoweredKernel, Pattern, Routine, Runtime, Strategy, TargetCode
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import build_loaded
from uma.pipeline.loading import load_model
from uma.plugins import PluginEntry, PluginHost, default_host
from uma.relay import TensorType, Var, call
from uma.relay.extern import Extern
from uma.relay.pattern import op, wildcard
from uma.targets import Target
from uma.testing.outcome import Outcome, quiet
from uma.testing.suite import c_sources
from uma.tir import parse_func
from uma.tir.form.nodes import Buffer, Param
from uma.toolchain.compile import compile_shared
from uma.toolchain.discovery import find_compiler

MODEL = module_of(call("nn.relu", Var("x", TensorType((6,), "int32"))), {})
HEADER = """\
#include <stdint.h>
#define NPU_RELU(x, y, n) \\
    npu_relu(x, y, n)
void npu_relu(const int32_t *x, int32_t *y, int32_t n);
"""
SOURCE = """\
#include "npu.h"
void npu_relu(const int32_t *x, int32_t *y, int32_t n)
{
    int32_t i;
    for (i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0;
}
"""
INTRINSIC = """
    @intrinsic(statement="RECTIFY({y}, {x})", include="rectify.h")
    def rectify(y: Operand[int32, (6,)], x: Operand[int32, (6,)]):
        for k in range(6):
            y[k] = max(x[k], 0)

    @prim_func
    def relu(x: In[int32, (6,)], y: Out[int32, (6,)]):
        rectify(view(y[0], axis(0)), view(x[0], axis(0)))
    """


def library(source: str = SOURCE, header: str = HEADER, text: str = "NPU_RELU({x}, {y}, {n})") -> list[PluginEntry]:
    """An accelerator whose ReLU is a routine in C."""

    def relu(match: RegionMatch, target: Target) -> Extern:
        tensor = match.function.body.tensor
        x, y = Buffer("x", tensor.shape, "int32"), Buffer("y", tensor.shape, "int32")
        return Extern((Param(x, "input"), Param(y, "output")), "relu", {"n": tensor.size})

    runtime = Runtime(header="npu.h", sources={"npu.h": header, "npu.c": source}, routines=(Routine("relu", text),))
    patterns = [Pattern("npu.relu", op("nn.relu")(wildcard("int32")), extern=relu)]
    return entry_of(accelerator("npu"), patterns=lambda: patterns, runtime=lambda: runtime)


def host(header: str, statement: str = "RECTIFY({y}, {x})") -> list[PluginEntry]:
    """A host whose ReLU is an intrinsic of a header of its own."""
    text = textwrap.dedent(INTRINSIC).replace("RECTIFY({y}, {x})", statement)
    relu = Strategy("nn.relu", lambda fusion, target: LoweredKernel(parse_func(text)[1]))
    code = TargetCode(headers={"rectify.h": header})
    return entry_of(host_kind("own"), strategies=lambda: [relu], tir_to_runtime=lambda: code)


def artifact(entries: list[PluginEntry]) -> Artifact:
    plain = [] if entries[0].kind == "own" else entry_of(host_kind("plain"))
    kinds = [entry.kind for entry in (*entries, *plain)]
    members = resolve_targets(kinds, PluginHost(lambda: [*entries, *plain]))
    return build_loaded(load_model(MODEL, name="m"), members)


MACRO = "#define RECTIFY(y, x) do {{ {} }} while (0)\n"
FAULTS = {
    "a file": (
        partial(library, SOURCE.replace("x[i] :", "oops :")),
        "npu has C that does not compile: npu.c:5 in npu_relu\n",
        "npu.c:5:",
    ),
    "a header": (
        partial(library, header=f"typedef int;\nint npu_twice(void) {{ return oops; }}\n{HEADER}"),
        "npu has C that does not compile: npu.h:2 in npu_twice\n",
        "",
    ),
    "a macro": (
        partial(library, header=HEADER.replace("npu_relu(x, y, n)\n", "npu_relu(oops, y, n)\n", 1)),
        "npu has C that does not compile: npu.h:3 in NPU_RELU\n",
        "",
    ),
    "a header that it lacks": (
        partial(library, f'#include "lost.h"\n{SOURCE}'),
        "npu has C that does not compile: npu.c:1\n",
        "lost.h",
    ),
    "the text of a routine": (
        partial(library, text="npu_relu({x}, oops, {n} + *{y})"),
        "npu has C that does not compile: m.c:",
        "routine 'relu' of target 'npu'",
    ),
    "the routine of no file": (
        partial(library, '#include "npu.h"\n', text="npu_relu({x}, {y}, {n})"),
        "npu names the symbol 'npu_relu', which no file defines",
        "routine 'relu' of target 'npu', npu.h:3 in NPU_RELU",
    ),
    "a function of no file": (
        partial(library, SOURCE.replace("x[i] :", "npu_lost(x[i]) :").replace("void", "int npu_lost(int);\nvoid", 1)),
        "npu names the symbol 'npu_lost', which no file defines",
        "npu.c:6 in npu_relu",
    ),
    "the macro of an intrinsic": (
        partial(host, MACRO.format("(y)[0] = oops;")),
        "own has C that does not compile: rectify.h:1 in RECTIFY\n",
        "",
    ),
    "the text of an intrinsic": (
        partial(host, MACRO.format("(void)(y); (void)(x);"), "RECTIFY({y}, {x}, oops)"),
        "own has C that does not compile: ",
        "",
    ),
    "an assignment as an intrinsic": (
        partial(host, "", "{y}[0] = {x}[0] + oops"),
        "own has C that does not compile: m.c:",
        "intrinsic 'rectify' of target 'own'",
    ),
    "an intrinsic of no file": (
        partial(host, "void rectify(void *, const void *);\n", "rectify({y}, {x})"),
        "own names the symbol 'rectify', which no file defines",
        "intrinsic 'rectify' of target 'own', rectify.h:1",
    ),
}


def test_the_plugins_are_right_otherwise(compilers: tuple[str, ...]) -> None:
    good = MACRO.format("for (int k = 0; k < 6; k++) (y)[k] = (x)[k] > 0 ? (x)[k] : 0;")
    for entries in library(), host(good):
        artifact(entries).session().close()


@pytest.mark.few(5)
@pytest.mark.parametrize("name", FAULTS)
def test_who_is_at_fault(name: str, compilers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    make, what, where = FAULTS[name]
    made = artifact(make())
    for compiler in compilers:
        monkeypatch.setenv("CC", compiler)
        with pytest.raises(PluginError) as caught:
            made.session()
        plugin, _, rest = what.partition(" ")
        assert caught.value.what.startswith(f"plugin uma-{plugin} 1.0 {rest}"), caught.value.what
        assert where in str(caught.value) and f"entry point `{plugin} = " in str(caught.value)
        assert caught.value.hint == f"tell its authors, or look for a newer version: pip install --upgrade uma-{plugin}"


def test_what_is_loaded_and_what_is_copied(compilers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the linker leaves a symbol to the process that loads the library."""
    monkeypatch.setattr(
        local_build,
        "compile_shared",
        lambda *given, **options: compile_shared(*given, **{**options, "complete": False}),
    )
    made = artifact(FAULTS["a function of no file"][0]())
    for one in made, copy.deepcopy(made), pickle.loads(pickle.dumps(made)):
        with pytest.raises(PluginError, match="names the symbol 'npu_lost', which no file defines"):
            one.session()


def test_faults_of_the_machine_stay(compilers: tuple[str, ...]) -> None:
    missing = artifact(library(f"#include <npu_of_the_system.h>\n{SOURCE}"))
    with pytest.raises(ToolchainError, match=r"could not compile npu\.c .*\n.*npu_of_the_system\.h"):
        missing.session()
    generated = artifact(library())
    broken = Artifact({**generated.files, "m.c": "oops\n"}, replace(generated.record, files={}), generated.origins)
    with pytest.raises(ToolchainError, match=r"could not compile m\.c"):
        broken.session()


@pytest.mark.parametrize(
    ("fault", "finding", "what"),
    [
        pytest.param(
            "the routine of no file", "layers", "names the symbol 'npu_relu'", marks=pytest.mark.soak, id="symbol"
        ),
        ("a file", "c.warnings", "(in npu_relu)"),
    ],
)
def test_a_check_finds_it(fault: str, finding: str, what: str, compilers: tuple[str, ...], tmp_path: Path) -> None:
    entries = [*host_entries(default_host()), *FAULTS[fault][0]()]
    [only], plugins = finding.split(".")[:1], PluginHost(lambda: entries)
    [one] = uma.testing.check("npu", plugins=plugins, target="npu -host=c", only=[only], layers=4, folder=tmp_path)
    [result] = one.results
    assert [(found.part, found.check) for found in result.findings] == [("driver", finding)]
    assert what in result.findings[0].what


def test_a_check_leaves_out_a_cross_compiler_without_a_c_library(
    compilers: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is not a fault of the plugin's driver."""
    monkeypatch.setattr(c_sources, "find_compiler", lambda name=None, machine=None: find_compiler(compilers[0]))
    monkeypatch.setattr(c_sources, "refused_program", lambda compiler, machine: "fatal error: stdint.h: No such file")
    subject = subject_of(default_host(), "matrix_unit", tmp_path)
    outcome = Outcome(subject, "c")
    runtime = subject.member.runtime
    assert runtime is not None
    c_sources._cross(outcome, runtime, quiet)
    assert outcome.findings == []
    assert outcome.notes == [
        f"Cortex-M: {compilers[0]} makes no program with the C library: fatal error: stdint.h: No such file"
    ]
