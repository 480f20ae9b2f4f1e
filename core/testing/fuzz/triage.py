"""Three ways to compute each layer of an image, and which part of the plugin is wrong where they differ.

The interpreter runs the lowered loops: what differs from the references of the ops there is the lowering's. What the
machine computes otherwise than its loops say is the machine's; but the driver's, where it is so only after something
else has run, where it is not so with each transfer ended before the next begins, or where memory of nobody's is
written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import PluginError, ToolchainError, UmaError
from ...lowering.build_targets import BuildTargets
from ...pipeline.stages import STAGES
from ...relay.evaluate import evaluate, evaluate_all
from ...relay.expr import Call, Constant, Var
from ...relay.op import FixedPoint, Op
from ...tir.form.interp import InterpreterError, TooLong
from ...toolchain.origins import PluginCodeError
from ...verification.results import compare
from ...verification.rounding_error import relative_bounds, rounding_bounds
from ..record import Part
from .inputs import feeds
from .interpreter_runs import NotLoops, blocking, has_queues, interpreted, key_of_lowered, work_of_lowered
from .layer import Layer, calls_in
from .layer_images import BuildFailed, Image, Ran, Unbuilt, lowered_of
from .layer_rebuild import Changes, rebuilt

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.model_process import IsolatedModel

__all__ = [
    "ALL_WORK",
    "BAD_LOOPS",
    "IGNORED",
    "LARGE",
    "OTHER_LOOPS",
    "Judge",
    "LayerFailure",
    "difference",
    "fault_of_unbuilt",
    "ignored_attribute",
]

_MOST_WORK, ALL_WORK = 2_000_000, 30_000_000
"""Operations that the interpreter does for one layer at most, and for all: about a second, and ten."""

BAD_LOOPS, OTHER_LOOPS = "bad loops", "other loops"
"""How faults show that are in the loops alone."""

IGNORED = "an attribute is opened and not looked at"

LARGE = "wrong, in a layer that is too large to interpret"
"""How a fault shows whose part is not known, because the interpreter takes too long for the layer."""

_MOST_LOOKED_INTO = 8
"""Layers of an image that differ, of which it is found out why; the others count."""

_MOST_STOPPED = 3
"""Layers of an image that crash or hang, of which no more are run then."""

Arrays = Mapping[str, "np.ndarray"]


@dataclass(frozen=True, eq=False)
class LayerFailure:
    """Something that is wrong with how a layer is computed.

    Args:
        layer: the layer.
        part: what of the plugin is wrong.
        way: how it shows, in a few words that are the same for all faults that are alike.
        what: a sentence, with numbers.
        sample: what was fed, in words; empty where nothing was.
        arrays: that, by the names of the layer's inputs.
        expected: what the references give; None where nothing was compared.
        got: what the layer gave.
    """

    layer: Layer
    part: Part
    way: str
    what: str
    sample: str = ""
    arrays: Arrays | None = None
    expected: tuple[np.ndarray, ...] | None = None
    got: tuple[np.ndarray, ...] | None = None

    @staticmethod
    def from_bad_loops(layer: Layer, error: UmaError, sample: str, arrays: Arrays) -> LayerFailure:
        """Of loops that the interpreter stopped."""
        message = f"its loops do what they must not: {error.what}"
        return LayerFailure(layer, "lowering", f"{BAD_LOOPS}: {_head(error.what)}", message, sample, arrays)

    @staticmethod
    def from_other_loops(
        layer: Layer,
        differs: str,
        sample: str,
        arrays: Arrays,
        expected: tuple[np.ndarray, ...],
        got: tuple[np.ndarray, ...],
    ) -> LayerFailure:
        """Of loops that mean something else than the ops."""
        message = f"its loops, interpreted, give another result than the ops: {differs}"
        return LayerFailure(layer, "lowering", OTHER_LOOPS, message, sample, arrays, expected, got)


def difference(
    layer: Layer, got: Sequence[np.ndarray], expected: Sequence[np.ndarray], arrays: Arrays, tolerance: float
) -> str:
    """How results differ from what they should be, in words; empty where they do not.

    Args:
        layer: the layer.
        got, expected: its results.
        arrays: its inputs.
        tolerance: what floats may differ by, as a share of the largest element; besides what the order of their sums
            changes. Unless it is 0, results behind an op that reads a NaN or an infinity of another op may be anything.
    """
    import numpy as np

    bounds = rounding_bounds(relative_bounds(layer.function), layer.function, arrays, expected)
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        comparison = compare(one, other, bounds[number])
        if comparison.ok:
            continue
        allowed = tolerance * float(np.abs(other).max(initial=0.0)) if other.dtype.kind == "f" else -1.0
        if tolerance and (comparison.largest <= allowed or _reads_non_finite(layer, arrays)):
            continue
        return str(comparison)
    return ""


def _reads_non_finite(layer: Layer, arrays: Arrays) -> bool:
    """Return whether an op of the layer reads a NaN or an infinity that another op computed."""
    import numpy as np

    values = evaluate_all(layer.function, dict(arrays))
    computed = {
        arg for call in calls_in(layer.function.body) for arg in call.args if not isinstance(arg, (Constant, Var))
    }
    return not all(np.isfinite(values[expr]).all() for expr in computed)


def fault_of_unbuilt(unbuilt: Unbuilt) -> LayerFailure:
    """What is wrong where a layer that was accepted cannot be built."""
    error, stage = unbuilt.error, unbuilt.stage
    place = f" ({error.where})" if error.where else ""
    if isinstance(error, PluginError) and stage == STAGES[STAGES.index("partition") - 1]:
        text = f"a pattern fails on a layer that is accepted: {error.what}{place}"
        return LayerFailure(unbuilt.layer, "pattern", f"not lowered after {stage}: {_head(error.what)}", text)
    if isinstance(error, (ToolchainError, PluginCodeError)):
        return LayerFailure(unbuilt.layer, "driver", "not compiled", f"its C cannot be compiled: {error.what}{place}")
    text = f"an accepted layer cannot be lowered: {error.what}{place}"
    return LayerFailure(unbuilt.layer, "lowering", f"not lowered after {stage}: {_head(error.what)}", text)


def _head(text: str) -> str:
    """The words of a message without its numbers."""
    return "".join(letter for letter in text if not letter.isdigit())[:60]


class Judge:
    """Runs the layers of an image, and finds what is wrong.

    Args:
        image: the image.
        rng: decides random inputs.
        random: how many random inputs each layer is given, besides those at the ends of ranges.
        tolerance: for `difference`.
        before: what the only layer is given before all else; None for nothing.
        all_work: operations that the interpreter does for layers that are computed rightly.
        max_iterations: interpret each layer until its loops have had so many iterations; by default layers are
            interpreted whose loops have little work as far as that is known.
    """

    def __init__(
        self,
        image: Image,
        rng: np.random.Generator,
        random: int = 2,
        tolerance: float = 0.0,
        before: Arrays | None = None,
        all_work: int = ALL_WORK,
        max_iterations: int | None = None,
    ) -> None:
        self.image, self._tolerance = image, tolerance
        self._all_work, self._max_iterations = all_work, max_iterations
        first = [("what the file has", before)] if before else []
        self._feeds = [[*first, *feeds(layer.function, rng, random)] for layer in image.layers]
        self._expected: dict[tuple[int, int], tuple[np.ndarray, ...]] = {}
        self.faults: dict[int, LayerFailure] = {}
        self.interpreted = 0
        self._stops = 0
        self.more: list[Layer] = []
        self._left: set[int] = set()
        self._blocking: Image | str | None = ""

    def expected(self, number: int, sample: int) -> tuple[np.ndarray, ...]:
        """What the references say."""
        key = number, sample
        if key not in self._expected:
            self._expected[key] = evaluate(self.image.layers[number].function, dict(self._feeds[number][sample][1]))
        return self._expected[key]

    def run(self, *, contexts: bool = True, loops: bool = True) -> list[LayerFailure]:
        """All that is wrong with the layers, at most one fault of each: the first that was found.

        Args:
            contexts: whether to run the image in a second context as well.
            loops: whether to interpret the loops of layers that are computed rightly as well.
        """
        image, count = self.image, len(self.image.layers)
        samples = len(self._feeds[0])
        order = [*range(samples), 0]
        for turn, sample in enumerate(order):
            arrays = {number: self._feeds[number][sample][1] for number in range(count)}
            results = "" if self._stops else image.run_all(arrays)
            for number in range(count):
                if number not in self.faults and number not in self._left and self._stops < _MOST_STOPPED:
                    ran = results[number] if not isinstance(results, str) else image.run(number, arrays[number])
                    self._look(number, sample, ran, again=turn == len(order) - 1)
        if self._stops < _MOST_STOPPED:
            self._alone()
        if contexts and count and not self._stops:
            self._contexts()
        if loops:
            self._interpret_all()
        return list(self.faults.values())

    # --- what is wrong ---------------------------------------------------------------------------------------------

    def _look(self, number: int, sample: int, ran: Ran, again: bool = False) -> None:
        """Take in what a run gave."""
        layer, (word, arrays) = self.image.layers[number], self._feeds[number][sample]
        expected = self.expected(number, sample)
        if ran.results is None:
            self._stops += ran.kind in ("crash", "hang")
            self.faults[number] = self._stopped(number, sample, ran)
            return
        differs = difference(layer, ran.results, expected, arrays, self._tolerance)
        if (differs or ran.beside) and len(self.faults) >= _MOST_LOOKED_INTO:
            self.more.append(layer)
            self._left.add(number)
            return
        if ran.beside:
            message = f"{ran.beside[0]} is written, which is nobody's"
            self.faults[number] = LayerFailure(
                layer, "driver", "writes beside", message, word, arrays, expected, ran.results
            )
        elif differs and again:
            message = f"the same input gives another result after other runs: {differs}"
            self.faults[number] = LayerFailure(
                layer, "driver", "another second run", message, word, arrays, expected, ran.results
            )
        elif differs:
            self.faults[number] = self._differing(number, sample, ran.results, differs)

    def _stopped(self, number: int, sample: int, ran: Ran) -> LayerFailure:
        """A layer whose run had no end."""
        layer, (word, arrays) = self.image.layers[number], self._feeds[number][sample]
        loops = self._loops(number, sample)
        part: Part = "driver" if ran.kind in ("hang", "crash") else "machine"
        message = f"the run ended with {ran.kind}: {ran.stopped}"
        if isinstance(loops, LayerFailure):
            return loops
        if ran.kind == "fault":
            if loops is False:
                return LayerFailure(layer, part, LARGE, message, word, arrays)
            if loops is None:
                part = "lowering"
            elif self._is_right_blocking(number, arrays) or self._is_right_fresh(number, sample):
                part = "driver"
        return LayerFailure(layer, part, ran.kind, message, word, arrays)

    def _differing(self, number: int, sample: int, got: tuple[np.ndarray, ...], differs: str) -> LayerFailure:
        layer, (word, arrays) = self.image.layers[number], self._feeds[number][sample]
        expected = self.expected(number, sample)
        loops = self._loops(number, sample)
        if isinstance(loops, LayerFailure):
            return loops
        part: Part
        if self._is_right_fresh(number, sample):
            part, way = "driver", "right only where nothing ran before"
            message = f"it is computed rightly in a new process, and otherwise after other layers: {differs}"
        elif loops is False:
            part, way, message = "lowering", LARGE, f"it is computed otherwise than the ops say: {differs}"
        elif loops is None:
            part, way = "lowering", "a wrong result"
            message = f"what was made of it gives another result than the ops: {differs}"
        elif self._is_right_blocking(number, arrays):
            part, way = "driver", "right only without transfers under way"
            message = (
                f"it is computed rightly where each transfer ends before the next step, and otherwise not: {differs}"
            )
        else:
            part, way = "machine", "not what its loops say"
            message = f"the machine computes something else than the loops that it is given say: {differs}"
        return LayerFailure(layer, part, way, message, word, arrays, expected, got)

    def _loops(self, number: int, sample: int) -> LayerFailure | bool | None:
        """What is wrong with the loops of a layer; True where they give what the ops do, None where there are none, and
        False where they take too long."""
        image, layer = self.image, self.image.layers[number]
        word, arrays = self._feeds[number][sample]
        expected = self.expected(number, sample)
        results = image.results_of(number)
        if self._max_iterations is None and work_of_lowered(image.lowered, results) > _MOST_WORK:
            return False
        try:
            got = tuple(interpreted(image.lowered, results, image.name_inputs(number, arrays), self._max_iterations))
        except NotLoops:
            return None
        except TooLong:
            return False
        except InterpreterError as error:
            return LayerFailure.from_bad_loops(layer, error, word, arrays)
        self.interpreted += 1
        got = tuple(one.reshape(other.shape) for one, other in zip(got, expected, strict=True))
        differs = difference(layer, got, expected, arrays, self._tolerance)
        return LayerFailure.from_other_loops(layer, differs, word, arrays, expected, got) if differs else True

    def _interpret_all(self) -> None:
        """The loops of layers that the machine computes rightly, on one input; those with the least work first."""
        image, remaining_work = self.image, self._all_work
        lowered = image.lowered
        work = {n: work_of_lowered(lowered, image.results_of(n)) for n in range(len(image.layers))}
        for number in sorted(work, key=lambda n: work[n]):
            if number in self.faults or number in self._left or work[number] > min(remaining_work, _MOST_WORK):
                continue
            remaining_work -= work[number]
            failure = self._loops(number, 0)
            if isinstance(failure, LayerFailure):
                self.faults[number] = failure

    # --- other circumstances ---------------------------------------------------------------------------------------

    def _is_right(self, number: int, sample: int, ran: Ran) -> bool:
        arrays = self._feeds[number][sample][1]
        layer = self.image.layers[number]
        if ran.results is None:
            return False
        return not difference(layer, ran.results, self.expected(number, sample), arrays, self._tolerance)

    def _is_right_fresh(self, number: int, sample: int) -> bool:
        """Whether it is computed rightly alone, in a process where nothing ran before."""
        self.image.isolation.restart()
        return self._is_right(number, sample, self.image.run(number, self._feeds[number][sample][1]))

    def _is_right_blocking(self, number: int, arrays: Arrays) -> bool:
        """Whether it is computed rightly where whatever is started ends before the next step."""
        image, layer = self.image, self.image.layers[number]
        if not has_queues(image.lowered):
            return False
        if self._blocking == "":
            module = blocking(image.stages.forms["lower"])
            try:
                blocking_image = None if module is None else Image(image.layers, image.members, image.isolation, module)
            except BuildFailed:
                blocking_image = None
            self._blocking = blocking_image
        if not isinstance(self._blocking, Image):
            return False
        ran = self._blocking.run(number, arrays)
        expected = evaluate(layer.function, dict(arrays))
        return ran.results is not None and not difference(layer, ran.results, expected, arrays, self._tolerance)

    def _alone(self) -> None:
        """Each layer by itself, others before it in another order: what a layer needs of another's run shows."""
        for number in reversed(range(len(self.image.layers))):
            if number not in self.faults and number not in self._left:
                sample = 1 % len(self._feeds[number])
                ran = self.image.run(number, self._feeds[number][sample][1])
                self._note_state(number, sample, ran, "in another order")

    def _contexts(self) -> None:
        """Two contexts in turns, each with devices of its own."""
        from ...errors import DeviceError

        image = self.image
        try:
            others: list[IsolatedModel] = [image.context(1)]
            for number in range(len(image.layers)):
                if number in self.faults or number in self._left:
                    continue
                for sample, runs in ((0, image.runs), (1, others[0]), (1, image.runs), (0, others[0])):
                    ran = image.run(number, self._feeds[number][sample][1], runs)
                    self._note_state(number, sample, ran, "in two contexts by turns")
        except (DeviceError, UmaError) as error:
            number = next((n for n in range(len(image.layers)) if n not in self.faults), 0)
            message = f"a second context cannot be had: {error.what}"
            self.faults.setdefault(number, LayerFailure(image.layers[number], "driver", "no second context", message))

    def _note_state(self, number: int, sample: int, ran: Ran, how: str) -> None:
        if number in self.faults:
            return
        layer, (word, arrays) = self.image.layers[number], self._feeds[number][sample]
        expected = self.expected(number, sample)
        if ran.results is None:
            message = f"run {how}, it ends with {ran.kind}: {ran.stopped}"
        elif ran.beside:
            message = f"run {how}, {ran.beside[0]} is written, which is nobody's"
        else:
            differs = difference(layer, ran.results, expected, arrays, self._tolerance)
            if not differs:
                return
            message = f"run {how}, it gives another result: {differs}"
        self.faults[number] = LayerFailure(
            layer, "driver", f"wrong {how}", message, word, arrays, expected, ran.results
        )


# --- attributes that nobody looks at ---------------------------------------------------------------------------------


def ignored_attribute(fault: LayerFailure, key: object, members: BuildTargets) -> str:
    """The attribute that a pattern opened and a lowering does not look at, in words; empty where there is none: the
    layer is lowered to the same loops and constants with another value of it, for which the ops give something else.

    Args:
        fault: of the lowering.
        key: what the layer was lowered to, as `key_of_lowered` has it.
        members: what it is lowered for.
    """
    if fault.arrays is None:
        return ""
    layer = fault.layer
    expected = evaluate(layer.function, dict(fault.arrays))
    for at, name, value, now in _alternatives(layer):
        body = rebuilt(layer.function.body, Changes({at: {name: value}}))
        if body is None or body.type is not layer.function.body.type:
            continue
        other = Layer(layer.replace_body(body).function, layer.pattern)
        if [p.type for p in other.function.params] != [p.type for p in layer.function.params]:
            continue
        results = evaluate(other.function, dict(fault.arrays))
        if all((one == two).all() for one, two in zip(results, expected, strict=True)):
            continue
        try:
            module, lowered = lowered_of([other], members)
        except UmaError:
            continue
        if key_of_lowered(module, lowered[0]) == key:
            call = calls_in(layer.function.body)[at]
            word = "rounding" if isinstance(value, FixedPoint) else name
            return (
                f"{word} of {call.op_name} is opened and not looked at: {_short(now)} is lowered as {_short(value)} is"
            )
    return ""


def _short(value: object) -> str:
    return f"rounding {value.rounding}" if isinstance(value, FixedPoint) else repr(value)


def _alternatives(layer: Layer) -> list[tuple[int, str, object, object]]:
    """For each attribute of each call another value: the neutral one, or, of scales, another rounding."""
    from dataclasses import replace

    alternatives: list[tuple[int, str, object, object]] = []
    for at, call in enumerate(calls_in(layer.function.body)):
        assert isinstance(call, Call)
        if not isinstance(call.op, Op):
            continue
        for attr in call.op.attrs:
            now = getattr(call.attrs, attr.name)
            if isinstance(now, FixedPoint):
                others = [r for r in ("up", "even", "double", "away") if r != now.rounding]
                alternatives += [(at, attr.name, replace(now, rounding=rounding), now) for rounding in others]
            elif repr(attr.neutral) != "MISSING" and attr.neutral != now:
                alternatives.append((at, attr.name, attr.neutral, now))
    return alternatives
