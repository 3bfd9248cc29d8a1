"""The engine of a CPU: compiled products and attention, tensor operations for everything else."""

from __future__ import annotations

import torch
from torch import Tensor

from bvat.engine.attention import Attention, usable
from bvat.engine.compile import has_numba
from bvat.engine.matrix import Matrix
from bvat.engine.rowwise import cut, padded, product, scatter
from bvat.engine.tensor import TensorEngine
from bvat.errors import SettingsError

MOST_THREADS = 2
"""Compiled products run on one thread, where those of torch are half as fast; with more threads than this,
which was not measured, torch's are used."""

SCATTERED_UP_TO = 2**17
"""Numbers of ``Sᵀ H`` up to which they stay in the cache of a core while rows of H are added here and there,
which needs no transpose; a result with more is made row by row."""


class CompiledEngine(TensorEngine):
    """One process with compiled loops where they pay (``results/bench/kernels.json``)."""

    def sparse_product(self, matrix: Matrix, dense: Tensor, *, transposed: bool = False) -> Tensor:
        if not self._loops_take(matrix, dense, transposed=transposed):
            return super().sparse_product(matrix, dense, transposed=transposed)
        made, width = matrix.shape[transposed], dense.shape[1]
        if transposed and not matrix.symmetric and made * width <= SCATTERED_UP_TO:
            return self.scattered_product(matrix, dense)
        wide = padded(dense)
        if wide.shape[1] == width:
            result = wide.new_empty(made, width)
        else:  # room behind the last row; a view of a wider matrix could not be changed under autograd
            result = wide.new_empty(made * width + 7).resize_(made, width)
        product(matrix.transposed_tensors if transposed else matrix.tensors(), wide, result)
        return result

    def scattered_product(self, matrix: Matrix, dense: Tensor) -> Tensor:
        fits = dense.is_cpu and dense.dtype == matrix.dtype and dense.shape[0] == matrix.shape[0]
        if not (has_numba() and fits):
            return super().scattered_product(matrix, dense)
        wide = padded(dense)
        summed = wide.new_zeros(matrix.shape[1], wide.shape[1])
        scatter(matrix.tensors(), wide, summed)
        return cut(summed, dense.shape[1])

    def power_sum(
        self, matrix: Matrix, ratio: float, steps: int, start: Tensor, *, transposed: bool = False
    ) -> Tensor:
        if not self._loops_take(matrix, start, transposed=transposed):
            return super().power_sum(matrix, ratio, steps, start, transposed=transposed)
        crow, col, values = matrix.transposed_tensors if transposed else matrix.tensors()
        scaled, base = values * ratio, padded(start)
        state, other = base, torch.empty_like(base)
        for step in range(steps):
            product((crow, col, scaled), state, other, base)
            state, other = other, state if step else torch.empty_like(base)
        return cut(state, start.shape[1])

    def _loops_take(self, matrix: Matrix, dense: Tensor, *, transposed: bool) -> bool:
        """Return whether loops multiply by the matrix; they check nothing."""
        fits = dense.shape[0] == matrix.shape[not transposed] and usable(matrix.values, dense)
        return fits and torch.get_num_threads() <= MOST_THREADS

    def attention(
        self,
        pattern: Matrix,
        source: Tensor,
        target: Tensor,
        h: Tensor,
        mask: Tensor | None = None,
        of_edges: Tensor | None = None,
    ) -> Tensor:
        if of_edges is not None or not h.numel() or not usable(source, target, h):
            return super().attention(pattern, source, target, h, mask, of_edges)
        out: Tensor = Attention.apply(pattern, source, target, h, mask)  # type: ignore[no-untyped-call]
        return out


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


def choose_device(name: str | None = None) -> str:
    """Return "cpu" or "cuda"; None and "auto" stand for a GPU if torch finds one, else the CPU."""
    if name not in (None, "auto", "cpu", "cuda"):
        raise SettingsError(f"device must be auto, cpu or cuda, not {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingsError("there is no CUDA device: install a CUDA build of torch, or use --device cpu")
    return "cuda" if name != "cpu" and torch.cuda.is_available() else "cpu"
