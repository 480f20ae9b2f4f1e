"""UMA: a compiler for neural networks whose hardware support lives in plugins.

    import uma

    art = uma.build("kws.onnx", target="c")
    scores = art.run(x)["scores"]
    art.save("build/kws")

Names are imported when they are first used: ``import uma`` is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .support import late_binding
from .version import __version__

if TYPE_CHECKING:
    from .api import explain, installed_targets, plan, report, verify
    from .artifact import Artifact, load
    from .errors import UmaError
    from .hookspecs import TargetCode, hookimpl
    from .quantisation import quantize
    from .relay import IRModule
    from .runtime.state import SessionState
    from .support.json_record import to_json
    from .targets import Alias, Attribute, Target, TargetKind
    from .tuning import build

__all__ = [
    "Artifact",
    "Attribute",
    "IRModule",
    "SessionState",
    "Target",
    "TargetCode",
    "TargetKind",
    "UmaError",
    "__version__",
    "build",
    "explain",
    "hookimpl",
    "installed_targets",
    "load",
    "plan",
    "quantize",
    "report",
    "to_json",
    "verify",
]

__getattr__, __dir__ = late_binding.lazy_names(
    __name__,
    __all__,
    {
        ".api": ("explain", "installed_targets", "plan", "report", "verify"),
        ".artifact": ("Artifact", "load"),
        ".errors": ("UmaError",),
        ".hookspecs": ("TargetCode", "hookimpl"),
        ".quantisation": ("quantize",),
        ".relay": ("IRModule",),
        ".runtime.state": ("SessionState",),
        ".support.json_record": ("to_json",),
        ".targets": ("Attribute", "Target", "TargetKind"),
        ".tuning": ("build",),
    },
)


def _installed_kinds(name: str) -> TargetKind | Alias:
    from .plugins import default_host

    return default_host().lookup(name)


late_binding.installed_kinds = _installed_kinds
