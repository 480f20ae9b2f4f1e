"""Planted faults in a plugin's library: `uma verify` finds each, and names the step that does it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests._support.plugins import HOST, accelerator, entry_of, module_of, taking
from tests._support.small_models import Uma

from uma.hookspecs import Extern, Routine, Runtime
from uma.plugins import PluginHost
from uma.relay import Function, GlobalVar, IRModule, Var, call, const
from uma.relay.module import func_type
from uma.relay.text import print_module
from uma.relay.types import TensorType
from uma.tir import Buffer, Param

Install = Callable[[str], None]

ROW = 8
X = Var("x", TensorType((4, ROW), "int8"))
HIGH, LOW = call("clip", X, a_min=-60.0, a_max=60.0), call("clip", X, a_min=-60.0, a_max=0.0)
FIRST = call("subtract", HIGH, LOW)
SECOND = call("nn.relu", FIRST)
THIRD = call("add", SECOND, const(np.int8(5)))
MODEL = module_of(THIRD, {HIGH: ["first"], LOW: ["first"], FIRST: ["first"], SECOND: ["second"], THIRD: ["third"]})
"""The second layer is given 0 .. 60, and nothing better is proven than -60 .. 120."""

HEADER = """\
#ifndef RELU_H
#define RELU_H
#include <stdint.h>
void relu(const int8_t *x, int8_t *y, int32_t count);
#endif
"""
RIGHT = "for (i = 0; i < count; i++) y[i] = x[i] < 0 ? 0 : x[i];"
SOURCE = """\
#include "relu.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int runs;

void relu(const int8_t *x, int8_t *y, int32_t count)
{{
    int32_t i;

    runs++;
    {code}
}}
"""


def lowering(function: Function) -> tuple[IRModule, GlobalVar]:
    """The library's routine."""
    x, y = (Param(Buffer(name, X.shape, "int8"), role) for name, role in (("x", "input"), ("y", "output")))
    extern = Extern((x, y), "relu", {"count": X.tensor.size})
    var = GlobalVar("relu", func_type(extern))
    return IRModule({var: extern}), var


@pytest.fixture
def uma(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Uma:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(print_module(MODEL)[0])
    return Uma(capsys)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes the library compute with this code."""

    def install(code: str) -> None:
        sources = {"relu.h": HEADER, "relu.c": SOURCE.format(code=code)}
        routine = Routine("relu", "relu({x}, {y}, {count})")
        entries = entry_of(
            accelerator("lib"),
            patterns=lambda: [taking("lib", "nn.relu", lower=None)],
            relay_to_runtime=lambda function: lowering(function),
            runtime=lambda: Runtime(header="relu.h", sources=sources, routines=(routine,)),
        )
        host = PluginHost(lambda: [*entries, *entry_of(HOST)])
        monkeypatch.setattr("uma.plugins.default_host", lambda: host)

    return install


VERIFY = ("verify", "m.py", "--target", "lib", "--target", "plain")


def test_what_is_right(uma: Uma, install: Install) -> None:
    install(RIGHT)
    done = uma(*VERIFY, "--json")
    assert (done.code, done.err) == (0, "")
    record = done.json
    assert (record["overruns"], record["stops"], record["schema_version"]) == ([], [], 4)
    # Eight samples, and four or six times on operands of its own: one, or two that may be opposite.
    assert [row["compared"] for row in record["kernels"]] == [12, 12, 14, 12, 12]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("code", "what"),
    [
        (f"{RIGHT} memset(y + count, 0, 8);", "8 bytes behind its output"),
        (f"{RIGHT} y[count] = 0;", "1 byte behind its output"),
        (f"{RIGHT} memset(y - 8, 0, 8);", "8 bytes before its output"),
        (f"{RIGHT} y[count + 20] = 0;", "1 byte behind its output, 20 bytes from its end"),
        (f"{RIGHT} y[-3] = 0;", "1 byte before its output, up to 2 bytes from its beginning"),
    ],
)
def test_a_write_beside_an_output(uma: Uma, install: Install, code: str, what: str) -> None:
    install(code)
    done = uma(*VERIFY)
    assert done.code == 7
    head, where, hint = done.err.splitlines()
    assert head.startswith(f"uma: error: layer second on lib (step 3, relu) writes where it may not: {what} (between ")
    assert where == "  where: sample 'random 0'"
    assert hint.startswith("  hint: a step for 'lib' runs what plugin uma-lib 1.0 brings")
    assert "all agree" in done.out and "UMA" not in done.err


def test_a_write_beside_an_input(uma: Uma, install: Install) -> None:
    install(f"{RIGHT} ((int8_t *)(uintptr_t)x)[count] = 0;")
    assert "relu) writes where it may not: 1 byte behind its input" in uma(*VERIFY).err


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("memset((void *)(uintptr_t)8, 0, 8); (void)x; (void)y; (void)count; (void)i;", "crashed: SIGSEGV (11)"),
        (f'{RIGHT} fprintf(stderr, "bad heap\\n"); abort();', "crashed: SIGABRT (6)"),
        (f"{RIGHT} exit(3);", "ended the process with exit status 3"),
        (f"{RIGHT} for (;;) raise(SIGCONT);", "did not end within 1.5 s"),
    ],
    ids=["segfault", "abort", "exit", "loop"],
)
def test_a_crash_and_a_hang(uma: Uma, install: Install, code: str, reason: str) -> None:
    install(code)
    done = uma(*VERIFY, "--json", "--step-limit", "1.5")
    assert done.code == 7
    assert f"layer second on lib (step 3, relu) {reason}" in done.err
    assert ("bad heap" in done.err) == ("abort" in code)
    record = done.json
    [stop] = record["stops"]
    assert (stop["step"], stop["layers"], stop["target"], stop["sample"]) == (3, ["second"], "lib", "random 0")
    # The others are compared all the same: on what it should have given.
    compared = {tuple(row["layers"]): row["compared"] for row in record["kernels"]}
    assert set(compared) == {("first",), ("third",)} and all(row["ok"] for row in record["kernels"])
    assert min(compared.values()) >= 8


def test_a_crash_at_some_values_alone(uma: Uma, install: Install) -> None:
    install(f"for (i = 0; i < count; i++) if (x[i] == 120) abort(); {RIGHT}")
    record = uma(*VERIFY, "--json").json
    assert [(stop["kernel"], stop["sample"]) for stop in record["stops"]] == [("relu", "operands: all highest")]


def test_a_crash_of_the_artifact_alone(uma: Uma, install: Install) -> None:
    """With bytes of nobody's between its buffers all goes well."""
    install(f"if (y - x < 200 && x - y < 200) abort(); {RIGHT}")
    done = uma(*VERIFY, "--json")
    assert "layer second on lib (step 3, relu) crashed: SIGABRT (6)" in done.err
    assert [(stop["step"], stop["sample"]) for stop in done.json["stops"]] == [(3, "random 0")]
    assert all(row["ok"] for row in done.json["kernels"]) and done.json["outputs"] == []


def test_what_crashes_before_any_step(uma: Uma, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(RIGHT)
    source = SOURCE + "__attribute__((constructor)) static void begin(void) {{ abort(); }}\n"
    monkeypatch.setitem(globals(), "SOURCE", source)
    install(RIGHT)
    done = uma(*VERIFY, "--json")
    assert done.code == 7 and "the model on lib crashed: SIGABRT (6)" in done.err
    assert done.json["kernels"] == [] and not done.json["equal"]


def test_what_is_kept_from_run_to_run(uma: Uma, install: Install) -> None:
    install(f"{RIGHT} if (runs > 1) y[2] = (int8_t)runs;")
    done = uma(*VERIFY)
    assert "layer second differs from its reference: 1 of 32 elements differ, the first at [0, 2]" in done.err
    assert done.code == 7
    assert "region lib_0 of lib, result 4 of 5, sample 'all lowest'" in done.err


def test_a_clamp_where_no_sample_gets(uma: Uma, install: Install) -> None:
    install("for (i = 0; i < count; i++) y[i] = x[i] < 0 ? 0 : x[i] > 119 ? 119 : x[i];")
    done = uma(*VERIFY)
    assert "layer second differs from its reference: 32 of 32 elements differ" in done.err
    assert done.code == 7
    assert "119 instead of 120" in done.err and "sample 'operands: all highest'" in done.err


@pytest.mark.parametrize("limit", ["0", "-1", "nan"])
def test_no_limit(uma: Uma, install: Install, limit: str) -> None:
    install(RIGHT)
    assert re.search(r"the step limit (0|-1|nan) is not positive", uma(*VERIFY, f"--step-limit={limit}").error(2))


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (
            f"{RIGHT} memset(y + count, 0, 8);",
            "layer second on lib (step 3, relu) writes where it may not: 8 bytes behind its output (between t3 and",
        ),
        ("raise(SIGSEGV);", "layer second on lib (step 3, relu) crashed: SIGSEGV"),
    ],
)
def test_a_fault_in_a_form_that_was_lowered_already(uma: Uma, install: Install, code: str, what: str) -> None:
    install(code)
    assert uma("build", *VERIFY[1:], "-o", "out", "--dump", "stages", "-q").code == 0
    done = uma("verify", "stages/9-sequence.py", *VERIFY[2:], "--samples", 1)
    assert done.code == 7
    assert what in done.out and what in done.err
    assert "could not be compared: " in done.out
