"""The steps of a search: GCN of two layers, KL, factored space, single precision.

On a small graph the operations of one step take less time than it takes to call them one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bvat.engine.compiled.functions import ONE, ZERO, exp
from bvat.engine.compiled.layers import layer_backward, layer_forward, product, scattered_product
from bvat.engine.compiled.vectors import (
    compiled,
    flipped,
    part,
    row_times_plus,
    row_times_wide,
    sum_narrow,
    sum_wide,
)

BLOCK = 32
"""Nodes taken together, so that loops over them become vector instructions."""


@part
def _softmax(logits: Any, top: Any, total: Any) -> None:
    """Turn the logits of a block of nodes, (C, BLOCK), into probabilities; top, total (BLOCK) are scratch."""
    row = logits[0]
    for j in range(BLOCK):
        top[j] = row[j]
        total[j] = ZERO
    for c in range(1, logits.shape[0]):
        row = logits[c]
        for j in range(BLOCK):
            top[j] = max(top[j], row[j])
    for c in range(logits.shape[0]):
        row = logits[c]
        for j in range(BLOCK):
            row[j] = exp(row[j] - top[j])
            total[j] += row[j]
    for j in range(BLOCK):
        total[j] = ONE / total[j]
    for c in range(logits.shape[0]):
        row = logits[c]
        for j in range(BLOCK):
            row[j] *= total[j]


@part
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
def kl_slopes(crow: Any, col: Any, values: Any, narrow: Any, target: Any, slopes: Any) -> None:
    """Write ``slopes = softmax(S narrow) - p``; narrow, slopes (n, C) padded with zeros, target p (c, n)."""
    across, (classes, nodes) = narrow.shape[1], target.shape
    flat, row = narrow.reshape(-1), np.empty(across, narrow.dtype)
    logits = np.zeros((classes, BLOCK), narrow.dtype)
    top, total = np.empty(BLOCK, narrow.dtype), np.empty(BLOCK, narrow.dtype)
    for start in range(0, nodes, BLOCK):
        size = min(BLOCK, nodes - start)
        for j in range(size):
            v = start + j
            sum_narrow(values, col, crow[v], crow[v + 1], flat, across, row, 0)
            for c in range(classes):
                logits[c, j] = row[c]
        _softmax(logits, top, total)
        for j in range(size):
            for c in range(classes):
                slopes[start + j, c] = logits[c, j] - target[c, start + j]


@part
def _adam(z: Any, first: Any, second: Any, gradient: Any, length: float, root: float, betas: Any,
          penalty: float, scale: float) -> None:  # fmt: skip
    """Make a step of Adam down ``G = penalty Z - scale gradient`` in place; all flat and of one length.

    ``first`` and ``second`` are the moments of G; Z changes by ``length first / (root sqrt(second) + 1e-8)``.
    """
    b1, b2 = np.float32(betas[0]), np.float32(betas[1])
    rest1, rest2 = np.float32(1 - betas[0]), np.float32(1 - betas[1])
    weight, factor, lr = np.float32(penalty), np.float32(scale), np.float32(length)
    unbias, tiny = np.float32(root), np.float32(1e-8)
    for i in range(z.shape[0]):
        g = weight * z[i] - factor * gradient[i]  # moments are those of a descent, as torch's
        m = b1 * first[i] + rest1 * g
        s = b2 * second[i] + rest2 * g * g
        first[i] = m
        second[i] = s
        z[i] -= lr * m / (np.sqrt(s) * unbias + tiny)


@compiled
def adam_entries(gradient: Any, z: Any, first: Any, second: Any, length: float, root: float, betas: Any,
                 penalty: float, scale: float) -> None:  # fmt: skip
    """Make a step of Adam in place, see :func:`_adam`; all (n, H)."""
    _adam(z.reshape(-1), first.reshape(-1), second.reshape(-1), gradient.reshape(-1), length, root, betas,
          penalty, scale)  # fmt: skip


@compiled
def adam_rows(
    crow: Any, col: Any, values: Any, pulled: Any, upper: Any, base: Any, z: Any, first: Any, second: Any,
    length: float, root: float, betas: Any, penalty: float, scale: float, out: Any,
) -> None:  # fmt: skip
    """Make a step of Adam down ``penalty Z - scale (S pulled) Uᵀ`` and write ``out = base + Z U``.

    Shapes: upper U (H, H), all others (n, H).
    """
    nodes, width = z.shape
    up, down = upper.reshape(-1), flipped(upper, ONE).reshape(-1)
    flat, base_flat, out_flat, z_flat = pulled.reshape(-1), base.reshape(-1), out.reshape(-1), z.reshape(-1)
    first_flat, second_flat = first.reshape(-1), second.reshape(-1)
    row, gradient = np.empty(width, z.dtype), np.empty(BLOCK * width, z.dtype)
    for start in range(0, nodes, BLOCK):
        size = min(BLOCK, nodes - start)
        for j in range(size):
            v = start + j
            sum_wide(values, col, crow[v], crow[v + 1], flat, width, row, 0)
            row_times_wide(row, 0, width, down, width, gradient, j * width)
        # slices, so that the compiler sees that no index is negative and vectorises the loop
        rows = slice(start * width, (start + size) * width)
        _adam(
            z_flat[rows], first_flat[rows], second_flat[rows], gradient, length, root, betas, penalty, scale
        )
        for v in range(start, start + size):
            row_times_plus(z_flat, v * width, (v + 1) * width, up, width, base_flat, out_flat, v * width)


@compiled
def _forward(
    crow: Any, col: Any, values: Any, dense: Any, mask: Any, weight: Any, hidden: Any, logits: Any
) -> None:
    """Write the hidden layer (n1, H) and logits (b, C) of receptive fields; dense (m, H), weight (H, c)."""
    inner, chosen = hidden.shape[0], logits.shape[0]
    narrow = np.empty((inner, logits.shape[1]), dense.dtype)
    layer_forward(crow[: inner + 1], col, values, dense, mask, weight, hidden, narrow)
    product(crow[: chosen + 1], col, values, narrow, logits)


@compiled
def _backward(
    crow: Any,
    col: Any,
    values: Any,
    slopes: Any,
    weight: Any,
    factor: float,
    hidden: Any,
    summed: Any,
    out: Any,
) -> None:
    """Pull slopes (b, C) back: summed (n1, C) = Âᵀ slopes, out (m, H) for the projected features."""
    inner, chosen = hidden.shape[0], slopes.shape[0]
    gated = np.empty(hidden.shape, hidden.dtype)
    scattered_product(crow[: chosen + 1], col, values, slopes, summed)
    layer_backward(summed, weight, factor, hidden, gated)
    scattered_product(crow[: inner + 1], col, values, gated, out)


@compiled
def fields_step(
    crow: Any, col: Any, values: Any, sizes: Any, clean: Any, base: Any, mask: Any,
    last_base: Any, last_mask: Any, weight: Any, factor: float, gram: Any, epsilon: float, owner: Any,
) -> Any:  # fmt: skip
    """One power iteration from r = 0 on receptive fields, the loss there, and its gradients.

    ``G`` is the gradient of ``sum_u KL`` with respect to the projected features, ``R = A W0ᵀ`` with
    ``A = epsilon G / |G W0ᵀ|`` (row by row, or over each field if ``owner`` says whose field a row lies in),
    its effect ``A M`` with M = W0ᵀ W0. G is taken in a pass with ``base`` and ``mask``, the loss in one with
    the ``last`` ones.

    Shapes: CSR arrays of the fields' rows of Â; sizes (b, n1, m, C); clean logits (c, b); bases,
    the projected features, (m, H); masks (n1 or 1, H); weight W1 (H, c); gram M (H, H); owner (m) or (0).

    Returns:
        KL of each chosen node (b), squared lengths of R's rows (m), A (m, H), the gradient G' of the mean KL
        with respect to the projected features (m, H), the hidden layer (n1, H), and the gradient L of the
        mean KL with respect to what W1 makes of it (n1, C). So W1 has the gradient hiddenᵀ L, W0 Ŵ0 Aᵀ G'.
    """
    chosen, inner, rows, across = sizes
    width, classes = weight.shape
    dtype = base.dtype
    by = np.float32(factor)
    hidden = np.empty((inner, width), dtype)
    logits, slopes = np.empty((chosen, across), dtype), np.zeros((chosen, across), dtype)
    summed, pulled = np.empty((inner, across), dtype), np.empty((rows, width), dtype)
    p = np.empty((chosen, classes), dtype)
    log_p = np.empty((chosen, classes), dtype)
    for i in range(chosen):
        _log_softmax(clean[:, i], p[i], log_p[i])

    _forward(crow, col, values, base, mask, weight, hidden, logits)
    q, log_q = np.empty(classes, dtype), np.empty(classes, dtype)
    for i in range(chosen):
        _log_softmax(logits[i, :classes], q, log_q)
        for c in range(classes):
            slopes[i, c] = q[c] - p[i, c]
    _backward(crow, col, values, slopes, weight, by, hidden, summed, pulled)

    # unit size first: squares of tiny gradients would underflow
    largest = dtype.type(0)
    pulled_flat = pulled.reshape(-1)
    for i in range(pulled_flat.shape[0]):
        largest = max(largest, abs(pulled_flat[i]))
    least = np.float32(1.1754944e-38)
    unit = ONE / max(largest, least)
    for i in range(pulled_flat.shape[0]):
        pulled_flat[i] *= unit
    effect, squares = np.empty((rows, width), dtype), np.empty(rows, dtype)
    effect_flat, gram_flat = effect.reshape(-1), gram.reshape(-1)
    for i in range(rows):
        row_times_wide(pulled_flat, i * width, (i + 1) * width, gram_flat, width, effect_flat, i * width)
        total = ZERO
        for h in range(width):
            total += pulled[i, h] * effect[i, h]
        squares[i] = max(total, ZERO)
    of_field = np.zeros(chosen, dtype)
    for i in range(owner.shape[0]):
        of_field[owner[i]] += squares[i]
    for i in range(rows):
        square = squares[i] if owner.shape[0] == 0 else of_field[owner[i]]
        scale = np.float32(epsilon) / np.sqrt(max(square, least))
        squares[i] *= scale * scale
        for h in range(width):
            pulled[i, h] *= scale
            effect[i, h] = last_base[i, h] + scale * effect[i, h]

    _forward(crow, col, values, effect, last_mask, weight, hidden, logits)
    value = np.empty(chosen, dtype)
    for i in range(chosen):
        _log_softmax(logits[i, :classes], q, log_q)
        total = ZERO
        for c in range(classes):
            total += p[i, c] * (log_p[i, c] - log_q[c])
            slopes[i, c] = (q[c] - p[i, c]) / np.float32(chosen)
        value[i] = max(total, ZERO)
    gradient = effect  # its memory is free now
    _backward(crow, col, values, slopes, weight, by, hidden, summed, gradient)
    return value, squares, pulled, gradient, hidden, summed
