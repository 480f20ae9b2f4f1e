"""QDQ: from arithmetic between dequantisation and quantisation to arithmetic of integers, for any front-end.

A front-end takes quantisation literally: ``qnn.dequantize``, ops on floats, ``qnn.quantize``. `to_integers` makes
arithmetic of integers of that.
"""

from .integer_conversion import to_integers
from .quantised_type import QuantisedType, constant_value, dequantised

__all__ = ["QuantisedType", "constant_value", "dequantised", "to_integers"]
