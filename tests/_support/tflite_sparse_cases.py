"""Random TFLite models of sparse constants, in every form of the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import numpy as np
from hypothesis import strategies as st
from tests._support.tflite_builder import TFLiteBuilder
from tests._support.tflite_cases import Case, Drawer, case

VECTORS = {"int32": "Int32Vector", "uint16": "Uint16Vector", "uint8": "Uint8Vector"}


def sparse(
    builder: TFLiteBuilder,
    array: np.ndarray,
    order: Sequence[int],
    compressed: Sequence[bool],
    blocks: dict[int, int] | None = None,
    indices: str = "int32",
    **kwargs: Any,
) -> int:
    """Add a constant that is stored sparsely; gives its index.

    Args:
        builder: of the model.
        array: its contents.
        order: in which dimensions are traversed, those of the blocks after those of the array.
        compressed: whether each of these levels is sparse.
        blocks: dimension -> its extent in a block.
        indices: dtype of segments and coordinates.
        kwargs: of `TFLiteBuilder.tensor`.
    """
    blocks = blocks or {}
    split = [
        part
        for dim, n in enumerate(array.shape)
        for part in ((n // blocks[dim], blocks[dim]) if dim in blocks else (n,))
    ]
    starts = [dim + sum(block < dim for block in blocks) for dim in range(array.ndim)]
    axes = [*starts, *(starts[dim] + 1 for dim in blocks)]
    levels = array.reshape(split).transpose([axes[dim] for dim in order])
    segments: list[list[int]] = [[0] for _ in order]
    coordinates: list[list[int]] = [[] for _ in order]
    values: list[Any] = []

    def walk(level: int, part: Any) -> None:
        if level == len(order):
            values.append(part)
            return
        places = [i for i in range(len(part)) if not compressed[level] or np.any(part[i])]
        coordinates[level] += places
        segments[level].append(len(coordinates[level]))
        for place in places:
            walk(level + 1, part[place])

    walk(0, levels)
    table = schema.SparsityParametersT()
    table.traversalOrder, table.blockMap, table.dimMetadata = list(order), list(blocks), []
    for level, extent in enumerate(levels.shape):
        dim = schema.DimensionMetadataT()
        dim.format = schema.DimensionType.SPARSE_CSR if compressed[level] else schema.DimensionType.DENSE
        if compressed[level]:
            kind = VECTORS[indices]
            dim.arraySegmentsType = dim.arrayIndicesType = getattr(schema.SparseIndexVector, kind)
            dim.arraySegments, dim.arrayIndices = getattr(schema, f"{kind}T")(), getattr(schema, f"{kind}T")()
            dim.arraySegments.values, dim.arrayIndices.values = segments[level], coordinates[level]
        else:
            dim.denseSize = extent
        table.dimMetadata.append(dim)
    stored = np.array(values or [0], array.dtype)  # a buffer without bytes is that of no constant
    index = builder.tensor(array.shape, array.dtype.name, data=stored, **kwargs)
    builder.graph.tensors[index].sparsity = table
    return index


@case("DENSIFY")
def _densify(d: Drawer, name: str) -> Case:
    dtype = d.one("float32", "float16", "int8")
    shape = d.shape(1, 4, 6)
    array = d.array(shape, dtype) * (d.integers(shape, 3) == 0).astype(dtype)
    array.flat[0] = 1  # an element at least is stored
    sizes = {dim: d.one(*(n for n in range(1, extent + 1) if extent % n == 0)) for dim, extent in enumerate(shape)}
    blocked = sorted(d.draw(st.sets(st.sampled_from(range(len(shape))), max_size=2)))
    rank = len(shape)
    order = d.draw(st.permutations(range(rank)))
    order = [*order, *d.draw(st.permutations(range(rank, rank + len(blocked))))]
    compressed = [d.boolean() for _ in shape] + [False] * len(blocked)
    scale = {"scale": d.scale()} if dtype == "int8" else {}
    blocks, kind = {dim: sizes[dim] for dim in blocked}, d.one(*VECTORS)
    constant = sparse(d.builder, array, order, compressed, blocks, kind, **scale)
    dense, real = d.builder.tensor(shape, dtype, **scale), d.builder.tensor(shape)
    d.builder.op(name, [constant], [dense])
    if dtype == "float32":
        real = dense
    else:
        d.builder.op("DEQUANTIZE", [dense], [real])
    x, y = d.builder.input(shape), d.builder.tensor(shape)
    return d.finish("ADD", [x, real], [y])
