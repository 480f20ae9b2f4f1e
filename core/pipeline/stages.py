"""The build, stage by stage. Each stage takes one form and gives another; all forms print, and what is printed can be
built on: a stage leaves alone what is past it already.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import InternalError
from ..program import Program
from ..program import verify as verify_program
from ..relay.expr import GlobalVar
from ..relay.module import AnyFunction, IRModule
from ..relay.transform import canonicalise
from ..relay.verify import verify as verify_module
from ..tir.nodes import PrimFunc
from ..tir.simplify import simplify
from .fuse import fuse
from .lower import lower
from .sequence import sequence

__all__ = ["STAGES", "Form", "run", "simplify_all"]

Form = IRModule | Program


def simplify_all(module: IRModule) -> IRModule:
    """``module`` with all loops simplified."""
    functions: dict[GlobalVar, AnyFunction] = {
        var: simplify(function) if isinstance(function, PrimFunc) else function
        for var, function in module.functions.items()
    }
    return IRModule(functions, module.spans, module.signature)


_ON_MODULES: dict[str, Callable[[IRModule], IRModule]] = {
    "import": lambda module: module,
    "canonicalise": canonicalise,
    "fuse": fuse,
    "lower": lower,
    "simplify": simplify_all,
}

STAGES: tuple[str, ...] = (*_ON_MODULES, "sequence")
"""In order: the model as imported; canonical relay; relay with the host's kernels grouped; loops; simplified loops;
the program, which is the list of calls."""


def run(form: Form, name: str, until: str = STAGES[-1], after: Callable[[str, Form], None] | None = None) -> Form:
    """Bring ``form`` through the stages.

    Args:
        form: a module at any stage, or a program.
        name: of the model, an ASCII identifier.
        until: the last stage to run, one of `STAGES`.
        after: told of every stage's name and result.

    Returns:
        The form after ``until``; a program stays what it is.

    Raises:
        ModelError: the model cannot be lowered.
        InternalError: a form does not hold what it should; names the stage.
    """
    for stage in STAGES[: STAGES.index(until) + 1]:
        if isinstance(form, IRModule):
            try:
                form = sequence(form, name) if stage == "sequence" else _ON_MODULES[stage](form)
                verify_program(form) if isinstance(form, Program) else verify_module(form)
            except InternalError as error:
                place = f"stage {stage!r}, {error.where}" if error.where else f"stage {stage!r}"
                raise InternalError(error.what, where=place, hint=error.hint) from error
            if after is not None:
                after(stage, form)
    return form
