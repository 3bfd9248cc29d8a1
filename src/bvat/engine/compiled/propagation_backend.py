"""The compiled twins of random propagation, as :mod:`bvat.engine.compiled.backend` gives those of others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bvat.engine.compiled.backend import SCATTERED_UP_TO, usable


def relu_with_moments(state: Tensor, bias: Tensor) -> Tensor | None:
    """Replace the state by ``relu(state + bias)``; return the sums of it and of its squares over the rows.

    Shapes: state (n, H), 16 | H, bias (H), result (2, H) in double precision. Where the answer is not None,
    :func:`head_forward` and :func:`head_backward` work too.
    """
    if state.shape[1] % 16 or not state.is_contiguous() or not usable(state, bias):
        return None
    from bvat.engine.compiled import perceptron

    sums = state.new_empty(2, state.shape[1], dtype=torch.float64)
    perceptron.relu_with_moments(state.detach().numpy(), bias.detach().numpy(), sums.numpy())
    return sums


def head_forward(
    r: Tensor, scale: Tensor, shift: Tensor, mask: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Return ``(mask * (scale r + shift)) @ weight + bias``; r (n, H), mask (n, H) or (1, H)."""
    from bvat.engine.compiled import layers, perceptron

    out = r.new_empty(weight.shape[1], r.shape[0])
    inputs = (part.detach().contiguous().numpy() for part in (r, scale, shift, mask, weight, bias))
    perceptron.head_forward(*inputs, layers.padded_width(weight.shape[1]), out.numpy())
    return out.t()


def head_backward(
    grad: Tensor, r: Tensor, scale: Tensor, shift: Tensor, mask: Tensor, weight: Tensor, mean: Tensor,
    unit: Tensor, *, batch: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of :func:`head_forward` for what relu was taken of, its bias, weight; and sums.

    With ``batch``, scale and shift depend on r: they normalise it by its own mean and deviation ``1 / unit``.
    The sums (2, H) are those of ``u`` and ``u (r - mean) unit``, u the gradient for ``scale r + shift``: the
    gradients of the shift and scale of a batch normalisation. Shapes: grad (n, C), mean and unit (H).
    """
    from bvat.engine.compiled import perceptron

    width, classes = weight.shape
    for_state, sums = torch.empty_like(r), r.new_empty(2, width, dtype=torch.float64)
    for_weight = r.new_empty(classes, width, dtype=torch.float64)
    inputs = (
        part.detach().contiguous().numpy() for part in (grad.t(), r, scale, shift, mask, weight, mean, unit)
    )
    perceptron.head_backward(*inputs, for_state.numpy(), for_weight.numpy(), sums.numpy())
    lost = scale * (sums / len(r) if batch else torch.zeros_like(sums)).to(r.dtype)
    for_bias = r.new_empty(width, dtype=torch.float64)
    inputs = (
        part.contiguous().numpy() for part in (for_state, r, mean, unit, scale, lost[0], lost[1], for_bias)
    )
    perceptron.state_backward(*inputs)
    return for_state, for_bias.to(r.dtype), for_weight.t().to(r.dtype), sums.to(r.dtype)


def power_sum(arrays: tuple[Any, Any, Any], dense: Tensor, steps: int) -> Tensor | None:
    """Return ``sum_{k <= steps} S^k dense`` for a square S, given as arrays; dense (n, H), 16 | H."""
    fits = dense.shape[0] == len(arrays[0]) - 1 and dense.shape[1] % 16 == 0 and dense.is_contiguous()
    if not fits or not steps or not usable(dense):
        return None
    from bvat.engine.compiled import layers

    result, other = torch.empty_like(dense), torch.empty_like(dense)
    layers.power_sum(*arrays, dense.detach().numpy(), steps, result.numpy(), other.numpy())
    return result


def kept_product(matrix: Any, dense: Tensor, share: Any) -> Tensor | None:
    """Return ``share ∘ (S @ dense)``, without work for rows whose share is 0; dense (m, H), share (n, 1)."""
    if not _kept_fits(matrix, dense, share, matrix.shape[1]):
        return None
    from bvat.engine.compiled import layers

    result = dense.new_empty(matrix.shape[0], dense.shape[1])
    layers.kept_product(*matrix.arrays, dense.detach().numpy(), share.numpy()[:, 0], result.numpy())
    return result


def kept_scattered_product(matrix: Any, dense: Tensor, share: Any) -> Tensor | None:
    """Return ``Sᵀ (share ∘ dense)``, without work for rows whose share is 0; dense (n, H), share (n, 1).

    None also where the result does not stay in the cache of a core.
    """
    if matrix.shape[1] * dense.shape[1] > SCATTERED_UP_TO:
        return None
    if not _kept_fits(matrix, dense, share, matrix.shape[0]):
        return None
    from bvat.engine.compiled import layers

    result = dense.new_empty(matrix.shape[1], dense.shape[1])
    layers.kept_scattered_product(*matrix.arrays, dense.detach().numpy(), share.numpy()[:, 0], result.numpy())
    return result


def _kept_fits(matrix: Any, dense: Tensor, share: Any, rows: int) -> bool:
    return (
        isinstance(share, Tensor)
        and hasattr(matrix, "arrays")  # a sparse matrix
        and dense.shape[0] == rows
        and dense.shape[1] % 16 == 0
        and dense.is_contiguous()
        and usable(matrix.values, dense, share)
    )
