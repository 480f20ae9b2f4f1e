"""Mathematics on what is known at import, of more kinds than the core has ops: for shapes and weights alone."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from ...relay.ops.common import normalise_axes
from .arith import reduced_axes
from .context import Context
from .proto import MAX_RANK

if TYPE_CHECKING:
    import numpy as np

__all__ = ["FOLD_LIMIT_BYTES", "MATH", "Folder", "broadcast", "limited"]

FOLD_LIMIT_BYTES = 128 << 20
"""Of one result; all together have a budget too."""

Folder = Callable[[Context], "np.ndarray"]


def limited(shape: tuple[int, ...], dtype: Any) -> tuple[int, ...]:
    """``shape``, where an array of it may be made; ModelError where not."""
    import numpy as np

    if min(shape, default=0) < 0 or len(shape) > MAX_RANK:
        raise ModelError(f"its result has the impossible shape {shape}")
    if math.prod(shape) * np.dtype(dtype).itemsize > FOLD_LIMIT_BYTES:
        raise ModelError(f"it makes a constant of shape {shape}, which is too large")
    return shape


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which ``shapes``, some perhaps empty, broadcast; ModelError where they do not."""
    result: list[int] = []
    for position in range(-max(map(len, shapes)), 0):
        extents = {shape[position] for shape in shapes if len(shape) >= -position}
        wide = extents - {1}
        if len(wide) > 1:
            raise ModelError(f"shapes {', '.join(map(str, shapes))} do not broadcast")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


# --- element by element ----------------------------------------------------------------------------------------------


def _unary(ufunc: str, kinds: str = "iuf") -> Folder:
    """numpy's function of that name, for the kinds of dtypes that ``kinds`` has; the result is of the same one."""

    def folder(c: Context) -> np.ndarray:
        import numpy as np

        data = c.known(0)
        if data.dtype.kind not in kinds:
            raise ModelError(f"it takes no {data.dtype}")
        return np.asarray(getattr(np, ufunc)(data)).astype(data.dtype)

    return folder


def _binary(function: Callable[..., Any], kinds: str = "iuf", same_dtype: bool = True) -> Folder:
    """A function of two arrays of one dtype, one of ``kinds``; its result is of that dtype, or of its own."""

    def folder(c: Context) -> np.ndarray:
        import numpy as np

        arrays = [c.known(i) for i in range(len(c.values))]
        if len(arrays) != 2 or arrays[0].dtype != arrays[1].dtype or arrays[0].dtype.kind not in kinds:
            raise ModelError("it takes two tensors of one dtype")
        limited(broadcast(arrays[0].shape, arrays[1].shape), arrays[0].dtype)
        result = np.asarray(function(*arrays))
        return result.astype(arrays[0].dtype) if same_dtype else result

    return folder


def _compared(function: Callable[..., Any]) -> Folder:
    return _binary(function, "biuf", same_dtype=False)


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b; integers are truncated towards zero, and give 0 for a division by 0."""
    import numpy as np

    if a.dtype.kind == "f":
        return np.asarray(a / b)
    whole = np.abs(a) // np.where(b == 0, 1, np.abs(b))
    return np.where(b == 0, 0, np.sign(a) * np.sign(b) * whole)


def _remainder(c: Context) -> np.ndarray:
    """With the sign of the divisor, or as C's fmod; integers give 0 for a division by 0."""
    import numpy as np

    return _binary(np.fmod if c.node.integer("fmod", 0) else np.mod)(c)


def _power(c: Context) -> np.ndarray:
    """In the dtype of the base; the exponent may have another one."""
    import numpy as np

    base, exponent = c.known(0), c.known(1)
    if base.dtype.kind not in "iuf" or exponent.dtype.kind not in "iuf":
        raise ModelError(f"it takes no {base.dtype} and {exponent.dtype}")
    limited(broadcast(base.shape, exponent.shape), base.dtype)
    if exponent.dtype.kind == "f" or (exponent < 0).any():
        # Of integers there are no negative powers.
        made = np.power(base.astype(np.float64), exponent.astype(np.float64))
    else:
        made = np.power(base, exponent)
    return np.asarray(made).astype(base.dtype)


def _where(c: Context) -> np.ndarray:
    import numpy as np

    condition, a, b = (c.known(i) for i in range(3))
    if condition.dtype.kind != "b" or a.dtype != b.dtype:
        raise ModelError("it takes a bool and two tensors of one dtype")
    limited(broadcast(condition.shape, a.shape, b.shape), a.dtype)
    return np.where(condition, a, b)


# --- others ----------------------------------------------------------------------------------------------------------


def _reduced(function: Callable[..., Any], axes_as_input: int = 18) -> Folder:
    """A reduction by a function that takes ``axis`` and ``keepdims``."""

    def folder(c: Context) -> np.ndarray:
        import numpy as np

        data, axes = c.known(0), reduced_axes(c, axes_as_input)
        if data.dtype.kind not in "iuf":
            raise ModelError(f"it takes no {data.dtype}")
        if axes is None:
            return data
        keepdims = bool(c.node.integer("keepdims", 1))
        return np.asarray(function(data, axis=normalise_axes(axes, data.ndim), keepdims=keepdims)).astype(data.dtype)

    return folder


def _product(data: np.ndarray, **how: Any) -> Any:
    return data.prod(**how)


def _length(data: np.ndarray, **how: Any) -> Any:
    """The square root of the sum of squares."""
    import numpy as np

    return np.sqrt(np.square(data.astype(np.float64)).sum(**how))


def _triangle(c: Context) -> np.ndarray:
    """The upper or lower triangle of matrices, zeros elsewhere."""
    import numpy as np

    data = c.known(0)
    diagonals = c.known_integers(1) if c.has(1) else (0,)
    if data.ndim < 2 or len(diagonals) != 1:
        raise ModelError(f"it takes matrices and one diagonal, not {data.shape} and {diagonals}")
    # Beyond its corners a matrix does not change any more.
    diagonal = max(-data.shape[-2], min(diagonals[0], data.shape[-1]))
    return (np.triu if c.node.integer("upper", 1) else np.tril)(data, diagonal)


MATH: Mapping[str, Folder] = {
    "Add": _binary(operator.add),
    "And": _binary(operator.and_, "b"),
    "Ceil": _unary("ceil", "f"),
    "Cos": _unary("cos", "f"),
    "Div": _binary(_quotient),
    "Equal": _compared(operator.eq),
    "Exp": _unary("exp", "f"),
    "Floor": _unary("floor", "f"),
    "Greater": _compared(operator.gt),
    "GreaterOrEqual": _compared(operator.ge),
    "Less": _compared(operator.lt),
    "LessOrEqual": _compared(operator.le),
    "Log": _unary("log", "f"),
    "Mod": _remainder,
    "Mul": _binary(operator.mul),
    "Neg": _unary("negative", "if"),
    "Not": _unary("logical_not", "b"),
    "Or": _binary(operator.or_, "b"),
    "Pow": _power,
    "Reciprocal": _unary("reciprocal", "f"),
    "ReduceL2": _reduced(_length),
    "ReduceProd": _reduced(_product),
    "Round": _unary("rint", "f"),
    "Sin": _unary("sin", "f"),
    "Sqrt": _unary("sqrt", "f"),
    "Sub": _binary(operator.sub),
    "Trilu": _triangle,
    "Where": _where,
}
