"""Weighted sums of the rows of a dense matrix: what sparse and narrow dense products are made of.

A compiler does not turn a loop over 16 columns into vector instructions when it has to fear that the result
overlaps the input. The sum is therefore written for it, as operations on vectors of a fixed number of lanes
that stay in registers from the first row to the last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from bvat.engine.compiled.compile import compile_and_keep

FETCH_AHEAD = 16
"""How many rows before it is needed a row is fetched from memory, where the matrix does not fit the cache."""

FITS_CACHE = 2**18
"""Entries of a dense matrix up to which rows are not fetched ahead."""

_FLAGS = ("contract", "reassoc", "nsz")
"""The liberties of sums: all of "fast" but the belief that every number is finite."""


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function on its first call; the machine code is kept on disk where that is possible."""
    return _compile(function, set())


def compiled_reordering(function: Callable[..., Any]) -> Any:
    """Compile a function whose sums may be added up in any order, which lets them become vectors."""
    return _compile(function, set(_FLAGS))


def _compile(function: Callable[..., Any], fastmath: set[str]) -> Any:
    return compile_and_keep(function, error_model="numpy", nogil=True, fastmath=fastmath)


def part(function: Callable[..., Any]) -> Any:
    """Make a function a part of the compiled functions that call it: a call would cost more than its work."""
    return _make_part(function, set())


def part_reordering(function: Callable[..., Any]) -> Any:
    """The same for a function whose sums may be added up in any order."""
    return _make_part(function, set(_FLAGS))


def _make_part(function: Callable[..., Any], fastmath: set[str]) -> Any:
    # without flags of its own a part gets those of its first caller: results would depend on the order in
    # which callers are compiled, and so on what is kept on disk
    return numba.njit(error_model="numpy", forceinline=True, fastmath=fastmath)(function)


def _make_sum(lanes: int, *, indexed: bool, ahead: int = 0, terms: int = 0, then: str = "") -> Any:
    """Return ``out[place : place + lanes] = f(sum_k factors[k] dense[row(k), first : first + lanes])``.

    k runs from start to stop; row(k) is ``index[k]``, or ``k - start`` if not ``indexed``. f uses the
    vector m at ``side[beside]``: ``then`` "relu" is ``max(sum, 0) * m``, "gate" is ``sum where m > 0``, "add"
    is ``sum + m``, "" the sum itself. ``terms`` promises that stop - start is that number: no loop is needed.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def data(position: int) -> Any:
            array = context.make_array(signature.args[position])
            return array(context, builder, arguments[position]).data

        factors, index, dense, side, out = (data(i) for i in (0, 1, 4, 7, 9))
        start, stop, width, first, beside, place = (arguments[i] for i in (2, 3, 5, 6, 8, 10))
        number = context.get_data_type(signature.args[4].dtype)
        vector = ir.VectorType(number, lanes)
        aligned = signature.args[4].dtype.bitwidth // 8
        whole, short = start.type, ir.IntType(32)
        zero, undefined = ir.Constant(vector, None), ir.Constant(vector, ir.Undefined)

        def at(pointer: Any, position: Any) -> Any:
            return builder.bitcast(builder.gep(pointer, [position]), vector.as_pointer())

        def row(k: Any) -> Any:
            if not indexed:
                return builder.sub(k, start)
            return builder.sext(builder.load(builder.gep(index, [k])), whole)

        def add(k: Any, total: Any) -> None:
            factor = builder.load(builder.gep(factors, [k]))
            single = builder.insert_element(undefined, factor, ir.Constant(short, 0))
            same = builder.shuffle_vector(single, undefined, ir.Constant(ir.VectorType(short, lanes), None))
            position = builder.add(builder.mul(row(k), width), first)
            product = builder.fmul(same, builder.load(at(dense, position), align=aligned), flags=_FLAGS)
            builder.store(builder.fadd(builder.load(total), product, flags=_FLAGS), total)

        def constant(value: int) -> Any:
            return ir.Constant(whole, value)

        # A chain of additions waits for each of them. A dense row is long: four chains side by side.
        chains = 1 if indexed else 4
        totals = [cgutils.alloca_once(builder, vector) for _ in range(chains)]
        for total in totals:
            builder.store(zero, total)
        if ahead:
            size = context.make_array(signature.args[1])(context, builder, arguments[1]).nitems
            last = builder.sub(size, constant(1))
        for i in range(terms):
            add(builder.add(start, constant(i)), totals[i % chains])
        if not terms:
            bulk = builder.sub(stop, builder.srem(builder.sub(stop, start), constant(chains)))
            with cgutils.for_range_slice(builder, start, bulk, constant(chains)) as (k, _):
                if ahead:
                    later = builder.add(k, constant(ahead))
                    later = builder.select(builder.icmp_signed("<", later, last), later, last)
                    position = builder.add(builder.mul(row(later), width), first)
                    _prefetch(builder, builder.gep(dense, [position]))
                for i, total in enumerate(totals):
                    add(builder.add(k, constant(i)), total)
            if chains > 1:
                with cgutils.for_range_slice(builder, bulk, stop, constant(1)) as (k, _):
                    add(k, totals[0])
        result = builder.load(totals[0])
        for total in totals[1:]:
            result = builder.fadd(result, builder.load(total), flags=_FLAGS)
        if then == "add":
            result = builder.fadd(result, builder.load(at(side, beside), align=aligned))
        elif then:
            other = builder.load(at(side, beside), align=aligned)
            sign = result if then == "relu" else other
            kept = builder.fmul(result, other) if then == "relu" else result
            # what is not a number passes, as in torch: a loss that is not finite has to be seen
            result = builder.select(builder.fcmp_ordered("<=", sign, zero), zero, kept)
        builder.store(result, at(out, place), align=aligned)
        return context.get_dummy_value()

    # numba reads the number of arguments off this signature
    def sum_of_rows(
        _: Any, factors: Any, index: Any, start: Any, stop: Any, dense: Any, width: Any, first: Any,
        side: Any, beside: Any, out: Any, place: Any,
    ) -> Any:  # fmt: skip
        whole = types.intp
        arguments = (factors, index, whole, whole, dense, whole, whole, side, whole, out, whole)
        return types.void(*arguments), generate

    return intrinsic(sum_of_rows)


def _prefetch(builder: Any, pointer: Any) -> None:
    byte, short = ir.IntType(8).as_pointer(), ir.IntType(32)
    signature = ir.FunctionType(ir.VoidType(), [byte, short, short, short])
    function = builder.module.declare_intrinsic("llvm.prefetch", [byte], signature)
    for_reading_data = [ir.Constant(short, value) for value in (0, 3, 1)]
    builder.call(function, [builder.bitcast(pointer, byte), *for_reading_data])


_near_16, _near_8, _near_4 = (_make_sum(lanes, indexed=True) for lanes in (16, 8, 4))
_far_16, _far_8 = (_make_sum(lanes, indexed=True, ahead=FETCH_AHEAD) for lanes in (16, 8))
_near_add, _near_add_32 = (_make_sum(lanes, indexed=True, then="add") for lanes in (16, 32))
_near_relu = _make_sum(16, indexed=True, then="relu")
_far_relu = _make_sum(16, indexed=True, ahead=FETCH_AHEAD, then="relu")
_row_16, _row_8, _row_4 = (_make_sum(lanes, indexed=False) for lanes in (16, 8, 4))
_row_gate = _make_sum(16, indexed=False, then="gate")
_row_add = _make_sum(16, indexed=False, then="add")
_square, _square_add = (_make_sum(16, indexed=False, terms=16, then=then) for then in ("", "add"))

_axpy_8, _axpy_16, _axpy_32 = (_make_sum(lanes, indexed=False, terms=1, then="add") for lanes in (8, 16, 32))

# All arrays below are flat. "wide" rows are of a multiple of 16 numbers, as hidden layers have; "narrow" ones
# of 4 or a multiple of 8, as padded classes have.


@part
def sum_wide(
    factors: Any, index: Any, start: int, stop: int, dense: Any, width: int, out: Any, place: int
) -> None:
    """``out[place : place + width] = sum_k factors[k] dense[index[k]]`` of wide rows."""
    far = dense.shape[0] > FITS_CACHE
    for first in range(0, width, 16):
        if far:
            _far_16(factors, index, start, stop, dense, width, first, out, 0, out, place + first)
        else:
            _near_16(factors, index, start, stop, dense, width, first, out, 0, out, place + first)


@part
def sum_plus(
    factors: Any, index: Any, start: int, stop: int, dense: Any, width: int, base: Any, out: Any, place: int
) -> None:
    """``out[place : place + width] = base[place:] + sum_k factors[k] dense[index[k]]`` of wide rows."""
    if width % 32 == 0:
        for first in range(0, width, 32):
            to = place + first
            _near_add_32(factors, index, start, stop, dense, width, first, base, to, out, to)
    else:
        for first in range(0, width, 16):
            to = place + first
            _near_add(factors, index, start, stop, dense, width, first, base, to, out, to)


@part
def sum_narrow(
    factors: Any, index: Any, start: int, stop: int, dense: Any, width: int, out: Any, place: int
) -> None:
    """``out[place : place + width] = sum_k factors[k] dense[index[k]]`` of narrow rows."""
    if width == 4:
        _near_4(factors, index, start, stop, dense, width, 0, out, 0, out, place)
        return
    far = dense.shape[0] > FITS_CACHE
    for first in range(0, width, 8):
        if far:
            _far_8(factors, index, start, stop, dense, width, first, out, 0, out, place + first)
        else:
            _near_8(factors, index, start, stop, dense, width, first, out, 0, out, place + first)


@part
def relu_of_sum(
    factors: Any, index: Any, start: int, stop: int, dense: Any, width: int, mask: Any, beside: int, out: Any,
    place: int,
) -> None:  # fmt: skip
    """``out[place:] = mask[beside:] * relu(sum_k factors[k] dense[index[k]])`` of wide rows."""
    far = dense.shape[0] > FITS_CACHE
    for first in range(0, width, 16):
        side, to = beside + first, place + first
        if far:
            _far_relu(factors, index, start, stop, dense, width, first, mask, side, out, to)
        else:
            _near_relu(factors, index, start, stop, dense, width, first, mask, side, out, to)


@part
def row_times_wide(row: Any, start: int, stop: int, matrix: Any, width: int, out: Any, place: int) -> None:
    """``out[place : place + width] = row[start : stop] @ matrix``, a wide row."""
    if width == 16 and stop - start == 16:
        _square(row, row, start, stop, matrix, width, 0, out, 0, out, place)
        return
    for first in range(0, width, 16):
        _row_16(row, row, start, stop, matrix, width, first, out, 0, out, place + first)


@part
def row_times_narrow(row: Any, start: int, stop: int, matrix: Any, width: int, out: Any, place: int) -> None:
    """``out[place : place + width] = row[start : stop] @ matrix``, a narrow row."""
    if width == 4:
        _row_4(row, row, start, stop, matrix, width, 0, out, 0, out, place)
        return
    for first in range(0, width, 8):
        _row_8(row, row, start, stop, matrix, width, first, out, 0, out, place + first)


@part
def row_times_gated(
    row: Any, start: int, stop: int, matrix: Any, width: int, gate: Any, out: Any, place: int
) -> None:
    """``out[place:] = row[start : stop] @ matrix where gate[place:] > 0``, a wide row."""
    for first in range(0, width, 16):
        _row_gate(row, row, start, stop, matrix, width, first, gate, place + first, out, place + first)


@part
def row_times_plus(
    row: Any, start: int, stop: int, matrix: Any, width: int, base: Any, out: Any, place: int
) -> None:
    """``out[place:] = base[place:] + row[start : stop] @ matrix``, a wide row."""
    if width == 16 and stop - start == 16:
        _square_add(row, row, start, stop, matrix, width, 0, base, place, out, place)
        return
    for first in range(0, width, 16):
        _row_add(row, row, start, stop, matrix, width, first, base, place + first, out, place + first)


@part
def add_scaled(factors: Any, k: int, row: Any, width: int, out: Any, place: int) -> None:
    """``out[place : place + width] += factors[k] row``, a wide row."""
    if width % 32 == 0:
        for first in range(0, width, 32):
            to = place + first
            _axpy_32(factors, factors, k, k + 1, row, width, first, out, to, out, to)
    else:
        for first in range(0, width, 16):
            to = place + first
            _axpy_16(factors, factors, k, k + 1, row, width, first, out, to, out, to)


@part
def add_scaled_narrow(factors: Any, k: int, rows: Any, first: int, width: int, out: Any, place: int) -> None:
    """``out[place : place + width] += factors[k] rows[first : first + width]``, 8 | width."""
    for at in range(0, width, 8):
        to = place + at
        _axpy_8(factors, factors, k, k + 1, rows, width, first + at, out, to, out, to)


@part_reordering
def dot_narrow(left: Any, first: int, right: Any, second: int, width: int) -> Any:
    """Return ``left[first : first + width] . right[second : second + width]``, 8 | width."""
    total = left[first] * right[second]
    for f in range(1, 8):  # a fixed number: no loop is left
        total += left[first + f] * right[second + f]
    for f in range(8, width):
        total += left[first + f] * right[second + f]
    return total


@part
def flipped(weight: Any, factor: Any) -> Any:
    """Return ``factor weightᵀ``; weight (H, c), result (c, H)."""
    result = np.empty((weight.shape[1], weight.shape[0]), weight.dtype)
    for h in range(weight.shape[0]):
        for c in range(weight.shape[1]):
            result[c, h] = weight[h, c] * factor
    return result
