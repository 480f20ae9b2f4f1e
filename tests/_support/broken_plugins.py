"""Plugins that are broken, one in each way that there is, and what is said to those who ask for them.

Each is a distribution ``uma-NAME`` with the target kind ``NAME`` (with ``_`` for ``-``), as an installer leaves it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .installed import install

__all__ = ["BROKEN", "Broken", "module_source"]

_HEAD = """\
import uma
from uma.hookspecs import TargetCode, CustomOp, Implementation, Pass, Pattern, Runtime, hookimpl
from uma.relay import Op
from uma.relay.pattern import op, wildcard
from uma.targets import TargetKind
"""


def module_source(kind: str, *hooks: str, kinds: str = "KIND") -> str:
    """A module of a plugin: the target kind of that name, an accelerator, and hooks as they are given."""
    declared = f"KIND = TargetKind({kind!r}, help='is broken', device_type='npu')\n"
    register = f"@hookimpl\ndef register_target():\n    return [{kinds}]\n"
    return "\n\n".join(
        [_HEAD, declared, register, *(f"@hookimpl\n{textwrap.dedent(hook).strip()}\n" for hook in hooks)]
    )


@dataclass(frozen=True)
class Broken:
    """A broken plugin.

    Args:
        name: of it.
        source: of its module; None where there is none any more.
        what: what the error says behind the plugin's name and version; a regular expression.
        cause: the type of the original exception, by name; None where it is not an exception that shows the fault.
        at: where it shows: before the import, while it is ``load``-ed, or in a ``build``.
        install: arguments of `install`.
    """

    name: str
    source: str | None
    what: str
    cause: str | None = None
    at: str = "load"
    install: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Its target kind."""
        return self.name.replace("-", "_")

    @property
    def raised(self) -> bool:
        """Whether it is code of the plugin that raised the exception."""
        return self.cause not in (None, "PluginValidationError", "InvalidRequirement") and self.source is not None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """All that `install` has to know of it but the folder."""
        return {"name": f"uma-{self.name}", "kinds": [self.kind], "source": self.source, **self.install}

    def install_in(self, folder: Path) -> None:
        """Put it into a folder of the path."""
        install(folder, **self.arguments)


_RELU = "def patterns(): return [Pattern(f'{KIND.name}.relu', op('nn.relu')(wildcard('float32')))]"

_LOWERED = """
def relay_to_runtime(function):
    from uma.hookspecs import Extern
    from uma.relay import IRModule
    from uma.tir import Buffer, Param

    params = [Param(Buffer(name, function.body.shape, "float32"), access) for name, access in
              (("x", "input"), ("y", "output"))]
    extern = Extern(tuple(params), routine="relu", scalars={"count": params[0].buffer.size})
    module = IRModule.from_functions({"relu": extern})
    return module, module.global_var("relu")
"""

_RUNTIME = """
def runtime():
    from pathlib import Path
    from uma.hookspecs import Routine

    source = {source}
    return Runtime(
        header="broken.h",
        sources={{"broken.h": "void broken_relu(const float *x, float *y, long count);", "broken.c": source}},
        routines=(Routine("relu", "broken_relu({{x}}, {{y}}, {{count}})"),),
    )
"""

_CIRCLE = """
def passes():
    def same(module): return module
    return [Pass("PRE_PARTITIONING", "first", same, after=("second",)),
            Pass("PRE_PARTITIONING", "second", same, after=("first",))]
"""

_OPS = """
def ops():
    cube = Op("{name}", "The third power.", ("data",), infer=lambda attrs, data: data,
              reference=lambda attrs, data: data**3, compute=None, kind="elementwise")
    return [CustomOp(cube)] * {times}
"""


def _all() -> Sequence[Broken]:
    return [
        Broken(
            "raises",
            "raise RuntimeError('out of order')",
            "cannot be imported: RuntimeError: out of order",
            "RuntimeError",
        ),
        Broken("exits", "import sys\nsys.exit(0)", "cannot be imported: SystemExit: 0", "SystemExit"),
        Broken("lacks", "import uma_needs_this_too", "cannot be imported: ModuleNotFoundError", "ModuleNotFoundError"),
        Broken("syntax", "def f(:\n    pass\n", "cannot be imported: .*uma_syntax.py", "SyntaxError"),
        Broken(
            "removed",
            None,
            "cannot be imported: ModuleNotFoundError: No module named 'uma_removed'",
            "ModuleNotFoundError",
        ),
        Broken(
            "registers",
            _HEAD + "@hookimpl\ndef register_target():\n    return [{}['npu']]\n",
            "failed in hook register_target: KeyError: 'npu'",
            "KeyError",
        ),
        Broken(
            "unmarked",
            module_source("unmarked") + "\ndef patterns(target):\n    return []\n",
            "has a function patterns without the mark",
        ),
        Broken(
            "misspelt",
            module_source("misspelt", "def paterns(target): return []"),
            "has a hook that does not fit: .*unknown hook 'paterns'",
            "PluginValidationError",
        ),
        Broken(
            "argument",
            module_source("argument", "def patterns(taget): return []"),
            "has a hook that does not fit: .*'taget'",
            "PluginValidationError",
        ),
        Broken(
            "keyword",
            module_source("keyword", "def patterns(*, target): return []"),
            "has a hook patterns with arguments behind a",
        ),
        Broken(
            "twice",
            module_source("twice", kinds="KIND, KIND"),
            "registers the kinds twice, twice, but its entry points name twice",
        ),
        Broken("other", module_source("another"), "registers the kinds another, but its entry points name other"),
        Broken(
            "ops-twice",
            module_source("ops_twice", _OPS.format(name="ops_twice.cube", times=2)),
            "declares the op 'ops_twice.cube' twice",
        ),
        Broken(
            "ops-foreign",
            module_source("ops_foreign", _OPS.format(name="c.cube", times=1)),
            "declares the op 'c.cube', the name of which does not begin with ops_foreign.",
        ),
        Broken(
            "ops-usage",
            module_source(
                "ops_usage",
                """
                def ops():
                    from uma.errors import UsageError
                    raise UsageError("there is no licence", hint="buy one")
                """,
            ),
            "failed in hook ops: uma.errors.UsageError: there is no licence",
            "UsageError",
        ),
        Broken(
            "old-core",
            module_source("old_core"),
            "needs uma-core<0.1, this is uma-core",
            at="metadata",
            install={"requires": ["uma-core<0.1"]},
        ),
        Broken(
            "metadata",
            module_source("metadata"),
            "has metadata that cannot be read",
            "InvalidRequirement",
            at="metadata",
            install={"requires": ["uma-core => 0.1"]},
        ),
        Broken(
            "old-api",
            module_source("old_api") + "\nUMA_PLUGIN_API = (99, 0)\n",
            r"is for plugin API 99\.0, this is \d+\.\d+",
        ),
        Broken(
            "no-api",
            module_source("no_api") + "\nUMA_PLUGIN_API = '0.3'\n",
            "has an UMA_PLUGIN_API that is not a pair of major and minor version",
        ),
        Broken(
            "itself",
            _HEAD + "from uma import Target\nTarget('itself')\n",
            "cannot be imported: .*asks for one of its own kinds while it is being imported",
            "PluginError",
        ),
        Broken(
            "hook",
            module_source("hook", "def patterns(target):\n    return [target.get_attr('impl').oops]"),
            "failed in hook patterns: AttributeError",
            "AttributeError",
            "build",
        ),
        Broken(
            "hook-exits",
            module_source("hook_exits", "def patterns(target): raise SystemExit"),
            "failed in hook patterns: SystemExit",
            "SystemExit",
            "build",
        ),
        Broken(
            "type",
            module_source("type", "def patterns(target): return {'conv': 1}"),
            "gave a value of type dict from hook patterns",
            at="build",
        ),
        Broken(
            "lazy",
            module_source("lazy", "def patterns(target): yield 1 / 0"),
            "gave a value of type generator from hook patterns",
            at="build",
        ),
        Broken(
            "element",
            module_source("element", "def passes(target): return [len]"),
            "gave .* from hook passes among its Pass records",
            at="build",
        ),
        Broken(
            "pattern",
            module_source("pattern", _RELU.replace("]", "] * 2")),
            "gave patterns that do not go together: there are two patterns 'pattern.relu'",
            at="build",
        ),
        Broken(
            "predicate",
            module_source("predicate", _RELU.replace("))]", "), lambda m: m.root.nobody)]")),
            "has a pattern that fails: a predicate raised AttributeError",
            "AttributeError",
            "build",
        ),
        Broken(
            "predicate-exits",
            module_source("predicate_exits", _RELU.replace("))]", "), lambda m: exit(0))]")),
            "has a pattern that fails: a predicate raised SystemExit",
            "SystemExit",
            "build",
        ),
        Broken(
            "phase",
            module_source("phase", "def passes(target): return [Pass('TIR_9', 'mine', len)]"),
            "pass 'mine' is for phase 'TIR_9', which there is not",
            at="build",
        ),
        Broken(
            "circle",
            module_source("circle", _CIRCLE),
            "has pass '(first|second)' of PRE_PARTITIONING, which cannot be put in order",
            at="build",
        ),
        Broken(
            "sources",
            module_source(
                "sources", _RELU, _LOWERED, _RUNTIME.format(source="Path(__file__).with_name('broken.c').read_text()")
            ),
            "failed in hook runtime: FileNotFoundError",
            "FileNotFoundError",
            "build",
        ),
        Broken(
            "compiles",
            module_source("compiles", _RELU, _LOWERED, _RUNTIME.format(source="'this is not a C'")),
            "has C that does not compile: broken.c:1$",
            None,
            "compile",
        ),
    ]


BROKEN = {broken.name: broken for broken in _all()}
