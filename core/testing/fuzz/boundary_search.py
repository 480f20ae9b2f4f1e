"""Where clauses end: by bisection, for each extent, the largest that is taken and the smallest that is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from ...relay.expr import Constant, Var
from .acceptance import Acceptance, Verdict
from .layer import Layer, calls_in, work_of
from .layer_rebuild import Changes, OperandPosition, fitted, leaves_of, rebuilt
from .mutations import leaf_text

__all__ = ["MOST_EDGE_WORK", "Edge", "edges", "long", "slim"]

_MOST_EXTENT, _MOST_ELEMENTS = (1 << 16) + 1, 1 << 18

MOST_EDGE_WORK = 300_000
"""Multiply-accumulates of a layer at an edge that is worth a run."""

_ASKED_S = 1.5
"""After so long an edge of layers that are not run is known well enough: a clause may look for tiles."""


@dataclass(frozen=True)
class Edge:
    """An extent beyond which a pattern takes no layer that is the same otherwise.

    Args:
        accepted: the layer with the largest extent that is taken.
        refused: that with the smallest that is not.
        text: both, and who refuses, in words.
        by: who refuses.
    """

    accepted: Layer
    refused: Layer
    text: str
    by: str


def slim(layer: Layer, acceptance: Acceptance) -> Layer:
    """A layer that is taken with each extent 1 that may be: what it takes of a memory is then a matter of one extent,
    and such a layer is as large as it may be with little work."""
    for place, leaf in leaves_of(layer.function.body).items():
        for at, now in enumerate(leaf.shape):
            changed = (
                _with_extent(layer, place, leaves_of(layer.function.body).get(place, leaf), at, 1) if now > 1 else None
            )
            if changed is not None and acceptance.ask(changed, count=False).is_taken:
                layer = changed
    return layer


def long(layer: Layer, acceptance: Acceptance, extent: int) -> Iterator[Layer]:
    """Layers that are taken with one extent that is long, each extent in turn. Of a slim layer they fill what one
    instruction can do along an extent."""
    for place, leaf in leaves_of(layer.function.body).items():
        for at, now in enumerate(leaf.shape if len(leaf.shape) > 1 else ()):
            changed = _with_extent(layer, place, leaf, at, extent) if now < extent else None
            if changed is not None and work_of(changed) <= MOST_EDGE_WORK and acceptance.ask(changed).is_taken:
                name = leaf_text(calls_in(layer.function.body), place)
                yield changed.replace_body(changed.function.body, f"extent {at} of {name} is {extent}")


def edges(layer: Layer, acceptance: Acceptance) -> Iterator[Edge]:
    """The edges of a layer that is taken, as its extents grow one at a time."""
    for place, leaf in leaves_of(layer.function.body).items():
        if isinstance(leaf, Constant) and len(leaf.shape) < 2:
            continue  # it follows what it is added to
        for at, now in enumerate(leaf.shape):
            until = time.process_time() + _ASKED_S

            def is_slow(changed: Layer, until: float = until) -> bool:
                return time.process_time() > until and work_of(changed) > MOST_EDGE_WORK

            most = min(_MOST_EXTENT, _MOST_ELEMENTS // max(1, leaf.tensor.size // now))
            low, low_layer, high, high_layer, answer = now, layer, now, layer, Verdict()
            while high < most and not is_slow(low_layer):
                high = min(2 * high + 1, most)
                larger = _with_extent(layer, place, leaf, at, high)
                if larger is None or _elements(larger) > 4 * _MOST_ELEMENTS:
                    break
                answer, high_layer = acceptance.ask(larger), larger
                if not answer.is_taken:
                    break
                low, low_layer = high, larger
            if answer.is_taken or answer.fault or high_layer is layer:
                continue
            while high - low > 1 and not is_slow(low_layer):
                middle = (low + high) // 2
                larger = _with_extent(layer, place, leaf, at, middle)
                if larger is None:
                    break
                said = acceptance.ask(larger)
                if said.is_taken:
                    low, low_layer = middle, larger
                else:
                    high, high_layer, answer = middle, larger, said
            name = leaf_text(calls_in(layer.function.body), place)
            why = f"clause {', '.join(answer.refused_by)}" if answer.refused_by else answer.reason
            text = f"extent {at} of {name}: {low} is taken, {high} is refused by {why}"
            yield Edge(
                low_layer.replace_body(low_layer.function.body, f"extent {at} of {name} is {low}"),
                high_layer,
                text,
                why,
            )


def _with_extent(layer: Layer, place: OperandPosition, leaf: Var | Constant, at: int, extent: int) -> Layer | None:
    shape = (*leaf.shape[:at], extent, *leaf.shape[at + 1 :])
    body = rebuilt(layer.function.body, Changes(leaves={place: fitted(leaf, shape)}))
    return None if body is None else layer.replace_body(body)


def _elements(layer: Layer) -> int:
    return sum(leaf.tensor.size for leaf in leaves_of(layer.function.body).values())
