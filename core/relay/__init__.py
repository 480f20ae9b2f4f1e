"""The graph form: types, expressions, modules, their text, traversal, and the operators."""

from . import ops, quantised  # noqa: F401 - the modules of `ops` register the core's
from .expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var, call, const
from .extern import BitField, Blob, Extern, Relocation
from .float_requantisation import FloatForm, SumForm
from .module import IRModule, Signature, Spans, StateInfo, TensorInfo
from .op import Attr, Attrs, Bounds, FixedPoint, FloatScale, Op, get_op, registered_ops
from .rewriter import Rewriter
from .tensors import TensorFunction, tensor_function
from .text import parse_module, print_module
from .transform.value_range import value_range
from .types import FuncType, TensorType, TupleType, Type
from .views import strip_views
from .visit import children, free_vars, post_order, rewrite, substitute, users

__all__ = [
    "Attr",
    "Attrs",
    "BitField",
    "Blob",
    "Bounds",
    "Call",
    "Constant",
    "Expr",
    "Extern",
    "FixedPoint",
    "FloatForm",
    "FloatScale",
    "FuncType",
    "Function",
    "GlobalVar",
    "IRModule",
    "Op",
    "Relocation",
    "Rewriter",
    "Signature",
    "Spans",
    "StateInfo",
    "SumForm",
    "TensorFunction",
    "TensorInfo",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "Var",
    "call",
    "children",
    "const",
    "free_vars",
    "get_op",
    "parse_module",
    "post_order",
    "print_module",
    "quantised",
    "registered_ops",
    "rewrite",
    "strip_views",
    "substitute",
    "tensor_function",
    "users",
    "value_range",
]
