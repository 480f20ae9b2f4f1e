"""Random networks that onnxruntime's own quantiser quantised: our bytes are its runtime's, or exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tests._support.onnx_builder import run_onnxruntime
from tests._support.quantised_nets import QuantisedNet, exact_outputs, quantised_net

import uma
from uma.frontends import import_model
from uma.relay import Function, IRModule, Tuple
from uma.relay.evaluate import evaluate


def kind_of(net: QuantisedNet, ours: np.ndarray) -> str | None:
    """Whose bytes ours are; None for nobody's."""
    optimised, plain = (run_onnxruntime(net.model, net.inputs, optimise=level)[0] for level in (True, False))
    for kind, other in (("onnxruntime", optimised), ("onnxruntime unoptimised", plain)):
        if ours.dtype == other.dtype and np.array_equal(ours, other):
            return kind
    # What floats round, and where halves go then, is onnxruntime's noise.
    if np.array_equal(ours, exact_outputs(net.model, net.inputs)[0]):
        return "exact, onnxruntime agrees with itself" if np.array_equal(optimised, plain) else "exact"
    return None


def check(seeds: Sequence[int], record: Callable[[str, object], None]) -> None:
    """The networks of these seeds as relay; every third of them compiled too, all in one image."""
    nets = {seed: quantised_net(seed) for seed in seeds}
    mains = {seed: import_model(net.model).module.main for seed, net in nets.items()}
    results = {seed: evaluate(mains[seed], net.inputs)[0] for seed, net in nets.items()}
    faults = []
    some = seeds[::3]
    module = IRModule.from_functions(
        {"main": Function([p for seed in some for p in mains[seed].params], Tuple([mains[seed].body for seed in some]))}
    )
    compiled = uma.build(module, target="c").run({k: v for seed in some for k, v in nets[seed].inputs.items()})
    for seed, made in zip(some, compiled.values(), strict=True):
        if not np.array_equal(results[seed], made):
            faults.append(f"seed {seed}: what is compiled differs from relay, {nets[seed].options}")
    kinds: Counter[str | None] = Counter()
    for seed, net in nets.items():
        kind = kind_of(net, results[seed])
        kinds[kind] += 1
        if kind is None:
            faults.append(f"seed {seed}: neither onnxruntime's bytes nor exact, {net.options}")
    shown = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    record("measured", f"random QDQ networks, seeds {seeds[0]} to {seeds[-1]}: {shown}")
    assert not faults, "\n".join(faults)


def test_networks_that_onnxruntime_quantised(record_property: Callable[[str, object], None]) -> None:
    check(range(12), record_property)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 1300, 25))
def test_many_networks_that_onnxruntime_quantised(first: int, record_property: Callable[[str, object], None]) -> None:
    check(range(first, first + 25), record_property)
