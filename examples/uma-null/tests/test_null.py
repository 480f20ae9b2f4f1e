"""One op is taken, and computed exactly; all others are the host's."""

from __future__ import annotations

import numpy as np

import uma
from uma.plugins import PluginEntry, PluginHost
from uma.relay import Function, TensorType, Var, call

PLUGINS = PluginHost(
    lambda: [
        PluginEntry("c", "uma_cpu_c", "uma-cpu-c", "0.1.0"),
        PluginEntry("null_unit", "uma_null", "uma-null", "0.1.0"),
    ]
)


def test_it_takes_its_op_and_no_other() -> None:
    x = Var("x", TensorType((2, 3), "int8"))
    body = call("add", call("nn.relu", call("add", x, x)), x)
    module = uma.IRModule.from_functions({"main": Function([x], body)})
    placed = uma.build(module, "null_unit", plugins=PLUGINS, stop_after="partition")
    assert isinstance(placed, uma.IRModule)
    [region] = [one for one in placed.functions.values() if isinstance(one, Function) and one.attr("Compiler")]
    assert region.attr("Compiler") == "null_unit" and len(region.params) == 1
    given = np.array([[-100, -1, 0], [1, 60, 100]], np.int8)
    [got] = uma.build(module, "null_unit", plugins=PLUGINS).run(given).values()
    np.testing.assert_array_equal(got, np.maximum(given + given, np.int8(0)) + given)
