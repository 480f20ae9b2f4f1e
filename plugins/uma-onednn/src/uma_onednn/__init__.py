"""Target kind ``onednn``: convolutions, products, pools and elementwise ops through oneDNN, on this CPU.

README.md says what it takes and what holds of its results. `supported` has the patterns, `exact` the condition under
which int8 sums are exact, `read` makes an operation of a match, `operation` writes it down for ``csrc``, `lower` makes
calls of regions, `library` finds oneDNN, `cost` estimates.
"""

from __future__ import annotations

from uma.hookspecs import Claims, Cost, Implementation, MatchedRegion, Pattern, Runtime, hookimpl
from uma.relay import GlobalVar, IRModule
from uma.targets import Attribute, Limits, Target, TargetKind

__all__ = ["FAULTS", "KIND", "claims", "estimate_cost", "patterns", "register_target", "relay_to_runtime", "runtime"]

UMA_PLUGIN_API = (0, 7)

KIND = TargetKind(
    "onednn",
    (
        Attribute(
            "int8",
            bool,
            default=True,
            help="whether int8 products are taken: they need a CPU with VNNI, and stop the model where there is none",
        ),
        Attribute(
            "nan",
            ("any", "keep"),
            default="any",
            help="what becomes of a NaN under relu, clip, maximum and the like, and of an infinity under gelu and max "
            "pools: oneDNN may give another result than the table of special values; keep leaves these ops to others",
        ),
        Attribute(
            "gflops",
            float,
            low=0.001,
            high=1e6,
            help="what estimates of time go by: 1e9 multiplications and additions per second; without it nothing is "
            "estimated, and `collage` measures",
        ),
        Attribute("impl", ("library",), default="library", help="how it is reached: C is called"),
        Attribute(
            "launch_ns",
            int,
            default=0,
            low=0,
            high=10**12,
            help="nanoseconds that starting a region takes: none, for it is a call",
        ),
    ),
    help="oneDNN: float32 and int8 convolutions and products, pools, elementwise ops",
    device_type="cpu",
    needs_device=True,  # oneDNN runs on the CPU of a host
    limits=Limits(merge=False),  # a call is a call, in whichever region
)

FAULTS = {
    1: "oneDNN has no memory left",
    2: "oneDNN does not take these arguments",
    3: "oneDNN has no kernel for this operation",
    4: "oneDNN came to the end of its kernels",
    5: "oneDNN failed in a run",
    6: "oneDNN does not need what it was asked to do",
    7: "oneDNN does not take tensors of this kind",
    64: "this is not an oneDNN 3",
    65: "there is no memory left",
    66: "this CPU has no 8-bit dot products (VNNI), and without them int8 sums of oneDNN are not exact; "
    "build with -int8=false",
}
"""What the codes of the library and of the driver mean."""


@hookimpl
def register_target() -> list[TargetKind]:
    """The one kind, ``onednn``."""
    return [KIND]


@hookimpl
def patterns(target: Target) -> list[Pattern]:
    """Products with what follows them, pools, elementwise ops."""
    from .supported import make_patterns

    return make_patterns(int8=target.get_attr("int8"), keep_nan=target.get_attr("nan") == "keep")


@hookimpl
def relay_to_runtime(region: MatchedRegion) -> tuple[IRModule, GlobalVar]:
    """A call of the library for each match."""
    from .lower import lower

    return lower(region)


@hookimpl
def estimate_cost(region: MatchedRegion, target: Target) -> Cost | None:
    """Seconds, at the speed that the target's attribute says; without one it is to be measured."""
    from .cost import estimated

    gflops = target.get_attr("gflops")
    return None if gflops is None else estimated(region, gflops)


@hookimpl
def runtime() -> Runtime:
    """The library, and what calls it."""
    from .library import LIBRARY, check_library, sources
    from .lower import ROUTINES

    check_library()
    return Runtime(
        driver="uma_onednn_driver",
        header="uma_onednn.h",
        sources=sources(),
        implementations={"library": Implementation(is_real=True)},
        faults=FAULTS,
        routines=ROUTINES,
        libraries=(LIBRARY,),
    )


@hookimpl
def claims() -> Claims:
    """Floats agree to 1e-5 of the largest: the order of sums is the library's."""
    return Claims(tolerance=1e-5)
