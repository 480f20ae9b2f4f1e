"""Random modules with branches and loops in each other, which end."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from uma.relay.expr import Call, Expr, Function, GlobalVar, If, Loop, Tuple, TupleGetItem, Var, call, const
from uma.relay.module import IRModule, Spans, func_type
from uma.relay.types import TensorType
from uma.relay.visit import nested_exprs

__all__ = ["EXAMPLE", "inputs_of", "random_module"]

T = TensorType((3,), "float32")
COUNT = TensorType((), "int32")
FLAG = TensorType((), "bool")

EXAMPLE = """\
@function
def main(x: Tensor[(3,), float32], k: Tensor[(3,), float32]) -> Tuple[Tensor[(3,), float32], Tensor[(3,), float32]]:
    v0: ('loop',) = Loop(body, 4)(const(True, bool), const(0, int32), x, k, k)
    v1 = v0[2]
    v2 = v0[3]
    v3 = (v1, v2,)
    return v3

@function
def body(go: Tensor[(), bool], i: Tensor[(), int32], a: Tensor[(3,), float32], b: Tensor[(3,), float32], \
k: Tensor[(3,), float32]) -> Tuple[Tensor[(), bool], Tensor[(), int32], Tensor[(3,), float32], Tensor[(3,), float32]]:
    v0 = add(i, const(1, int32))
    v1 = less(v0, const(5, int32))
    v2 = greater(v0, const(3, int32))
    v3: ('product',) = multiply(a, k)
    v4: ('branch',) = If(then, otherwise)(v2, v3, b)
    v5 = (v1, v0, b, v4,)
    return v5

@function
def then(x: Tensor[(3,), float32], y: Tensor[(3,), float32]) -> Tensor[(3,), float32]:
    v0: ('sum',) = add(x, y)
    return v0

@function
def otherwise(x: Tensor[(3,), float32], y: Tensor[(3,), float32]) -> Tensor[(3,), float32]:
    return x
"""
"""A loop of five turns whose carried values change places, and a branch in it, one side of which does nothing."""


def inputs_of(module: IRModule, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {param.name: rng.standard_normal(param.shape).astype(param.dtype) for param in module.main.params}


class _Maker:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.functions: dict[str, Function] = {}
        self.spans = Spans()
        self.number = 0

    def var(self, type_: TensorType) -> Var:
        self.number += 1
        return Var(f"p{self.number}", type_)

    def named(self, name: str, function: Function) -> GlobalVar:
        var = GlobalVar(f"{name}_{len(self.functions)}", func_type(function))
        self.functions[var.name] = function
        return var

    def flag(self, values: Sequence[Expr]) -> Expr:
        """What a run decides; or, now and then, a constant."""
        if self.chance.random() < 0.1:
            return const(np.array(self.chance.random() < 0.5))
        element = call("take", self.chance.choice(values), const(np.array(self.chance.randrange(3), np.int32)), axis=0)
        return call("greater", element, const(np.array(self.chance.uniform(-1, 1), np.float32)))

    def values(self, given: Sequence[Expr], deep: int, count: int) -> list[Expr]:
        """Some values computed from what is given."""
        known = list(given)
        for _ in range(count):
            kind = self.chance.random()
            if deep and kind < 0.2:
                known += self.branch(known, deep - 1)
            elif deep and kind < 0.45:
                known += self.loop(known, deep - 1)
            elif kind < 0.55:
                known.append(const(np.array([self.chance.uniform(-1, 1) for _ in range(3)], np.float32)))
            elif kind < 0.7:
                known.append(call(self.chance.choice(("negative", "nn.relu", "abs")), self.chance.choice(known)))
            else:
                op = self.chance.choice(("maximum", "minimum", "subtract"))
                one, other = self.chance.choice(known), self.chance.choice(known)
                made = call(op, one, other)
                # (No number grows with the turns.)
                known.append(call("clip", made, a_min=-8.0, a_max=8.0) if op == "subtract" else made)
            self.spans.add(known[-1], [f"layer {len(known)}"])
        return known

    def some(self, values: Sequence[Expr], count: int) -> list[Expr]:
        """Late ones rather than early ones; one perhaps twice."""
        return [values[-1 - min(int(self.chance.expovariate(0.6)), len(values) - 1)] for _ in range(count)]

    def branch(self, known: Sequence[Expr], deep: int) -> list[Expr]:
        args, count = self.some(known, self.chance.randint(1, 3)), self.chance.randint(1, 2)
        sides = []
        for name in ("then", "otherwise"):
            params = [self.var(T) for _ in args]
            inside = self.values(params, deep, self.chance.randint(0, 3))
            sides.append(self.named(name, Function(params, Tuple(self.some(inside, count)))))
        made = Call(If(*sides), [self.flag(known), *args])
        return [TupleGetItem(made, position) for position in range(count)]

    def loop(self, known: Sequence[Expr], deep: int) -> list[Expr]:
        carried, given = self.some(known, self.chance.randint(1, 3)), self.some(known, self.chance.randint(0, 2))
        go, index = self.var(FLAG), self.var(COUNT)
        params = [self.var(T) for _ in (*carried, *given)]
        inside = self.values(params, deep, self.chance.randint(0, 4))
        step = call("add", index, const(np.array(1, np.int32)))
        goes_on = call("less", step, const(np.array(self.chance.randint(1, 3), np.int32)))
        if self.chance.random() < 0.5:
            goes_on = call("logical_and", goes_on, self.flag(inside))
        after = self.some(inside, len(carried))
        if self.chance.random() < 0.4:  # values that change places
            after = [*params[1 : len(carried)], params[0]]
        body = Function([go, index, *params], Tuple([goes_on, step, *after]))
        loop = Loop(self.named("body", body), 2 + len(carried))
        start = self.flag(known) if self.chance.random() < 0.5 else const(np.array(True))
        made = Call(loop, [start, const(np.array(0, np.int32)), *carried, *given])
        return [TupleGetItem(made, position) for position in range(2, 2 + len(carried))]


def random_module(seed: int, deep: int = 3, count: int = 6) -> IRModule:
    """A module with control flow up to ``deep`` in each other, of two inputs and up to three outputs."""
    maker = _Maker(seed)
    params = [Var("x", T), Var("y", T)]
    known = maker.values(params, deep, count)
    known += maker.loop(known, deep - 1)
    results = maker.some(known, maker.chance.randint(1, 3))
    main = Function(params, results[0] if len(results) == 1 else Tuple(results))
    functions = {"main": main, **maker.functions}
    there = [expr for function in functions.values() for expr in nested_exprs(function)]
    return IRModule.from_functions(functions, maker.spans.only(there))
