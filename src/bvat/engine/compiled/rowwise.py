"""Arithmetic whose results do not depend on how the rows of a matrix are spread over processes.

Two rules make it so. The result of a row depends on that row only: not on its place, nor on how many rows
there are (libraries treat the last rows of a matrix in another way than the first). And a sum over rows is
exact, so that the order of its terms does not matter: every term is first rounded to a multiple of a quantum,
chosen so that all sums of such multiples fit the 53 bits of a double (Demmel and Nguyen, 2013,
https://doi.org/10.1109/ARITH.2013.9). The quantum is ``N / 2^52`` of the largest term, so a sum of a million
terms has 32 bits below its largest one.

:func:`use` switches these versions on where ``layout`` and ``backend`` offer a choice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor

_active: ContextVar[bool] = ContextVar("rowwise", default=False)


def active() -> bool:
    """Return whether results must not depend on how rows are spread over processes."""
    return _active.get()


def switch_on() -> None:
    """Use these versions from now on."""
    _active.set(True)


@contextmanager
def use(wanted: bool = True) -> Iterator[None]:
    """Use these versions inside the block."""
    before = _active.set(wanted)
    try:
        yield
    finally:
        _active.reset(before)


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


def product(crow: Any, col: Any, values: Any, dense: Tensor, out: Tensor) -> None:
    """Write ``out = S @ dense``; S (n, m) as CSR arrays, dense (m, H), out (n, H), both contiguous."""
    from bvat.engine.compiled import layers

    layers.product(crow, col, values, dense.detach().numpy(), out.numpy())


def fitting_width(width: int) -> int:
    """Return the least width that :func:`product` and :func:`times` take."""
    return 4 if width <= 4 else (width + 7) // 8 * 8


def padded(dense: Tensor) -> Tensor:
    """Return a matrix with columns of zeros at its right, contiguous and of a width that fits."""
    width = fitting_width(dense.shape[1])
    if width == dense.shape[1]:
        return dense.detach().contiguous()
    wide = dense.new_zeros(dense.shape[0], width)
    wide[:, : dense.shape[1]] = dense.detach()
    return wide


def times(rows: Tensor, matrix: Tensor) -> Tensor:
    """Return ``rows @ matrix`` without autograd; rows (n, K), matrix (K, M)."""
    from bvat.engine.compiled import rowwise_loops

    wide = padded(matrix)
    out = rows.new_empty(rows.shape[0], wide.shape[1])
    rowwise_loops.times(_array(rows), wide.numpy(), out.numpy())
    return out if wide.shape[1] == matrix.shape[1] else out[:, : matrix.shape[1]].contiguous()


def row_dots(a: Tensor, b: Tensor) -> Tensor:
    """Return ``sum_j a_vj b_vj`` of every row v; a, b (n, K), result (n)."""
    from bvat.engine.compiled import rowwise_loops

    out = a.new_empty(a.shape[0])
    rowwise_loops.row_dots(_array(a), _array(b), out.numpy())
    return out


def softmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return probabilities and their logarithms, all (n, C), without autograd."""
    from bvat.engine.compiled import rowwise_loops

    values = logits.detach().contiguous()
    p, log_p = torch.empty_like(values), torch.empty_like(values)
    rowwise_loops.softmax(values.numpy(), p.numpy(), log_p.numpy())
    return p, log_p


def log(values: Tensor) -> Tensor:
    """Return the logarithm of every entry; shape (n, C)."""
    from bvat.engine.compiled import rowwise_loops

    source = values.detach().contiguous()
    out = torch.empty_like(source)
    rowwise_loops.log(source.numpy().reshape(-1), out.numpy().reshape(-1))
    return out


def adam_step_(
    values: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    number: int,
    *,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
) -> None:
    """Make step ``number`` of Adam up ``gradient``, down ``weight_decay values``, in place; all alike."""
    from bvat.engine.compiled import searches

    rates = lr / (1 - betas[0] ** number), (1 - betas[1] ** number) ** -0.5, betas, weight_decay, 1.0
    searches.adam_entries(
        _array(gradient).reshape(gradient.shape[0], -1),
        *(each.numpy().reshape(gradient.shape[0], -1) for each in (values, first, second)),
        *rates,
    )


def node_product(a: Tensor, b: Tensor, rounder: float) -> Tensor:
    """Return ``aᵀ b`` with terms rounded by ``rounder``, in double precision; a (n, K), b (n, M)."""
    from bvat.engine.compiled import rowwise_loops

    out = np.zeros((a.shape[1], b.shape[1]))
    rowwise_loops.node_product(_array(a), _array(b), rounder, out)
    return torch.from_numpy(out)


def scattered_product(crow: Any, col: Any, values: Any, b: Tensor, columns: int, rounder: float) -> Tensor:
    """Return ``Sᵀ b`` with terms rounded by ``rounder``, in double precision; S (n, columns), b (n, M)."""
    from bvat.engine.compiled import rowwise_loops

    out = np.zeros((columns, b.shape[1]))
    rowwise_loops.scattered_product(crow, col, values, _array(b), rounder, out)
    return torch.from_numpy(out)


def group_sums(values: Tensor, group: Tensor, groups: int, rounder: float) -> Tensor:
    """Return the sum of the values (n) of each group, rounded terms in double precision; group (n)."""
    wide = values.detach().double()
    return wide.new_zeros(groups).index_add_(0, group, (wide + rounder) - rounder)
