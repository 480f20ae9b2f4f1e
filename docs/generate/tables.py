"""The tables that stand in the repository: supported operators, ``docs/operators.md``, and platforms."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from uma.frontends.onnx.converters import CONVERTERS, OTHER_DOMAINS
from uma.frontends.onnx.dynamic_lstm import BODIES
from uma.frontends.onnx.fold import FOLDERS
from uma.frontends.onnx.function_expansion import MAX_TURNS
from uma.frontends.onnx.proto import OPSETS
from uma.frontends.tflite.constant_folding import KNOWN
from uma.frontends.tflite.control import CONTROL
from uma.frontends.tflite.convert import CUSTOM_OPERATORS, OPERATORS
from uma.frontends.tflite.supported import DTYPES_OF
from uma.frontends.tflite.variables import VARIABLE_OPERATORS
from uma.hookspecs import Pattern
from uma.plugins import PluginHost
from uma.plugins.moves import RENAMES
from uma.relay import Op, registered_ops
from uma.relay.op import MISSING
from uma.support.compiler_flags import KNOWN_COMPILERS
from uma.support.machines import ARCHITECTURES, RUNNERS
from uma.targets import Target, TargetKind, read_target
from uma.targets.kind import shown

from .docstrings import inline
from .markdown import code, escaped, heading, table
from .ops import first_sentence
from .repository import ROOT, host_of, projects

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["attributes", "operators", "platforms", "renames"]

_MADE = "<!-- made by `python -m docs.generate --committed`; tests compare it with the code -->\n"

_TFLITE_NOTE = "any tensors"
_KNOWN_NOTE = "what is known when the model is read, as shapes are"
_BOTH_NOTE = f"any tensors; also {_KNOWN_NOTE}"

COMPILERS = {
    "cc": "whatever this machine calls its C compiler",
    "gcc": "also of a version, `gcc-12`",
    "clang": "also of a version, `clang-14`; for another machine it is told the triple",
    "ziglang": "of the Python package; for another machine it is told the triple",
    "TRIPLE-gcc": "for another machine, as `arm-none-eabi-gcc`; also of a version",
}


_NAN_RULES = {
    "kept": "kept",
    "ignored": "ignored",
    "moved": "moved",
    "unequal": "unequal",
    "largest": "larger than all numbers",
    "smallest": "smaller than all numbers",
    "replaced": "replaced",
}


# --- Operators -------------------------------------------------------------------------------------------------------


def _special_values() -> list[str]:
    """The rules of NaN, and the table of ops."""
    rows = []
    for op in registered_ops().values():
        special = op.specials
        if special is not None:
            cells = (escaped(special.remark), escaped(special.onnx), escaped(special.tflite))
            rows.append((code(op.name), _NAN_RULES[special.nan], _at_infinities(op), *cells))
    return [
        "Results of layers whose data has NaN, infinities or -0, by the op that computes them ([Relay](#relay)); ops "
        "that are not in the table take integers. The result is the same on every CPU, with and without vectors, and "
        "in whatever order and number of parts a reduction is computed. Infinities and zeros follow IEEE 754; the sign "
        "of a zero result is unspecified. `onednn` follows the table if it is given `-nan=keep`.\n",
        "- *kept*: each element that is computed from a NaN is NaN;\n"
        "- *ignored*: the result is that of the other elements; where there are none, the largest is -inf, the "
        "smallest inf, and their place 0;\n"
        "- *moved*: elements are copied, NaN as any other;\n"
        "- *unequal*: NaN compares as unequal to all numbers and to itself, and as neither larger nor smaller;\n"
        "- *replaced*: see the remark.\n",
        table(("op", "NaN", "of inf, -inf", "remark", "onnxruntime differs", "LiteRT differs"), rows),
    ]


def _at_infinities(op: Op) -> str:
    """The results of a function of one number at inf and at -inf; empty for other ops."""
    import numpy as np

    is_kept = op.specials is not None and op.specials.nan == "kept"
    if not is_kept or op.kind != "elementwise" or any(attr.default is MISSING for attr in op.attrs):
        return ""
    results = op.evaluate(op.make_attrs({}), np.array([np.inf, -np.inf], np.float32))
    return ", ".join(f"{float(value):.4g}" for value in np.asarray(results))


def attributes(page: str) -> str:
    """``docs/targets.md`` with the table of the attributes that every kind has.

    Args:
        page: the page as it is.
    """
    host, accelerator = (TargetKind("example", help="an example", is_host=is_host) for is_host in (True, False))
    both = [one for one in host.common if one in accelerator.common]
    rows = []
    for kinds, attribute in [
        *(("all", one) for one in both),
        *(("hosts", one) for one in host.common if one not in both),
        *(("accelerators", one) for one in accelerator.common if one not in both),
    ]:
        default = "" if attribute.default is None else code(shown(attribute.default))
        rows.append(
            (
                code(attribute.name),
                kinds,
                escaped(attribute.help),
                attribute.allowed().partition(" that matches")[0],
                default,
            )
        )
    begin, end = "<!-- attributes: made by `python -m docs.generate --committed` -->\n", "<!-- end of attributes -->\n"
    before, rest = page.split(begin)
    made = table(("attribute", "of", "meaning", "value", "default"), rows)
    return f"{before}{begin}\n{made}\n{end}{rest.split(end)[1]}"


def operators() -> str:
    """``docs/operators.md``."""
    kinds = _kinds()
    accelerators = [kind for kind in kinds if not kind[0].is_host]
    taken = {kind.name: _taken(patterns) for kind, patterns in accelerators}
    ops = registered_ops()
    forms = json.loads((ROOT / "docs" / "generate" / "onnx.json").read_text(encoding="utf-8"))
    tflite = {name: _KNOWN_NOTE if name in KNOWN else _TFLITE_NOTE for name in OPERATORS}
    tflite |= dict.fromkeys(CUSTOM_OPERATORS, "any tensors; a custom operator of MediaPipe")
    tflite |= dict.fromkeys(VARIABLE_OPERATORS, "the variables of a model: [state](state.md)")
    tflite |= dict.fromkeys(CONTROL, "other graphs of the file: [control flow](relay.md#control-flow)")
    onnx = dict.fromkeys(FOLDERS, _KNOWN_NOTE)
    onnx |= {name: _BOTH_NOTE if name in FOLDERS else _TFLITE_NOTE for name in (*CONVERTERS, *BODIES)}
    onnx |= {f"{domain}.{name}": _TFLITE_NOTE for domain, rows in OTHER_DOMAINS.items() for name in rows}
    return "\n".join(
        [
            heading(1, "Supported operators"),
            _MADE,
            "What the front-ends read, and what runs it. Not every form of each operator is supported: `uma build` and "
            "`uma explain` list all layers of a model that cannot be imported, with the reason. A plugin may bring "
            "[operators of its own](custom-operators.md).\n",
            heading(2, "TFLite"),
            f"{len(tflite)} operators.\n",
            "Integers of 8 and 16 bits are quantised where something is computed of them, and come out as LiteRT's "
            "reference kernels have them, bit for bit. Weights of `int8`, `uint8` or `int4` beside `float32` are "
            "dequantised, or, of `int8`, [computed with as LiteRT does](build.md#hybrid-layers). Of what TFLite Micro "
            "has and this table has not, LiteRT has no kernel to compare with: `ADD_N`, `CUMSUM` and `DIV` of `int8`, "
            "`SUM` of `int16`, an LSTM of `int16`. `LOCAL_RESPONSE_NORMALIZATION` follows TensorFlow and LiteRT's "
            "default kernel; the window of LiteRT's reference kernel lacks the last channel.\n",
            table(
                ("operator", "of", "data"),
                [(code(name), tflite[name], ", ".join(DTYPES_OF.get(name, ()))) for name in sorted(tflite)],
            ),
            heading(2, "ONNX"),
            f"Opset {OPSETS[0]} to {OPSETS[-1]}; {len(onnx)} operators. "
            "Quantised models are those in the QDQ and the QOperator form.\n",
            "An operator that is not in the table and has a function body in ONNX, as `Attention` has, is read as that "
            "body; so are functions of the model, the branch of an `If` that a constant decides, and a `Scan` of up to "
            f"{MAX_TURNS} turns. Layers keep the name of the node.\n",
            "Tensors of `float16`, `bfloat16`, `int4`, `uint4`, `int2` and `uint2` are taken wherever ONNX has them. "
            "Inputs and outputs of a model are `float16` (in C `uint16_t`), the bits of a `bfloat16` as `uint16`, and "
            "small integers one to a byte; constants are widened when the model is read. Each operator computes in "
            "`float32` and rounds its result, halves to even; `Softmax` does so at each of its steps, as ONNX's "
            "reference does.\n",
            "Initialisers may be sparse. They become dense when the model is read. `DynamicQuantizeLSTM` gives the "
            "results of onnxruntime on one thread.\n",
            "An `If` that a run decides, a `Loop`, and a longer `Scan` become [control flow](relay.md#control-flow), "
            "which hosts run: shapes are the same in both branches and in every turn, and what a loop puts together "
            "from its turns has a constant number of these. The layers within are named after the node: `loop/add`.\n",
            "Operators of other domains have the domain before their name; a plugin that imports one of them overrides "
            "the core. Those of `com.microsoft` on floats are what onnxruntime's optimiser writes: save models with "
            "`ORT_ENABLE_EXTENDED`, because `ORT_ENABLE_ALL` packs convolutions for one machine. `Attention` has no "
            "past state, and `MatMulNBits` has weights of 2, 4 or 8 bits without `g_idx`.\n",
            "Operators of QONNX give integers of `int8` or `uint8` for up to 8 bits, as QuantizeLinear, Clip and "
            "DequantizeLinear do; more bits stay `float32`. Scales and zero points of integers are constants, one "
            "number or one per channel. QONNX adds the zero point before it rounds: a layer before a `Quant` with an "
            "odd zero point, or with a `rounding_mode` other than `ROUND`, is rounded in `float32`. `Trunc` of 8-bit "
            "integers of the same scale shifts them. In version 1 a `Trunc` of anything else stays `float32`, because "
            "it has no limits.\n",
            "Opsets are those in which an operator got the forms that are read. Types are those that its first input "
            "may have in ONNX's own tests, which were tried; of operators of onnxruntime's, and of those that ONNX "
            "tests in company only, none is told.\n",
            table(
                ("operator", "of", "opsets", "types"),
                [(code(name), onnx[name], *_onnx_forms(forms.get(name, {}))) for name in sorted(onnx)],
            ),
            heading(2, "NaN, infinities and zeros"),
            *_special_values(),
            heading(2, "Relay"),
            f"What layers become: {len(ops)} ops. A host runs every one of them. For the accelerators of this "
            "repository the table names the patterns that an op may be a part of; their conditions are what "
            "`uma plugins PLUGIN` lists. (`float` of `ultra_trail` takes nothing: it is there for the reason that it "
            "gives.)\n",
            table(
                ("op", "what it computes", *(code(kind.name) for kind, _ in accelerators)),
                [_op_row(op, [taken[kind.name] for kind, _ in accelerators]) for op in ops.values()],
            ),
        ]
    )


_KINDS = {
    "floats": ("bfloat16", "float16", "float32", "float64"),
    "integers": ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
}


def _onnx_forms(row: Mapping[str, Sequence[Any]]) -> tuple[str, str]:
    """The opsets and the types of an operator, in few words."""
    types = list(row.get("types", ()))
    for kind, names in _KINDS.items():
        if set(names) <= set(types):
            types = [kind, *(name for name in types if name not in names)]
    return ", ".join(map(str, row.get("opsets", ()))), ", ".join(types)


def _op_row(op: Op, taken: Sequence[Mapping[str, Sequence[str]]]) -> tuple[str, ...]:
    cells = [", ".join(code(name.partition(".")[2]) for name in one.get(op.name, ())) for one in taken]
    return code(op.name), inline(first_sentence(op.doc), lambda name: None), *cells


def _kinds() -> list[tuple[TargetKind, list[Pattern]]]:
    """The target kinds of the repository's plugins, with the patterns that one without attributes has."""
    found = projects()
    host = host_of(found)
    kinds = []
    for project in found:
        plugin = host.plugin_for(project.entries[0].kind)
        for kind in plugin.kinds.values():
            kinds.append((kind, list(plugin.call("patterns", target=_target(kind, host)) or ())))
    return kinds


def _target(kind: TargetKind, host: PluginHost) -> Target:
    return read_target(kind.name, host.lookup)


def _taken(patterns: Iterable[Pattern]) -> dict[str, list[str]]:
    taken: dict[str, list[str]] = {}
    for pattern in patterns:
        for op in pattern.keys:
            taken.setdefault(op, []).append(pattern.name)
    return taken


# --- Platforms -------------------------------------------------------------------------------------------------------


def platforms() -> str:
    """``docs/platforms.md``."""
    from uma_cpu_c.cpus import CORTEX_M  # host_of() has made it importable

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    language = "Programming Language :: Python :: 3."
    pythons = [f"3.{line.removeprefix(language)}" for line in project["classifiers"] if line.startswith(language)]
    unknown = [name for name in COMPILERS if not KNOWN_COMPILERS.fullmatch(name.replace("TRIPLE", "arm-none-eabi"))]
    if unknown:
        raise AssertionError(f"no compiler may be called {unknown}")
    microcontrollers = [
        (
            code(name),
            code(" ".join((f"-mcpu={cpu}", *flags))),
            ", ".join(code(one.name) for one in RUNNERS.values() if one.board is not None and name in one.board.cpus),
        )
        for name, (cpu, flags) in CORTEX_M.items()
    ]
    linux = [
        (
            code(name),
            str(architecture.bits),
            ", ".join(code(one.name) for one in RUNNERS.values() if one.board is None and one.architecture == name),
        )
        for name, architecture in ARCHITECTURES.items()
    ]
    accelerators = [
        (code(kind.name), escaped(kind.help), _implementations(kind)) for kind, _ in _kinds() if not kind.is_host
    ]
    return "\n".join(
        [
            heading(1, "Supported platforms"),
            _MADE,
            "Where the compiler runs, and what it compiles for. [Other machines](cross.md) says how a target names "
            "one.\n",
            heading(2, "Where it runs"),
            f"Python {', '.join(pythons)}; the tests run on Linux. To run models in Python a C compiler is needed, one "
            "of\n",
            table(("compiler", ""), [(code(name), about) for name, about in COMPILERS.items()]),
            heading(2, "Microcontrollers"),
            f"Of the target `c`, with `-mcpu`; {len(microcontrollers)} CPUs, through `arm-none-eabi-gcc`. The "
            "emulator is what `-runner` may name.\n",
            table(("CPU", "flags", "emulators"), microcontrollers),
            heading(2, "Architectures"),
            "Of the target `c`, with `-mtriple`: with Linux, or with a CPU besides without an operating system. All "
            "store the lowest byte first.\n",
            table(("architecture", "bits", "emulator of programs for Linux"), linux),
            heading(2, "Accelerators"),
            "The plugins of this repository. `sim` is a simulator, which runs wherever the C does; `mmio` are "
            "registers in memory.\n",
            table(("kind", "what it is", "`-impl`"), accelerators),
        ]
    )


def _implementations(kind: TargetKind) -> str:
    [impl] = (one for one in (*kind.attributes, *kind.common) if one.name == "impl")
    return (
        ", ".join(code(str(one)) for one in impl.type)
        if isinstance(impl.type, tuple)
        else "it has no device: C is called"
    )


def renames() -> str:
    """``moving-to-0.7.md``."""
    rows = [(code(row.old), code(row.new) if row.new else "internal", row.purpose) for row in RENAMES]
    return (
        f"{_MADE}\n# Moving to plugin API 0.7\n\n"
        "Plugin API 0.7 renames public names and changes no result. UMA refuses a plugin for 0.5 or 0.6; the error "
        "lists the rows of this table that the plugin's sources use. It does not recognise methods of values: search "
        "the sources for them. The op `cut` is now `take_first`, in patterns and in text forms of models.\n\n"
        "1. Replace the names in the table.\n"
        "2. Set `UMA_PLUGIN_API = (0, 7)`.\n"
        "3. Run the plugin's tests and `uma check`.\n\n"
        f"{table(('up to 0.6', 'from 0.7 on', 'meaning'), rows)}"
    )
