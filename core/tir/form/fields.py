"""What the fields of a node are, said once by its class, and what follows from it for all who walk and rebuild nodes.

The parameters of a class's constructor are its fields. Their annotations tell what they hold: an `Expr`, a `Stmt`
within the node, a `View`, or a tuple of these. What an annotation does not tell is said in the field's metadata:
`READ`, `WRITTEN` or `UPDATED` is what happens to a buffer, at the indices that the next field holds, or to what views
show; `DECLARED` is a variable or buffer that exists in the statements within; `LABEL` the name of the node itself. All
else is plain data.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from ...support.interning import Node, set_fact

if TYPE_CHECKING:
    from .exprs import Buffer, Expr, Var
    from .nodes import Stmt, View

__all__ = [
    "DECLARED",
    "LABEL",
    "READ",
    "TOLD",
    "UPDATED",
    "WRITTEN",
    "Access",
    "Field",
    "Fields",
    "accesses",
    "child_statements",
    "declares",
    "fields_of",
    "gathered",
    "map_fields",
    "named",
    "operands",
    "parts",
    "rebuild",
    "statements",
    "views",
    "walk",
]

READ = {"access": (True, False)}
WRITTEN = {"access": (False, True)}
UPDATED = {"access": (True, True)}
TOLD = {"access": "roles"}
"""The node's property ``roles`` tells of each view whether it is read, and whether it is written. All nodes with views
have a property ``extents``: for each, how many elements it shows along each axis."""
DECLARED = {"kind": "symbol"}
LABEL = {"kind": "label"}

Kind = Literal["expr", "stmt", "view", "buffer", "symbol", "label", "plain"]

_KINDS: dict[str, tuple[Kind, bool]] = {
    "Expr": ("expr", False),
    "tuple[Expr, ...]": ("expr", True),
    "Stmt": ("stmt", False),
    "Stmt | None": ("stmt", False),
    "tuple[Stmt, ...]": ("stmt", True),
    "View": ("view", False),
    "tuple[View, ...]": ("view", True),
    "Buffer": ("buffer", False),
}
"""By annotation: what a field holds, and whether several."""

AnyNode = TypeVar("AnyNode", bound=Node)
Fact = TypeVar("Fact")
Parts = Callable[[Any], tuple[Any, ...]]


class Field(NamedTuple):
    """One field of a node class.

    Args:
        name: of the attribute, and of the constructor's parameter.
        kind: what it holds.
        many: whether that is a tuple.
        spread: whether the constructor takes the elements of the tuple one by one.
        access: of a buffer or of views: whether it is read, and whether it is written; or the property that tells.
        annotation: as the class has it.
        default: of the parameter; ``inspect.Parameter.empty`` where it has none.
    """

    name: str
    kind: Kind
    many: bool
    spread: bool
    access: tuple[bool, bool] | str | None
    annotation: str
    default: Any

    @property
    def is_required(self) -> bool:
        """Whether the parameter has no default."""
        return self.default is inspect.Parameter.empty


class Access(NamedTuple):
    """A use of a buffer by a node itself: of the element at ``start``, or of what ``view`` shows, in the extents
    ``shape``.
    """

    buffer: Buffer
    start: tuple[Expr, ...]
    reads: bool
    writes: bool
    view: View | None = None
    shape: tuple[Expr, ...] = ()


class Fields:
    """The fields of a node class, in the order of its constructor, and what gets at them.

    Args:
        cls: the class.
    """

    def __init__(self, cls: type[Node]) -> None:
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # nodes are
        metadata = {field.name: field.metadata for field in fields}
        self.all = tuple(
            _field(parameter, metadata.get(parameter.name, {}))
            for parameter in list(inspect.signature(cls.__init__).parameters.values())[1:]
        )
        self.operands = self._getter("expr", "view")
        self.bodies = self._getter("stmt")
        self.views = self._getter("view")
        self.parts = self._parts()
        self.has_body = any(field.kind == "stmt" for field in self.all)
        self.accessed = [position for position, field in enumerate(self.all) if field.access is not None]
        self.names = [field.name for field in self.all if field.kind in ("symbol", "label")]
        self.declared = next((field.name for field in self.all if field.kind == "symbol"), None)

    def _parts(self) -> Parts:
        kinds = {field.kind for field in self.all}
        operands, bodies = self.operands, self.bodies
        if "stmt" not in kinds:
            return operands
        if not kinds & {"expr", "view"}:
            return bodies
        return lambda node: (*operands(node), *bodies(node))

    def _getter(self, kind: Kind, through: Kind | None = None) -> Parts:
        """Gives what the fields of a kind hold, and the operands of what those of kind ``through`` hold."""
        selected = [field for field in self.all if field.kind in (kind, through)]
        simple = all(field.kind == kind for field in selected)
        if not selected:
            return lambda node: ()
        if simple and len(selected) == 1 and selected[0].many:
            return attrgetter(selected[0].name)
        if simple and not any(field.many or "None" in field.annotation for field in selected):
            getter = attrgetter(*(field.name for field in selected))
            return getter if len(selected) > 1 else lambda node: (getter(node),)

        def parts(node: Any) -> tuple[Any, ...]:
            nodes: list[Any] = []
            for field in selected:
                value = getattr(node, field.name)
                value = value if field.many else () if value is None else (value,)
                for one in value:
                    nodes += (one,) if field.kind == kind else operands(one)
            return tuple(nodes)

        return parts


def _field(parameter: inspect.Parameter, metadata: Any) -> Field:
    kind, many = _KINDS.get(parameter.annotation, ("plain", False))
    spread = parameter.kind is inspect.Parameter.VAR_POSITIONAL
    kind = metadata.get("kind", kind)
    return Field(
        parameter.name, kind, many or spread, spread, metadata.get("access"), parameter.annotation, parameter.default
    )


class _FieldsByClass(dict[type[Node], Fields]):
    def __missing__(self, cls: type[Node]) -> Fields:
        fields = self[cls] = Fields(cls)
        return fields


_FIELDS = _FieldsByClass()


def fields_of(cls: type[Node]) -> Fields:
    """The fields of a node class."""
    return _FIELDS[cls]


# What a node consists of


def operands(node: Expr | Stmt | View) -> tuple[Expr, ...]:
    """The expressions that stand in a node itself, in the order in which its constructor takes them: not those within
    them, nor those of statements within it.
    """
    return _FIELDS[type(node)].operands(node)


def child_statements(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly within a statement, in order."""
    return _FIELDS[type(stmt)].bodies(stmt)


def parts(node: Expr | Stmt) -> tuple[Expr | Stmt, ...]:
    """The expressions that stand in a node itself, and the statements directly within it, in the order of the text."""
    return _FIELDS[type(node)].parts(node)


def views(node: Stmt) -> tuple[View, ...]:
    """The views that stand in a statement itself, in the order in which its constructor takes them."""
    return fields_of(type(node)).views(node)


def declares(stmt: Stmt) -> Var | Buffer | None:
    """The variable or buffer that exists within a statement because of it."""
    name = fields_of(type(stmt)).declared
    return None if name is None else getattr(stmt, name)


def named(node: Expr | Stmt) -> tuple[str, ...]:
    """The names that a node itself declares: of a variable or buffer, or its label."""
    fields = fields_of(type(node))
    symbols = [getattr(node, name) for name in fields.names]
    return tuple([one if isinstance(one, str) else one.name for one in symbols])


def accesses(node: Expr | Stmt) -> tuple[Access, ...]:
    """The uses of buffers by a node itself, in the order of its fields."""
    fields = _FIELDS[type(node)]
    if not fields.accessed:
        return ()
    result = []
    for position in fields.accessed:
        field = fields.all[position]
        value, access = getattr(node, field.name), field.access
        if field.kind == "buffer":
            assert isinstance(access, tuple)  # a node tells itself of views alone
            result.append(Access(value, getattr(node, fields.all[position + 1].name), *access))
            continue
        shown = value if field.many else (value,)
        roles = getattr(node, access) if isinstance(access, str) else (access,) * len(shown)
        extents = node.extents[len(result) :]  # type: ignore[union-attr]  # what has views says how much they show
        for view, (reads, writes), shape in zip(shown, roles, extents, strict=False):
            result.append(Access(view.buffer, view.start, reads, writes, view, shape))
    return tuple(result)


def walk(node: Expr | Stmt) -> Iterator[Expr | Stmt]:
    """Every node within ``node``, itself first, each distinct one once, in the order of the text."""
    seen: set[Expr | Stmt] = set()
    stack: list[Expr | Stmt] = [node]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        stack += _FIELDS[type(node)].parts(node)[::-1]


def statements(stmt: Stmt) -> Iterator[Stmt]:
    """Every statement within ``stmt``, itself first, each distinct one once, in the order of the text."""
    seen: set[Stmt] = set()
    stack = [stmt]
    while stack:
        stmt = stack.pop()
        if stmt not in seen:
            seen.add(stmt)
            yield stmt
            stack += child_statements(stmt)[::-1]


def gathered(function: Callable[[Expr | Stmt, list[Fact]], Fact]) -> Callable[[Expr | Stmt], Fact]:
    """What ``function`` says of a node, never None, given what it says of the `parts`: computed once for each node that
    has any, and kept as long as that is. However deep the node is, this does not recurse.
    """

    def cached_fact(node: Expr | Stmt) -> Fact | None:
        facts = getattr(node, "_facts", None)
        if facts is not None and function in facts:
            return cast(Fact, facts[function])
        return None if parts(node) else function(node, [])

    @wraps(function)
    def asked(node: Expr | Stmt) -> Fact:
        result = cached_fact(node)
        pending = [node] if result is None else []
        while pending:
            part_facts = [(part, cached_fact(part)) for part in parts(pending[-1])]
            missing = [part for part, fact in part_facts if fact is None]
            if missing:
                pending += missing
                continue
            top = pending.pop()
            result = function(top, [fact for _, fact in part_facts if fact is not None])
            set_fact(top, function, result)
        assert result is not None
        return result

    return asked


# A node with other parts


def _same(value: Any) -> Any:
    return value


def rebuild(node: AnyNode, exprs: Sequence[Expr], inner: Sequence[Stmt] = ()) -> AnyNode:
    """``node`` with its `operands` and `child_statements` replaced; itself where they are the same.

    Args:
        node: an expression, a statement or a view.
        exprs: as many as `operands` gives of it, in that order, each of the same dtype.
        inner: as many as `child_statements` gives of it, in that order.
    """
    fields = _FIELDS[type(node)]
    # Nodes are equal if they are the same.
    if tuple(exprs) == fields.operands(node) and tuple(inner) == fields.bodies(node):
        return node
    rest, statements = iter(exprs), iter(inner)
    args: list[Any] = []
    for field in fields.all:
        value = getattr(node, field.name)
        if field.kind == "expr":
            value = tuple(islice(rest, len(value))) if field.many else next(rest)
        elif field.kind == "stmt" and value is not None:
            value = tuple(islice(statements, len(value))) if field.many else next(statements)
        elif field.kind == "view":
            views = [
                rebuild(view, tuple(islice(rest, len(view.start)))) for view in (value if field.many else (value,))
            ]
            value = tuple(views) if field.many else views[0]
        args += value if field.spread else (value,)
    return cast(AnyNode, node.from_fields(*args))


def map_fields(
    node: AnyNode,
    *,
    expr: Callable[[Expr], Expr] = _same,
    element: Callable[[Buffer, tuple[Expr, ...]], tuple[Buffer, tuple[Expr, ...]]] | None = None,
    view: Callable[[View], View] | None = None,
    symbol: Callable[[Any], Any] = _same,
    label: Callable[[str], str] = _same,
    body: Callable[[Stmt], Stmt] = _same,
) -> AnyNode:
    """``node`` with each of its fields replaced by what a function gives for it, in the order of the fields; itself
    where they are the same.

    Args:
        node: an expression, a statement or a view.
        expr: for each of its operands.
        element: for a buffer that it uses and the indices; by default the same buffer, at what ``expr`` gives.
        view: for a view in it; by default the one from what ``element`` gives on.
        symbol: for the variable or buffer that it declares.
        label: for its label.
        body: for a statement within it; called after the others.
    """

    def at(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        return buffer, tuple([expr(index) for index in indices])

    element = element or at

    def shown(old: View) -> View:
        return map_fields(old, expr=expr, element=element)

    maps: dict[Kind, Callable[[Any], Any]] = {"expr": expr, "stmt": body, "view": view or shown}
    maps |= {"symbol": symbol, "label": label, "plain": _same}
    fields = _FIELDS[type(node)].all
    old = [getattr(node, field.name) for field in fields]
    new: list[Any] = []
    for position, (field, held) in enumerate(zip(fields, old, strict=True)):
        if field.kind == "buffer":
            new += element(held, old[position + 1])
        elif position == len(new):  # else they are the indices of the buffer before
            change = maps[field.kind]
            new.append(tuple([change(one) for one in held]) if field.many else None if held is None else change(held))
    if new == old:  # nodes are equal if they are the same
        return node
    args = [one for field, held in zip(fields, new, strict=True) for one in (held if field.spread else (held,))]
    return cast(AnyNode, node.from_fields(*args))
