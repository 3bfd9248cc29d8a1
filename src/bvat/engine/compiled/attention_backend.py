"""The compiled twins of attention; ``backend`` has those of all other operations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bvat.engine.compiled.backend import usable


def edge_dots(crow: Tensor, col: Tensor, left: Tensor, right: Tensor) -> Tensor | None:
    """Return ``left_i . right_j`` for every entry (i, j); left, right (n, heads, F), result (nnz, heads)."""
    if not left.shape[2] or not usable(left, right):
        return None
    from bvat.engine.compiled import attention as twins

    out = left.new_empty(col.shape[0], left.shape[1])
    twins.edge_dots(crow.numpy(), col.numpy(), *_arrays(left, right), out.numpy())
    return out


def attention(
    crow: Tensor, col: Tensor, source: Tensor, target: Tensor, slope: float, mask: Tensor | None, h: Tensor
) -> tuple[Tensor, Tensor] | None:
    """Return the sums (n, heads, F) and the attention (nnz, heads).

    Shapes: source, target (n, heads), mask (nnz, heads), h (n, heads, F).
    """
    if not h.numel() or not usable(source, target, h):
        return None
    from bvat.engine.compiled import attention as twins

    alpha, rows = h.new_empty(col.shape[0], h.shape[1]), _padded(h)
    out = torch.zeros_like(rows)
    given = _arrays(source, target, h.new_tensor([slope]), source[:0] if mask is None else mask)
    twins.attention(crow.numpy(), col.numpy(), *given, _flat(rows), alpha.numpy(), _flat(out))
    return out[:, :, : h.shape[2]], alpha


def attention_gradients(
    crow: Tensor, col: Tensor, source: Tensor, target: Tensor, slope: float, mask: Tensor | None, h: Tensor,
    alpha: Tensor, grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients for source, target (n, heads) and h (n, heads, F)."""
    from bvat.engine.compiled import attention as twins

    rows = _padded(h)
    for_source, for_target, for_h = (
        torch.zeros_like(part, memory_format=torch.contiguous_format) for part in (source, target, rows)
    )
    given = _arrays(source, target, h.new_tensor([slope]), source[:0] if mask is None else mask)
    room = alpha.new_empty(int(crow.diff().max()), alpha.shape[1])
    twins.attention_gradients(
        crow.numpy(), col.numpy(), *given, _flat(rows), alpha.numpy(), _flat(_padded(grad)),
        for_source.numpy(), for_target.numpy(), _flat(for_h), room.numpy(),
    )  # fmt: skip
    return for_source, for_target, for_h[:, :, : h.shape[2]]


def head_projection(state: Tensor, mask: Tensor, weight: Tensor) -> Tensor | None:
    """Return ``sum_i state[n, i] mask[n, h, i] weight[i, h, f]``, (N, heads, F); weight (I, heads, F)."""
    if not state.shape[1] or not usable(state, mask, weight):
        return None
    from bvat.engine.compiled import attention as twins

    out = state.new_empty(state.shape[0], *weight.shape[1:])
    twins.head_projection(*_arrays(state, mask, weight.permute(1, 2, 0)), out.numpy())
    return out


def head_projection_gradients(
    state: Tensor, mask: Tensor, weight: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients for state (N, I) and weight (I, heads, F); grad (N, heads, F)."""
    from bvat.engine.compiled import attention as twins

    turned = weight.detach().permute(1, 2, 0).contiguous()
    for_state, for_weight = state.new_zeros(state.shape), torch.zeros_like(turned)
    twins.head_projection_gradients(
        *_arrays(state, mask, turned, grad), for_state.numpy(), for_weight.numpy()
    )
    return for_state, for_weight.permute(2, 0, 1)


def masked_projection(
    crow: Tensor, col: Tensor, values: Tensor, mask: Tensor, weight: Tensor
) -> Tensor | None:
    """Return ``sum_k values[k] mask[k, h] weight[j, h]`` over the entries k = (n, j) of row n, (N, heads, F).

    Shapes: values (nnz), mask (nnz, heads), weight (D, heads, F).
    """
    if not weight.numel() or not usable(values, mask, weight):
        return None
    return _spread(crow, col, values, mask, weight, crow.shape[0] - 1, back=False)


def masked_projection_gradient(
    crow: Tensor, col: Tensor, values: Tensor, mask: Tensor, grad: Tensor, rows: int
) -> Tensor:
    """Return the gradient for the weight, (rows, heads, F); grad (N, heads, F)."""
    return _spread(crow, col, values, mask, grad, rows, back=True)


def _spread(
    crow: Tensor, col: Tensor, values: Tensor, mask: Tensor, rows: Tensor, count: int, *, back: bool
) -> Tensor:
    """Return what the entries add up to from rows (n, heads, F), (count, heads, F)."""
    from bvat.engine.compiled import attention as twins

    padded = _padded(rows)
    out = padded.new_zeros(count, *padded.shape[1:])
    pattern, width = (crow.numpy(), col.numpy()), padded.shape[2]
    twins.masked_projection(*pattern, *_arrays(values, mask), width, _flat(padded), _flat(out), back)
    return out[:, :, : rows.shape[2]]


def _padded(rows: Tensor) -> Tensor:
    """Return (n, heads, F) with zeros up to a multiple of 8 in the last axis."""
    missing = -rows.shape[2] % 8
    return F.pad(rows.detach(), (0, missing)) if missing else rows.detach().contiguous()


def _flat(rows: Tensor) -> Any:
    """Return the numbers of a contiguous tensor as one numpy array."""
    return rows.view(-1).numpy()


def _arrays(*tensors: Tensor) -> list[Any]:
    """Return the tensors as numpy arrays whose rows lie one after the other."""
    return [tensor.detach().contiguous().numpy() for tensor in tensors]
