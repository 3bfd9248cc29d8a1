"""The layers after a propagation, a pass over the nodes each: relu, normalisation, dropout, a linear map.

``r = relu(Z + b0)``, ``h = mask * (a r + c)``, ``out = (h W + b1)ᵀ`` with a and c per column. Batch
normalisation is ``a = g / s`` and ``c = b - a m``, with the mean m and the deviation s of r over the nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bvat.engine.compiled.vectors import compiled, flipped, row_times_narrow, row_times_wide

BLOCK = 256
"""Nodes whose sums are added up in single precision before they join the total."""


@compiled
def relu_with_moments(state: Any, bias: Any, sums: Any) -> None:
    """Replace Z by r, and write the sums of r and r²; state (n, H), bias (H), sums float64 (2, H)."""
    nodes, width = state.shape
    part = np.empty((2, width), state.dtype)
    sums[:] = 0
    for start in range(0, nodes, BLOCK):
        part[:] = 0
        for v in range(start, min(nodes, start + BLOCK)):
            for j in range(width):
                shifted = state[v, j] + bias[j]
                # what is not a number passes, as in torch: a loss that is not finite has to be seen
                kept = state.dtype.type(0) if shifted <= 0 else shifted
                state[v, j] = kept
                part[0, j] += kept
                part[1, j] += kept * kept
        sums += part


@compiled
def head_forward(
    r: Any, scale: Any, shift: Any, mask: Any, weight: Any, last_bias: Any, across: int, out: Any
) -> None:
    """Write out; r (n, H), H wide; scale, shift (H); mask (n, H) or (1, H); weight (H, C); out (C, n).

    ``across`` is a narrow width, at least C.
    """
    nodes, width = r.shape
    classes = weight.shape[1]
    wide = np.zeros((width, across), weight.dtype)
    wide[:, :classes] = weight
    weight_flat, row, hidden = wide.reshape(-1), np.empty(across, r.dtype), np.empty(width, r.dtype)
    rows = mask.shape[0]
    for v in range(nodes):
        beside = v if rows > 1 else 0
        for j in range(width):
            hidden[j] = mask[beside, j] * (r[v, j] * scale[j] + shift[j])
        row_times_narrow(hidden, 0, width, weight_flat, across, row, 0)
        for c in range(classes):
            out[c, v] = row[c] + last_bias[c]


@compiled
def head_backward(
    grad: Any, r: Any, scale: Any, shift: Any, mask: Any, weight: Any, mean: Any, unit: Any, for_layer: Any,
    for_weight: Any, sums: Any,
) -> None:  # fmt: skip
    """Write the gradients of a r + c, and of W, given that of out.

    ``for_layer = u = mask * (gradᵀ Wᵀ)``; ``sums``: those of u and ``u (r - mean) unit`` over the nodes.

    Shapes: grad (C, n); for_layer as r (n, H); mean, unit (H); for_weight (C, H) and sums (2, H) in double
    precision.
    """
    nodes, width = r.shape
    classes = weight.shape[1]
    back, row = flipped(weight, weight.dtype.type(1)).reshape(-1), np.empty(classes, r.dtype)
    back_row, part, part_sums = (
        np.empty(width, r.dtype),
        np.empty((classes, width), r.dtype),
        np.empty((2, width), r.dtype),
    )
    rows = mask.shape[0]
    for_weight[:] = 0
    sums[:] = 0
    for start in range(0, nodes, BLOCK):
        part[:] = 0
        part_sums[:] = 0
        for v in range(start, min(nodes, start + BLOCK)):
            beside = v if rows > 1 else 0
            for c in range(classes):
                row[c] = grad[c, v]
            row_times_wide(row, 0, classes, back, width, back_row, 0)
            for j in range(width):
                u = back_row[j] * mask[beside, j]
                for_layer[v, j] = u
                part_sums[0, j] += u
                part_sums[1, j] += u * ((r[v, j] - mean[j]) * unit[j])
                back_row[j] = mask[beside, j] * (r[v, j] * scale[j] + shift[j])
            for c in range(classes):
                for j in range(width):
                    part[c, j] += row[c] * back_row[j]
        for_weight += part
        sums += part_sums


@compiled
def state_backward(
    for_layer: Any, r: Any, mean: Any, unit: Any, scale: Any, first: Any, second: Any, sums: Any
) -> None:
    """Replace u by the gradient of Z: ``a u - first - second (r - mean) unit`` where r > 0, else 0.

    Shapes: for_layer and r (n, H); all others (H), sums in double precision: those of the result.
    """
    nodes, width = r.shape
    part = np.empty(width, r.dtype)
    sums[:] = 0
    for start in range(0, nodes, BLOCK):
        part[:] = 0
        for v in range(start, min(nodes, start + BLOCK)):
            for j in range(width):
                passed = scale[j] * for_layer[v, j] - first[j] - second[j] * ((r[v, j] - mean[j]) * unit[j])
                passed = r.dtype.type(0) if r[v, j] <= 0 else passed
                for_layer[v, j] = passed
                part[j] += passed
        sums += part
