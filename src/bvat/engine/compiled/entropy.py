"""The entropy of many predictions with its gradient, single precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from bvat.engine.compiled.functions import ONE, ZERO, exp, log
from bvat.engine.compiled.vectors import compiled_reordering

BLOCK = 32
"""Nodes taken together where logits lie by classes."""


@compiled_reordering
def entropy_by_classes(logits: Any, gradient: Any) -> float:
    """Return ``sum_u E(p_u)`` and write ``p (log p + E)``; logits and gradient (C, n)."""
    classes, nodes = logits.shape
    shifted, p = np.zeros((classes, BLOCK), np.float32), np.empty((classes, BLOCK), np.float32)
    top, total, each = (np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32))
    result = 0.0
    for start in range(0, nodes, BLOCK):
        size = min(BLOCK, nodes - start)
        for c in range(classes):
            row, source = shifted[c], logits[c, start : start + size]
            for j in range(size):
                row[j] = source[j]
        row = shifted[0]
        for j in range(BLOCK):
            top[j] = row[j]
            total[j] = ZERO
            each[j] = ZERO
        for c in range(1, classes):
            row = shifted[c]
            for j in range(BLOCK):
                top[j] = max(top[j], row[j])
        for c in range(classes):
            row, of_class = shifted[c], p[c]
            for j in range(BLOCK):
                row[j] -= top[j]
                of_class[j] = exp(row[j])
                total[j] += of_class[j]
        for j in range(BLOCK):
            top[j] = log(total[j])
            total[j] = ONE / total[j]
        for c in range(classes):
            row, of_class = shifted[c], p[c]
            for j in range(BLOCK):
                of_class[j] *= total[j]
                row[j] -= top[j]
                each[j] -= of_class[j] * row[j]
        for j in range(size):
            result += float(each[j])
        for c in range(classes):
            row, of_class, out = shifted[c], p[c], gradient[c, start : start + size]
            for j in range(size):
                out[j] = of_class[j] * (row[j] + each[j])
    return result


@compiled_reordering
def entropy_by_nodes(logits: Any, gradient: Any) -> float:
    """Return ``sum_u E(p_u)`` and write ``p (log p + E)``; logits and gradient (n, C)."""
    nodes, classes = logits.shape
    shifted, p = np.empty(classes, np.float32), np.empty(classes, np.float32)
    result = 0.0
    for v in range(nodes):
        row, out = logits[v], gradient[v]
        top = row[0]
        for c in range(1, classes):
            top = max(top, row[c])
        for c in range(classes):
            shifted[c] = row[c] - top
            p[c] = exp(shifted[c])
        total = ZERO
        for c in range(classes):
            total += p[c]
        shift, scale = log(total), ONE / total
        each = ZERO
        for c in range(classes):
            p[c] *= scale
            shifted[c] -= shift
        for c in range(classes):
            each -= p[c] * shifted[c]
        for c in range(classes):
            out[c] = p[c] * (shifted[c] + each)
        result += float(each)
    return result
