"""Arguments that commands share, and the inputs of a model that they describe."""

from __future__ import annotations

import argparse
import io
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ModelError, UsageError
from ..options import BuildOptions, Flag, flags, project_options
from ..support.opt_ins import split_key
from ..support.regular_files import open_plain, unreadable
from .partition_options import add_partition_arguments, partitioner_of

if TYPE_CHECKING:
    import numpy as np

    from ..artifact import Artifact, TensorRecord
    from ..frontends.dynamic_shapes import AskedShape
    from ..lowering.build_targets import BuildTargets
    from ..option_values import Allowed
    from ..pipeline.kept_model import KeptModel
    from ..pipeline.loading import LoadedModel
    from ..plugins import PluginHost
    from .output import Output

__all__ = [
    "add_input_arguments",
    "add_model_arguments",
    "add_model_or_artifact",
    "add_output_arguments",
    "add_plugin_arguments",
    "add_target_argument",
    "argument_type",
    "find_members",
    "given_inputs",
    "make_inputs",
    "model_or_artifact",
    "plugin_host",
    "read_kept",
    "read_model",
    "shapes",
    "states",
    "target_text",
]

_BUILD_OPTIONS = ("target", *(argument for _, argument, _ in flags("explain")), "plan", "costs")
"""The arguments of a build, which an artifact records."""

_GROUPS = {
    "target": "target and model",
    "memory": "memory and limits",
    "placement": "placement",
    "numerics": "numerics",
    "output": "output",
}
"""The headings of ``--help`` by groups of flags."""

_SOURCES = "write NAME=@FILE.npy or NAME=random:SEED"
_SEED = re.compile(r"[0-9]{1,40}")


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """``--json``, ``-q`` and ``-v``, which every command has."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("-q", "--quiet", action="store_true", help="print no text but errors")
    amount.add_argument("-v", "--verbose", action="store_true", help="say more, and where errors come from")


def add_model_arguments(
    parser: argparse.ArgumentParser, command: str, *, target_required: bool = True
) -> Mapping[str, argparse._ArgumentGroup]:
    """Declare the flags of a build that have an effect in ``command``, in groups; return these by name."""
    groups = {name: parser.add_argument_group(title) for name, title in _GROUPS.items()}
    for name, group in groups.items():
        if name == "target":
            add_target_argument(group, required=target_required)
        options = [(argument, flag) for _, argument, flag in flags(command) if flag.group == name]
        for argument, flag in options:
            _add_flag(group, argument, flag)
        if name == "target":
            add_plugin_arguments(group)
        elif name == "placement" and options:
            add_partition_arguments(group)
    return groups


def _add_flag(parser: argparse._ActionsContainer, argument: str, flag: Flag) -> None:
    """Declare the flag that is parsed as ``argument``."""
    spelling = f"--{argument.replace('_', '-')}"
    if flag.repeated:
        parser.add_argument(spelling, metavar=flag.metavar, action="append", default=[], help=flag.help)
    else:
        parser.add_argument(
            spelling, metavar=flag.metavar, type=argument_type(flag.parse or str), choices=flag.choices, help=flag.help
        )


def argument_type(parse: Callable[[str], object]) -> Callable[[str], object]:
    """Return ``parse`` for argparse, which prints the text of its ValueError unless it is a class."""

    def parsed(text: str) -> object:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse if isinstance(parse, type) else parsed


def add_model_or_artifact(parser: argparse.ArgumentParser, command: str) -> None:
    """The argument ``model`` of commands that read an artifact as well, by `read_kept`, and how to build a model."""
    parser.add_argument(
        "model",
        metavar="MODEL|ARTIFACT",
        type=Path,
        help="a TFLite or ONNX file, or a stage's text (.py); or an artifact, folder or .zip, which takes no option of "
        "uma build",
    )
    add_model_arguments(parser, command, target_required=False)


def add_target_argument(parser: argparse._ActionsContainer, *, required: bool = True) -> None:
    """``--target``, which is looked up by `find_members`."""
    parser.add_argument(
        "--target",
        metavar="T",
        action="append",
        required=required,
        help="what to build for: c, 'c -opt=2', a FILE.json, or a name that the project gives; repeat it for "
        "accelerators, in order of priority, and their host",
    )


def add_plugin_arguments(parser: argparse._ActionsContainer) -> None:
    """Which of the installed plugins count."""
    parser.add_argument(
        "--disable-plugin",
        metavar="PLUGIN",
        action="append",
        default=[],
        help="go on as if this plugin were not installed, named by its distribution or one of its target kinds; may be "
        "repeated",
    )


def plugin_host(args: argparse.Namespace) -> PluginHost:
    """The installed plugins, less those that ``--disable-plugin`` names.

    Raises:
        UsageError: there is no such plugin.
    """
    from ..plugins import default_host

    return default_host().without(*args.disable_plugin) if args.disable_plugin else default_host()


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the values of the model's inputs come from."""
    parser.add_argument("--inputs", metavar="IN.npz", type=Path, help="arrays under the inputs' names")
    parser.add_argument(
        "--input",
        metavar="NAME=SOURCE",
        action="append",
        default=[],
        help="one input, which goes before --inputs: NAME=@X.npy, or NAME=random:SEED; may be repeated (default: "
        "random:0 for the first, random:1 for the second, ...)",
    )


def find_members(args: argparse.Namespace, out: Output) -> BuildTargets:
    """The targets that ``--target`` names; what was decided about them is said.

    Raises:
        UsageError: one is malformed, or they do not go together, as `resolve_targets` has it; or a file cannot be read.
        PluginError: a target's plugin is at fault.
    """
    from ..lowering.build_targets import resolve_targets
    from ..partition import SavedPlan
    from ..targets.config import derivations
    from ..tuning import with_costs

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        targets = [target_text(text) for text in args.target]
        partitioner = partitioner_of(args)
        members = with_costs(resolve_targets(targets, plugin_host(args), partitioner))
    for warning in caught:
        out.complain(f"uma: warning: {warning.message}")
    if not out.quiet:
        models = [member.target for member in members.all]
        for note in (*members.notes, *(derivations(models) if out.verbose else ())):
            out.complain(f"note: {note}")
    if isinstance(partitioner, SavedPlan):
        for difference in partitioner.differences(members.texts, members.versions):
            out.complain(f"uma: warning: {difference}")
    return members


def read_model(args: argparse.Namespace, out: Output) -> tuple[BuildTargets, LoadedModel]:
    """The targets, and the model that is to be built for them, as the options of `add_model_arguments` say.

    Raises:
        UsageError, ModelError, PluginError: as for `find_members` and `uma.pipeline.loading.read_model`.
    """
    from ..pipeline import loading

    members = find_members(args, out)
    out.step("import")
    return members, loading.read_model(args.model, members, _options(args, members))


def _options(args: argparse.Namespace, members: BuildTargets) -> BuildOptions:
    """Return the options of the command line, with the project's where it has none.

    Raises:
        UsageError: a flag or a setting of the project is malformed.
        ModelError: a file of ``--constant`` does not hold one array.
    """
    from ..reports.limits import project_limits

    project = project_options()
    values = {name: getattr(args, argument) for name, argument, _ in flags(args.command)}
    values |= {
        "shapes": shapes(args),
        "states": states(args),
        "constants": _constants(args),
        "pins": _pins(args),
        "allow": _allow(args, members, project.get("allow")),
        "io": args.io or project.get("io"),
    }
    if "max_ram" in values and getattr(args, "stop_after", None) is None:
        values["max_ram"] = args.max_ram or project_limits().get("max-ram")
    return BuildOptions(**{name: value for name, value in values.items() if value is not None})


def read_kept(args: argparse.Namespace, out: Output, doing: str) -> tuple[Artifact | None, KeptModel]:
    """The artifact, where the argument ``model`` names one; and the model, with its targets.

    Args:
        args: the command's arguments, those of `add_model_arguments` among them.
        doing: as for `model_or_artifact`.

    Raises:
        UsageError, ModelError, PluginError: as for `model_or_artifact`, `read_kept_model` and `read_model`.
    """
    from ..pipeline.kept_model import KeptModel
    from ..pipeline.rebuild import read_kept_model

    if (artifact := model_or_artifact(args, doing)) is not None:
        out.step("build again")
        return artifact, read_kept_model(artifact, plugin_host(args))
    members, loaded = read_model(args, out)
    return None, KeptModel(loaded, members)


def model_or_artifact(args: argparse.Namespace, doing: str) -> Artifact | None:
    """The artifact, where the argument ``model`` is the folder of one; None where it is a file.

    Args:
        args: the command's arguments, those of `add_model_arguments` among them.
        doing: what the command does with it, for the error of a file without a target.

    Raises:
        UsageError: there is nothing of that name, or what goes with model files only was given, or is missing.
        ModelError: the artifact is damaged, or of another version.
    """
    from ..artifact.archive import is_artifact

    if is_artifact(args.model):
        from ..api import refuse_options
        from ..artifact import load

        refuse_options([f"--{name.replace('_', '-')}" for name in _BUILD_OPTIONS if getattr(args, name, None)])
        return load(args.model)
    try:
        os.stat(args.model)
    except FileNotFoundError as error:
        hint = "name a model file, or what uma build wrote"
        raise UsageError(f"there is no file {args.model}", hint=hint) from error
    except (OSError, ValueError) as error:  # ValueError: there is a null character in the path
        raise unreadable(args.model, error) from error
    if not args.target:
        raise UsageError(f"{doing} a model file needs --target", hint="for example --target c")
    return None


def target_text(text: str) -> str:
    """The text of a target, read from the file where ``text`` is the name of one: it ends with ``.json``.

    Raises:
        UsageError: the file cannot be read, or is larger than a target may be.
    """
    if not text.endswith(".json") or text.lstrip()[:1] in ("{", "["):
        return text
    from ..targets.text import MAX_JSON_CHARS

    try:
        with io.TextIOWrapper(open_plain(text), encoding="utf-8") as file:
            content = file.read(MAX_JSON_CHARS + 1)
    except (OSError, ValueError) as error:
        raise unreadable(text, error, "the target's file") from error
    if content.lstrip()[:1] not in ("{", "["):
        raise UsageError("the file holds no JSON object and no list", where=text, hint='write it like {"kind": "c"}')
    return content


def shapes(args: argparse.Namespace) -> dict[str, AskedShape]:
    """The shapes that ``--shape`` gives, by the name of an input, or of a dimension.

    Raises:
        UsageError: one is malformed, or an input has two.
    """
    from ..frontends.dynamic_shapes import read_extent

    shapes_by_name: dict[str, AskedShape] = {}
    for text in args.shape:
        name, _, extents = text.rpartition("=")
        read = [read_extent(extent if name else "", f"--shape {text!r}") for extent in extents.split(",")]
        if name in shapes_by_name:
            raise UsageError(f"--shape gives {name!r} twice")
        shapes_by_name[name] = tuple(extent if isinstance(extent, int) else "{}..{}".format(*extent) for extent in read)
    return shapes_by_name


def _constants(args: argparse.Namespace) -> dict[str, bool | int | float | np.ndarray]:
    """The values that ``--constant`` fixes inputs to, by input name.

    Raises:
        UsageError: one is malformed, an input has two, or a file cannot be opened.
        ModelError: a file does not hold one array.
    """
    constants: dict[str, bool | int | float | np.ndarray] = {}
    for text in args.constant:
        name, _, value = text.partition("=") if "=@" not in text else text.partition("=@")
        if not name or not value:
            raise UsageError(f"--constant {text!r} is not a constant", hint=_CONSTANT)
        if name in constants:
            raise UsageError(f"--constant gives {name!r} twice")
        constants[name] = _array_of(Path(value)) if f"{name}=@" == text[: len(name) + 2] else _number_of(text, value)
    return constants


_CONSTANT = "write NAME=0.5, NAME=3, NAME=true or NAME=@FILE.npy"


def _number_of(text: str, value: str) -> bool | int | float:
    if value in ("true", "false"):
        return value == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    raise UsageError(f"--constant {text!r} is not a constant", hint=_CONSTANT)


def _array_of(path: Path) -> np.ndarray:
    """The one array of an ``.npy`` file."""
    from ..runtime.files import read_arrays

    arrays = read_arrays(path)
    if list(arrays) != [""]:
        raise ModelError("the file holds named arrays, not one", where=str(path), hint="write it with numpy.save")
    return arrays[""]


def states(args: argparse.Namespace) -> dict[str, str]:
    """The outputs that ``--state`` pairs with inputs, by input name.

    Raises:
        UsageError: one is malformed, or an input has two.
    """
    return _pairs("state", "an input and an output", "INPUT=OUTPUT", (text.partition("=") for text in args.state))


def _pins(args: argparse.Namespace) -> dict[str, str]:
    """The labels that ``--pin`` pins layers to, by patterns of their names.

    Raises:
        UsageError: one is malformed, or a pattern has two.
    """
    # A layer's name may have a = in it, a label has none.
    return _pairs("pin", "a layer and a label", "LAYER=LABEL", (text.rpartition("=") for text in args.pin))


def _allow(args: argparse.Namespace, members: BuildTargets, project: Allowed | None) -> dict[str, str]:
    """The opt-ins that ``--allow`` gives; and those of the project that the build can use, unless ``--allow`` gives any
    of the same subject.

    Raises:
        UsageError: one is malformed, or given twice.
    """
    # A layer's name may have a = in it, a value has none.
    parts = (text.rpartition("=") for text in args.allow)
    entries = _pairs("allow", "an opt-in and its value", "rounding=fixed-point or LABEL.PASS=declared", parts)
    subjects = {split_key(key)[0] for key in entries}
    others = {} if project is None else project.entries
    others = {key: value for key, value in others.items() if split_key(key)[0] not in subjects}
    return {**{key: value for key, value in others.items() if _can_use(key, args, members)}, **entries}


def _can_use(key: str, args: argparse.Namespace, members: BuildTargets) -> bool:
    """Whether an opt-in applies to the targets, or to the format of the model file."""
    from ..frontends import is_tflite
    from ..pipeline.numerics import passes_with_tolerance

    subject, pattern = split_key(key)
    if subject == "rounding":
        return any(member.fixed_point is not None for member in members.accelerators)
    if subject == "pass":
        return any(fnmatchcase(step.name, pattern) for step in passes_with_tolerance(members))
    try:
        with open_plain(args.model) as file:
            return is_tflite(file.read(8))
    except (OSError, ValueError):  # reported where the model is read
        return False


def _pairs(option: str, what: str, form: str, triples: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """What a repeated option pairs, of which each text was parted at a ``=``."""
    pairs: dict[str, str] = {}
    for first, sign, second in triples:
        if not first or not second:
            raise UsageError(f"--{option} {first + sign + second!r} is not a pair of {what}", hint=f"write {form}")
        if first in pairs:
            raise UsageError(f"--{option} gives {first!r} twice")
        pairs[first] = second
    return pairs


def make_inputs(args: argparse.Namespace, declared: Sequence[TensorRecord]) -> dict[str, np.ndarray]:
    """An array for every input of the model, as ``--inputs`` and ``--input`` say, else random.

    Args:
        args: the command's arguments.
        declared: the inputs, as the record of an artifact has them.

    Raises:
        UsageError, ModelError: as for `given_inputs`.
    """
    from ..artifact.random_inputs import random_inputs

    return random_inputs(declared, given_inputs(args, declared))


def given_inputs(
    args: argparse.Namespace, declared: Sequence[TensorRecord], labels: str | None = None
) -> dict[str, np.ndarray]:
    """The arrays that ``--inputs`` and ``--input`` give, by the model's own names of its inputs.

    Args:
        args: the command's arguments.
        declared: the inputs, as the record of an artifact has them.
        labels: also taken from ``--inputs`` is what has this key, or one that begins with it and a colon.

    Raises:
        UsageError: an argument is malformed or names no input, or a file cannot be opened.
        ModelError: a file does not hold what it should. Shapes and dtypes are left to the session.
    """
    from ..runtime.files import read_arrays
    from ..targets.values import suggest

    rows = {row.name: row for row in declared}
    hint = f"its inputs: {', '.join(map(repr, rows)) or 'none'}"
    inputs: dict[str, np.ndarray] = {}
    for text in args.input:
        # A name may have a = in it, and so may a file's.
        name = max((n for n in rows if text.startswith(f"{n}=")), key=len, default=None)
        if name is None:
            unknown, separator, _ = text.partition("=")
            if not separator:
                raise UsageError(f"--input {text!r} names no input", hint=_SOURCES)
            raise UsageError(f"the model has no input {unknown!r}", hint=suggest(unknown, rows) + hint)
        if name in inputs:
            raise UsageError(f"--input gives {name!r} twice")
        inputs[name] = _from_source(text[len(name) + 1 :], rows[name])
    if args.inputs is None:
        return inputs
    arrays = read_arrays(args.inputs)
    if list(arrays) == [""]:
        what = "the file holds one array, without a name"
        raise ModelError(what, where=str(args.inputs), hint="give it as --input NAME=@FILE.npy")
    unknown_names = [name for name in arrays if name not in rows]
    if labels is not None:
        unknown_names = [name for name in unknown_names if name.partition(":")[0] != labels]
    if unknown_names:
        what = f"the model has no input {unknown_names[0]!r}"
        raise ModelError(what, where=str(args.inputs), hint=suggest(unknown_names[0], rows) + hint)
    return {**arrays, **inputs}


def _from_source(source: str, row: TensorRecord) -> np.ndarray:
    from ..runtime.files import read_arrays
    from ..runtime.tensors import random_array

    if source.startswith("@"):
        arrays = read_arrays(Path(source[1:]))
        if list(arrays) != [""]:
            hint = "give it as --inputs FILE.npz, under the inputs' names"
            raise ModelError("the file holds arrays with names", where=source[1:], hint=hint)
        return arrays[""]
    kind, _, seed = source.partition(":")
    if kind != "random" or not _SEED.fullmatch(seed):
        raise UsageError(f"{source!r} is not a source for the input {row.name!r}", hint=_SOURCES)
    return random_array(row.shape, row.dtype, int(seed))
