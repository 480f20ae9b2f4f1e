"""What a schedule has made so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..form.nodes import For, LoopKind, PrimFunc, Stmt, Var
from ..proofs.intervals import Bounds
from .sites import Names, Site, illegal, loop_site, replace_statement, simplify_expressions

__all__ = ["LAST", "State"]

LAST = -1
"""Where a loop is cut whose extent is not known yet: before its last iteration, if loops in that are shorter."""


@dataclass(frozen=True)
class State:
    """A function, and what is done to its loops last, when copies of them have constant extents.

    Args:
        func: the function.
        cuts: for the variable of a loop, the iterations before which it will be parted, `LAST` among them.
        kinds: for the variable of a loop, the kind that it will have.
        known: nothing; with what was simplified before.
        is_tidy: whether expressions are simplified at each step, not only at last.
        heights: how many rows parameters have, by name, where it will have a row form; None where not.
    """

    func: PrimFunc
    cuts: Mapping[Var, tuple[int, ...]] = field(default_factory=dict)
    kinds: Mapping[Var, LoopKind] = field(default_factory=dict)
    known: Bounds = field(default_factory=lambda: Bounds({}))
    is_tidy: bool = True
    heights: Mapping[str, int] | None = None

    def names(self) -> Names:
        """The names that are taken."""
        return Names(self.func)

    def put(self, old: Stmt, new: Stmt) -> State:
        """``new`` in the place of ``old``, and all expressions simplified."""
        return replace(self, func=replace(self.func, body=replace_statement(self.func.body, old, new))).tidy()

    def tidy(self) -> State:
        """This with its expressions simplified."""
        return (
            replace(self, func=replace(self.func, body=simplify_expressions(self.func.body, self.known)))
            if self.is_tidy
            else self
        )

    def loop(self, var: Var | str) -> tuple[Site, For]:
        """A loop, and where it stands."""
        site = loop_site(self.func, var)
        assert isinstance(site.stmt, For)
        return site, site.stmt

    def plain_loop(self, var: Var | str, doing: str) -> tuple[Site, For]:
        """A loop that was not told how to run yet: ``doing`` something to it comes before."""
        site, loop = self.loop(var)
        kind = self.kinds.get(loop.var, loop.kind)
        if kind != "serial" or loop.var in self.cuts:
            what = kind if kind != "serial" else "peeled"
            raise illegal(
                f"loop {loop.var.name!r} is {what}: it cannot be {doing} any more", f"do that before it is {what}"
            )
        return site, loop

    def uncut_loop(self, var: Var | str, doing: str) -> tuple[Site, For]:
        """A loop that was not told how to run yet, but may be parted."""
        site, loop = self.loop(var)
        return self.plain_loop(var, doing) if loop.var in self.kinds else (site, loop)

    def marked(self, var: Var, kind: LoopKind) -> State:
        """The loop over ``var`` will be of that kind."""
        return replace(self, kinds={**self.kinds, var: kind})

    def cut(self, var: Var, at: int) -> State:
        """The loop over ``var`` will be parted before iteration ``at``."""
        return replace(self, cuts={**self.cuts, var: tuple(sorted({*self.cuts.get(var, ()), at}))})
