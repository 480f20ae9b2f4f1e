"""The options of a build. Each field of `BuildOptions` is declared here once, with its default, validator and flag."""

# ruff: noqa: RUF009 - `_option` returns a field with an immutable default

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from .errors import UsageError
from .option_values import (
    Allow,
    Allowed,
    Limit,
    Pins,
    Shapes,
    StripsAsked,
    check_allow,
    check_constants,
    check_dump,
    check_import_limit,
    check_io,
    check_name,
    check_plugins,
    check_shapes,
    check_states,
    check_stream_inputs,
    check_weights,
    ram_limit,
    read_limit,
    read_strips,
)
from .support.import_budget import IMPORT_LIMIT
from .support.io_forms import IO_FORMS, IoForm
from .support.opt_ins import REPLACED
from .support.project_file import ProjectError, find_project
from .support.weights_forms import WEIGHTS_FORMS, WeightsForm
from .targets.values import suggest

if TYPE_CHECKING:
    from .frontends.fixed_inputs import Fixed
    from .partition import Partitioner
    from .plugins import PluginHost

__all__ = ["BuildOptions"]

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
        parse: reads the value of a flag that is given once; ValueError for a wrong one.
    """

    help: str
    metavar: str | None
    group: str
    spelling: str = ""
    repeated: bool = False
    choices: Sequence[str] | None = None
    parse: Callable[[str], object] | None = None


def _option(
    default: Any,
    flag: Flag | None,
    check: Callable[[Any], Any] | None = None,
    commands: Sequence[str] = _COMMANDS,
    in_project: bool = False,
    saved: bool = True,
) -> Any:
    """Return a field of `BuildOptions`.

    Args:
        default: its value where the caller gives none.
        flag: for the command line; None for an option of Python alone.
        check: returns the value in its final form, or raises UsageError.
        commands: those in which it has an effect.
        in_project: whether ``[tool.uma]`` may have it.
        saved: whether a saved model needs it to be built again; its text has the others.
    """
    metadata = {"flag": flag, "check": check, "commands": commands, "in_project": in_project, "saved": saved}
    return field(default=default, metadata=metadata)


class BuildKeywords(TypedDict, total=False):
    """The options of a build as keywords, in every form that a caller may write them. See `BuildOptions`."""

    name: str | None
    shapes: Shapes | None
    states: Mapping[str, str] | None
    constants: Mapping[str, Fixed] | None
    pins: Pins | None
    allow: Allow | None
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
    """Every option of a build. `uma.build`, `uma.verify`, `uma.explain`, `uma.report`, `uma.plan` and `uma.quantize`
    accept those that have an effect there, as keywords.

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
        allow: opt-ins to results that differ from the model's arithmetic; none by default.
            ``{"rounding": "fixed-point"}`` lets accelerators run layers with float scales in fixed points of their
            own, which round differently; ``{"rounding:conv*": "fixed-point"}`` lets them run some layers so, by name or
            pattern. ``{"hybrid": "litert"}`` quantises the data of hybrid layers (float32 data, int8 weights) when the
            model runs, as LiteRT does; without it the weights are dequantised. ``{"npu.round_weights": "declared"}``
            runs a plugin's pass that changes results, by ``LABEL.PASS`` or a pattern, within the tolerance that it
            declares. ``float`` or ``off`` reverts an entry.
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
        None, Flag("prefix of all C names (default: from the file's name)", "N", "output"), check_name, saved=False
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
        check_shapes,
        (*_COMMANDS, "quantize"),
        saved=False,
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
        check_states,
        saved=False,
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
        check_constants,
        saved=False,
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
        saved=False,
    )
    allow: Allowed = _option(
        Allowed(),
        Flag(
            "allow results that differ from the model's arithmetic: rounding=fixed-point, or "
            "rounding:LAYER=fixed-point, lets accelerators round layers with float scales in their own fixed points; "
            "hybrid=litert quantises the data of hybrid TFLite layers (float data, int8 weights) as LiteRT does; "
            "LABEL.PASS=declared runs a plugin's pass within the tolerance that it declares; the values float and off "
            "revert it; may be repeated, the last that matches a layer or pass applies",
            "WHAT=HOW",
            "numerics",
            repeated=True,
        ),
        check_allow,
        in_project=True,
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
        check_import_limit,
        saved=False,
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
        in_project=True,
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
        check_stream_inputs,
    )
    partition: str | Partitioner = _option(
        "eager",
        Flag(
            "who decides what goes where: eager (the default), by which each target in turn takes all that it can; "
            "collage, which looks for the cheapest placement; or a partitioner that a plugin brings",
            "NAME",
            "placement",
        ),
        saved=False,
    )
    max_ram: Limit | None = _option(
        None,
        Flag(
            "fail if the model takes more bytes of RAM: arena, state, inputs, outputs, and the stack where the "
            "compiler reports it; layers are run row by row as far as that takes; for example 64K (default: max-ram "
            "of the project)",
            "AMOUNT",
            "memory",
            "max-ram",
            parse=functools.partial(read_limit, name="max-ram"),
        ),
        ram_limit,
        ("build", "verify", "explain", "report"),
    )
    weights: WeightsForm = _option(
        "assembly",
        Flag(
            "how the constants get into an image: assembly that includes a binary file (the default), an array of C, "
            "for any compiler of C99, or a file that the program loads",
            None,
            "output",
            choices=WEIGHTS_FORMS,
        ),
        check_weights,
        ("build",),
    )
    dump: Path | None = _option(
        None,
        Flag("write the text of every stage to this folder", "DIR", "output", parse=Path),
        check_dump,
        ("build",),
        saved=False,
    )
    plugins: PluginHost | None = _option(None, None, check_plugins, (*_COMMANDS, "quantize"), saved=False)

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            if (check := one.metadata["check"]) is not None:
                object.__setattr__(self, one.name, check(getattr(self, one.name)))

    @classmethod
    def read(cls, command: str, keywords: BuildKeywords) -> BuildOptions:
        """Return the options of a call of a public function.

        Args:
            command: the function: ``build``, ``verify``, ``explain``, ``report``, ``plan`` or ``quantize``.
            keywords: the options that its caller wrote.

        Raises:
            UsageError: there is no such option, it has no effect in ``command``, or its value is wrong.
        """
        known = {one.name: one.metadata["commands"] for one in dataclasses.fields(cls)}
        for name in keywords:
            if name in REPLACED:
                key, value = REPLACED[name]
                what = f"the option {name} of uma.{command} was replaced by allow"
                raise UsageError(what, hint=f'write allow={{"{key}": "{value}"}}')
            if name not in known:
                hint = f"{suggest(name, known)}options: {', '.join(known)}"
                raise UsageError(f"uma.{command} has no option {name!r}", hint=hint)
            if command not in known[name]:
                where = " and ".join(f"uma.{other}" for other in known[name] if other != "run")
                raise UsageError(f"{name} has no effect in uma.{command}", hint=f"it has one in {where}")
        values: Mapping[str, Any] = keywords
        return cls(**values)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> BuildOptions:
        """Return the options that `to_json` returned; UsageError for others, and for values that are wrong."""
        for name in record.keys() - {one.name for one in dataclasses.fields(cls) if one.metadata["saved"]}:
            raise UsageError(f"{name!r} is not an option of a saved model")
        return cls(**record)

    def to_json(self) -> dict[str, Any]:
        """Return the options with which a saved model is built again, as plain data, by name; no defaults."""
        changed = [one for one in dataclasses.fields(self) if one.metadata["saved"] and one.name in self.changed]
        values = {one.name: getattr(self, one.name) for one in changed}
        return {name: getattr(value, "plain", value) for name, value in values.items()}

    @property
    def changed(self) -> Iterator[str]:
        """The names of the options that differ from their defaults, except ``plugins``."""
        for one in dataclasses.fields(self):
            value = getattr(self, one.name)
            is_empty = value is None or (isinstance(value, (list, tuple, Mapping)) and not value)
            if one.name != "plugins" and not is_empty and value is not one.default and value != one.default:
                yield one.name


def project_options() -> dict[str, Any]:
    """Return the options that the project sets in ``[tool.uma]``, in their final form, by name.

    Raises:
        ProjectError: as `find_project`; or a value is wrong.
    """
    project = find_project()
    options: dict[str, Any] = {}
    for one in dataclasses.fields(BuildOptions):
        if project is not None and one.metadata["in_project"] and one.name in project.settings:
            try:
                options[one.name] = one.metadata["check"](project.settings[one.name])
            except UsageError as error:
                raise ProjectError(error.what, where=f"{project.path}, in [tool.uma]", hint=error.hint) from error
    return options


def flags(command: str = "build") -> Iterator[tuple[str, str, Flag]]:
    """Yield (option, name of the parsed argument, flag) for each option with a flag that has an effect in ``command``,
    by default for all."""
    for one in dataclasses.fields(BuildOptions):
        flag: Flag | None = one.metadata["flag"]
        if flag is not None and command in one.metadata["commands"]:
            yield one.name, (flag.spelling or one.name).replace("-", "_"), flag
