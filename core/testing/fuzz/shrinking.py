"""A failing layer made smaller, as long as the same part of the plugin fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import UmaError
from ...lowering.build_targets import BuildTargets
from ...relay.evaluate import evaluate
from ...relay.expr import Call, Constant, Expr, Tuple, Var, const
from ...relay.op import FixedPoint, FloatScale, Op
from ...relay.visit import substitute
from ...tir.form.interp import InterpreterError
from .acceptance import Acceptance
from .inputs import feeds
from .interpreter_runs import NotLoops, interpreted, work_of_lowered
from .layer import Layer, calls_in
from .layer_images import images_of, lowered_of, unbuilt_of
from .layer_rebuild import Changes, fitted, leaves_of, rebuilt
from .triage import BAD_LOOPS, LARGE, OTHER_LOOPS, Judge, LayerFailure, difference, fault_of_unbuilt

if TYPE_CHECKING:
    from ...runtime.model_process import Isolation

__all__ = ["Shrinker", "measure"]

_BATCH = 8
_PATIENCE = 4
_MOST_WORK = 4_000_000
_MOST_ITERATIONS = 1_000_000
"""Iterations of the loops of a layer that is interpreted whatever its work was estimated to be: about 15 seconds."""


def measure(layer: Layer) -> tuple[int, ...]:
    """How large a layer is: ops, results, elements, attributes that do something, constants of several numbers."""
    calls = calls_in(layer.function.body)
    leaves = leaves_of(layer.function.body).values()
    elements = sum(leaf.tensor.size for leaf in leaves)
    busy = 0
    for call in calls:
        for attr in call.op.attrs if isinstance(call.op, Op) else ():
            value = getattr(call.attrs, attr.name)
            busy += attr.neutral != value if repr(attr.neutral) != "MISSING" else 0
            busy += len(value) > 1 if isinstance(value, (FixedPoint, FloatScale)) else 0
    mixed = sum(isinstance(leaf, Constant) and bool((leaf.data != leaf.data.flat[0]).any()) for leaf in leaves)
    return len(calls), len(layer.results), elements, busy, mixed


def reductions(layer: Layer) -> Iterator[Layer]:
    """Smaller layers, those that are much smaller first."""
    body = layer.function.body
    yield from _parts(layer)
    calls, leaves = calls_in(body), leaves_of(body)
    for most in (1, 2):
        changed: dict[object, Expr] = {}
        for place, leaf in leaves.items():
            if isinstance(leaf, Var):
                changed[place] = fitted(leaf, tuple(min(n, most) for n in leaf.shape))
        yield from _rebuilt(layer, Changes(leaves=changed))  # type: ignore[arg-type]  # keys are places
    yield from _rebuilt(layer, Changes(_neutral(calls)))
    for number, attrs in _neutral(calls).items():
        for name, value in attrs.items():
            yield from _rebuilt(layer, Changes({number: {name: value}}))
    yield from _shorter(layer)
    for place, leaf in leaves.items():
        if isinstance(leaf, Constant) and leaf.tensor.size > 1:
            for number in (0, 1):
                constant = const((leaf.data * 0 + number).astype(leaf.data.dtype))
                yield from _rebuilt(layer, Changes(leaves={place: constant}))


def _parts(layer: Layer) -> Iterator[Layer]:
    """Layers with fewer results, or without one of the calls."""
    body, results = layer.function.body, layer.results
    if len(results) > 1:
        for result in results:
            yield layer.replace_body(result)
        for at in range(len(results)):
            yield layer.replace_body(Tuple([*results[:at], *results[at + 1 :]]))
    for call in calls_in(body):
        for arg in call.args:
            if arg.type is call.type and not isinstance(arg, Constant):
                yield layer.replace_body(substitute(body, {call: arg}))


def _shorter(layer: Layer) -> Iterator[Layer]:
    """Layers in which one dimension of an operand is 1, half as long, or shorter by 1."""
    for divisor in (0, 2, 1):
        for place, leaf in leaves_of(layer.function.body).items():
            for at, extent in enumerate(leaf.shape):
                to = 1 if divisor == 0 else max(1, extent // 2) if divisor == 2 else extent - 1
                if 0 < to < extent:
                    shape = (*leaf.shape[:at], to, *leaf.shape[at + 1 :])
                    yield from _rebuilt(layer, Changes(leaves={place: fitted(leaf, shape)}))


def _rebuilt(layer: Layer, changes: Changes) -> Iterator[Layer]:
    body = rebuilt(layer.function.body, changes)
    if body is not None:
        yield layer.replace_body(body)


def _neutral(calls: Sequence[Call]) -> dict[int, dict[str, object]]:
    """Of each call the attributes that could do nothing, or less."""
    neutral: dict[int, dict[str, object]] = {}
    for number, call in enumerate(calls):
        for attr in call.op.attrs if isinstance(call.op, Op) else ():
            now = getattr(call.attrs, attr.name)
            if repr(attr.neutral) != "MISSING" and attr.neutral != now:
                neutral.setdefault(number, {})[attr.name] = attr.neutral
            elif isinstance(now, FixedPoint) and len(now) > 1:
                neutral.setdefault(number, {})[attr.name] = replace(
                    now, multiplier=now.multiplier[:1], shift=now.shift[:1]
                )
            elif isinstance(now, FloatScale) and len(now) > 1:
                neutral.setdefault(number, {})[attr.name] = FloatScale(now.scale[:1])
    return neutral


class Shrinker:
    """Makes failing layers smaller.

    Args:
        members: what they are built for.
        acceptance: says whether a pattern takes them.
        isolation: the process that they run in.
        tolerance: as for `Judge`.
        seed: of random inputs.
    """

    def __init__(
        self, members: BuildTargets, acceptance: Acceptance | None, isolation: Isolation, tolerance: float, seed: int
    ) -> None:
        self._members, self._acceptance, self._isolation = members, acceptance, isolation
        self._tolerance, self._seed = tolerance, seed

    def shrunk(self, fault: LayerFailure, seconds: float) -> LayerFailure:
        """A fault of the same part and way, of a smaller layer if there is one.

        Args:
            fault: what was found.
            seconds: about how long may be tried, of this process; on a machine that is busy, or where layers hang, that
                is up to `_PATIENCE` times as long.
        """
        start, until, size = time.process_time(), time.monotonic() + _PATIENCE * seconds, measure(fault.layer)

        def is_late() -> bool:
            return time.process_time() - start > seconds or time.monotonic() > until

        tried: set[object] = set()
        progress = True
        while progress and not is_late():
            progress = False
            batch: list[Layer] = []
            for candidate in reductions(fault.layer):
                if not candidate.function.params or candidate.function in tried or measure(candidate) >= size:
                    continue
                tried.add(candidate.function)
                if not self._takes(candidate):
                    continue
                batch.append(candidate)
                if len(batch) >= _BATCH:
                    better = self._smallest(batch, fault)
                    batch = []
                    if better is not None or is_late():
                        break
            else:
                better = self._smallest(batch, fault) if batch else None
            if better is not None:
                fault, size, progress = better, measure(better.layer), True
        return fault

    def interpreted(self, fault: LayerFailure) -> LayerFailure:
        """A fault that was found without interpreting its layer, with the part that the interpreter shows.

        Args:
            fault: of a layer that is as small as it gets.
        """
        failures = self._judged([fault.layer], max_iterations=_MOST_ITERATIONS)
        return failures[0] if failures else fault

    def _takes(self, layer: Layer) -> bool:
        if self._acceptance is None or not layer.pattern:
            return True
        return self._acceptance.ask(layer, count=False).is_taken

    def _smallest(self, layers: Sequence[Layer], like: LayerFailure) -> LayerFailure | None:
        any_way = like.way == LARGE
        alike = [f for f in self.faults(layers, like) if any_way or (f.part, f.way) == (like.part, like.way)]
        return min(alike, key=lambda fault: measure(fault.layer), default=None)

    def faults(self, layers: Sequence[Layer], like: LayerFailure) -> list[LayerFailure]:
        """What is wrong with layers, looked for where ``like`` was found: what shows in the loops is not compiled."""
        if like.way.startswith("not lowered"):
            return [one for layer in layers if (one := self._unlowered(layer)) is not None]
        if like.way == OTHER_LOOPS or like.way.startswith(BAD_LOOPS):
            failures = [self._looped(layer) for layer in layers]
            return [one for one in failures if one is not None]
        return self._judged(layers, contexts="context" in like.way)

    def _judged(
        self, layers: Sequence[Layer], *, contexts: bool = False, max_iterations: int | None = None
    ) -> list[LayerFailure]:
        import numpy as np

        images, unbuilt = images_of(layers, self._members, self._isolation, len(layers))
        faults = [fault_of_unbuilt(one) for one in unbuilt]
        for image in images:
            rng = np.random.default_rng(self._seed)
            judge = Judge(image, rng, tolerance=self._tolerance, max_iterations=max_iterations)
            faults += judge.run(contexts=contexts, loops=False)
        return faults

    def _unlowered(self, layer: Layer) -> LayerFailure | None:
        unbuilt = unbuilt_of(layer, self._members)
        return None if unbuilt is None else fault_of_unbuilt(unbuilt)

    def _looped(self, layer: Layer) -> LayerFailure | None:
        """What is wrong with the loops of a layer."""
        import numpy as np

        try:
            module, results = lowered_of([layer], self._members)
        except UmaError:
            return None
        if work_of_lowered(module, results[0]) > _MOST_WORK:
            return None
        for word, arrays in feeds(layer.function, np.random.default_rng(self._seed), 1):
            expected = evaluate(layer.function, dict(arrays))
            inputs = {f"x0_{at}": arrays[param.name] for at, param in enumerate(layer.function.params)}
            try:
                got = tuple(interpreted(module, results[0], inputs))
            except NotLoops:
                return None
            except InterpreterError as error:
                return LayerFailure.from_bad_loops(layer, error, word, arrays)
            got = tuple(one.reshape(other.shape) for one, other in zip(got, expected, strict=True))
            differs = difference(layer, got, expected, arrays, self._tolerance)
            if differs:
                return LayerFailure.from_other_loops(layer, differs, word, arrays, expected, got)
        return None
