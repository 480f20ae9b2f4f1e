"""The options of a build. Each field of `BuildOptions` is declared here once, with its default, validator and flag."""

# ruff: noqa: RUF009 - `_option` returns a field with an immutable default

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from .arguments import check_mapping, path_of, told
from .errors import UsageError
from .import_budget import IMPORT_LIMIT
from .io_forms import IO_FORMS, IoForm
from .target.values import shown, suggest
from .weights_forms import WEIGHTS_FORMS, WeightsForm

if TYPE_CHECKING:
    from .frontends.fixed import Fixed
    from .frontends.open_shapes import AskedShape
    from .partition import Partitioner
    from .plugins import PluginHost

__all__ = ["BuildOptions", "Limit", "StripsAsked"]

Shapes: TypeAlias = "Mapping[str, AskedShape]"
"""Shapes by input name, or extents by dimension name."""

Pins: TypeAlias = Mapping[str, str]
"""Labels of targets by layer names or patterns of these (``*``, ``?``, ``[...]``; case-sensitive). Where several match
one layer, the last applies."""

Requantize: TypeAlias = "str | Mapping[str, str]"
"""``fixed-point`` for all layers; or ``fixed-point`` or ``float`` by layer names or patterns of these (``*``, ``?``,
``[...]``). Where several match one layer, the last applies."""

Tolerate: TypeAlias = "str | Iterable[str]"
"""Passes as ``label.pass``, or patterns of these (``*``, ``?``, ``[...]``): one, or several."""

LIMITS = {"max-ram": 1024, "max-rom": 1024, "max-cycles": 1000}
"""The limits by the names of flags and settings, and the factor of K for each; M is K of K, G is K of M."""

MAX_STRIPS = 16
"""More strips would consist almost only of borders."""

_AMOUNT = re.compile(r"([0-9]{1,15}) ?([A-Z]*)", re.ASCII | re.IGNORECASE)
_UNIT = re.compile(r"([KMG]?)(?:I?B)?", re.ASCII | re.IGNORECASE)
_STRIPS = re.compile(r"([0-9]{1,9})(?::(.+))?", re.ASCII | re.DOTALL)


@dataclass(frozen=True)
class Limit:
    """An upper bound for a resource of a model.

    Args:
        amount: bytes, or cycles.
        said: the option or setting that has it, for errors.
    """

    amount: int
    said: str


@dataclass(frozen=True)
class StripsAsked:
    """The strips of columns to compute layers in.

    Args:
        count: number of strips.
        end: the last layer in strips; None for the layer that takes least RAM.
    """

    count: int
    end: str | None = None


def parse_amount(text: str, name: str) -> int:
    """Return ``64K`` as a number.

    Args:
        text: a number, with ``K``, ``M`` or ``G`` after it where thousands are meant. In bytes it may go on with ``B``
            or ``iB``, which change nothing: ``64KiB`` and ``64 kb`` are ``64K``. Case does not matter.
        name: the limit, a key of `LIMITS`, which has the value of ``K``.

    Raises:
        ValueError: the text has another form, or an unknown unit.
    """
    amount = _AMOUNT.fullmatch(text)
    if amount is None:
        raise ValueError(f"{text[:40]!r} is not an amount; write it like 64K")
    unit = _UNIT.fullmatch(amount[2])
    if unit is None or (unit[0] != unit[1] and LIMITS[name] != 1024):
        raise ValueError(f"unknown unit {amount[2][:40]!r} in {text[:40]!r}; use K, M or G")
    power = " KMG".index(unit[1].upper() or " ")
    return int(amount[1]) * int(LIMITS[name] ** power)


def ram_limit(value: object) -> Limit | None:
    """Return the limit for bytes or a text like ``64K``; None for no limit; UsageError for another value."""
    if value is None or isinstance(value, Limit):
        return value
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    try:
        return Limit(parse_amount(text, "max-ram"), "max_ram")
    except ValueError as error:
        raise UsageError(f"max_ram={value!r} is not an amount", hint='give bytes, or a text like "64K"') from error


def read_strips(value: object) -> StripsAsked | None:
    """Return the strips for a number or a text like ``2:LAYER``; None for none.

    Raises:
        UsageError: the value has another form, or the number is not between 2 and `MAX_STRIPS`.
    """
    if value is None or isinstance(value, StripsAsked):
        return value
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    parts = _STRIPS.fullmatch(text)
    if parts is None:
        what = f"{shown(value)} is no number of strips"
        raise UsageError(what, hint="write it like 2, or with the last layer that is computed in strips, like 2:conv4")
    count = int(parts[1])
    if not 2 <= count <= MAX_STRIPS:
        raise UsageError(f"a picture cannot be computed in {count:,} strips", hint=f"make 2 to {MAX_STRIPS} of it")
    return StripsAsked(count, parts[2])


def check_hybrid(value: object) -> str | None:
    """Return ``value``, one of `HYBRID` or None for the default; UsageError for another value."""
    from .frontends.model import HYBRID

    if value is not None and (not isinstance(value, str) or value not in HYBRID):
        raise UsageError(f"hybrid layers are not computed as {shown(value)}", hint=f"one of {', '.join(HYBRID)}")
    return value


def check_io(value: object) -> IoForm | None:
    """Return ``value``, one of `IO_FORMS` or None for the default; UsageError for another value."""
    if value is None:
        return None
    form = next((form for form in IO_FORMS if form == value), None)
    if form is None:
        raise UsageError(f"inputs and outputs cannot be in {shown(value)}", hint=f"io is one of {', '.join(IO_FORMS)}")
    return form


def _check_weights(value: object) -> WeightsForm:
    form = next((form for form in WEIGHTS_FORMS if form == value), None)
    if form is None:
        raise UsageError(f"{shown(value)} is no form of weights", hint=f"there are {', '.join(WEIGHTS_FORMS)}")
    return form


def _check_name(value: object) -> str | None:
    from .codegen.names import c_identifier

    if value is not None and not isinstance(value, str):
        raise UsageError(f"{told(value)} is no name for a model", hint="give a C identifier, as a str")
    if value is not None and c_identifier(value) != value:
        raise UsageError(f"{value!r} is no name for a model", hint=f"for example {c_identifier(value)}")
    return value


def _check_shapes(value: object) -> Shapes | None:
    if value is None:
        return None
    example = '{"image": (1, 3, 224, 224)}'
    shapes = check_mapping(value, (list, tuple, int, str), "shapes", example)
    for extents in shapes.values():
        each = extents if isinstance(extents, (list, tuple)) else [extents]
        if not all(isinstance(extent, (int, str)) for extent in each):
            raise UsageError(f"{told(extents)} is no shape", hint=f"for example shapes={example}")
    return shapes


def _check_states(value: object) -> Mapping[str, str] | None:
    return None if value is None else check_mapping(value, str, "states", '{"state_in": "state_out"}')


def _check_constants(value: object) -> Mapping[str, Fixed] | None:
    return None if value is None else check_mapping(value, object, "constants", '{"scale": 0.5}')


def _check_stream_inputs(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        what = f"stream_inputs is {told(value)}, and no list of names"
        raise UsageError(what, hint='for example stream_inputs=["image"]')
    return tuple(dict.fromkeys(value))


def _check_import_limit(value: object) -> int:
    if type(value) is not int or value < 1:
        hint = f"a whole number from 1 on; {IMPORT_LIMIT} by default"
        raise UsageError(f"the import limit is {told(value)}", hint=hint)
    return value


def _check_dump(value: object) -> Path | None:
    return None if value is None else path_of(value, "the folder for dumps")


def _check_plugins(value: object) -> PluginHost | None:
    from .plugins import PluginHost

    if value is not None and not isinstance(value, PluginHost):
        raise UsageError(f"{told(value)} is no PluginHost", hint="leave plugins out for those that are installed")
    return value


_COMMANDS = ("build", "run", "verify", "explain", "report", "plan")


@dataclass(frozen=True)
class Flag:
    """The command-line flag of an option.

    Args:
        help: its help text.
        metavar: the placeholder of its value; None where ``choices`` are printed.
        group: the heading in ``--help``: target, memory, placement, numerics or output.
        spelling: the flag without its dashes, if it is not the option's name.
        repeated: whether it may be given several times.
        choices: the permitted values.
        parse: reads the value of a flag that is given once.
    """

    help: str
    metavar: str | None
    group: str
    spelling: str = ""
    repeated: bool = False
    choices: Sequence[str] | None = None
    parse: Callable[[str], object] | None = None


def _option(
    default: Any, flag: Flag | None, check: Callable[[Any], Any] | None = None, commands: Sequence[str] = _COMMANDS
) -> Any:
    """Return a field of `BuildOptions`.

    Args:
        default: its value where the caller gives none.
        flag: for the command line; None for an option of Python alone.
        check: returns the value in its final form, or raises UsageError.
        commands: those in which it has an effect.
    """
    return field(default=default, metadata={"flag": flag, "check": check, "commands": tuple(commands)})


class BuildKeywords(TypedDict, total=False):
    """The options of a build as keywords, in every form that a caller may write them. See `BuildOptions`."""

    name: str | None
    shapes: Shapes | None
    states: Mapping[str, str] | None
    constants: Mapping[str, Fixed] | None
    pins: Pins | None
    requantize: Requantize | None
    tolerate: Tolerate
    hybrid: str | None
    import_limit: int
    io: IoForm | None
    strips: int | str | None
    stream_inputs: Sequence[str]
    partition: str | Partitioner
    max_ram: int | str | None
    weights: WeightsForm
    dump: str | os.PathLike[str] | None
    plugins: PluginHost | None


@dataclass(frozen=True, kw_only=True, eq=False)
class BuildOptions:
    """Every option of a build. `uma.build`, `uma.verify`, `uma.explain`, `uma.report` and `uma.plan` accept those that
    have an effect there, as keywords.

    Args:
        name: prefix of everything in the generated C; by default from the file's name.
        shapes: of inputs whose dimensions the model leaves open, by input name; or one extent of all dimensions to
            which an ONNX file gives a name, by that. An extent of an ONNX model may be a range, ``"1..128"``: the
            artifact then takes arrays of every such extent.
        states: inputs that the model keeps itself from one run to the next, and the outputs that are their new values,
            by their names. They begin with zeros, or with what an ONNX model gives such an input. The variables of a
            TFLite model are its states anyway.
        constants: values that inputs of a model file are fixed to, by input name, which are inputs no more: arrays of
            their type, or numbers that fill them. What the model computes of them alone is computed now, so that they
            may be what shapes depend on.
        pins: layers that must run on a target, by their names or by patterns of these, ``{"conv*": "npu1"}``; targets
            are named by their labels. Of several that are about one layer the last counts.
        requantize: ``fixed-point`` lets accelerators take layers with float scales in fixed points of their own, which
            round otherwise; ``{"conv*": "fixed-point"}`` says so of some layers, by their names or by patterns of
            these, ``float`` takes it back. By default all is computed as the model says.
        tolerate: plugins' passes that may change results within the tolerance that they declare, as ``label.pass`` or
            patterns of these. By default none of them is run.
        hybrid: how layers of float32 with weights of integers, as TFLite files have them, are computed: ``float``
            dequantises the weights, ``litert`` quantises the data when the model runs, as LiteRT does. By default
            ``float``.
        import_limit: bytes of constants that the import of a model file may make, and scalar operations that it may do,
            for each byte of the file and of the tensors that it declares; the constants that a text form or a module
            has are its own.
        io: where inputs and outputs are while the model runs: ``caller``, arrays of the caller's, or ``arena``, where
            an input is given up once it is used, and no array outside of the arena is needed. By default ``caller``;
            of a program, as that says.
        strips: compute layers over a wide picture in so many strips of its columns, one after the other, for less RAM
            than rows alone take; as ``"2:LAYER"`` up to that layer. Rows are taken as far as they go; with ``max_ram``
            as far as that takes, and strips where rows alone do not reach it. By default none.
        stream_inputs: names of inputs that need not be whole anywhere: in C a function of the caller gives them row by
            row, and all layers that read them run by rows. In Python they are arrays like all others.
        partition: decides what goes where: a `uma.partition.Partitioner`, or the name of one.
        max_ram: what the model may take of RAM, its arena, state, inputs and outputs, in bytes or as ``"64K"``: layers
            are run row by row as far as that takes. The stack is not in it, which only a compiler tells.
        weights: how the constants get into an image: ``assembly`` that includes a binary file, an ``array`` of C, or a
            ``file`` that the program loads.
        dump: folder for the text of every stage.
        plugins: where targets come from; by default the plugins that are installed.

    Raises:
        UsageError: a value is wrong in itself. Whether it fits the model is checked when the model is read.
    """

    name: str | None = _option(
        None, Flag("prefix of all C names (default: from the file's name)", "N", "output"), _check_name
    )
    shapes: Shapes | None = _option(
        None,
        Flag(
            "shape of an input whose dimensions the model leaves open, or extent of a dimension by its name; an extent "
            "may be a range, 1..128; may be repeated",
            "NAME=1,3,224,224",
            "target",
            "shape",
            repeated=True,
        ),
        _check_shapes,
    )
    states: Mapping[str, str] | None = _option(
        None,
        Flag(
            "an input that the model keeps itself: each run begins with what this output was in the run before; may be "
            "repeated",
            "INPUT=OUTPUT",
            "target",
            "state",
            repeated=True,
        ),
        _check_states,
    )
    constants: Mapping[str, Fixed] | None = _option(
        None,
        Flag(
            "fix an input of the model file to a value, so that it is an input no more: a number, which fills it, or "
            "@FILE.npy; may be repeated",
            "NAME=VALUE",
            "target",
            "constant",
            repeated=True,
        ),
        _check_constants,
    )
    pins: Pins | None = _option(
        None,
        Flag(
            "run a layer on the target of that label and no other; 'conv*=npu1' pins all layers whose names fit; may "
            "be repeated, the last that fits a layer counts",
            "LAYER=LABEL",
            "placement",
            "pin",
            repeated=True,
        ),
    )
    requantize: Requantize | None = _option(
        None,
        Flag(
            "fixed-point: offer layers with float scales to accelerators in fixed points of their own, which round "
            "otherwise, by steps that are bounded beforehand; 'conv*=fixed-point' says so of some layers, float takes "
            "it back; may be repeated, the last that fits a layer counts",
            "[LAYER=]HOW",
            "numerics",
            repeated=True,
        ),
    )
    tolerate: Tolerate = _option(
        (),
        Flag(
            "let a plugin's pass change results within the tolerance that it declares; 'npu.*' lets all of that "
            "target; may be repeated",
            "LABEL.PASS",
            "numerics",
            repeated=True,
        ),
    )
    hybrid: str | None = _option(
        None,
        Flag(
            "how layers of float32 with weights of integers, as TFLite files have them, are computed: float (the "
            "default) dequantises the weights, litert quantises the data when the model runs, as LiteRT does",
            "HOW",
            "numerics",
        ),
        check_hybrid,
    )
    import_limit: int = _option(
        IMPORT_LIMIT,
        Flag(
            "bytes of constants that the import of a model file may make, and scalar operations that it may do, for "
            f"each byte of the file (default: {IMPORT_LIMIT}); raise it only for a file that you trust",
            "FACTOR",
            "target",
            parse=int,
        ),
        _check_import_limit,
    )
    io: IoForm | None = _option(
        None,
        Flag(
            "where inputs and outputs are while the model runs: arrays of the caller (the default), or places in the "
            "arena, which inputs give up once they are used",
            None,
            "memory",
            choices=IO_FORMS,
        ),
        check_io,
    )
    strips: StripsAsked | None = _option(
        None,
        Flag(
            "compute layers over a wide picture, up to that layer, in strips of its columns, one after the other, for "
            "less RAM than rows alone take; for example 2",
            "COUNT[:LAYER]",
            "memory",
        ),
        read_strips,
    )
    stream_inputs: tuple[str, ...] = _option(
        (),
        Flag(
            "have an input given row by row, by a function of the C that uses the model, so that it need not be whole "
            "anywhere: all layers that read it run by rows; may be repeated",
            "NAME",
            "memory",
            "stream-input",
            repeated=True,
        ),
        _check_stream_inputs,
    )
    partition: str | Partitioner = _option("eager", None)
    max_ram: Limit | None = _option(None, None, ram_limit, ("build", "verify", "explain", "report"))
    weights: WeightsForm = _option(
        "assembly",
        Flag(
            "how the constants get into an image: assembly that includes a binary file (the default), an array of C, "
            "for any compiler of C99, or a file that the program loads",
            None,
            "output",
            choices=WEIGHTS_FORMS,
        ),
        _check_weights,
        ("build",),
    )
    dump: Path | None = _option(
        None,
        Flag("write the text of every stage to this folder", "DIR", "output", parse=Path),
        _check_dump,
        ("build",),
    )
    plugins: PluginHost | None = _option(None, None, _check_plugins)

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            if (check := one.metadata["check"]) is not None:
                object.__setattr__(self, one.name, check(getattr(self, one.name)))

    @classmethod
    def read(cls, command: str, keywords: BuildKeywords) -> BuildOptions:
        """Return the options of a call of a public function.

        Args:
            command: the function: ``build``, ``verify``, ``explain``, ``report`` or ``plan``.
            keywords: the options that its caller wrote.

        Raises:
            UsageError: there is no such option, it has no effect in ``command``, or its value is wrong.
        """
        known = {one.name: one.metadata["commands"] for one in dataclasses.fields(cls)}
        for name in keywords:
            if name not in known:
                hint = f"{suggest(name, known)}options: {', '.join(known)}"
                raise UsageError(f"uma.{command} has no option {name!r}", hint=hint)
            if command not in known[name]:
                where = " and ".join(f"uma.{other}" for other in known[name])
                raise UsageError(f"{name} has no effect in uma.{command}", hint=f"it has one in {where}")
        values: Mapping[str, Any] = keywords
        return cls(**values)

    @property
    def changed(self) -> Iterator[str]:
        """The names of the options that differ from their defaults, except ``plugins``."""
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            is_empty = value is None or (isinstance(value, (list, tuple, Mapping)) and not value)
            if one.name != "plugins" and not is_empty and value is not one.default and value != one.default:
                yield one.name


def flags(command: str = "build") -> Iterator[tuple[str, str, Flag]]:
    """Yield (option, name of the parsed argument, flag) for each option with a flag that has an effect in ``command``,
    by default for all."""
    for one in dataclasses.fields(BuildOptions):
        flag: Flag | None = one.metadata["flag"]
        if flag is not None and command in one.metadata["commands"]:
            yield one.name, (flag.spelling or one.name).replace("-", "_"), flag
