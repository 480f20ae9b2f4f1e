"""A library to copy: target kind ``blas``, float32 dense layers and matrix products through CBLAS.

Read README.md, then `supported` (what it takes), `product` (a match as numbers), `library` (which BLAS is there), and
``csrc`` (the loop over a batch around ``cblas_sgemm``).
"""

from __future__ import annotations

from uma.hookspecs import Claims, Cost, MatchedRegion, Pattern, Runtime, hookimpl
from uma.relay import GlobalVar, IRModule
from uma.targets import Attribute, Target, TargetKind

from .library import ALTERNATIVES, library_of, sources
from .product import ROUTINES

__all__ = ["KIND", "claims", "estimate_cost", "patterns", "register_target", "relay_to_runtime", "runtime"]

UMA_PLUGIN_API = (0, 7)

KIND = TargetKind(
    "blas",
    (
        Attribute(
            "library",
            ("auto", *ALTERNATIVES),
            default="auto",
            help="which BLAS to link with; auto is the first that this machine has",
        ),
        Attribute(
            "gflops",
            float,
            default=50.0,
            low=0.001,
            high=1e6,
            help="what estimates of time go by: 1e9 multiplications and additions per second",
        ),
    ),
    help="float32 products of matrices through CBLAS, the library to copy",
    device_type="cpu",
    needs_device=True,  # BLAS runs on the CPU of a host
)

_CALL_SECONDS = 2e-7
"""What a call of BLAS takes at least, about."""


@hookimpl
def register_target() -> list[TargetKind]:
    """The one kind, ``blas``."""
    return [KIND]


@hookimpl
def patterns() -> list[Pattern]:
    """Dense layers and matrix products, with the transpositions before them and the bias behind them."""
    from .supported import PATTERNS

    return list(PATTERNS)


@hookimpl
def relay_to_runtime(region: MatchedRegion) -> tuple[IRModule, GlobalVar]:
    """A call of BLAS for each match."""
    from .lower import lower

    return lower(region)


@hookimpl
def estimate_cost(region: MatchedRegion, target: Target) -> Cost:
    """Seconds, at the speed that the target's attribute says."""
    from .supported import product_in

    products = [product_in(match) for match in region.matches]
    work = sum(2 * product.macs for product in products)
    return Cost(seconds=work / (1e9 * target.get_attr("gflops")) + _CALL_SECONDS * sum(p.count for p in products))


@hookimpl
def runtime(target: Target) -> Runtime:
    """The library, and what calls it."""
    library = library_of(target.get_attr("library"), target.get_attr("libs"))
    return Runtime(header="uma_blas.h", sources=sources(library), routines=ROUTINES, libraries=(library,))


@hookimpl
def claims() -> Claims:
    """Floats agree to 1e-5 of the largest: the order of sums is the library's."""
    return Claims(tolerance=1e-5)
