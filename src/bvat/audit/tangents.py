"""A tighter proof for models with one hidden layer, from what is known of each relu.

``logits = P2 relu(z) W2 + b2``, ``z = P1 X W1 + b1``, and R changes z by ``d_u = (P1 R)_u W1``. For
``a = e_c - e_k`` and ``P2 >= 0`` the margin of v falls by at most ``-sum_u P2_vu <d_u, t_u>``, where t_uh is

- for ``(W2 a)_h > 0``: ``(W2 a)_h`` where ``z_uh > 0`` and else 0, because relu lies above its tangents;
- for ``(W2 a)_h < 0``: ``(W2 a)_h`` times the slope of the secant from z to z + d. If ``|R| <= r`` then
  ``|d_uh| <= δ = r |P1_u| |w_h|``, and the slope lies between ``z / δ`` and ``1 + z / δ``, cut to [0, 1].

So t_u lies in a box ``m ± h``, and ``|W1 t_u|² <= s_u² = mᵀ G m + 2 hᵀ |G m| + hᵀ Λ h`` for ``G = W1ᵀ W1``,
and any diagonal ``Λ ⪰ G``. The radius r is proved if ``r |sum_u P2_vu s_u P1_u|`` is below the margin.
The slopes hold up to r only: no radius larger than r can be read off from them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from bvat.audit.slopes import UNIT, dominating, gram_matrix

Array = NDArray[np.float64]
TRIES = 4
"""Radii that are tried for each node and class."""
WIDER = 1.6
"""How much larger than the radius proved before a radius is at most."""
NEAR = 1.3
"""Classes that are further than this multiple of the nearest one are left as they are."""
_ENTRIES_AT_ONCE = 2**13
"""Entries of P2 whose slopes are computed together: few enough for the cache."""
_SLACK = 1e-12
"""Of quotients and products of a few numbers: thousands of units of roundoff."""


class Relus(NamedTuple):
    """The hidden layer in double precision.

    Shapes: z and error (N, H), the inputs of the relus and a bound of their rounding errors; reach (N),
    ``|P1_u|`` in the norm of the budget; first (D, H), W1; second (H, C), W2.
    """

    z: Array
    error: Array
    reach: Array
    first: Array
    second: Array


class Pair:
    """The slopes s_u for one pair of classes; ``nodes`` are the u. What does not depend on r is kept."""

    def __init__(self, relus: Relus, gram: Any, off: Any, a: Array, nodes: NDArray[Any]) -> None:
        free = a < 0
        self.a, z = -a[free], relus.z[nodes]
        fixed = np.where(z > 0, np.maximum(a, 0), 0)
        across = fixed @ gram
        self.square = np.einsum("nh,nh->n", fixed, across)
        self.across = across[:, free]
        self.gram = gram[np.ix_(free, free)]
        lengths = np.sqrt(np.diagonal(gram)) * (1 + 4 * (len(relus.first) + 4) * UNIT)
        # by how much s_u² is off: all terms are below this square, and G is a sum of D products
        size = fixed @ lengths + self.a @ lengths[free]
        self.rounding = 16 * (len(relus.first) + 2 * a.size + 16) * UNIT * size * size + 1e-290
        self.low, self.high = (z - relus.error[nodes])[:, free], (z + relus.error[nodes])[:, free]
        self.delta = relus.reach[nodes][:, None] * lengths[free] * (1 + _SLACK) + 1e-290
        scale = torch.from_numpy(self.a)
        scaled = scale[:, None] * torch.from_numpy(self.gram) * scale
        error = (
            scale[:, None] * torch.from_numpy(off[np.ix_(free, free)]) * scale + 4 * UNIT * scaled.abs()
        ).sum()
        self.diagonal = dominating(scaled[None], error[None])[0].numpy() * (1 + _SLACK)

    def slopes(self, at: NDArray[Any], radius: Array) -> Array:
        """Return s_u, rounded up, for changes of at most a radius; at (n), rows of ``nodes``; radius (n)."""
        delta = radius[:, None] * self.delta[at]
        low = np.clip(self.low[at] / delta - _SLACK, 0, 1)
        high = np.clip(self.high[at] / delta + (1 + _SLACK), 0, 1)
        half = (high - low) / 2
        middle = (low + half) * -self.a
        fixed = self.across[at]
        across = middle @ self.gram + fixed
        squares = self.square[at] + np.einsum("nh,nh->n", middle, across + fixed)
        squares += 2 * np.einsum("nh,nh->n", half * self.a, np.abs(across)) + (half * half) @ self.diagonal
        found: Array = np.sqrt(np.maximum(squares, 0) + self.rounding[at]) * (1 + _SLACK)
        return found


def wider(
    relus: Relus, outer: Any, inner: Any, budget: str, margin: Array, predicted: Any, proved: Array
) -> Array:
    """Return the radii proved (N, C), at least those of ``proved``, by bisection up to WIDER times them.

    Shapes: outer (N, N), P2 in CSR without negative entries; inner (N, N), P1, or None if P2 is diagonal.
    """
    slack = 1 + 8 * UNIT * (outer.shape[0] + 32)  # sums of at most N products, twice
    gram, off = (part.numpy() for part in gram_matrix(torch.from_numpy(relus.first)))
    near = (proved > 0) & (proved <= NEAR * proved.min(1, keepdims=True)) & (proved < 1e300)
    result = proved.copy()
    for c, k in np.argwhere(np.stack([near[predicted == c].any(0) for c in range(near.shape[1])])):
        chosen = np.flatnonzero(near[:, k] & (predicted == c))
        nodes = np.unique(outer[chosen].indices)
        pair = Pair(relus, gram, off, relus.second[:, c] - relus.second[:, k], nodes)
        ends = np.diff(outer.indptr)[chosen].cumsum() // _ENTRIES_AT_ONCE
        for v in np.split(chosen, np.flatnonzero(np.diff(ends)) + 1):
            rows = outer[v]
            owner = np.repeat(np.arange(v.size), np.diff(rows.indptr))
            at = np.searchsorted(nodes, rows.indices)
            low, high = proved[v, k], WIDER * proved[v, k]
            for _ in range(TRIES):
                tried = (low + high) / 2
                slopes = rows.data * pair.slopes(at, tried[owner])
                weighted = sp.csr_array((slopes, rows.indices, rows.indptr), rows.shape)
                found = (
                    weighted.sum(axis=1) * relus.reach[v]
                    if inner is None
                    else _norms(weighted @ inner, budget)
                )
                reached = margin[v, k] / (found * slack) * (1 - 8 * UNIT)
                low = np.maximum(low, np.minimum(tried, reached))  # never beyond what the slopes hold for
                high = np.maximum(low, np.where(reached < tried, tried, np.minimum(high, reached)))
            result[v, k] = low
    return result


def _norms(rows: Any, budget: str) -> Array:
    """Return the norm of each row of a matrix without negative entries, (n)."""
    if budget == "node":
        return np.asarray(rows.max(axis=1).toarray()).ravel()
    if budget == "graph":
        rows.data *= rows.data
    found: Array = np.asarray(rows.sum(axis=1)).ravel()
    return np.sqrt(found) if budget == "graph" else found
