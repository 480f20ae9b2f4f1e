"""The command line: ``uma build``, ``uma run``, ``uma verify``, ``uma explain``, ``uma plan``, ``uma report``,
``uma quantize``, ``uma export``, ``uma trace``, ``uma targets``, ``uma plugins``, ``uma new-plugin``, ``uma check``,
``uma doctor``; and ``uma KIND``, the command that the plugin of a target kind brings.

Each command is a module of its name with ``add(commands)``, which declares its arguments and must be cheap, and a
function that does the work and imports what that takes. Exit codes are those of `uma.errors`; a command that a signal
ends gives 128 and the signal's number, as shells do.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import NoReturn

from ..errors import InternalError, RequirementError, UmaError, UnknownKindError, UsageError
from ..support.interruptible import has_running_calls
from ..version import __version__
from . import (
    build,
    check,
    doctor,
    explain,
    export,
    new_plugin,
    plan,
    plugins,
    quantize,
    report,
    run,
    targets,
    trace,
    verify,
)
from .output import Output, own_stdout

__all__ = ["COMMANDS", "main"]

_RESEND_S = 0.01
"""How long after a lost interrupt its signal is sent again: by then the finaliser that lost it has returned."""

_COMPLETING = "_ARGCOMPLETE"
"""Set in the environment where a shell asks for completions of the line that is being written."""

_COMMANDS = (
    *(build, run, verify, explain, plan, report, quantize, export, trace),
    *(targets, plugins, new_plugin, check, doctor),
)

COMMANDS = tuple(module.__name__.rpartition(".")[2].replace("_", "-") for module in _COMMANDS)
"""The words that call them."""

EPILOG = """\
uma KIND ... runs the command that the plugin of a target kind brings, if it has one: see uma KIND --help

exit codes: 0 done; 1 a fault of UMA; 2 usage; 3 bad model or input; 4 a stated requirement is not met; 5 plugin;
6 toolchain; 7 verification differs
"""


class _Parser(argparse.ArgumentParser):
    """Reports errors as `UsageError` with the nearest valid name, and accepts obvious variants of a flag's name."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"see {self.prog} --help")

    def parse_known_args(  # type: ignore[override]  # argparse has an overload for each type of namespace
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = list(sys.argv[1:] if args is None else args)
        if self._subparsers is None:  # else most of the words belong to a command
            end = words.index("--") if "--" in words else len(words)
            words[:end] = [self._flag(word) if word.startswith("--") else word for word in words[:end]]
        return super().parse_known_args(words, namespace)

    def _flag(self, word: str) -> str:
        """Return ``--max_ram=1`` or ``--targets`` as ``--max-ram=1`` and ``--target``; an unknown flag is an error."""
        name, equals, value = word.partition("=")
        dashed = name.replace("_", "-")
        for known in (name, dashed, dashed.removesuffix("s"), f"{dashed}s"):
            if known in self._option_string_actions:
                return f"{known}{equals}{value}"
        from ..support.opt_ins import REPLACED
        from ..targets.values import shown, suggest

        if (option := dashed.removeprefix("--")) in REPLACED:
            hint = "write --allow {}={}".format(*REPLACED[option])
            raise UsageError(f"the flag {dashed} was replaced by --allow", hint=hint)
        flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
        commands = [parser.prog for parser in _parsers() if dashed in parser._option_string_actions]
        if commands:
            what = f"{dashed} has no effect in {self.prog}"
            raise UsageError(what, hint=f"it has one in {', '.join(commands)}; see {self.prog} --help")
        raise UsageError(f"unknown flag {shown(name)}", hint=f"{suggest(name, flags)}see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is None or value in action.choices:
            return
        from ..targets.values import shown, suggest

        choices = [str(choice) for choice in action.choices]
        what = f"argument {'/'.join(action.option_strings) or action.metavar}: invalid choice: {shown(value)}"
        if isinstance(action, argparse._SubParsersAction):
            what = f"unknown command {shown(value)}"
        raise UsageError(what, hint=f"{suggest(str(value), choices)}choose from {', '.join(choices)}")


class _Help(argparse.RawDescriptionHelpFormatter):
    """Has room for the longest command: argparse forgets that commands are indented."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            longest = max(map(len, action.choices)) + self._current_indent + 2 * self._indent_increment
            self._action_max_length = max(self._action_max_length, longest)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="uma",
        description="Compile neural networks for hardware that is supported by plugins.",
        epilog=EPILOG,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"uma {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return parser


def _parsers() -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of each command."""
    for action in _parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments; those of the process by default.

    Returns:
        The exit code. ``--help`` and ``--version`` leave through `SystemExit`, as argparse does it.
    """
    if argv is None and _COMPLETING in os.environ:
        from .completion import complete

        return complete(_parser())
    if argv is None:
        _open_standard_streams()
    arguments = sys.argv[1:] if argv is None else argv
    out = Output(sys.stdout, as_json="--json" in arguments)  # until the arguments are understood

    def warn(message: Warning | str, *_: object, **__: object) -> None:
        out.complain(f"uma: warning: {message}")

    with _signals() as received, warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.showwarning = warn
        try:
            if arguments and _is_of_a_plugin(arguments[0]):
                from .plugin_command import run_own

                code: int = run_own(arguments[0], arguments[1:])
                out.finish()
                return code
            args = _parser().parse_args(arguments)
            stdout = stack.enter_context(own_stdout())
            out = Output(stdout, as_json=args.json, quiet=args.quiet, verbose=args.verbose)
            if out.verbose:
                _say_project(out)
            code = args.run(args, out)
            out.finish()
            return code
        except UnknownKindError as error:
            _suggest_target(error)
            return out.fail(error)
        except UmaError as error:
            return out.fail(error)
        except BrokenPipeError:
            # Whoever read the output has seen enough; the exit code must not say that all is done.
            out.abandon()
            return 128 + signal.SIGPIPE
        except KeyboardInterrupt:
            return _interrupted(out, received, may_exit=argv is None)
        except MemoryError as error:
            shortage = RequirementError("there is not enough memory", hint="make some free, or take a smaller model")
            shortage.__cause__ = error
            return out.fail(shortage)
        except Exception as error:  # noqa: BLE001 - the last resort: no traceback reaches a user unasked
            if received:  # while a module was imported, which made of the interrupt an error of its own
                return _interrupted(out, received, may_exit=argv is None)
            hint = "this is a fault of UMA; please report it with the output of the same command and -v"
            fault = InternalError(f"internal error: {type(error).__name__}: {error}", hint=hint)
            fault.__cause__ = error
            return out.fail(fault)


def _open_standard_streams() -> None:
    """Open the null device for each standard stream that is closed, so that no other file gets its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def _suggest_target(error: UnknownKindError) -> None:
    """Put the target in the hint whose attribute the unknown kind may be meant for, asking plugins in a child."""
    from ..plugins import default_host
    from .isolated_call import PLUGIN_SECONDS, ChildFailed, run_in_child

    host = default_host()
    with contextlib.suppress(ChildFailed):
        if target := run_in_child(lambda: host.suggest_target(error.kind), PLUGIN_SECONDS):
            error.hint = f"did you mean {target!r}?"


def _say_project(out: Output) -> None:
    """Say on stderr which file the project's settings are from."""
    from ..support.project_file import ProjectError, find_project

    try:
        project = find_project()
    except ProjectError:
        return  # which a command that needs its settings reports
    if project is not None and project.settings:
        out.complain(f"note: the project file {project.path} is in force")


def _is_of_a_plugin(word: str) -> bool:
    """Whether the first word of the arguments is a kind of an installed plugin, and no command of the core."""
    if word.startswith("-") or word in COMMANDS:
        return False
    from ..plugins import default_host

    return default_host().promises(word)


def _interrupted(out: Output, received: Sequence[int], may_exit: bool) -> int:
    """Say that a signal ended the command, and give the exit code.

    Args:
        out: where to say it.
        received: the signals that came.
        may_exit: whether the process is this command's, and ends with it.
    """
    out.complain("uma: interrupted")
    code = 128 + (received[0] if received else signal.SIGINT)
    if may_exit and has_running_calls():
        # Libraries of numerics that are at work in another thread let `exit` wait until they have finished.
        with contextlib.suppress(OSError):  # the reader of stdout or stderr has closed it
            out.finish()
        atexit._run_exitfuncs()
        os._exit(code)
    return code


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt on SIGINT and SIGTERM, so that nothing is left half-written; yield the signals received.

    Python discards what a handler raises in a finaliser or in a callback of a weak reference: the signal is then sent
    once more.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # signals are not this thread's business
        return

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        received.append(number)
        raise KeyboardInterrupt

    report_unraisable = sys.unraisablehook

    def send_again(unraisable: sys.UnraisableHookArgs) -> None:
        if received and isinstance(unraisable.exc_value, KeyboardInterrupt):
            threading.Timer(_RESEND_S, os.kill, (os.getpid(), received[-1])).start()
        else:
            report_unraisable(unraisable)

    # Who starts a command in the background may have Ctrl-C ignored; None is a handler that is not Python's.
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    sys.unraisablehook = send_again
    try:
        yield received
    finally:
        sys.unraisablehook = report_unraisable
        for number, handler in before.items():
            signal.signal(number, handler)
