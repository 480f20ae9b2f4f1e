"""How the polynomials of `coefficients` are found: ``python core/tir/maths/fit.py`` prints that table.

Each is the polynomial of its degree whose largest weighted error over an interval is the least, found by least squares
in which points count the more, the larger their errors have been (Lawson, 1961), with coefficients that float32 holds:
the lowest one is rounded, the others are found again around it, and so on. What is fitted is computed in float64 from
its power series, or from functions that are exact enough. For development: nothing that UMA does later needs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["FITS", "Fit", "fitted", "text"]

Array = NDArray[np.float64]
Function = Callable[[Array], Array]


@dataclass(frozen=True)
class Fit:
    """What is fitted.

    Args:
        function: what the polynomial is to be, of arrays.
        low, high: where.
        degree: of the polynomial.
        weight: by which an error counts.
        dtype: that the coefficients are rounded to.
    """

    function: Function
    low: float
    high: float
    degree: int
    weight: Function
    dtype: str = "float32"

    def points(self, count: int) -> Array:
        """Points of the interval, denser at its ends."""
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        return middle - half * np.cos(np.linspace(0, math.pi, count))

    def error(self, coefficients: Sequence[float]) -> float:
        """The largest weighted error of a polynomial, the lowest coefficient first."""
        x = self.points(20001)
        return float(np.max(np.abs(self.weight(x) * (self.function(x) - _polynomial(coefficients, x)))))


def _polynomial(coefficients: Sequence[float], x: Array) -> Array:
    total = np.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def fitted(fit: Fit) -> tuple[float, ...]:
    """The coefficients, the lowest first."""
    coefficients: list[float] = []
    while len(coefficients) <= fit.degree:
        rest = _least(fit, coefficients)
        coefficients.append(float(np.dtype(fit.dtype).type(rest[0])))
    return tuple(coefficients)


def _least(fit: Fit, known: Sequence[float]) -> Array:
    """The coefficients that are left where the lowest ones are ``known``, of the least largest error: by least squares
    in which points count the more, the larger their errors have been."""
    count = fit.degree + 1 - len(known)
    grid = fit.points(1000)
    weight = fit.weight(grid)
    target = weight * (fit.function(grid) - _polynomial(known, grid))
    basis = np.stack([weight * grid ** (len(known) + power) for power in range(count)], axis=1)
    counts = np.full(len(grid), 1 / len(grid))
    best, least = np.zeros(count), math.inf
    for _ in range(400):
        root = np.sqrt(counts)
        solution = np.linalg.lstsq(root[:, None] * basis, root * target, rcond=None)[0]
        error = np.abs(target - basis @ solution)
        if error.max() < least:
            best, least = solution, float(error.max())
        counts *= error
        counts /= counts.sum()
    return best


def _series(terms: Iterable[float]) -> Function:
    """A power series, the lowest term first."""
    coefficients = list(terms)
    return lambda x: _polynomial(coefficients, x)


def _signed(values: Iterator[float]) -> Iterator[float]:
    return (-value if number % 2 else value for number, value in enumerate(values))


_factorial = math.factorial
_ROOT = math.sqrt(2)
_exp = _series(1 / _factorial(k + 2) for k in range(30))
_log = _series(_signed(1 / (k + 3) for k in range(120)))
_erf = _series(_signed(2 / math.sqrt(math.pi) / (_factorial(k) * (2 * k + 1)) for k in range(40)))
_sin = _series(_signed(-1 / _factorial(2 * k + 3) for k in range(12)))
_cos = _series(_signed(1 / _factorial(2 * k + 4) for k in range(12)))
_atan = _series(_signed(-1 / (2 * k + 3) for k in range(40)))
_exp2 = _series(math.log(2) ** (k + 1) / _factorial(k + 1) for k in range(25))
_log2 = _series(2 / math.log(2) / (2 * k + 1) for k in range(30))
_erfc = np.vectorize(math.erfc)

_HALF_LOG = math.log(2) / 2 * 1.001

FITS: dict[str, Fit] = {
    # (exp(r) - 1 - r) / r**2; relative to exp(r) - 1.
    "EXP": Fit(_exp, -_HALF_LOG, _HALF_LOG, 4, lambda r: r**2 / np.abs(np.expm1(r))),
    # (log(1 + f) - f + f**2 / 2) / f**3; relative to log(1 + f).
    "LOG": Fit(_log, _ROOT / 2 - 1, _ROOT - 1, 7, lambda f: np.abs(f**3 / np.log1p(f))),
    # erf(x) / x - 1, of x**2; relative to erf(x).
    "ERF": Fit(lambda z: _erf(z) - 1, 0.0, 1.0, 6, lambda z: 1 / _erf(z)),
    # log2(1 - erf(x)); absolute in erf(x).
    "ERFC": Fit(lambda x: np.log2(_erfc(x)), 0.99, 4.0, 6, lambda x: _erfc(x) * math.log(2)),
    # (atan(r) - r) / r**3, of r**2; relative to atan(r).
    "ATAN": Fit(_atan, 0.0, (_ROOT - 1) ** 2 * 1.001, 4, lambda z: z / (1 + z * _atan(z))),
    # (2**r - 1) / r; absolute in 2**r.
    "EXP2": Fit(_exp2, -0.501, 0.501, 4, lambda r: np.abs(r)),
    # log2(1 + f) by s = f / (2 + f): (log2((1 + s) / (1 - s)) / s), of s**2; relative to it.
    "POWER_LOG": Fit(_log2, 0.0, 0.02945, 4, lambda z: 1 / _log2(z), "float64"),
    # exp(r), relative to it.
    "POWER_EXP": Fit(np.exp, -_HALF_LOG, _HALF_LOG, 7, lambda r: 1 / np.exp(r), "float64"),
    # (sin(r) - r) / r**3 and (cos(r) - 1 + r**2 / 2) / r**4, of r**2.
    "SIN": Fit(_sin, 0.0, (math.pi / 4) ** 2 * 1.001, 2, lambda z: z / np.sinc(np.sqrt(z) / math.pi)),
    "COS": Fit(_cos, 0.0, (math.pi / 4) ** 2 * 1.001, 2, lambda z: z**2),
}
"""By the name in `coefficients`."""


def text() -> str:
    """The module `coefficients`."""
    lines = [
        '"""Coefficients of polynomials, the lowest first, as `fit` finds them: ``python core/tir/maths/fit.py``."""',
        "",
        "from __future__ import annotations",
        "",
        f"__all__ = {sorted(FITS)!r}".replace("'", '"'),
    ]
    for name, fit in FITS.items():
        coefficients = fitted(fit)
        lines += ["", f"{name} = (", *(f"    {value!r}," for value in coefficients), ")"]
        lines.append(f'"""Weighted error at most 2**{math.log2(fit.error(coefficients)):.1f}."""')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(text(), end="")
