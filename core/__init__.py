"""UMA: a compiler for neural networks whose hardware support lives in plugins.

    import uma

    art = uma.build("kws.onnx", target="c")
    scores = art.run(x)["scores"]
    art.save("build/kws")

Names are imported when they are first used: ``import uma`` is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    "verify",
]

_WHERE = {
    "Artifact": "artifact",
    "Attribute": "targets",
    "TargetCode": "hookspecs",
    "IRModule": "relay",
    "SessionState": "runtime.state",
    "Target": "targets",
    "TargetKind": "targets",
    "UmaError": "errors",
    "build": "tuning",
    "explain": "api",
    "hookimpl": "hookspecs",
    "installed_targets": "api",
    "load": "artifact",
    "plan": "api",
    "quantize": "quantisation",
    "report": "api",
    "verify": "api",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'uma' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_WHERE[name]}", __name__), name)
    globals()[name] = value
    return value


def _installed_kinds(name: str) -> TargetKind | Alias:
    from .plugins import default_host

    return default_host().lookup(name)


late_binding.installed_kinds = _installed_kinds


def __dir__() -> list[str]:
    return sorted(__all__)
