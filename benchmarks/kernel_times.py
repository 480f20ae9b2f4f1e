"""Take the times of an x86 host by its default lowering: python -m benchmarks.kernel_times [FILE].

Builds resnet8 and vww of MLPerf Tiny, int8, for ``c`` without the strategies of its plugin, so that every kernel is
what the core makes of it and the C compiler of that; runs them many times, and keeps of each kernel the least of the
medians. Kernels are told apart by the call in them that has products, else by their only call.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest import mock

import uma
from uma.artifact.random_inputs import random_inputs
from uma.lowering.build_targets import resolve_targets
from uma.pipeline.driver import start_build
from uma.pipeline.loading import load_model
from uma.plugins import default_host
from uma.relay.expr import Call, macs_of
from uma.relay.visit import post_order

from .cases import real_cases
from .hosts import KEPT, Key, key_of

MODELS = ("resnet8_int8", "vww_int8")
ROUNDS, REPEAT = 40, 7


def times(path: Path) -> dict[Key, float]:
    """Nanoseconds of each kernel of a model."""
    artifact = uma.build(path, "c")
    given = random_inputs(artifact.record.inputs, {})
    rounds = [[c.median_ns * c.times for c in artifact.profile(given, repeat=REPEAT).calls] for _ in range(ROUNDS)]
    least = [min(each) for each in zip(*rounds, strict=True)]
    members = resolve_targets("c", default_host())
    loaded = load_model(path, members)
    module = start_build(loaded, members, "canonicalise").run(loaded.form, "canonicalise")
    assert isinstance(module, uma.IRModule)
    calls = [expr for expr in post_order(module.main.body) if isinstance(expr, Call)]
    found: dict[Key, float] = {}
    for record, ns in zip(artifact.record.calls, least, strict=True):
        call = next(one for one in calls if one.op_name == record.op and macs_of(one) == (record.macs or 0))
        calls.remove(call)
        found.setdefault(key_of(call), round(ns, 1))
    return found


def main(arguments: list[str]) -> None:
    """Write the file."""
    kernels: dict[Key, float] = {}
    with mock.patch("uma_cpu_c.strategies_of", lambda target: []):
        for case in real_cases(MODELS):
            kernels |= {key: ns for key, ns in times(case.files["tflite"]).items() if key not in kernels}
    rows = ",\n".join(f"  {json.dumps([*key, ns])}" for key, ns in kernels.items())
    target = Path(arguments[0]) if arguments else KEPT
    what = "nanoseconds of kernels: op, products, what it gives"
    target.write_text(f'{{\n "what": {json.dumps(what)},\n "kernels": [\n{rows}\n ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
