"""The engine of a CPU: compiled products and attention, tensor operations for everything else."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bvat.engine.attention import Attention, arrays_of, usable
from bvat.engine.matrix import Matrix, scatter
from bvat.engine.rowwise import padded, wide_times
from bvat.engine.tensor import TensorEngine
from bvat.errors import SettingsError

MOST_THREADS = 2
"""Compiled products run on one thread: those of torch, half as fast there, win with more than two."""

SCATTERED_UP_TO = 2**17
"""Numbers of ``Sᵀ H`` up to which they stay in the cache of a core while rows of H are added here and there,
which needs no transpose; a result with more is made row by row."""


class CompiledEngine(TensorEngine):
    """One process with compiled loops where they pay (``results/bench/kernels.json``)."""

    def sparse_product(self, matrix: Matrix, dense: Tensor, *, transposed: bool = False) -> Tensor:
        if not _fits(matrix, dense, transposed):
            return super().sparse_product(matrix, dense, transposed=transposed)
        made = (matrix.shape[1], dense.shape[1])
        if transposed and not matrix.symmetric and made[0] * made[1] <= SCATTERED_UP_TO:
            result = dense.new_zeros(made)
            scatter(*matrix.arrays, *arrays_of(dense, result))
            return result
        wide = padded(dense)
        return _multiply(_arrays(matrix, transposed), wide, wide[:0])[:, : dense.shape[1]]

    def power_sum(
        self, matrix: Matrix, ratio: float, steps: int, start: Tensor, *, transposed: bool = False
    ) -> Tensor:
        if not _fits(matrix, start, transposed):
            return super().power_sum(matrix, ratio, steps, start, transposed=transposed)
        crow, col, values = _arrays(matrix, transposed)
        scaled, state = (crow, col, values * np.float32(ratio)), padded(start)
        wide = state
        for _ in range(steps):
            state = _multiply(scaled, state, wide)
        return state[:, : start.shape[1]]

    def narrow_times(self, rows: Tensor, weight: Tensor) -> Tensor:
        if rows.shape[1] != weight.shape[0] or not _pays(rows, weight):
            return super().narrow_times(rows, weight)
        return wide_times(rows, weight)[:, : weight.shape[1]]

    def attention(
        self, pattern: Matrix, source: Tensor, target: Tensor, h: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        if not h.numel() or not usable(source, target, h):
            return super().attention(pattern, source, target, h, mask)
        out: Tensor = Attention.apply(pattern, source, target, h, mask)  # type: ignore[no-untyped-call]
        return out


def _pays(*tensors: Tensor) -> bool:
    return torch.get_num_threads() <= MOST_THREADS and usable(*tensors)


def _fits(matrix: Matrix, dense: Tensor, transposed: bool) -> bool:
    """Return whether the loop, which checks nothing, can multiply: shapes that do not match are torch's."""
    rows = matrix.shape[0 if transposed else 1]
    return dense.dim() == 2 and dense.shape[0] == rows and _pays(matrix.values, dense)


def _arrays(matrix: Matrix, transposed: bool) -> tuple[Any, ...]:
    return tuple(arrays_of(*(matrix.transposed_tensors if transposed else matrix.tensors())))


def _multiply(parts: tuple[Any, ...], wide: Tensor, base: Tensor) -> Tensor:
    """Return ``base + S @ wide``; S (n, m) as CSR arrays, wide (m, H), base (n, H) or (0, H), 8 | H."""
    from bvat.engine import loops

    result = wide.new_empty(parts[0].size - 1, wide.shape[1])
    loops.product(parts, *arrays_of(wide, base, result))
    return result


DEFAULT_ENGINE = CompiledEngine()
"""What matrices and graphs have unless they were given another: it keeps nothing."""


def find_engine(engine: str | TensorEngine) -> TensorEngine:
    """Return the engine of a name, "tensor" or "compiled", or the one given."""
    if not isinstance(engine, str):
        return engine
    named = {"tensor": TensorEngine(), "compiled": DEFAULT_ENGINE}
    if engine not in named:
        raise SettingsError(f"there is no engine {engine!r}: use tensor or compiled")
    return named[engine]
