"""Who decides what goes where: the options that say so."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..partition import Partitioner

__all__ = ["add_partition_arguments", "partitioner_of"]


def add_partition_arguments(parser: argparse.ArgumentParser) -> None:
    """``--partition``, ``--costs`` and ``--plan``, which are read by `partitioner_of`."""
    parser.add_argument(
        "--partition",
        metavar="NAME",
        default="eager",
        help="who decides what goes where: eager (the default), by which each target in turn takes all that it can; "
        "collage, which looks for the cheapest placement; or a partitioner that a plugin brings",
    )
    parser.add_argument(
        "--costs",
        metavar="FILE.json",
        type=Path,
        help="with collage: a table of costs, which counts first",
    )
    parser.add_argument(
        "--plan", metavar="FILE.json", type=Path, help="repeat what uma plan decided, without measuring anything"
    )


def partitioner_of(args: argparse.Namespace) -> str | Partitioner:
    """Who decides what goes where, as ``--partition``, ``--costs`` and ``--plan`` say.

    Raises:
        UsageError: they do not go together, or a file is none of those.
    """
    from ..partition import Collage, CostTable, Planned

    if args.plan is not None:
        if args.partition != "eager" or args.costs is not None:
            hint = "leave out --partition and --costs: they made the plan"
            raise UsageError("--plan says what goes where", hint=hint)
        return Planned.read(args.plan)
    if args.costs is not None:
        if args.partition != "collage":
            raise UsageError("--costs is for the partitioner 'collage'", hint="give --partition collage as well")
        return Collage(costs=CostTable.read(args.costs))
    partition: str = args.partition
    return partition
