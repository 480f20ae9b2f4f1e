"""The dtypes of which each operator is imported, for the documentation. Tests compare it with what is imported."""

from __future__ import annotations

__all__ = ["DTYPES_OF", "REFUSED"]

_F = ("float32",)
_BYTES = ("int8", "uint8")
_CODES = (*_BYTES, "int16")
_WHOLE = ("int32", "int64")
_ALL = (*_F, *_CODES, *_WHOLE, "bool")
_OTHERS = ("float64", "uint16", "uint32", "uint64")


def _each(names: str, *dtypes: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(names.split(), dtypes)


DTYPES_OF: dict[str, tuple[str, ...]] = {
    **_each("COS FLOOR CEIL ROUND SIN SQUARE POW L2_POOL_2D", *_F),
    **_each("ADD SUB MUL MAXIMUM MINIMUM", *_F, *_CODES, *_WHOLE),
    **_each("ADD_N", *_F, *_WHOLE),
    **_each("DIV", *_F, "uint8", *_WHOLE),
    **_each("FLOOR_DIV FLOOR_MOD", *_F, "int8", "int16", *_WHOLE),
    **_each("NEG", *_F, "int8", "int16", *_WHOLE),
    **_each("ABS", *_F, "int8", "int16", "int32"),
    **_each("ARG_MAX ARG_MIN", *_F, *_BYTES, "int16", *_WHOLE),
    **_each("CUMSUM", *_F, *_WHOLE),
    **_each("LOGICAL_AND LOGICAL_NOT LOGICAL_OR", "bool"),
    **_each("EQUAL NOT_EQUAL", *_F, *_BYTES, *_WHOLE, "bool"),
    **_each("GREATER GREATER_EQUAL LESS LESS_EQUAL", *_F, *_BYTES, *_WHOLE),
    **_each("SQUARED_DIFFERENCE", *_F, "int8", *_WHOLE),
    **_each("PRELU", *_F, *_BYTES),
    **_each("ELU SQRT LOG_SOFTMAX", *_F, "int8"),
    **_each("EXP LOG RSQRT", *_F, "int8", "int16"),
    **_each("GELU HARD_SWISH L2_NORMALIZATION RELU_0_TO_1 RELU_N1_TO_1", *_F, *_BYTES),
    **_each("LEAKY_RELU LOGISTIC RELU RELU6 SOFTMAX TANH", *_F, *_CODES),
    **_each("AVERAGE_POOL_2D MAX_POOL_2D", *_F, *_CODES),
    **_each("BIDIRECTIONAL_SEQUENCE_LSTM Convolution2DTransposeBias", *_F),
    **_each("CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED TRANSPOSE_CONV", *_F, *_CODES),
    **_each("BATCH_MATMUL", *_F, *_CODES),
    **_each("RESIZE_BILINEAR", *_F, *_CODES),
    **_each("MEAN", *_F, *_CODES),
    **_each("SUM", *_F, *_BYTES, *_WHOLE),
    **_each("REDUCE_MAX REDUCE_MIN", *_F, *_CODES, *_WHOLE),
    **_each("REDUCE_PROD SHAPE BROADCAST_ARGS", *_WHOLE),
    **_each("QUANTIZE", *_F, *_CODES, "int32"),
    **_each("DENSIFY", *_F, "int8", "float16"),
    **_each("DEQUANTIZE", *_CODES, "float16"),
    **_each("BITCAST CAST TILE", *_ALL, *_OTHERS),
    **_each("EMBEDDING_LOOKUP", *_F, *_CODES),
    **_each("SVDF UNIDIRECTIONAL_SEQUENCE_LSTM", *_F, "int8"),
    **_each("ZEROS_LIKE", *_F, *_WHOLE),
    **_each("PAD PADV2 MIRROR_PAD CONCATENATION", *_ALL),
    **_each("BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND DEPTH_TO_SPACE SPACE_TO_DEPTH", *_ALL),
    **_each("GATHER GATHER_ND REVERSE_V2 DYNAMIC_UPDATE_SLICE SELECT SELECT_V2", *_ALL),
    **_each("BROADCAST_TO EXPAND_DIMS FILL PACK RESHAPE RESIZE_NEAREST_NEIGHBOR SLICE SPLIT SPLIT_V", *_ALL),
    **_each("ATAN2", *_F, "float64"),
    **_each("SIGN", *_F, "float64", "int32"),
    **_each("CONV_3D FAKE_QUANT LOCAL_RESPONSE_NORMALIZATION", *_F),
    **_each("TOPK_V2", *_F, *_CODES, *_WHOLE),
    **_each("RANGE", *_F, *_WHOLE),
    **_each("REDUCE_ALL REDUCE_ANY", "bool"),
    **_each("ONE_HOT RANK REVERSE_SEQUENCE SCATTER_ND", *_ALL),
    **_each("SQUEEZE STRIDED_SLICE TRANSPOSE UNPACK", *_ALL),
}
"""Of its data: integers of 8 and 16 bits are quantised, or plain where nothing is computed of them. (Weights beside
float32 may be int8, uint8 or int4, which are dequantised.)"""

REFUSED: dict[str, str] = dict.fromkeys(
    ("COMPLEX_ABS", "IMAG", "REAL", "RFFT2D"),
    "nothing computes with complex numbers: move the transform out of the model, or write it as matrix products",
)
"""Operators that are not planned, and what to do instead."""
