"""Philox4x32-10 (Salmon et al., 2011): random numbers that are a function of a key and a counter.

https://doi.org/10.1145/2063384.2063405
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bvat.engine.compile import compiled, part

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
_HALF_WORD, _16 = np.uint64(0xFFFF), np.uint64(16)
_ONE, _FOUR, _EIGHT = np.uint64(1), np.uint64(4), np.uint64(8)
_UNIT = 2.0**-32
_TWO_PI = 2 * np.pi


@part()
def philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """Return four 32-bit words (as uint64) for a counter of four words and a key of two."""
    for _ in range(10):
        high0, low0 = (_M0 * c0) >> _SHIFT, (_M0 * c0) & _LOW
        high1, low1 = (_M1 * c2) >> _SHIFT, (_M1 * c2) & _LOW
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0, c1, c2, c3


@compiled
def words(counters: Any, key: Any, out: Any) -> None:
    """Write the words of many counters; counters and out uint64 (n, 4), key uint64 (2)."""
    for i in range(counters.shape[0]):
        c = counters[i]
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = philox(c[0], c[1], c[2], c[3], key[0], key[1])


@part()
def _halves(word: Any) -> Any:
    return np.int64(word & _HALF_WORD), np.int64(word >> _16)


@compiled
def masks(nodes: Any, crow: Any, level: int, factor: Any, counter: Any, out: Any) -> None:
    """Write 0, or ``factor`` where 16 random bits are at least ``level``.

    Entries crow[v] to crow[v + 1] of ``out`` belong to node nodes[v]; eight of them share a call.
    """
    key, epoch, call = counter
    zero = factor - factor
    bits = np.empty(8, np.int64)
    for v in range(nodes.shape[0]):
        start, stop = crow[v], crow[v + 1]
        block = np.uint64(0)
        while start < stop:
            a, b, c, d = philox(np.uint64(nodes[v]), block, call, epoch, key[0], key[1])
            bits[0], bits[1] = _halves(a)
            bits[2], bits[3] = _halves(b)
            bits[4], bits[5] = _halves(c)
            bits[6], bits[7] = _halves(d)
            for i in range(min(8, stop - start)):
                out[start + i] = factor if bits[i] >= level else zero
            start += 8
            block += _ONE


@compiled
def pair_masks(rows: Any, columns: Any, level: int, factor: Any, counter: Any, out: Any) -> None:
    """Write 0 or ``factor`` for entries of Â between nodes rows[i] and columns[i]."""
    key, epoch, call = counter
    zero = factor - factor
    for i in range(rows.shape[0]):
        word = philox(np.uint64(rows[i]), np.uint64(columns[i]), call, epoch, key[0], key[1])[0]
        out[i] = factor if np.int64(word & _HALF_WORD) >= level else zero


@part()
def _normal_pair(a: Any, b: Any) -> Any:
    radius = np.sqrt(-2.0 * np.log((np.float64(a) + 1.0) * _UNIT))
    angle = _TWO_PI * np.float64(b) * _UNIT
    return radius * np.cos(angle), radius * np.sin(angle)


@compiled
def normals(nodes: Any, crow: Any, counter: Any, out: Any) -> None:
    """Write N(0, 1) numbers (Box and Muller); entries crow[v] to crow[v + 1] belong to node nodes[v]."""
    key, epoch, call = counter
    four = np.empty(4)
    for v in range(nodes.shape[0]):
        start, stop = crow[v], crow[v + 1]
        block = np.uint64(0)
        while start < stop:
            a, b, c, d = philox(np.uint64(nodes[v]), block, call, epoch, key[0], key[1])
            four[0], four[1] = _normal_pair(a, b)
            four[2], four[3] = _normal_pair(c, d)
            for i in range(min(4, stop - start)):
                out[start + i] = four[i]
            start += 4
            block += _ONE


@compiled
def uniforms(nodes: Any, crow: Any, counter: Any, out: Any) -> None:
    """Write numbers from [0, 1); entries crow[v] to crow[v + 1] belong to node nodes[v]."""
    key, epoch, call = counter
    for v in range(nodes.shape[0]):
        for k in range(crow[v], crow[v + 1]):
            word = philox(np.uint64(nodes[v]), np.uint64(k - crow[v]), call, epoch, key[0], key[1])[0]
            out[k] = np.float64(word >> _EIGHT) * 2.0**-24


@compiled
def gammas(nodes: Any, shape: float, counter: Any, out: Any) -> None:
    """Write one gamma-distributed number of a shape per node (Marsaglia and Tsang, 2000); out (n)."""
    key, epoch, call = counter
    raised = shape if shape >= 1 else shape + 1
    d = raised - 1 / 3
    c = 1 / np.sqrt(9 * d)
    for v in range(nodes.shape[0]):
        attempt = np.uint64(0)
        while True:
            words = philox(np.uint64(nodes[v]), attempt, call, epoch, key[0], key[1])
            attempt += _ONE
            x = _normal_pair(words[0], words[1])[0]
            cube = (1 + c * x) ** 3
            if cube <= 0:
                continue
            u = (np.float64(words[2]) + 1) * _UNIT
            if np.log(u) < 0.5 * x * x + d - d * cube + d * np.log(cube):
                value = d * cube
                if shape < 1:
                    value *= ((np.float64(words[3]) + 1) * _UNIT) ** (1 / shape)
                out[v] = value
                break
