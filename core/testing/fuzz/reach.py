"""Which of the layers that a pattern takes reach the device, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...lowering.build_targets import BuildTarget
from ..record import Finding, Part
from .layer import Layer, calls_in
from .layer_images import Image
from .reproducers import layer_text
from .shrinking import measure

__all__ = ["Reach"]

_REMOVED = "the compiler removes it, because its ops change nothing"


class Reach:
    """Collects where layers run: a pattern that takes layers of a kind and never brings one to the device claims what
    it does not do.

    Args:
        member: the accelerator.

    Attributes:
        missed: for each layer that did not reach the device, why.
        reached: the layers that did.
    """

    def __init__(self, member: BuildTarget) -> None:
        self._label = member.label
        self._drives = member.runtime is not None and member.runtime.driver is not None
        self.missed: dict[Layer, str] = {}
        self.reached: list[Layer] = []

    def record(self, image: Image) -> None:
        """Record the layers of an image."""
        for number, layer in enumerate(image.layers):
            if reason := self._reason(image, number):
                self.missed[layer] = reason
            else:
                self.reached.append(layer)

    def _reason(self, image: Image, number: int) -> str:
        """Why a layer did not reach the device by its pattern; empty where it did."""
        name = image.layers[number].pattern
        if not any(calls_in(result) for result in image.results_of(number, image.stages.forms["canonicalise"])):
            return _REMOVED
        refusals = [reason for pattern, reason in image.refusals[number] if pattern == name]
        if refusals:  # also where the pattern takes a smaller part of it instead
            return f"the lowering refuses it: {refusals[0]}"
        if name in image.patterns[number]:
            steps = [image.program.steps[at] for at in image.device_steps(number)]
            is_run = not self._drives or any(getattr(step, "device", None) == self._label for step in steps)
            return "" if is_run else "what it is lowered to runs on the host and uses nothing of the device"
        others = ", ".join(dict.fromkeys(image.patterns[number]))
        return f"it goes to pattern {others} instead" if others else "the partitioner leaves it to the host"

    @property
    def layers(self) -> list[Layer]:
        """All layers that ran."""
        return [*self.reached, *self.missed]

    def findings(self, patterns: Sequence[str]) -> Iterator[Finding]:
        """A finding for each pattern of which no layer reached the device; else for each set of dtypes, and for each
        sequence of ops, of which none did, although the compiler does not remove the ops.

        Args:
            patterns: the names of patterns that have no other finding.
        """
        kinds: tuple[tuple[str, Callable[[Layer], object]], ...] = (
            ("", lambda layer: ""),
            ("dtype ", _dtypes),
            ("ops ", _ops),
        )
        for name in patterns:
            layers = [layer for layer in self.layers if layer.pattern == name]
            for word, kind in kinds:
                reached = {kind(layer) for layer in layers if layer not in self.missed}
                missed = [layer for layer in layers if kind(layer) not in reached]
                if word:
                    missed = [layer for layer in missed if self.missed[layer] != _REMOVED]
                if missed:
                    yield self._finding(name, word and f" of {word}{kind(missed[0])}", missed)
                    break

    def _finding(self, name: str, kind: str, missed: list[Layer]) -> Finding:
        smallest = min(missed, key=measure)
        reason = self.missed[smallest]
        message = f"pattern {name} takes layers{kind}, and none of the {len(missed)} built reached the device: {reason}"
        is_pattern = reason == _REMOVED or reason.startswith(("it goes", "the partitioner"))
        part: Part = "pattern" if is_pattern else "lowering"
        return Finding(part, "layers", message, f"pattern {name}", layer_text(smallest))


def _dtypes(layer: Layer) -> str:
    return ", ".join(sorted({param.dtype for param in layer.function.params}))


def _ops(layer: Layer) -> str:
    return ", ".join(call.op_name or "" for call in calls_in(layer.function.body))
