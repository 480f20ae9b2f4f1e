"""Verification of a model with open extents: at several extents its kernels and its outputs, beside the references of
its ops there.

What lies behind the extents in memory, nobody reads, and it is not looked at. Kernels are not driven to the ends of
their operands' ranges: that is done at one extent, of a build that has it fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..artifact import Artifact
from ..artifact.random_inputs import random_inputs
from ..errors import UsageError
from ..lowering.build_targets import Members
from ..pipeline.loading import LoadedModel
from ..relay.dimension_binding import bind_dimensions
from ..relay.evaluate import evaluate
from ..relay.module import IRModule, Signature
from .index_inputs import index_extents
from .reference_runtimes import Oracle
from .results import KernelChecks, OutputChecks, Verification
from .rounding_error import relative_bounds, rounding_bounds
from .stepwise_model import Inspected

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.open_shapes import OpenShapes

__all__ = ["verify_open"]


def verify_open(
    loaded: LoadedModel,
    artifact: Artifact,
    members: Members,
    open_shapes: OpenShapes,
    inputs: Mapping[str, np.ndarray],
    oracle: tuple[str, Callable[[], Oracle]] | None,
    tell: Callable[[str], None],
    step_limit_s: float | None = None,
) -> Verification:
    """Compare every kernel of a compiled model, and the outputs of its artifact, at the least, the largest and a middle
    value of each extent.

    Args:
        loaded: the model, as it was imported.
        artifact: what was made of it.
        members: what it was built for.
        open_shapes: of the artifact.
        inputs: one sample, which comes first: arrays by name. All are random else.
        oracle: name of another runtime, and what makes the model ready to run there.
        tell: told of each part of the work that begins.
        step_limit_s: how long one step may take, in seconds; by default `STEP_LIMIT_S`.

    Raises:
        UsageError: a pass may change results.
        ModelError: an input does not fit.
        ToolchainError: the model cannot be compiled or loaded.
    """
    from ..runtime.model_process import STEP_LIMIT_S, Isolation

    assert isinstance(loaded.form, IRModule)
    if loaded.tolerate:
        subject = f"pass {loaded.tolerate[0]}, which may change results, is compared at one extent alone"
        raise UsageError(subject, hint="--shape NAME=NUMBER")
    form, rows = loaded.form, artifact.record.inputs
    signature = form.signature or Signature.from_function(form.main)
    peer = None if oracle is None else (oracle[0], oracle[1]())
    symbols = tuple(open_shapes.symbols.values())
    below = index_extents(form)
    samples = [random_inputs(rows, inputs, below=below)] if inputs else []
    for number, part in enumerate((0.0, 0.5, 1.0)):
        extents = {symbol.name: int(symbol.low + part * (symbol.high - symbol.low)) for symbol in symbols}
        samples.append(random_inputs(rows, extents=extents, below=below, seed=number))
    names, checks, kernels = [], OutputChecks(), KernelChecks()
    first: dict[str, np.ndarray] = {}
    tell("compile without reuse of memory")
    limit_s = STEP_LIMIT_S if step_limit_s is None else step_limit_s
    with Isolation(limit_s) as isolation, artifact.session() as session:
        inspected = Inspected(loaded, members, isolation)
        for number, sample in enumerate(samples):
            extents = open_shapes.extents({name: array.shape for name, array in sample.items()}, {})
            shown = ", ".join(f"{name} = {value}" for name, value in extents.items())
            names.append(shown or f"sample {number}")
            tell(names[-1])
            inspected.extents = extents
            inspected.run(open_shapes.widened(sample), {}, names[-1])
            inspected.check(kernels, names[-1])
            got = session.run(sample)
            first = first or got
            whole = open_shapes.held(extents) | sample
            arrays = {p.name: whole[i.name] for p, i in zip(form.main.params, signature.inputs, strict=True)}
            fixed = bind_dimensions(form, extents)
            expected = evaluate(fixed, arrays)
            each = rounding_bounds(relative_bounds(fixed), fixed, arrays, expected)
            bounds = dict(zip(got, each, strict=False))
            checks.add(got, _by_name(got, expected), "references", bounds, frame=number)
            if peer is not None:
                theirs = peer[1]([sample[row.name] for row in rows if row.holds is None])
                checks.add(got, dict(zip(got, theirs, strict=True)), peer[0], bounds, frame=number)
        checks.add(session.run(samples[0]), first, "first run", {}, frame=len(samples))
    return Verification(
        kernels.all,
        inspected.skipped,
        checks.all,
        tuple(names),
        overruns=inspected.overruns,
        stops=tuple(inspected.stops),
    )


def _by_name(names: Iterable[str], values: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """The values of outputs; those that hold extents, which a caller is not given, are the last ones."""
    return dict(zip(names, values, strict=False))
