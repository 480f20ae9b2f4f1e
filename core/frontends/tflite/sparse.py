"""Sparse constants: from the stored elements and the schema's SparsityParameters to dense arrays.

Dimensions are traversed in the stored order, those of the tensor first, then those within blocks. Each level is dense,
or has compressed rows: for each element of the level before, a segment of a list of coordinates. (Schema of TFLite,
``SparsityParameters``; reference: TFLite's ``FormatConverter::SparseToDense``.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ModelError
from ...support.import_budget import require_memory

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Level", "Sparsity", "densified"]


@dataclass(frozen=True)
class Level:
    """A traversed dimension.

    Args:
        size: its extent where it is dense; 0 where it is sparse.
        segments: of a sparse one: element i of the level before has the coordinates segments[i] .. segments[i + 1].
        coordinates: of a sparse one, along its dimension.
    """

    size: int
    segments: np.ndarray | None = None
    coordinates: np.ndarray | None = None


@dataclass(frozen=True)
class Sparsity:
    """How the elements of a sparse constant are stored.

    Args:
        order: the dimension of each level; the numbers from the rank on stand for blocks.
        blocked: the dimensions that blocks divide.
        levels: in the order of the traversal.
    """

    order: tuple[int, ...]
    blocked: tuple[int, ...]
    levels: tuple[Level, ...]


def densified(values: np.ndarray, shape: tuple[int, ...], sparsity: Sparsity) -> np.ndarray:
    """Return the dense array of ``shape`` with ``values``, in the order of the traversal, and zeros elsewhere.

    Raises:
        ModelError: the sparsity does not fit the shape or the values.
    """
    import numpy as np

    rank, order, levels = len(shape), sparsity.order, sparsity.levels
    fits = sorted(order[:rank]) == list(range(rank)) and len(levels) == len(order)
    fits = fits and sorted(order[rank:]) == list(range(rank, rank + len(sparsity.blocked)))
    if not fits or len({*sparsity.blocked} & {*range(rank)}) < len(sparsity.blocked):
        raise ModelError(
            f"its sparse form traverses {order}, with blocks of {sparsity.blocked}: not its {rank} dimensions"
        )
    extents = {dim: shape[dim] for dim in range(rank)}
    for block, dim in enumerate(sparsity.blocked, rank):
        extents[block] = levels[order.index(block)].size
        if extents[block] < 1 or shape[dim] % extents[block]:
            raise ModelError(
                f"its sparse form has blocks of {extents[block]} along its dimension {dim} of {shape[dim]}"
            )
        extents[dim] = shape[dim] // extents[block]
    require_memory(8 * (2 + len(levels)) * math.prod(shape))
    parents = np.zeros(1, np.int64)
    places: dict[int, np.ndarray] = {}
    for dim, level in zip(order, levels, strict=True):
        owners, parents, coordinates = _descend(parents, level, extents[dim], math.prod(shape))
        places = {other: place[owners] for other, place in places.items()} | {dim: coordinates}
    for block, dim in enumerate(sparsity.blocked, rank):
        places[dim] = places[dim] * extents[block] + places[block]
    if len(parents) != len(values):
        raise ModelError(f"its sparse form has {len(parents)} elements, and {len(values)} are stored")
    dense = np.zeros(shape, values.dtype)
    dense[tuple(places[dim] for dim in range(rank))] = values if rank else values[0]
    return dense


def _descend(parents: np.ndarray, level: Level, extent: int, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, for each element of a level: the position of its parent, its own number, and its coordinate.

    Args:
        parents: numbers of the elements of the level before.
        level: this one.
        extent: of its dimension.
        most: how many elements a level can have.
    """
    import numpy as np

    if level.segments is None or level.coordinates is None:
        if level.size != extent or len(parents) * extent > most:
            raise ModelError(f"its sparse form has a dimension of {level.size} elements, not {extent}")
        owners = np.repeat(np.arange(len(parents)), extent)
        coordinates = np.tile(np.arange(extent), len(parents))
        return owners, parents[owners] * extent + coordinates, coordinates
    segments, coordinates = level.segments.astype(np.int64), level.coordinates.astype(np.int64)
    if len(parents) and parents.max() + 1 >= len(segments):
        raise ModelError(f"its sparse form has {len(segments)} segments, too few for {parents.max() + 1} rows")
    begin, end = segments[parents], segments[parents + 1]
    lengths = end - begin
    if (begin < 0).any() or (lengths < 0).any() or (end > len(coordinates)).any() or lengths.sum() > most:
        raise ModelError(f"its sparse form has segments beyond its {len(coordinates)} coordinates")
    owners = np.repeat(np.arange(len(parents)), lengths)
    numbers = np.arange(len(owners)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + begin[owners]
    if ((coordinates[numbers] < 0) | (coordinates[numbers] >= extent)).any():
        raise ModelError(f"its sparse form has a coordinate beyond its dimension of {extent}")
    return owners, numbers, coordinates[numbers]
