"""Limits on what a model may take, as commands are given them."""

from __future__ import annotations

import argparse
import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..option_values import Limit

__all__ = ["add_limit_argument", "amount", "max_ram"]


def add_limit_argument(parser: argparse.ArgumentParser) -> None:
    """``--max-ram``, of commands that look at what `uma build` makes with it; read by `max_ram`."""
    parser.add_argument(
        "--max-ram",
        metavar="AMOUNT",
        type=functools.partial(amount, "max-ram"),
        help="as for uma build: run layers row by row as far as that takes; for example 64K (default: max-ram of the "
        "project, if it has one)",
    )


def max_ram(args: argparse.Namespace) -> Limit | None:
    """The limit on RAM: of ``--max-ram``, else the project's; None where there is none."""
    from ..reports.limits import Limit, project_limits

    given: int | None = args.max_ram
    return project_limits().get("max-ram") if given is None else Limit(given, "--max-ram")


def amount(name: str, text: str) -> int:
    """``64K`` as a number."""
    from ..reports.limits import parse_amount

    try:
        return parse_amount(text, name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
