"""Verification of a model with open extents: its outputs at several extents, beside the references of its ops there.

Its kernels are not compared one by one: that is done at one extent, of a build that has it fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..artifact import Artifact
from ..artifact.random_inputs import random_inputs
from ..errors import UsageError
from ..pipeline.driver import LoadedModel
from ..relay.evaluate import evaluate
from ..relay.module import IRModule, Signature
from ..relay.valued import with_extents
from .operands import rounded
from .oracles import Oracle
from .verification import OutputCheck, Skipped, Verification, check_outputs

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.open_shapes import OpenShapes

__all__ = ["verify_open"]

_REASON = "its extents are open: compare it at one of them, --shape NAME=NUMBER"


def verify_open(
    loaded: LoadedModel,
    artifact: Artifact,
    open_shapes: OpenShapes,
    inputs: Mapping[str, np.ndarray],
    oracle: tuple[str, Callable[[], Oracle]] | None,
    tell: Callable[[str], None],
) -> Verification:
    """Compare the outputs of an artifact at the least, the largest and a middle value of each extent.

    Args:
        loaded: the model, as it was imported.
        artifact: what was made of it.
        open_shapes: of the artifact.
        inputs: one sample, which comes first: arrays by name. All are random else.
        oracle: name of another runtime, and what makes the model ready to run there.
        tell: told of each part of the work that begins.

    Raises:
        UsageError: a pass may change results.
        ModelError: an input does not fit.
        ToolchainError: the model cannot be compiled or loaded.
    """
    assert isinstance(loaded.form, IRModule)
    if loaded.tolerate:
        what = f"pass {loaded.tolerate[0]}, which may change results, is compared at one extent alone"
        raise UsageError(what, hint="--shape NAME=NUMBER")
    form, rows = loaded.form, artifact.record.inputs
    signature = form.signature or Signature.of(form.main)
    peer = None if oracle is None else (oracle[0], oracle[1]())
    symbols = tuple(open_shapes.symbols.values())
    samples = [random_inputs(rows, inputs)] if inputs else []
    for number, part in enumerate((0.0, 0.5, 1.0)):
        extents = {symbol.name: int(symbol.low + part * (symbol.high - symbol.low)) for symbol in symbols}
        samples.append(random_inputs(rows, extents=extents, seed=number))
    names, checks = [], list[OutputCheck]()
    first: dict[str, np.ndarray] = {}
    with artifact.session() as session:
        for number, sample in enumerate(samples):
            extents = open_shapes.extents({name: array.shape for name, array in sample.items()}, {})
            names.append(", ".join(f"{name} = {value}" for name, value in extents.items()))
            tell(names[-1])
            got = session.run(sample)
            first = first or got
            whole = open_shapes.held(extents) | sample
            given = {p.name: whole[i.name] for p, i in zip(form.main.params, signature.inputs, strict=True)}
            fixed = with_extents(form, extents)
            expected = dict(zip(got, evaluate(fixed, given), strict=True))
            again = lambda name, fixed=fixed, given=given, got=got: dict(  # noqa: E731 - as short as its use
                zip(got, evaluate(fixed, rounded(given)), strict=True)
            )[name]
            checks += check_outputs(got, expected, "references", frame=number, rounded=again)
            if peer is not None:
                theirs = peer[1]([sample[row.name] for row in rows if row.holds is None])
                checks += check_outputs(got, dict(zip(got, theirs, strict=True)), peer[0], frame=number)
        checks += check_outputs(session.run(samples[0]), first, "first run", frame=len(samples))
    skipped = tuple(Skipped(None, layers, _REASON) for layers in artifact.record.layers)
    return Verification((), skipped, tuple(checks), tuple(names))
