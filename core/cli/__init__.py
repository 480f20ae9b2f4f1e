"""The command line: ``uma build``, ``uma run``, ``uma verify``, ``uma targets``.

Each command is a module with ``add(subparsers)``, which declares its arguments and must be cheap, and a function
that does the work and imports what that takes. Exit codes are those of `uma.errors`.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Sequence

from ..errors import UmaError
from ..version import __version__
from . import build, run, targets, verify

__all__ = ["main"]

EPILOG = """\
exit codes: 0 done; 1 a fault of UMA; 2 usage; 3 bad model or input; 4 a stated requirement is not met; 5 plugin;
6 toolchain; 7 verification differs
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="uma",
        description="Compile neural networks for hardware that is supported by plugins.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"uma {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (build, run, verify, targets):
        command.add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments; those of the process by default.

    Returns:
        The exit code. Argument errors and ``--help`` leave through `SystemExit`, as argparse does it.
    """
    args = _parser().parse_args(argv)
    try:
        code: int = args.run(args)
        return code
    except UmaError as error:
        _report(error.what, error.where, error.hint, str(error), error.exit_code, args)
        if args.verbose:
            traceback.print_exc()
        return error.exit_code
    except BrokenPipeError:
        # Whoever read the output has seen enough. Python would complain once more when it closes stdout.
        sys.stdout = None
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - the last resort: no traceback reaches a user unasked
        what = f"internal error: {type(error).__name__}: {error}"
        hint = "this is a fault of UMA; please report it with the output of the same command and -v"
        _report(what, None, hint, f"{what}\n  hint: {hint}", 1, args)
        if args.verbose:
            traceback.print_exc()
        return 1


def _report(
    what: str, where: str | None, hint: str | None, text: str, exit_code: int, args: argparse.Namespace
) -> None:
    print(f"uma: error: {text}", file=sys.stderr)
    if args.json:
        error = {"what": what, "where": where, "hint": hint, "exit_code": exit_code}
        print(json.dumps({"schema_version": 1, "error": error}, indent=2))
