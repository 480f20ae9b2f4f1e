"""The two losses of ONNX, as sums and choices among classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import ModelError
from ...relay.expr import Expr
from ...tir.form.dtype import is_float, is_integer
from .context import Context, Converter

__all__ = ["LOSSES"]


def _loss(c: Context, scores: Expr) -> Expr:
    """What ``scores``, logarithms of probabilities of shape (batch, classes, ...), lose at the node's target, of shape
    (batch, ...): its opposite times the weight of the class, reduced as the node says.

    A target of ``ignore_index`` loses nothing and weighs nothing.
    """
    import numpy as np

    target, reduction = c.expr(1), c.node.text("reduction", "mean")
    if reduction not in ("mean", "none", "sum"):
        raise ModelError(f"its reduction is {reduction!r}, not 'mean', 'none' or 'sum'")
    if not is_float(scores.dtype) or not is_integer(target.dtype):
        raise ModelError(f"it takes floats and a target of integers, not {scores.dtype} and {target.dtype}")
    batch, *rest = scores.shape if len(scores.shape) > 1 else (0, 0)
    if target.shape != (batch, *rest[1:]):
        raise ModelError(f"its target of shape {target.shape} does not fit scores of shape {scores.shape}")
    target = c.cast(target, "int64")
    classes, ones = rest[0], (1,) * len(rest[1:])
    nothing = c.scalar(0, scores)
    c.reserve(classes)
    numbers = c.constant(np.arange(classes, dtype=target.dtype).reshape(classes, *ones))
    chosen = c.call("equal", c.reshape(target, (batch, 1, *rest[1:])), numbers)

    def picked(values: Expr) -> Expr:
        return c.call("sum", c.call("where", chosen, values, nothing), axis=(1,), keepdims=False)

    loss: Expr = c.call("negative", picked(scores))
    weight: Expr | None = None
    if c.has(2):
        class_weights = c.expr(2)
        if class_weights.shape != (classes,):
            raise ModelError(f"its weight of shape {class_weights.shape} does not fit {classes} classes")
        weight = picked(c.reshape(class_weights, (classes, *ones)))
        loss = c.call("multiply", loss, weight)
    if c.node.has("ignore_index"):
        ignored = c.call("equal", target, c.scalar(c.node.integer("ignore_index"), target))
        loss = c.call("where", ignored, nothing, loss)
        weight = c.call("where", ignored, nothing, c.scalar(1, scores) if weight is None else weight)
    if reduction == "none":
        return loss
    if reduction == "mean" and weight is None:
        return c.call("mean", loss, axis=(), keepdims=False)
    total = c.call("sum", loss, axis=(), keepdims=False)
    if reduction == "sum" or weight is None:
        return total
    return c.call("divide", total, c.call("sum", weight, axis=(), keepdims=False))


def _cross_entropy(c: Context) -> Sequence[Expr]:
    scores = c.expr(0)
    if len(scores.shape) < 2:
        raise ModelError(f"its scores have the shape {scores.shape}, without classes")
    logarithms = c.call("nn.log_softmax", scores, axis=1)
    return _loss(c, logarithms), logarithms


LOSSES: Mapping[str, Converter] = {
    "NegativeLogLikelihoodLoss": lambda c: _loss(c, c.expr(0)),
    "SoftmaxCrossEntropyLoss": _cross_entropy,
}
