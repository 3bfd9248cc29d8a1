"""exp and log in single precision that a compiler can turn into vector instructions.

A call of the C library would keep the loop around it from becoming vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from bvat.engine.compiled.vectors import part_reordering

ZERO, ONE = np.float32(0), np.float32(1)
_HALF, _TWO = np.float32(0.5), np.float32(2)
_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH = np.float32(0.693359375)  # exact in few bits, so that n * _LN2_HIGH is exact
_LN2_LOW = np.float32(-2.12194440054690583e-4)
_LN2, _ROOT_OF_2 = np.float32(0.6931471805599453), np.float32(1.4142135623730951)
_LEAST = np.float32(-87)
_EXP = tuple(np.float32(1 / f) for f in (720, 120, 24, 6, 2))
_LOG = tuple(np.float32(1 / n) for n in (9, 7, 5, 3))


@intrinsic
def _as_float(_: Any, bits: Any) -> Any:
    """Read the bits of an int32 as a float32."""
    return types.float32(types.int32), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], ir.FloatType()
    )


@intrinsic
def _as_bits(_: Any, number: Any) -> Any:
    """Read the bits of a float32 as an int32."""
    return types.int32(types.float32), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], ir.IntType(32)
    )


@part_reordering
def exp(x: Any) -> Any:
    """exp(x) for x <= 0, to 2e-7 of itself: 2^n times the Taylor series at |r| <= ln(2) / 2; 0 below -87."""
    vanishes = x < _LEAST
    x = max(x, _LEAST)
    n = np.floor(x * _LOG2_E + _HALF)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    series = (((_EXP[0] * r + _EXP[1]) * r + _EXP[2]) * r + _EXP[3]) * r + _EXP[4]
    scale = _as_float(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))
    return ZERO if vanishes else (series * r * r + r + ONE) * scale


@part_reordering
def log(s: Any) -> Any:
    """log(s) for s >= 1: n ln(2) + 2 artanh((m - 1) / (m + 1)) with m = s / 2^n from 0.7 to 1.42."""
    bits = _as_bits(s)
    n = np.float32((bits >> np.int32(23)) - np.int32(127))
    m = _as_float(np.int32((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000)))
    large = m > _ROOT_OF_2
    n = n + ONE if large else n
    m = m * _HALF if large else m
    z = (m - ONE) / (m + ONE)
    y = z * z
    series = (((_LOG[0] * y + _LOG[1]) * y + _LOG[2]) * y + _LOG[3]) * y + ONE
    return n * _LN2 + _TWO * z * series
