"""TFLite files whose operators run other graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from tests._support.tflite_builder import TFLiteBuilder

__all__ = ["Builder", "nested_control"]


class Builder(TFLiteBuilder):
    """With graphs that operators run."""

    @contextmanager
    def body(self) -> Iterator[int]:
        """A graph; gives its number. What is added within is added there."""
        main, self.graph = self.graph, self._add_graph(f"body {len(self.model.subgraphs)}")
        try:
            yield len(self.model.subgraphs) - 1
        finally:
            self.graph = main

    def gives(self, *outputs: int) -> None:
        self.graph.outputs = list(outputs)

    def made(self, op: str, *inputs: int, dtype: str = "float32", shape: Any = (1, 3), **options: Any) -> int:
        index = self.tensor(shape, dtype)
        self.op(op, inputs, [index], **options)
        return index


def nested_control() -> bytes:
    """A branch in a loop, and a loop in a branch."""
    b = Builder()
    n, x = b.input((1,), "int32"), b.input((1, 3))

    def less(limit: int) -> int:
        with b.body() as graph:
            i, _ = b.input((1,), "int32"), b.input((1, 3))
            b.gives(b.made("LESS", i, b.constant(np.array([limit], np.int32)), dtype="bool", shape=(1,)))
        return graph

    def counted(change: Callable[[int, int], int]) -> int:
        with b.body() as graph:
            i, value = b.input((1,), "int32"), b.input((1, 3))
            step = b.made("ADD", i, b.constant(np.array([1], np.int32)), dtype="int32", shape=(1,))
            b.gives(step, change(i, value))
        return graph

    inner, inner_body = less(7), counted(lambda i, value: b.made("ADD", value, value))
    with b.body() as then:
        i, value = b.input((1,), "int32"), b.input((1, 3))
        results = [b.tensor((1,), "int32"), b.tensor((1, 3))]
        b.op("WHILE", [i, value], results, condSubgraphIndex=inner, bodySubgraphIndex=inner_body)
        b.gives(results[1])
    with b.body() as other:
        _, value = b.input((1,), "int32"), b.input((1, 3))
        b.gives(b.made("NEG", value))

    def branch(i: int, value: int) -> int:
        late = b.made("GREATER", i, b.constant(np.array([2], np.int32)), dtype="bool", shape=(1,))
        return b.made("IF", late, i, value, thenSubgraphIndex=then, elseSubgraphIndex=other)

    outer, outer_body = less(5), counted(branch)
    results = [b.tensor((1,), "int32"), b.tensor((1, 3))]
    b.op("WHILE", [n, x], results, condSubgraphIndex=outer, bodySubgraphIndex=outer_body)
    return b.finish(*results)
