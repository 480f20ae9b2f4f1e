"""Whether a C compiler computes the inner loops that builds print as they are meant, on this very CPU.

A compiler that vectorises wrongly gives wrong numbers without a word: gcc 12 did so for some products of bytes on CPUs
with VNNI. Every form of loop over quantised numbers is built here as any model is, run, and compared with the ops'
references.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ToolchainError, UmaError

if TYPE_CHECKING:
    import numpy as np

    from ..plugins import PluginHost
    from ..relay.expr import Call, Expr
    from ..relay.module import IRModule

__all__ = ["Verdict", "judge"]

COMPILERS = ("gcc", "clang", "ziglang")

_DATA, _PIXELS, _WIDE = (2, 180), (1, 6, 5, 20), (2, 67)
"""Shapes of the inputs: lengths around those of vectors, with what is left over."""


@dataclass(frozen=True)
class Verdict:
    """What a compiler makes of the loops.

    Args:
        target: the host and its compiler, as a build names them.
        wrong: the ops whose results differ; none where all are right.
        mended_by: the same target with flags with which none does; None where none is known.
    """

    target: str
    wrong: tuple[str, ...]
    mended_by: str | None = None


def judge(host: PluginHost) -> Iterator[Verdict]:
    """A verdict for each host of this machine and each C compiler that it can be asked to use.

    Args:
        host: the plugins.
    """
    kinds = {
        kind.name: {attribute.name for attribute in kind.attributes}
        for status in host.examine()
        if status.plugin is not None
        for kind in status.plugin.kinds.values()
        if kind.is_host
    }
    for kind, attributes in sorted(kinds.items()):
        for target in [f"{kind} -cc={name}" for name in _installed_compilers()] if "cc" in attributes else [kind]:
            wrong = _wrong(target, host)
            if wrong is None:
                continue
            mended = None
            if wrong and "cflags" in attributes:
                others = (f"{target} -cflags={','.join(flags)}" for flags in _mends())
                mended = next((other for other in others if _wrong(other, host) == ()), None)
            yield Verdict(target, wrong, mended)


def _installed_compilers() -> Iterator[str]:
    """The compilers of this machine."""
    from ..toolchain.discovery import find_compiler

    for name in COMPILERS:
        try:
            find_compiler(name)
        except ToolchainError:
            continue  # doctor's check of the compilers says so
        yield name


def _mends() -> Iterator[tuple[str, ...]]:
    """Flags that may mend what a compiler does wrong, those that cost least first."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        yield ("-mno-avx512vnni", "-mno-avxvnni")
        yield ("-mno-avx512vnni",)  # for compilers that do not know the other
    yield ("-fno-tree-vectorize", "-fno-tree-slp-vectorize")


def _wrong(target: str, host: PluginHost) -> tuple[str, ...] | None:
    """The ops that a target computes wrongly; None where it cannot be asked."""
    import numpy as np

    from ..relay.evaluate import evaluate
    from ..tuning import build

    module, names = _loops()
    wrong: dict[str, None] = {}
    try:
        with build(module, target, name="loops", plugins=host).session() as session:
            for inputs in _samples(module):
                got = session.run(inputs).values()
                for name, result, wanted in zip(names, got, evaluate(module, inputs), strict=True):
                    if not np.array_equal(result, wanted):
                        wrong[name] = None
    except UmaError:
        return None  # what is wrong with the compiler itself, or with the plugin, other checks say
    return tuple(wrong)


def _samples(module: IRModule) -> Iterator[Mapping[str, np.ndarray]]:
    """Inputs: random ones, and the ends of the range, where products are largest."""
    import numpy as np

    def arrays(make: Any) -> dict[str, np.ndarray]:
        return {p.name: np.asarray(make(p)).astype(p.dtype) for p in module.main.params}

    rng = np.random.default_rng(0)
    ends = {p.name: np.iinfo(p.dtype) for p in module.main.params}
    yield arrays(lambda p: rng.integers(ends[p.name].min, ends[p.name].max, p.shape, endpoint=True))
    yield arrays(lambda p: np.full(p.shape, ends[p.name].min))
    yield arrays(lambda p: np.full(p.shape, ends[p.name].max))
    yield arrays(lambda p: np.where(np.indices(p.shape).sum(axis=0) % 2, ends[p.name].min, ends[p.name].max))


def _loops() -> tuple[IRModule, tuple[str, ...]]:
    """A model with one result for each form of loop, and what to call them."""
    import numpy as np

    from ..relay.expr import Function, Tuple, Var, call, const
    from ..relay.module import IRModule
    from ..relay.op import FixedPoint
    from ..relay.types import TensorType

    rng = np.random.default_rng(1)

    def weights(*shape: int, dtype: str = "int8") -> Expr:
        ends = np.iinfo(dtype)
        return const(rng.integers(ends.min, ends.max, shape, endpoint=True).astype(dtype))

    x, pixels, wide = (
        Var(name, TensorType(shape, dtype))
        for name, shape, dtype in (("x", _DATA, "int8"), ("pixels", _PIXELS, "int8"), ("wide", _WIDE, "int16"))
    )
    unsigned, short = Var("unsigned", TensorType(_DATA, "uint8")), Var("short", TensorType(_WIDE, "int8"))
    padded = {"padding": (1, 1, 1, 1)}
    calls: list[Call] = []
    for zero in (0, -128, 5):
        calls += [
            call("qnn.dense", x, weights(9, 180), input_zero_point=zero),
            call("qnn.matmul", x, call("transpose", x, axes=(1, 0)), input_zero_point=zero),
            call("qnn.conv2d", pixels, weights(3, 3, 20, 4), input_zero_point=zero, **padded),  # tap by tap
            call("qnn.conv2d", pixels, weights(3, 3, 20, 16), input_zero_point=zero, **padded),  # by copied rows
            call("qnn.conv2d", pixels, weights(3, 3, 1, 20), groups=20, input_zero_point=zero, **padded),
        ]
    calls += [
        call("qnn.dense", x, weights(9, 180), kernel_zero_point=-128),
        call("qnn.dense", x, weights(9, 180), input_zero_point=-128, kernel_zero_point=3),
        call("qnn.conv2d", pixels, weights(3, 3, 20, 4), input_zero_point=5, kernel_zero_point=-128, **padded),
        call("qnn.conv2d", pixels, weights(1, 1, 20, 16), input_zero_point=-128),
        call("qnn.dense", unsigned, weights(9, 180), input_zero_point=128),
        call("qnn.dense", wide, weights(9, 67)),
        call("qnn.dense", short, weights(9, 67, dtype="int16")),
        call("qnn.sum", pixels, axis=(1, 2), input_zero_point=-128),
        call("qnn.avg_pool2d", pixels, pool_size=(3, 3), **padded),
        call("nn.max_pool2d", pixels, pool_size=(3, 3), **padded),
    ]
    scales = FixedPoint(tuple((2**30 + rng.integers(0, 2**30, 9)).tolist()), (-9,) * 9, "double")
    calls.append(call("qnn.requantize", calls[0], scale=scales, output_zero_point=-3, dtype="int8"))
    names = tuple(str(expr.op_name) for expr in calls)
    return IRModule.from_functions({"main": Function([x, pixels, wide, unsigned, short], Tuple(calls))}), names
