"""Arithmetic whose results do not depend on how the rows of a matrix are spread over processes.

Two rules make it so. The result of a row depends on that row only: not on its place, nor on how many rows
there are (libraries treat the last rows of a matrix in another way than the first). And a sum over rows is
exact, so that the order of its terms does not matter: every term is first rounded to a multiple of a quantum,
chosen so that all sums of such multiples fit the 53 bits of a double (Demmel and Nguyen, 2013,
https://doi.org/10.1109/ARITH.2013.9). The quantum is ``N / 2^52`` of the largest term, so a sum of a million
terms has 32 bits below its largest one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bvat.engine.compile import Compiled
from bvat.engine.matrix import padded_width


def magic(largest: float, terms: int) -> float:
    """Return the number c with which ``(t + c) - c`` rounds terms so that their sums are exact.

    ``largest`` bounds the size of a term, ``terms`` their number.
    """
    bound = largest * max(1, terms)
    if not 0 < bound < math.inf:
        return 0.0 if bound == 0 else bound  # what is not finite is seen in the sum
    return math.ldexp(1.5, math.frexp(bound)[1] + 1)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


@cache
def _loops() -> Any:
    from bvat.engine import loops  # imports numba

    return loops


def product(csr: Sequence[Tensor], dense: Tensor, out: Tensor, base: Tensor | None = None) -> None:
    """Write ``out = base + S @ dense``; see :func:`bvat.engine.loops.product`."""
    _loops().product(_arrays(csr), dense.numpy(), None if base is None else base.numpy(), out.numpy())


def scatter(csr: Sequence[Tensor], dense: Tensor, out: Tensor) -> None:
    """Add ``Sᵀ dense`` to out; see :func:`bvat.engine.loops.scatter`."""
    _loops().scatter(_arrays(csr), dense.numpy(), out.numpy())


def _arrays(csr: Sequence[Tensor]) -> tuple[Any, ...]:
    return tuple([(each.detach() if each.requires_grad else each).numpy() for each in csr])


def padded(dense: Tensor) -> Tensor:
    """Return a matrix with columns of zeros at its right, contiguous, of a width that fits; no gradient."""
    dense = dense.detach() if dense.requires_grad else dense
    rows, width = dense.shape
    if width % 8 == 0:
        return dense.contiguous()
    wide = dense.new_zeros(rows, padded_width(width))
    wide.narrow(1, 0, width).copy_(dense)
    return wide


def cut(wide: Tensor, width: int) -> Tensor:
    """Return the first columns of a padded matrix, contiguous."""
    return wide if wide.shape[1] == width else wide[:, :width].contiguous()


def times(rows: Tensor, matrix: Tensor) -> Tensor:
    """Return ``rows @ matrix`` without autograd; rows (n, K), matrix (K, M)."""
    wide = padded(matrix)
    out = rows.new_empty(rows.shape[0], wide.shape[1])
    _loops().times(_array(rows), wide.numpy(), out.numpy())
    return cut(out, matrix.shape[1])


def row_dots(a: Tensor, b: Tensor) -> Tensor:
    """Return ``sum_j a_vj b_vj`` of every row v; a, b (n, K), result (n)."""
    out = a.new_empty(a.shape[0])
    _row_dots(_array(a), _array(b), out.numpy())
    return out


def softmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return probabilities and their logarithms, all (n, C), without autograd."""
    values = logits.detach().contiguous()
    p, log_p = torch.empty_like(values), torch.empty_like(values)
    _softmax(values.numpy(), p.numpy(), log_p.numpy())
    return p, log_p


def log(values: Tensor) -> Tensor:
    """Return the logarithm of every entry; shape (n, C)."""
    source = values.detach().contiguous()
    out = torch.empty_like(source)
    _log(source.numpy().reshape(-1), out.numpy().reshape(-1))
    return out


def adam_step_(values: Tensor, gradient: Tensor, moments: dict[str, Tensor], rates: Any) -> None:
    """Make one step of Adam up ``gradient`` and down the weight decay, in place; tensors all alike.

    One operation at a time: no two are contracted, in no place of an array.
    """
    moments["count"] += 1
    number, (b1, b2) = int(moments["count"]), rates.betas
    z, first, second = (each.numpy() for each in (values, moments["first"], moments["second"]))
    g = rates.weight_decay * z - _array(gradient)  # moments are those of a descent, as torch's
    first[...] = b1 * first + (1 - b1) * g
    second[...] = b2 * second + (1 - b2) * g * g
    length, root = rates.lr / (1 - b1**number), (1 - b2**number) ** -0.5
    z -= length * first / (np.sqrt(second) * root + rates.epsilon)


def node_product(a: Tensor, b: Tensor, rounder: float) -> Tensor:
    """Return ``aᵀ b`` with terms rounded by ``rounder``, in double precision; a (n, K), b (n, M)."""
    out = np.zeros((a.shape[1], b.shape[1]))
    _node_product(_array(a), _array(b), rounder, out)
    return torch.from_numpy(out)


def scattered_product(crow: Any, col: Any, values: Any, b: Tensor, columns: int, rounder: float) -> Tensor:
    """Return ``Sᵀ b`` with terms rounded by ``rounder``, in double precision; S (n, columns), b (n, M)."""
    out = np.zeros((columns, b.shape[1]))
    _scattered_product(crow, col, values, _array(b), rounder, out)
    return torch.from_numpy(out)


def group_sums(values: Tensor, group: Tensor, groups: int, rounder: float) -> Tensor:
    """Return the sum of the values (n) of each group, rounded terms in double precision; group (n)."""
    wide = values.detach().double()
    return wide.new_zeros(groups).index_add_(0, group, (wide + rounder) - rounder)


_compiled = partial(Compiled, error_model="numpy", nogil=True, fastmath=set())


@_compiled
def _row_dots(a: Any, b: Any, out: Any) -> None:
    """Write ``out_v = sum_j a_vj b_vj``; a, b (n, K), out (n)."""
    for v in range(a.shape[0]):
        total = 0.0
        for j in range(a.shape[1]):
            total += np.float64(a[v, j]) * np.float64(b[v, j])
        out[v] = total


@_compiled
def _softmax(logits: Any, p: Any, log_p: Any) -> None:
    """Write softmax and its logarithm of every row; all (n, C)."""
    classes = logits.shape[1]
    for v in range(logits.shape[0]):
        top = logits[v, 0]
        for c in range(1, classes):
            top = max(top, logits[v, c])
        total = 0.0
        for c in range(classes):
            total += np.exp(np.float64(logits[v, c] - top))
        log_total = np.log(total)
        for c in range(classes):
            shifted = np.float64(logits[v, c] - top) - log_total
            log_p[v, c] = shifted
            p[v, c] = np.exp(shifted)


@_compiled
def _log(values: Any, out: Any) -> None:
    """Write the logarithm of every entry; both flat."""
    for i in range(values.shape[0]):
        out[i] = np.log(np.float64(values[i]))


@_compiled
def _node_product(a: Any, b: Any, rounder: float, out: Any) -> None:
    """Add ``aᵀ b`` to ``out`` with every term rounded; a (n, K), b (n, M), out (K, M) in double precision."""
    for v in range(a.shape[0]):
        for k in range(a.shape[1]):
            factor = np.float64(a[v, k])
            if factor == 0.0:  # a term that adds nothing: half of them under dropout
                continue
            row, source = out[k], b[v]
            for j in range(row.shape[0]):
                row[j] += (factor * np.float64(source[j]) + rounder) - rounder


@_compiled
def _scattered_product(crow: Any, col: Any, values: Any, b: Any, rounder: float, out: Any) -> None:
    """Add ``Sᵀ b`` to ``out`` with every term rounded; S (n, m), b (n, M), out (m, M) in double precision."""
    for v in range(b.shape[0]):
        source = b[v]
        for k in range(crow[v], crow[v + 1]):
            factor = np.float64(values[k])
            if factor == 0.0:
                continue
            row = out[col[k]]
            for j in range(row.shape[0]):
                row[j] += (factor * np.float64(source[j]) + rounder) - rounder
