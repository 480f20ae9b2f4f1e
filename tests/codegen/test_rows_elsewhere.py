"""Functions with rows that another machine runs, or a plugin brings itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests._support.c_programs import CSRC, SANITIZED

from uma.codegen.units import PluginFunctions, TranslationUnit
from uma.contract.code import TargetCode
from uma.tir import flatten, parse_func

TEXT = """
@prim_func
def f(x: In[int8, (3, 2)], y: Out[int8, (3, 2)], w: Const[int8, (2,)]):
    rows(r, 3)
    by_rows(x, 3)
    by_rows(y, 3)
    for i in range(2):
        y[r, i] = x[r, i] + w[i]
"""
FUNC = flatten(parse_func(TEXT)[1])
MAIN = """
#include <stdio.h>
#include "m_on_far.h"
int main(void)
{
    signed char x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0}, w[2] = {10, 20};
    void *arguments[3] = {x, y, w};
    int32_t status = m_on_far(0, arguments);
    printf("%d %d %d %d %d %d %d", (int)status, y[0], y[1], y[2], y[3], y[4], y[5]);
    return 0;
}
"""


def test_another_machine_runs_all_rows(tmp_path: Path) -> None:
    unit = TranslationUnit("m", "far", 1, True, {"f": FUNC})
    for name, text in unit.files().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "main.c").write_text(MAIN)
    binary = tmp_path / "main"
    sources = [str(tmp_path / name) for name in ("main.c", *unit.sources)]
    subprocess.run(["gcc", *SANITIZED, "-I", str(CSRC), "-I", str(tmp_path), *sources, "-o", str(binary)], check=True)
    done = subprocess.run([str(binary)], check=True, capture_output=True, text=True)
    assert done.stdout == "0 11 22 13 24 15 26"


def test_the_header_of_what_a_plugin_brings_declares_the_row() -> None:
    own = PluginFunctions("p", TargetCode(sources={"p.c": ""}, symbols={"f": "p_f"}))
    header = own.files({"f": FUNC}, ["uma_runtime.h"])["p_functions.h"]
    assert "int32_t r_, int32_t x_from_, int32_t y_from_);" in " ".join(str(header).split())
