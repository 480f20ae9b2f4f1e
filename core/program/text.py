"""The text form of programs: Python syntax, read with `ast`; the bytes of constants are kept beside it.

Grammar::

    text       = "@program" ["(model=" STRING ")"] NEWLINE "def" NAME "():" NEWLINE
                 INDENT { buffer } { queue } { step } DEDENT { definition | loops | extern }
    buffer     = NAME "=" role "(" dtype "," shape ["," "align(" INT ")"] { "," NAME "=" value } ")" NEWLINE
    role       = "input" | "output" | "state" | "constant" | "workspace" | "intermediate"
    queue      = "queue(" STRING "," STRING "," INT ")" NEWLINE
    step       = NAME "(" [ NAME { "," NAME } ] { "," NAME "=" value } ")" NEWLINE
               | "wait(" STRING "," STRING ["," INT] ")" NEWLINE
               | "if" condition ":" steps [ "else:" steps ] | "while" condition ":" steps | "with rows:" steps
    condition  = NAME | "holds(" NAME { "," NAME "=" value } ")"
    steps      = NEWLINE INDENT ("pass" NEWLINE | step { step }) DEDENT
    value      = STRING | ["-"] (INT | FLOAT) | "[" [ STRING { "," STRING } ] "]"
    shape      = "(" [ INT { "," INT } [","] ] ")"
    dtype      = NAME

Definitions (memories, queues, intrinsics) and loops are those of `uma.tir.form.text`; for externs, which back-ends
make, see `uma.relay.extern_text`. Words of a buffer are ``pool``, ``tensor``, ``scale``, ``zero_point``, ``sha256``,
``extents`` (of what is open: ``'1, tokens[1:128], 64'``), of a step ``layers``, ``device``, ``queue``, ``host``,
of a condition ``layers``. ::

    @program                                            # (model='5e88...') where it keeps states: of which model
    def kws():
        x = input(int8, (1, 49, 10), tensor='audio:0', scale=0.5, zero_point=-128)
        w = constant(int8, (10, 4), align(16), sha256='9f86d081...')
        t = intermediate(int32, (1, 49, 4), align(16), pool='sram')
        s = workspace(int32, (4,))
        y = output(int8, (1, 4))
        h = state(int8, (1, 4), sha256='5e884898...')   # its bytes before the first run
        queue('npu', 'commands', 2)                     # of a device, and how many launches it takes
        matmul(x, t, w, s, layers=['model/dense'])      # a step: the function and its buffers
        conv(x, t, c, device='npu', queue='commands')   # one for a device, started on a queue
        wait('npu', 'commands', 1)                      # until at most one launch is unfinished; by default none
        while more:                                     # as long as a buffer of one bool is true
            next(h, more, m)
            if m:
                pool(t, y)
        with rows:                                      # the calls within run row by row
            depthwise(x, t, c)
            pointwise(t, y, d)

    @prim_func
    def matmul(...): ...

What is printed from a program that `verify` accepts parses to an equal program.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from ..errors import ModelError, TextError
from ..relay.extern import Extern, Kernel
from ..relay.extern_text import parse_extern, print_extern
from ..tir.form.dtype import DTYPES, itemsize
from ..tir.form.nodes import PrimFunc
from ..tir.form.source_text import Source
from ..tir.form.symbolic_dims import Dim, format_extents, parse_extents
from ..tir.form.text import Defined, Definitions, parse_def, print_func
from ..tir.form.text_exprs import called
from .program import (
    ROLES,
    Buffer,
    Call,
    Else,
    End,
    If,
    Loop,
    Program,
    Quantisation,
    Queue,
    Rows,
    Step,
    Wait,
    default_pool,
)
from .verify import faults

__all__ = ["parse_program", "print_program"]

T = TypeVar("T")


def print_program(program: Program) -> tuple[str, dict[str, bytes]]:
    """The text of a verified program, and its constants: their bytes by their SHA-256 in hexadecimal digits."""
    lines = [f"@program(model={program.model!r})" if program.model else "@program", f"def {program.name}():"]
    lines += [f"    {_declaration(buffer)}" for buffer in program.buffers]
    lines += [f"    queue({queue.device!r}, {queue.name!r}, {queue.depth})" for queue in program.queues]
    lines += _steps(program.steps)
    loops = [function for function in program.functions.values() if isinstance(function, PrimFunc)]
    externs = [function for function in program.functions.values() if isinstance(function, Extern)]
    memories = [memory for extern in externs for memory in extern.memories]
    definitions = Definitions(loops, [program.name, *program.functions], memories)
    constants = {_digest(buffer.data): buffer.data for buffer in program.buffers if buffer.data is not None}
    functions = []
    for name, function in program.functions.items():
        if isinstance(function, Extern):
            text, blobs = print_extern(function, name, definitions)
            functions.append(text)
            constants |= blobs
        else:
            functions.append(print_func(function, name, definitions))
    return "\n".join(["\n".join(lines) + "\n", *definitions.texts(), *functions]), constants


def parse_program(text: str, constants: Mapping[str, bytes], source_name: str = "<text>") -> Program:
    """The program that ``text`` describes.

    Args:
        text: as from `print_program`.
        constants: bytes by digest, as from `print_program`; more than the text names is no harm.
        source_name: what errors call the text.

    Raises:
        TextError: the text is not a program, or not one that `verify` accepts, or a constant's bytes are missing or
            not those of its digest.
    """
    return _Parser(Source(text, source_name), constants).program()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _declaration(buffer: Buffer) -> str:
    parts = [buffer.dtype, str(buffer.shape)]
    if buffer.alignment != itemsize(buffer.dtype):
        parts.append(f"align({buffer.alignment})")
    if buffer.pool != default_pool(buffer.role):
        parts.append(f"pool={buffer.pool!r}")
    if buffer.tensor is not None:
        parts.append(f"tensor={buffer.tensor!a}")
    if buffer.quantisation is not None:
        parts += [f"scale={buffer.quantisation.scale!r}", f"zero_point={buffer.quantisation.zero_point}"]
    if buffer.extents is not None:
        parts.append(f"extents={format_extents(buffer.extents)!r}")
    if buffer.data is not None:
        parts.append(f"sha256={_digest(buffer.data)!r}")
    return f"{buffer.name} = {buffer.role}({', '.join(parts)})"


def _steps(steps: Sequence[Step]) -> Iterator[str]:
    """The lines of steps: those of branches, loops and rows stand deeper."""
    deep, is_empty = 1, False
    for step in steps:
        if isinstance(step, (Else, End)):
            if is_empty:
                yield f"{'    ' * deep}pass"
            deep -= 1
        if isinstance(step, (If, Loop)):
            layers = f", layers={list(step.layers)!a}" if step.layers else ""
            condition = f"holds({step.condition}{layers})" if layers else step.condition
            yield f"{'    ' * deep}{'if' if isinstance(step, If) else 'while'} {condition}:"
        elif isinstance(step, (Else, Rows)):
            yield f"{'    ' * deep}{'else' if isinstance(step, Else) else 'with rows'}:"
        elif not isinstance(step, End):
            yield f"{'    ' * deep}{_step(step)}"
        is_empty = isinstance(step, (If, Else, Loop, Rows))
        deep += is_empty


def _step(step: Call | Wait) -> str:
    if isinstance(step, Wait):
        return f"wait({step.device!r}, {step.queue!r}{f', {step.pending}' if step.pending else ''})"
    # ascii, not repr: which characters repr leaves alone differs between versions of Python.
    words = [f"layers={list(step.layers)!a}"] if step.layers else []
    if step.device is not None:
        words.append(f"device={step.device!r}")
    if step.queue is not None:
        words.append(f"queue={step.queue!r}")
    if step.host is not None:
        words.append(f"host={step.host!r}")
    return f"{step.function}({', '.join([*step.args, *words])})"


class _Parser:
    def __init__(self, source: Source, constants: Mapping[str, bytes]) -> None:
        self.source = source
        self.constants = constants

    def program(self) -> Program:
        module = self.source.parse()
        heads: list[ast.FunctionDef] = []
        functions: dict[str, Kernel] = {}
        nodes: dict[str, ast.AST] = {}
        defined = Defined(self.source)
        for node in module.body:
            if defined.take(node):
                continue
            if not isinstance(node, ast.FunctionDef):
                raise self.error(node, "expected '@program' or '@prim_func' and a definition")
            if [called(decorator) or _name(decorator) for decorator in node.decorator_list] == ["program"]:
                heads.append(node)
                continue
            function: Kernel
            if [called(decorator) for decorator in node.decorator_list] == ["extern"]:
                name, function = parse_extern(node, defined, self.content)
            else:
                name, function = parse_def(node, defined, is_unrolled=True)
            if name in functions:
                raise self.error(node, f"two functions are called {name!r}")
            functions[name], nodes[name] = function, node
        if len(heads) != 1:
            raise self.error(
                heads[1] if heads else module, f"expected one definition with '@program', found {len(heads)}"
            )
        return self.checked(heads[0], functions, nodes)

    def checked(self, head: ast.FunctionDef, functions: Mapping[str, Kernel], nodes: Mapping[str, ast.AST]) -> Program:
        """Return the program that ``head`` describes, or raise the first fault at the node that has it."""
        if any([head.args.args, head.args.posonlyargs, head.args.kwonlyargs, head.args.vararg, head.args.kwarg]):
            raise self.error(head, "a program has no parameters: its inputs are buffers")
        buffers: list[Buffer] = []
        steps: list[Step] = []
        queues: list[Queue] = []
        buffer_nodes: list[ast.stmt] = []
        step_nodes: list[ast.stmt] = []

        def add(step: Step, node: ast.stmt) -> None:
            steps.append(step)
            step_nodes.append(node)

        for statement in head.body:
            if isinstance(statement, ast.Assign):
                buffers.append(self.buffer(statement))
                buffer_nodes.append(statement)
            elif _is_of_queue(statement, "queue"):
                queues.append(Queue(*self.queue(statement, None)))
            else:
                self.steps([statement], add)
        program = Program(head.name, tuple(buffers), tuple(steps), functions, tuple(queues), self.model(head))
        for fault in faults(program):
            place: ast.AST = head
            if fault.buffer is not None:
                place = buffer_nodes[fault.buffer]
            elif fault.step is not None:
                place = step_nodes[fault.step]
            elif fault.function is not None:
                place = nodes[fault.function]
            raise self.error(place, fault.what)
        return program

    def steps(self, statements: Sequence[ast.stmt], add: Callable[[Step, ast.stmt], None]) -> None:
        """The steps that statements say, those of branches, loops and rows between their marks."""
        for node in statements:
            if isinstance(node, ast.Expr):
                add(self.step(node.value), node)
            elif isinstance(node, (ast.If, ast.While)):
                condition, layers = self.condition(node.test)
                add((If if isinstance(node, ast.If) else Loop)(condition, layers), node)
                self.steps(_without_pass(node.body), add)
                if node.orelse and isinstance(node, ast.While):
                    raise self.error(node, "a while has no else")
                if node.orelse:
                    add(Else(), node)
                    self.steps(_without_pass(node.orelse), add)
                add(End(), node)
            elif isinstance(node, ast.With):
                if len(node.items) != 1 or node.items[0].optional_vars or _name(node.items[0].context_expr) != "rows":
                    raise self.error(node, "expected 'with rows:'")
                add(Rows(), node)
                self.steps(_without_pass(node.body), add)
                add(End(), node)
            else:
                raise self.error(node, "expected 'buffer = role(...)' or 'function(buffer, ...)'")

    def condition(self, node: ast.expr) -> tuple[str, tuple[str, ...]]:
        """The buffer that a branch or a loop looks at, and the layers that it is."""
        name, words = _name(node), dict[str, ast.expr]()
        if isinstance(node, ast.Call):
            name = _name(node.args[0]) if len(node.args) == 1 and _name(node.func) == "holds" else ""
            words = self.words(node, ("layers",))
        if not name:
            raise self.error(node, "expected the name of a buffer, or 'holds(buffer, layers=[...])'")
        return name, self.layers(words)

    def model(self, head: ast.FunctionDef) -> str:
        """The digest of the model that a program is of, where it says one."""
        mark = head.decorator_list[0]
        if not isinstance(mark, ast.Call):
            return ""
        if mark.args or [word.arg for word in mark.keywords] != ["model"]:
            raise self.error(mark, "expected '@program' or '@program(model=...)'")
        return self.string(mark.keywords[0].value)

    def buffer(self, node: ast.Assign) -> Buffer:
        target, call = node.targets[0], node.value
        if len(node.targets) != 1 or not isinstance(target, ast.Name) or not isinstance(call, ast.Call):
            raise self.error(node, "expected 'buffer = role(dtype, shape, ...)'")
        role = next((role for role in ROLES if role == _name(call.func)), None)
        if role is None:
            raise self.error(call.func, f"expected a role, one of {', '.join(ROLES)}")
        if not 2 <= len(call.args) <= 3:
            raise self.error(call, f"expected '{role}(dtype, shape)' or '{role}(dtype, shape, align(bytes), ...)'")
        dtype = _name(call.args[0])
        if dtype not in DTYPES:
            raise self.error(call.args[0], f"expected a dtype, one of {', '.join(DTYPES)}")
        words = self.words(call, ("pool", "tensor", "scale", "zero_point", "sha256", "extents"))
        if ("scale" in words) != ("zero_point" in words):
            raise self.error(call, "scale and zero_point come together")
        quantisation = None
        if "scale" in words:
            scale, zero_point = self.number(words["scale"]), self.integer(words["zero_point"])
            quantisation = Quantisation(scale, zero_point)
        return Buffer(
            name=target.id,
            role=role,
            shape=self.shape(call.args[1]),
            dtype=dtype,
            alignment=self.alignment(call.args[2]) if len(call.args) == 3 else 0,
            pool=self.string(words["pool"]) if "pool" in words else "",
            data=self.data(words["sha256"]) if "sha256" in words else None,
            tensor=self.string(words["tensor"]) if "tensor" in words else None,
            quantisation=quantisation,
            extents=self.extents(words["extents"]) if "extents" in words else None,
        )

    def extents(self, node: ast.expr) -> tuple[Dim, ...]:
        try:
            return parse_extents(self.string(node))
        except ModelError as error:
            raise self.error(node, error.what) from error

    def queue(self, node: ast.AST, default: int | None) -> tuple[str, str, int]:
        """Device and name of a queue, and a number."""
        call = node.value if isinstance(node, ast.Expr) else node
        assert isinstance(call, ast.Call)
        least = 3 if default is None else 2
        if call.keywords or not least <= len(call.args) <= 3:
            last = "depth" if default is None else "pending"
            raise self.error(call, f"expected '{_name(call.func)}(device, name, {last})'")
        number = self.integer(call.args[2]) if len(call.args) == 3 else default or 0
        return self.string(call.args[0]), self.string(call.args[1]), number

    def content(self, node: ast.AST, digest: str) -> bytes:
        """The bytes of a blob; the one who asks compares them with the digest."""
        data = self.constants.get(digest)
        if data is None:
            raise self.error(node, "the bytes of this blob are missing", hint="keep the constants with the text")
        return data

    def step(self, node: ast.expr) -> Step:
        if _is_of_queue(node, "wait"):
            return Wait(*self.queue(node, 0))
        function = _name(node.func) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or not function:
            raise self.error(node, "expected 'function(buffer, ...)'")
        args = []
        for arg in node.args:
            args.append(_name(arg))
            if not args[-1]:
                raise self.error(arg, "expected the name of a buffer")
        words = self.words(node, ("layers", "device", "queue", "host"))
        places = {word: self.string(words[word]) for word in ("device", "queue", "host") if word in words}
        return Call(function, tuple(args), self.layers(words), **places)

    def layers(self, words: Mapping[str, ast.expr]) -> tuple[str, ...]:
        """Those that the words of a step say."""
        listed = words.get("layers", ast.List([]))
        if not isinstance(listed, ast.List):
            raise self.error(listed, "expected a list of names")
        return tuple(self.string(layer) for layer in listed.elts)

    def words(self, call: ast.Call, known: Sequence[str]) -> dict[str, ast.expr]:
        """The keyword arguments of ``call``; Python's own parser refuses to have one twice."""
        for word in call.keywords:
            if word.arg not in known:
                raise self.error(word.value, f"unknown argument {word.arg!r}; there is {', '.join(known)}")
        return {word.arg: word.value for word in call.keywords if word.arg is not None}

    def shape(self, node: ast.expr) -> tuple[int, ...]:
        if not isinstance(node, ast.Tuple):
            raise self.error(node, "expected a shape, a tuple of integers")
        return tuple([self.integer(extent) for extent in node.elts])

    def alignment(self, node: ast.expr) -> int:
        if not isinstance(node, ast.Call) or _name(node.func) != "align" or len(node.args) != 1 or node.keywords:
            raise self.error(node, "expected 'align(bytes)'")
        alignment = self.integer(node.args[0])
        if alignment <= 0:
            raise self.error(node.args[0], "an alignment is positive")
        return alignment

    def data(self, node: ast.expr) -> bytes:
        digest = self.string(node)
        data = self.constants.get(digest)
        if data is None:
            raise self.error(node, "the bytes of this constant are missing", hint="keep the constants with the text")
        if _digest(data) != digest:
            raise self.error(node, "the bytes of this constant are not those of its digest")
        return data

    def string(self, node: ast.expr) -> str:
        return self.literal(node, lambda value: value if isinstance(value, str) else None, "a string")

    def integer(self, node: ast.expr) -> int:
        return self.literal(node, lambda value: value if type(value) is int else None, "an integer")

    def number(self, node: ast.expr) -> float:
        return self.literal(node, lambda value: value if type(value) is float else None, "a number like 0.5")

    def literal(self, node: ast.expr, read: Callable[[object], T | None], what: str) -> T:
        value: object = None
        if isinstance(node, ast.Constant):
            value = node.value
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            operand = node.operand.value
            value = -operand if isinstance(operand, (int, float)) and not isinstance(operand, bool) else None
        result = read(value)
        if result is None:
            raise self.error(node, f"expected {what}")
        return result

    def error(self, node: ast.AST, what: str, hint: str | None = None) -> TextError:
        return self.source.error(node, what, hint)


def _without_pass(statements: list[ast.stmt]) -> list[ast.stmt]:
    return [] if len(statements) == 1 and isinstance(statements[0], ast.Pass) else statements


def _name(node: ast.AST) -> str:
    """The name that ``node`` is; the empty string where it is something else."""
    return node.id if isinstance(node, ast.Name) else ""


def _is_of_queue(node: ast.AST, word: str) -> bool:
    """Whether ``node`` is ``word`` called with a device's name. A function may be called so, too, but takes buffers."""
    call = node.value if isinstance(node, ast.Expr) else node
    first = call.args[0] if isinstance(call, ast.Call) and call.args else None
    return called(node) == word and isinstance(first, ast.Constant)
