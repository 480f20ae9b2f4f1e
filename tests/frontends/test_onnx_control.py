"""If, Loop and Scan that a run decides, beside onnxruntime."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx import parser
from tests._support.onnx_builder import IR_VERSION, run_onnxruntime
from tests._support.plugins import run

from uma.errors import ModelError
from uma.frontends import import_model
from uma.program import Program
from uma.relay.evaluate import evaluate
from uma.relay.expr import Call
from uma.relay.visit import nested_exprs

Inputs = Mapping[str, Any]


def model(text: str) -> bytes:
    made = parser.parse_model(f'<ir_version: {IR_VERSION}, opset_import: ["": 18]>\n{text}')
    data: bytes = made.SerializeToString()
    return data


def agrees(data: bytes, **inputs: Any) -> Any:
    """The imported module, which gives what onnxruntime does."""
    given = {name: np.asarray(value) for name, value in inputs.items()}
    module = import_model(data).module
    for got, expected in zip(evaluate(module, given), run_onnxruntime(data, given), strict=True):
        assert got.shape == expected.shape and got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, 1e-5, 1e-6)
    return module


def kinds(module: Any) -> list[str]:
    """What control flow there is."""
    found = []
    for function in module.functions.values():
        found += [type(e.op).__name__ for e in nested_exprs(function) if isinstance(e, Call)]
    return sorted(kind for kind in found if kind in ("If", "Loop"))


X = np.array([1.5, -2.0, 0.25], np.float32)

# --- If --------------------------------------------------------------------------------------------------------------

BRANCHES = """
m (float[3] x, float s) => (float[3] y, float[3] z) {
    c0 = Constant <value = float {0.0}> ()
    c = Greater (s, c0)
    a = Abs (x)
    y, z = If (c) <
        then_branch = t () => (float[3] p, float[3] q) { p = Mul (a, s)  q = Identity (x) },
        else_branch = e () => (float[3] p, float[3] q) {
            p = Neg (x)  q = Constant <value = float[3] {1.0, 2.0, 3.0}> ()
        }
    >
}"""


@pytest.mark.parametrize("s", [2.0, -2.0])
def test_a_branch_that_a_run_chooses(s: float) -> None:
    """One that takes what is around it, one that takes an input as it is, one that is a constant."""
    assert kinds(agrees(model(BRANCHES), x=X, s=np.float32(s))) == ["If"]


def test_layers_of_a_branch_are_named_after_it() -> None:
    module = import_model(model(BRANCHES)).module
    names = {layer for _, layers in module.spans for layer in layers}
    assert {"y", "y/p.2"} <= names or any(name.startswith("y/") for name in names)


NESTED = """
m (float[3] x, bool c, bool d) => (float[3] y) {
    y = If (c) <
        then_branch = t () => (float[3] p) {
            u = Exp (x)
            p = If (d) <
                then_branch = tt () => (float[3] v) { v = Add (u, x) },
                else_branch = te () => (float[3] v) { v = Sub (u, x) }
            >
        },
        else_branch = e () => (float[3] p) { p = Neg (x) }
    >
}"""


@pytest.mark.parametrize("c", [True, False])
@pytest.mark.parametrize("d", [True, False])
def test_a_branch_in_a_branch(c: bool, d: bool) -> None:
    assert kinds(agrees(model(NESTED), x=X, c=c, d=d)) == ["If", "If"]


# --- Loop ------------------------------------------------------------------------------------------------------------


def loop(inputs: str, header: str, body: str, results: str = "float[3] y", before: str = "") -> bytes:
    """A model with a loop over ``header``, whose results are the model's."""
    outputs = ", ".join(re.findall(r"\] (\w+)", results))
    return model(f"m ({inputs}) => ({results}) {{ {before} {outputs} = Loop ({header}) <body = {body}> }}")


DOUBLE = "b (int64 i, bool c, float[3] s) => (bool d, float[3] t) { d = Identity (c)  t = Add (s, s) }"
COUNTED = """b (int64 i, bool c, float[3] s) => (bool d, float[3] t) {
    l = Constant <value = int64 {3}> () d = Less (i, l)  f = Cast <to = 1> (i)  t = Add (s, f) }"""


@pytest.mark.parametrize("turns", [0, 1, 5, -3])
def test_turns_that_a_run_counts(turns: int) -> None:
    data = loop("int64 n, float[3] x", "n, , x", DOUBLE)
    assert kinds(agrees(data, n=np.int64(turns), x=X)) == ["Loop"]


@pytest.mark.parametrize("turns", [0, 1, 3, 9])
@pytest.mark.parametrize("first", [True, False])
def test_turns_and_a_condition(turns: int, first: bool) -> None:
    data = loop("int64 n, bool c, float[3] x", "n, c, x", COUNTED)
    assert kinds(agrees(data, n=np.int64(turns), c=first, x=X)) == ["Loop"]


@pytest.mark.parametrize("first", [True, False])
def test_a_condition_alone(first: bool) -> None:
    agrees(loop("bool c, float[3] x", ", c, x", COUNTED), c=first, x=X)


def test_a_loop_without_any_bound_but_its_condition() -> None:
    agrees(loop("float[3] x", ", , x", COUNTED), x=X)


def test_a_number_of_turns_of_one_dimension_and_a_body_that_declares_its_own_so() -> None:
    body = """b (int64[1] i, bool[1] c, float[3] s) => (bool[1] d, float[3] t) {
        d = Identity (c)  f = Cast <to = 1> (i)  t = Add (s, f) }"""
    agrees(loop("int64[1] n, float[3] x", "n, , x", body), n=np.array([4]), x=X)


SWAPPED = """
b (int64 i, bool c, float[3] s, float[3] t, float[3] u) => (bool d, float[3] t2, float[3] s2, float[3] u2) {
    d = Identity (c)  t2 = Identity (t)  s2 = Identity (s)  u2 = Sub (u, t) }"""


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_values_that_change_places(turns: int) -> None:
    results = "float[3] p, float[3] q, float[3] r"
    agrees(loop("int64 n, float[3] x", "n, , x, a, x", SWAPPED, results, before="a = Exp (x)"), n=turns, x=X)


def test_a_body_that_gives_constants_and_what_is_around_it() -> None:
    body = """b (int64 i, bool c, float[3] s, float[3] t) => (bool d, float[3] a, float[3] b) {
        d = Identity (c)  a = Constant <value = float[3] {1.0, 2.0, 3.0}> ()  b = Identity (x) }"""
    agrees(loop("int64 n, float[3] x", "n, , z, z", body, "float[3] p, float[3] q", "z = Neg (x)"), n=2, x=X)


GATHERING = """b (int64 i, bool c, float[3] s) => (bool d, float[3] t, float[3] o, int64 k) {
    d = Identity (c)  t = Add (s, x)  o = Mul (t, t)  k = Add (i, i) }"""
WHOLE = "float[3] y, float[N, 3] o, int64[N] k"


@pytest.mark.parametrize("turns", [1, 4, 100])
def test_parts_of_turns_that_are_put_together(turns: int) -> None:
    before = f"n = Constant <value = int64 {{{turns}}}> ()"
    assert kinds(agrees(loop("float[3] x", "n, , x", GATHERING, WHOLE, before), x=X)) == ["Loop"]


def test_turns_that_differ_in_their_types_are_written_out() -> None:
    body = """b (int64 i, bool c, float[N] s) => (bool d, float[M] t, float[3] o) {
        d = Identity (c)  t = Concat <axis = 0> (s, x)  o = Identity (x) }"""
    before = "n = Constant <value = int64 {3}> ()"
    module = agrees(loop("float[3] x", "n, , x", body, "float[12] y, float[3, 3] o", before), x=X)
    assert kinds(module) == []


def test_no_turns_at_all_give_what_was_given() -> None:
    before = "n = Constant <value = int64 {0}> ()"
    assert kinds(agrees(loop("float[3] x", "n, , x", DOUBLE, before=before), x=X)) == []


INNER = """b (int64 i, bool c, float[3] s) => (bool d, float[3] t) {
    d = Identity (c)
    l = Constant <value = int64 {2}> ()
    odd = Equal (i, l)
    t = If (odd) <
        then_branch = t () => (float[3] p) {
            p = Loop (i, , s) <body = b2 (int64 j, bool e, float[3] u) => (bool f, float[3] v) {
                f = Identity (e)  ij = Mul (i, j)  g = Cast <to = 1> (ij)  v = Add (u, g)
            }>
        },
        else_branch = e () => (float[3] p) { p = Add (s, x) }
    >
}"""


@pytest.mark.parametrize("turns", [0, 2, 3, 5])
def test_a_loop_in_a_branch_in_a_loop(turns: int) -> None:
    assert kinds(agrees(loop("int64 n, float[3] x", "n, , x", INNER), n=turns, x=X)) == ["If", "Loop", "Loop"]


def test_what_every_turn_computes_alike_is_computed_before_the_loop() -> None:
    body = "b (int64 i, bool c, float[3] s) => (bool d, float[3] t) { d = Identity (c) e = Exp (x) t = Add (s, e) }"
    module = agrees(loop("int64 n, float[3] x", "n, , x", body), n=3, x=X)
    called = {e.op_name for e in nested_exprs(module.main) if isinstance(e, Call)}
    assert "exp" in called


# --- Scan ------------------------------------------------------------------------------------------------------------

TURN = "b (float[3] s, float[3] x, float p) => (float[3] o, float[3] y) { t = Mul (s, p)  o = Add (t, x)  y = Neg (o) }"


@pytest.mark.parametrize("backwards", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_a_scan_of_many_turns(backwards: int, axis: int) -> None:
    data = model(f"""m (float[3] s, float[3, 70] x, float[70] p) => (float[3] o, float[A, B] y) {{
        o, y = Scan (s, x, p) <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = [1, 0],
            scan_output_axes = [{axis}], scan_output_directions = [{backwards}], body = {TURN}> }}""")
    rng = np.random.default_rng(0)
    x, p = rng.standard_normal((3, 70)).astype(np.float32), rng.uniform(-1, 1, 70).astype(np.float32)
    assert kinds(agrees(data, s=X, x=x, p=p)) == ["Loop"]


# --- what is refused -------------------------------------------------------------------------------------------------

GROWING = "b (int64 i, bool c, float[N] s) => (bool d, float[M] t) { d = Identity (c) t = Concat <axis = 0> (s, s) }"
BAD = {
    "result 0 is Tensor[(3,), float32] of one branch and Tensor[(6,), float32] of the other": NESTED.replace(
        "p = Neg (x)", "p = Concat <axis = 0> (x, x)"
    ),
    "its branches give 1 and 2 results": NESTED.replace(
        "e () => (float[3] p)", "e () => (float[3] p, float[3] u)"
    ).replace("p = Neg (x)", "p = Neg (x) u = Neg (x)"),
}


@pytest.mark.parametrize("what", BAD)
def test_branches_that_are_refused(what: str) -> None:
    with pytest.raises(ModelError) as caught:
        import_model(model(BAD[what]))
    assert what in str(caught.value), caught.value


LOOPS = {
    "value 0 that it carries is": loop("int64 n, float[3] x", "n, , x", GROWING, "float[N] y"),
    "from a number of turns that only a run knows": loop("int64 n, float[3] x", "n, , x", GATHERING, WHOLE),
    "it would never end": loop("float[3] x", ", , x", DOUBLE),
    "its number of turns is float32": loop("float[3] x, float n", "n, , x", DOUBLE),
    "its condition is bool of shape (2,)": loop("float[3] x, bool[2] c", ", c, x", DOUBLE),
    "it carries 2 values by a body of 3 inputs": loop(
        "float[3] x, int64 n", "n, , x, x", DOUBLE, "float[3] y, float[3] z"
    ),
    "in its body 'y/t": loop("float[3] x, int64 n", "n, , x", DOUBLE.replace("t = Add", "t = Nothing")),
    "it has 2 results of 1": loop("float[3] x, int64 n", "n, , x", DOUBLE, "float[3] y, float[3] z"),
}


SHRINKING = """b (int64 i, bool c, float[3] s) => (bool d, float[3] t, int64[K] w) {
    d = Identity (c)  t = Neg (s)
    o = Constant <value_int = 1> ()  e = Constant <value_int = 3> ()  f = Sub (e, i)  w = Range (o, f, o) }"""
LOOPS["its turns give parts of the shapes (2,) and (1,) for one result"] = loop(
    "float[3] x", "n, , x", SHRINKING, "float[3] y, int64[A, B] z", "n = Constant <value_int = 2> ()"
)


@pytest.mark.parametrize("what", LOOPS)
def test_loops_that_are_refused(what: str) -> None:
    with pytest.raises(ModelError) as caught:
        import_model(LOOPS[what])
    assert what in str(caught.value), caught.value


def test_a_branch_without_a_condition_is_refused() -> None:
    with pytest.raises(ModelError) as caught:
        import_model(model(NESTED.replace("y = If (c)", "y = If ()")))
    assert "its condition is missing" in str(caught.value)


def test_bodies_within_bodies_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uma.frontends.onnx.convert.MAX_DEPTH", 0)
    with pytest.raises(ModelError) as caught:
        import_model(loop("int64 n, float[3] x", "n, , x", DOUBLE))
    assert "bodies are within bodies, over 0 deep" in str(caught.value)


@pytest.mark.parametrize(
    ("turns", "what"), [(2**62, "is not a shape|bytes"), (2**24, "constants that are computed at import exceed")]
)
def test_parts_of_too_many_turns_are_refused(turns: int, what: str) -> None:
    before = f"n = Constant <value = int64 {{{turns}}}> ()"
    with pytest.raises(ModelError, match=what):
        import_model(loop("float[3] x", "n, , x", GATHERING, WHOLE, before))


def test_a_huge_number_of_turns_is_a_loop_like_any_other() -> None:
    """To the largest int64: no count goes beyond it."""
    before = f"n = Constant <value = int64 {{{2**63 - 1}}}> ()"
    agrees(loop("float[3] x", "n, , x", COUNTED, before=before), x=X)


def test_all_of_it_becomes_a_program() -> None:
    data = loop("int64 n, float[3] x", "n, , x", INNER)
    assert isinstance(run(import_model(data).module, "m"), Program)
