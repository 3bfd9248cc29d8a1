"""How much the margin between two classes can change when every relu has any slope from 0 to 1.

The weights W1, ..., WL lead from features to classes. With slopes D_l, diagonal with entries in [0, 1], and
``a = e_c - e_k``, the change of a margin is ``<change, q>`` with ``q = W1 D_1 W2 ... D_{L-1} WL a``. Wanted
is a bound s_ck of |q| over all slopes.

``t = D_1 W2 ... WL a`` lies in a box (intervals, from the last layer to the first), so ``|q|² = tᵀ G t`` with
``G = W1ᵀ W1``. Three bounds of its maximum over the box are computed, and the smallest counts:

1. every entry ``G_ij t_i t_j`` at its own maximum;
2. ``t = m + h ∘ y`` with ``|y_i| <= 1``: with ``y_0 = 1``, ``|q|² = yᵀ M y <= trace Λ`` for every diagonal
   ``Λ ⪰ M = Bᵀ G B``, ``B = [m, diag(h)]``. This is the dual of the semidefinite relaxation of max cut; at
   its optimum it is at most π/2 times the maximum (Nesterov, 1998);
3. for three layers and more, the largest singular value of W1 times the bound of the layers behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

UNIT = 2.0**-53
"""Unit roundoff of double precision."""
_PAIRS_AT_ONCE = 2**20
"""Entries of the matrices M that are held at once."""
_UNDERFLOW = 1e-290
"""More than all that underflow can hide in |q|², for weights of at most 1."""


def slope_bounds(weights: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return an upper bound of |q| for each pair of classes, (C, C), symmetric with a diagonal of 0.

    Shapes: weights (H_l, H_{l+1}), the first one first.
    """
    classes = weights[-1].shape[1]
    bounds = np.zeros((classes, classes))
    powers = [int(np.frexp(np.abs(w).max(initial=0.0))[1]) for w in weights]
    scaled = [torch.from_numpy(np.ldexp(w, -power)) for w, power in zip(weights, powers, strict=True)]
    pairs = np.array(list(combinations(range(classes), 2)), dtype=np.int64).reshape(-1, 2)
    step = max(1, _PAIRS_AT_ONCE // (weights[0].shape[1] + 1) ** 2)
    for start in range(0, len(pairs), step):
        c, k = pairs[start : start + step].T
        signs = np.zeros((c.size, classes))
        signs[np.arange(c.size), c], signs[np.arange(c.size), k] = 1, -1
        bounds[c, k] = bounds[k, c] = _bound(scaled, torch.from_numpy(signs))
    return np.ldexp(bounds, sum(powers))


def _bound(weights: list[Tensor], signs: Tensor) -> Any:
    """Return the bounds for the rows a of signs, (p, C) to (p)."""
    low, high = signs, signs
    for weight in weights[:0:-1]:
        low, high = _through(weight, low, high)
    gram, off = gram_matrix(weights[0])
    squares = torch.minimum(_entrywise(gram, off, low, high), _dual(gram, off, low, high))
    found = (squares.clamp_min(0) + _UNDERFLOW).sqrt() * (1 + 4 * UNIT)
    if len(weights) > 2:
        behind = torch.from_numpy(_bound(weights[1:], signs))
        found = torch.minimum(found, _largest_singular_value(gram, off) * behind * (1 + 4 * UNIT))
    return found.numpy()


def _through(weight: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return a box that holds ``D W t`` for all slopes D and all t in a box, rounded outwards.

    Shapes: weight (H, H'); low, high (p, H') to (p, H).
    """
    positive, negative = weight.clamp_min(0).t(), weight.clamp_max(0).t()
    error = 2 * (2 * weight.shape[1] + 4) * UNIT * (torch.maximum(low.abs(), high.abs()) @ weight.abs().t())
    least, most = low @ positive + high @ negative - error, high @ positive + low @ negative + error
    return least.clamp_max(0), most.clamp_min(0)


def _entrywise(gram: Tensor, off: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return ``sum_ij max G_ij t_i t_j`` over the box, (p); ``off`` (H, H) bounds the errors of ``gram``."""
    corners = [a[:, :, None] * b[:, None, :] for a in (low, high) for b in (low, high)]
    ends = (gram - off, gram + off)
    best = torch.stack([end * corner for end in ends for corner in corners]).amax(0)
    error = 2 * (gram.numel() + 8) * UNIT * best.abs().sum((1, 2))
    return best.sum((1, 2)) + error


def _dual(gram: Tensor, off: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return ``trace Λ`` with a diagonal ``Λ ⪰ M``, (p)."""
    middle = (low + high) / 2
    half = torch.maximum(high - middle, middle - low) * (1 + 4 * UNIT)
    basis = torch.cat([middle[:, :, None], torch.diag_embed(half)], 2)
    m = basis.transpose(1, 2) @ gram @ basis
    error = basis.abs().transpose(1, 2) @ (off + 4 * gram.shape[0] * UNIT * gram.abs()) @ basis.abs()
    return dominating(m, error.sum((1, 2))).sum(1) * (1 + 2 * m.shape[1] * UNIT)


def gram_matrix(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``WᵀW`` and a bound of the rounding error of each entry; weight (D, H), both (H, H)."""
    return weight.t() @ weight, 2 * (weight.shape[0] + 4) * UNIT * (weight.abs().t() @ weight.abs())


def dominating(m: Tensor, error: Tensor, steps: int = 60) -> Tensor:
    """Return diagonals Λ with ``Λ ⪰ M`` for all M that differ from m by an error of at most this norm.

    ``V <- rows of M V at unit length`` ascends ``trace Vᵀ M V``, and ``Λ_i = |(M V)_i|`` at its maximum. Any
    V gives a sound bound: Λ is scaled until ``Λ - M`` has a Cholesky factorisation, and then increased by
    what rounding can hide. For a matrix A of size n, a factorisation that succeeds proves that no eigenvalue
    is below ``-γ_{n+1} trace A / (1 - γ_{n+1})`` (Rump, 2006). Where none succeeds, Λ is infinite.

    Shapes: m (p, n, n), symmetric but for rounding; error (p); result (p, n).
    """
    n, tiny = m.shape[1], torch.finfo(torch.float64).tiny
    if n == 0:
        return m.new_zeros(len(m), 0)
    m = (m + m.transpose(1, 2)) / 2
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(n, min(n, 12), generator=generator, dtype=torch.float64).expand(len(m), -1, -1)
    for _ in range(steps):
        v = m @ v
        v = v / v.norm(dim=2, keepdim=True).clamp_min(tiny)
    own = m.diagonal(dim1=1, dim2=2)
    diagonal = torch.maximum((m @ v).norm(dim=2), own)
    diagonal = diagonal.clamp_min(1e-12 * own.sum(1, keepdim=True)).clamp_min(tiny)
    scale = diagonal.rsqrt()
    top = torch.linalg.eigvalsh(scale[:, :, None] * m * scale[:, None, :])[:, -1:]
    diagonal = diagonal * (top.clamp_min(0) * (1 + 1e-9) + 1e-12)
    rest = torch.diag_embed(diagonal) - m
    proved = torch.linalg.cholesky_ex(rest).info == 0
    hidden = 4 * (n + 2) * UNIT * rest.diagonal(dim1=1, dim2=2).abs().sum(1)
    hidden = hidden + 2 * UNIT * (m.abs().sum((1, 2)) + diagonal.sum(1)) + 2 * error
    return torch.where(proved[:, None], diagonal + hidden[:, None], torch.inf)


def _largest_singular_value(gram: Tensor, off: Tensor) -> Tensor:
    """Return an upper bound of the largest singular value of W with ``gram = Wᵀ W``, a scalar."""
    n = gram.shape[0]
    top = torch.linalg.eigvalsh(gram)[-1].clamp_min(0) * (1 + 1e-9) + torch.finfo(torch.float64).tiny
    rest = top * torch.eye(n, dtype=torch.float64) - gram
    if int(torch.linalg.cholesky_ex(rest).info):
        return torch.tensor(torch.inf, dtype=torch.float64)
    hidden = 4 * (n + 2) * UNIT * rest.diagonal().abs().sum() + (off + 2 * UNIT * gram.abs()).sum(1).max()
    found: Tensor = (top + hidden + 2 * UNIT * top).sqrt() * (1 + 4 * UNIT)
    return found
