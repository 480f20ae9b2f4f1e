"""A plugin that changes from version to version: kind ``relu_unit``, an accelerator that takes float32 ReLU.

What it does depends on nothing but its version, which is in the C that it brings as well: an artifact that was made by
half of one version and half of another can be told.
"""

from __future__ import annotations

from pathlib import Path

from integration_tests.environment import make_wheel

__all__ = ["SOURCE", "relu_unit"]

SOURCE = """
from uma.hookspecs import Extern, Pattern, Routine, Runtime, hookimpl
from uma.relay import IRModule
from uma.relay.pattern import op, wildcard
from uma.targets import TargetKind
from uma.tir import Buffer, Param

VERSION = "{version}"


@hookimpl
def register_target():
    return [TargetKind("{kind}", help="takes float32 ReLU, version " + VERSION, device_type="npu")]


@hookimpl
def patterns():
    return [Pattern("{kind}.relu", op("nn.relu")(wildcard("float32")))]


@hookimpl
def relay_to_runtime(function):
    shape = function.body.shape
    params = [Param(Buffer("x", shape, "float32"), "input"), Param(Buffer("y", shape, "float32"), "output")]
    extern = Extern(tuple(params), routine="relu", scalars={{"count": params[0].buffer.size}})
    module = IRModule.from_functions({{"relu": extern}})
    return module, module.global_var("relu")


@hookimpl
def runtime():
    declared = "void {kind}_relu(const float *x, float *y, long count);"
    return Runtime(
        header="{kind}.h",
        sources={{
            "{kind}.h": declared,
            "{kind}.c": f\"\"\"/* version {{VERSION}} */
#include "{kind}.h"
void {kind}_relu(const float *x, float *y, long count) {{{{
    for (long i = 0; i < count; i++) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}}}}
\"\"\",
        }},
        routines=(Routine("relu", "{kind}_relu({{x}}, {{y}}, {{count}})"),),
    )
"""


def relu_unit(folder: Path, version: str, *, name: str = "uma-relu-unit", kind: str = "relu_unit") -> Path:
    """A wheel of it."""
    # Byte code that Python kept is told by time, to the second, and size: versions are of different sizes.
    source = SOURCE.format(version=version, kind=kind) + "#" * int(version.partition(".")[0]) + "\n"
    return make_wheel(folder, name, [kind], source, version=version)
