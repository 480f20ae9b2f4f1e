"""The instructions of CPUs that add several products of small integers at once, as the schedules see them."""

from __future__ import annotations

from functools import cache

from uma.tir import INDEX, Buffer, For, Imm, Intrinsic, Update, Var

__all__ = ["dot"]


@cache
def dot(group: int, lanes: int, data: str, weight: str) -> Intrinsic:
    """``acc[l] += a[0] * w[l, 0] + .. + a[group - 1] * w[l, group - 1]`` in int32; its forms are in ``uma_dots.h``.

    Args:
        group: 2 or 4.
        lanes: of ``acc``.
        data: dtype of ``a``, which is the same for all lanes: int16 of 2, uint8 of 4, int8 of either.
        weight: dtype of ``w``; bytes that are to be multiplied with int16 are widened when they are loaded.
    """
    acc = Buffer("acc", (lanes,), "int32", "register")
    a, w = Buffer("a", (group,), data), Buffer("w", (lanes, group), weight)
    lane, byte = Var("l"), Var("b")
    term = a[byte].astype("int32") * w[lane, byte].astype("int32")
    step = Update("add", acc, (lane,), term)
    body = For(lane, Imm(lanes, INDEX), For(byte, Imm(group, INDEX), step))
    signed, widened = "s" if data == "int8" else "", "w" if data == "int16" and weight == "int8" else ""
    name = f"{signed}dot{group}{widened}"
    text = f"{{acc}} = UMA_{name.upper()}_i32x{lanes}({{acc}}, {{a}}, {{w}})"
    return Intrinsic(f"{name}x{lanes}", (acc, a, w), (), body, statement=text, include="uma_dots.h")
