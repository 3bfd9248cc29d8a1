"""The steps of a search: GCN of two layers, KL, factored space, single precision.

On a small graph the operations of one step take less time than it takes to call them one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bvat.engine.compile import compiled, part
from bvat.engine.compiled.loops import layer_backward, layer_forward, product, scattered_product, times

ZERO, ONE = np.float32(0), np.float32(1)
_LEAST = np.float32(1.1754944e-38)  # the least normal number


@part()
def _log_softmax(logits: Any, p: Any, log_p: Any) -> None:
    """Write softmax and its logarithm for one node; all (c)."""
    top = logits[0]
    for c in range(1, logits.shape[0]):
        top = max(top, logits[c])
    total = ZERO
    for c in range(logits.shape[0]):
        p[c] = np.exp(logits[c] - top)
        total += p[c]
    log_total = np.log(total)
    for c in range(logits.shape[0]):
        p[c] /= total
        log_p[c] = logits[c] - top - log_total


@compiled
def _forward(matrix: Any, dense: Any, mask: Any, weight: Any, hidden: Any, logits: Any) -> None:
    """Write the hidden layer (n1, H) and logits (b, C) of receptive fields; dense (m, H), weight (H, c)."""
    crow, col, values = matrix
    inner, chosen = hidden.shape[0], logits.shape[0]
    narrow = np.empty((inner, logits.shape[1]), dense.dtype)
    layer_forward((crow[: inner + 1], col, values), dense, mask, weight, hidden, narrow)
    product((crow[: chosen + 1], col, values), narrow, logits)


@compiled
def _backward(matrix: Any, slopes: Any, weight: Any, factor: Any, hidden: Any, summed: Any, out: Any) -> None:
    """Pull slopes (b, C) back: summed (n1, C) = Âᵀ slopes, out (m, H) for the projected features."""
    crow, col, values = matrix
    inner, chosen = hidden.shape[0], slopes.shape[0]
    gated = np.empty(hidden.shape, hidden.dtype)
    scattered_product((crow[: chosen + 1], col, values), slopes, summed)
    layer_backward(summed, weight, factor, hidden, gated)
    scattered_product((crow[: inner + 1], col, values), gated, out)


@compiled
def _full_step(g: Any, gram: Any, epsilon: Any, owner: Any, fields: int, effect: Any, squares: Any) -> None:
    """Scale G (m, H) to A in place, row by row or field by field; write A M and the squared lengths (m).

    Unit size comes first: squares of tiny gradients would underflow.
    """
    flat, largest = g.reshape(-1), ZERO
    for i in range(flat.shape[0]):
        largest = max(largest, abs(flat[i]))
    unit = ONE / max(largest, _LEAST)
    for i in range(flat.shape[0]):
        flat[i] *= unit
    times(g, gram, effect)
    for i in range(g.shape[0]):
        total = ZERO
        for h in range(g.shape[1]):
            total += g[i, h] * effect[i, h]
        squares[i] = max(total, ZERO)
    of_field = np.zeros(fields, g.dtype)
    for i in range(owner.shape[0]):
        of_field[owner[i]] += squares[i]
    for i in range(g.shape[0]):
        square = squares[i] if owner.shape[0] == 0 else of_field[owner[i]]
        scale = epsilon / np.sqrt(max(square, _LEAST))
        squares[i] *= scale * scale
        for h in range(g.shape[1]):
            g[i, h] *= scale
            effect[i, h] *= scale


@compiled
def fields_step(matrix: Any, sizes: Any, clean: Any, passes: Any, maps: Any, rates: Any, owner: Any) -> Any:
    """One power iteration from r = 0 on receptive fields, the loss there, and its gradients.

    ``G`` is the gradient of ``sum_u KL`` with respect to the projected features, ``R = A W0ᵀ`` with
    ``A = epsilon G / |G W0ᵀ|`` (row by row, or over each field if ``owner`` says whose field a row lies in),
    its effect ``A M`` with M = W0ᵀ W0. G is taken in a pass with ``base`` and ``mask``, the loss in one with
    the ``last`` ones.

    Shapes: matrix, the CSR arrays of the fields' rows of Â; sizes (b, n1, m, C); clean logits (c, b); passes:
    bases, the projected features, (m, H) and masks (n1 or 1, H); maps: W1 (H, c) and M (H, H); rates: the
    factor of dropout and epsilon; owner (m) or (0).

    Returns:
        KL of each chosen node (b), squared lengths of R's rows (m), A (m, H), the gradient G' of the mean KL
        with respect to the projected features (m, H), the hidden layer (n1, H), and the gradient L of the
        mean KL with respect to what W1 makes of it (n1, C). So W1 has the gradient hiddenᵀ L, W0 Ŵ0 Aᵀ G'.
    """
    chosen, inner, rows, across = sizes
    (base, mask, last_base, last_mask), (weight, gram), (factor, epsilon) = passes, maps, rates
    width, classes = weight.shape
    dtype = base.dtype
    hidden = np.empty((inner, width), dtype)
    logits, slopes = np.empty((chosen, across), dtype), np.zeros((chosen, across), dtype)
    summed, pulled = np.empty((inner, across), dtype), np.empty((rows, width), dtype)
    p = np.empty((chosen, classes), dtype)
    log_p = np.empty((chosen, classes), dtype)
    for i in range(chosen):
        _log_softmax(clean[:, i], p[i], log_p[i])

    _forward(matrix, base, mask, weight, hidden, logits)
    q, log_q = np.empty(classes, dtype), np.empty(classes, dtype)
    for i in range(chosen):
        _log_softmax(logits[i, :classes], q, log_q)
        for c in range(classes):
            slopes[i, c] = q[c] - p[i, c]
    _backward(matrix, slopes, weight, factor, hidden, summed, pulled)

    effect, squares = np.empty((rows, width), dtype), np.empty(rows, dtype)
    _full_step(pulled, gram, epsilon, owner, chosen, effect, squares)
    for i in range(rows):
        for h in range(width):
            effect[i, h] += last_base[i, h]

    _forward(matrix, effect, last_mask, weight, hidden, logits)
    value = np.empty(chosen, dtype)
    for i in range(chosen):
        _log_softmax(logits[i, :classes], q, log_q)
        total = ZERO
        for c in range(classes):
            total += p[i, c] * (log_p[i, c] - log_q[c])
            slopes[i, c] = (q[c] - p[i, c]) / np.float32(chosen)
        value[i] = max(total, ZERO)
    gradient = effect  # its memory is free now
    _backward(matrix, slopes, weight, factor, hidden, summed, gradient)
    return value, squares, pulled, gradient, hidden, summed
