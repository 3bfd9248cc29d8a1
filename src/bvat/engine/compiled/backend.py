"""The one place that decides what runs compiled.

The mathematics of bvat is written in tensor operations. A few operations have a compiled twin that does the
same in fewer passes over memory; the code that needs one asks here, and gets None where the twin does not
apply (another device or precision, shapes that do not fill whole vectors, numba missing):

    result = backend.product(...)
    if result is None:
        result = ...  # tensor operations

Twins check nothing: their inputs are checked here, those of GAT's in ``attention``. Tests compare every twin
with its tensor operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bvat.engine.compiled.compile import has_numba
from bvat.engine.matrix import Matrix

SCATTERED_UP_TO = 2**17
"""Numbers of a result up to which it stays in the cache of a core while terms are added here and there."""


class LayeredPass(NamedTuple):
    """One pass of a GCN after its projection: ``A_1 = S_0 P``, ``A_{l+1} = S_l (m_l * relu(A_l)) W_l``.

    Shapes: matrices S_l (n_l, n_{l-1}), one per layer; weights W_l (H_l, H_{l+1}); masks (>= n_l, H_l), none
    without dropout. ``factor`` is 1 / (1 - dropout rate), the value of the masks where they keep.
    """

    matrices: Sequence[Matrix]
    weights: tuple[Tensor, ...]
    masks: tuple[Tensor, ...] = ()
    factor: float = 1.0


def usable(*tensors: Tensor) -> bool:
    """Return whether compiled twins take these tensors: single precision, on a CPU, and numba installed."""
    return has_numba() and all(tensor.is_cpu and tensor.dtype == torch.float32 for tensor in tensors)


def product(crow: Tensor, col: Tensor, values: Tensor, dense: Tensor, columns: int) -> Tensor | None:
    """Return ``S @ dense`` for rows of a multiple of 8 numbers; dense (columns, H).

    Inputs with the wrong number of rows are left to torch, which refuses them.
    """
    fits = dense.shape[0] == columns and dense.shape[1] % 8 == 0 and dense.is_contiguous()
    if not fits or not usable(values, dense):
        return None
    from bvat.engine.compiled import loops

    result = dense.new_empty(crow.shape[0] - 1, dense.shape[1])
    loops.product((crow.numpy(), col.numpy(), values.detach().numpy()), *arrays_of(dense, result))
    return result


def scattered_product(matrix: Matrix, dense: Tensor) -> Tensor | None:
    """Return ``Sᵀ @ dense`` without a stored transpose; dense (rows, H)."""
    if dense.shape[0] != matrix.shape[0] or not usable(matrix.values, dense):
        return None
    from bvat.engine.compiled import loops

    result = dense.new_empty(matrix.shape[1], dense.shape[1])
    loops.scattered_product(matrix.arrays, *arrays_of(dense, result))
    return result


def power_sum(arrays: tuple[Any, Any, Any], dense: Tensor, steps: int) -> Tensor | None:
    """Return ``sum_{k <= steps} S^k dense`` for a square S, given as arrays; dense (n, H), 16 | H."""
    fits = dense.shape[0] == len(arrays[0]) - 1 and dense.shape[1] % 16 == 0
    if not fits or not steps or not usable(dense):
        return None
    from bvat.engine.compiled import loops

    start = dense.detach().contiguous()
    result, other = torch.empty_like(start), torch.empty_like(start)
    loops.power_sum(arrays, start.numpy(), steps, result.numpy(), other.numpy())
    return result


def kept_product(matrix: Any, dense: Tensor, share: Tensor | float, *, transposed: bool) -> Tensor | None:
    """Return ``share ∘ (S @ dense)`` or ``Sᵀ (share ∘ dense)``; rows whose share (n, 1) is 0 cost nothing."""
    if not isinstance(share, Tensor) or not hasattr(matrix, "arrays"):  # nothing is dropped, or S is dense
        return None
    taken, made = matrix.shape if transposed else matrix.shape[::-1]
    fits = dense.shape[0] == taken and dense.shape[1] % 16 == 0 and share.shape == (matrix.shape[0], 1)
    # the transposed product adds to rows here and there, which must stay in the cache of a core
    large = transposed and made * dense.shape[1] > SCATTERED_UP_TO
    if not fits or large or not usable(matrix.values, dense, share):
        return None
    from bvat.engine.compiled import loops

    result = dense.new_empty(made, dense.shape[1])
    multiply = loops.kept_scattered_product if transposed else loops.kept_product
    multiply(matrix.arrays, *arrays_of(dense, share[:, 0], result))
    return result


def forward(step: LayeredPass, projected: Tensor) -> tuple[Tensor, list[Tensor]] | None:
    """Return the logits (n_K, C) and the hidden layers (n_l, H_l) of a pass; projected (N, H_1)."""
    if not _layers_fit(step, projected):
        return None
    from bvat.engine.compiled import loops

    state, hidden_layers = projected, []
    for layer, weight in enumerate(step.weights):
        matrix, width = step.matrices[layer], weight.shape[0]
        hidden = state.new_empty(matrix.shape[0], width)
        out = state.new_empty(matrix.shape[0], loops.padded_width(weight.shape[1]))
        mask = step.masks[layer] if step.masks else state.new_ones(1, width)
        loops.layer_forward(matrix.arrays, *arrays_of(state, mask, weight, hidden, out))
        hidden_layers.append(hidden)
        state = out
    last = step.matrices[-1]
    logits = state.new_empty(step.weights[-1].shape[1], last.shape[0])
    loops.product_by_columns(last.arrays, *arrays_of(state, logits))
    return logits.t(), hidden_layers


def backward(
    step: LayeredPass, hidden_layers: Sequence[Tensor], grad: Tensor, *, for_weights: bool
) -> tuple[Tensor, list[Tensor]] | None:
    """Pull a gradient (n_K, C) back to the projected features, and to the weights if asked.

    Shapes: hidden layers as :func:`forward` returned them; result (N, H_1) and one (H_l, H_{l+1}) per weight.
    """
    fits = _widths_fit(step.weights) and all(hidden.is_contiguous() for hidden in hidden_layers)
    if not fits or not usable(grad, *step.weights):
        return None
    from bvat.engine.compiled import loops

    weight_grads = []
    by_columns, grad = grad.t(), grad.new_empty(grad.shape[0], loops.padded_width(grad.shape[1]))
    loops.pack(*arrays_of(by_columns, grad))
    for matrix, weight, hidden in zip(
        reversed(step.matrices[1:]), reversed(step.weights), reversed(hidden_layers), strict=True
    ):
        summed = matrix.transposed_product(grad)
        if for_weights:
            weight_grads.append((summed.t() @ hidden)[: weight.shape[1]].t())
        grad = torch.empty_like(hidden)
        given, back = arrays_of(summed, weight)
        loops.layer_backward(given, back, np.float32(step.factor), *arrays_of(hidden, grad))
    return step.matrices[0].transposed_product(grad), weight_grads[::-1]


class FieldsStep(NamedTuple):
    """What :func:`power_step_on_fields` returns.

    Shapes: value, the KL of each chosen node (b); row_squares, squared lengths of the rows of R (m);
    direction A (m, H) with R = A W0ᵀ; for_base (m, H) and for_weight (H, C), the gradients of the mean KL
    with respect to the projected features and to W1.
    """

    value: Tensor
    row_squares: Tensor
    direction: Tensor
    for_base: Tensor
    for_weight: Tensor


def steps_on_fields(step: LayeredPass, clean: Tensor) -> bool:
    """Return whether :func:`power_step_on_fields` takes a pass (given without masks) and logits (b, C)."""
    widths_fit = len(step.weights) == 1 and _widths_fit(step.weights)
    return widths_fit and usable(clean, *step.weights, *(matrix.values for matrix in step.matrices))


def power_step_on_fields(
    search: tuple[LayeredPass, Tensor],
    last: tuple[LayeredPass, Tensor],
    clean: Tensor,
    gram: Tensor,
    epsilon: float,
    owner: Tensor | None,
) -> FieldsStep:
    """Make one power iteration from r = 0 on receptive fields, and take the mean KL there.

    Only for what :func:`steps_on_fields` accepts.

    Args:
        search: the pass in which the gradient is taken, and its projected features (m, H).
        last: the pass in which the KL is taken, and its projected features.
        clean: logits of the chosen nodes, (b, C).
        gram: W0ᵀ W0, (H, H).
        epsilon: length of the perturbation.
        owner: (m) to take epsilon over each receptive field, None for each row.
    """
    (searching, search_base), (final, last_base) = search, last
    from bvat.engine.compiled import loops, searches

    inner, outer = final.matrices
    weight = final.weights[0].detach()
    ones = gram.new_ones(1, gram.shape[0])
    results = searches.fields_step(
        inner.arrays,
        (outer.shape[0], *inner.shape, loops.padded_width(weight.shape[1])),
        clean.detach().t().contiguous().numpy(),
        search_base.detach().contiguous().numpy(),
        (searching.masks[0] if searching.masks else ones).numpy(),
        last_base.detach().contiguous().numpy(),
        (final.masks[0] if final.masks else ones).numpy(),
        weight.contiguous().numpy(),
        final.factor,
        gram.contiguous().numpy(),
        epsilon,
        torch.empty(0, dtype=torch.int64).numpy() if owner is None else owner.numpy(),
    )
    value, squares, direction, for_base, hidden, summed = (torch.from_numpy(each) for each in results)
    return FieldsStep(value, squares, direction, for_base, (summed.t() @ hidden)[: weight.shape[1]].t())


def arrays_of(*tensors: Tensor) -> list[Any]:
    """Return the tensors as numpy arrays whose rows lie one after the other."""
    return [(each.detach() if each.requires_grad else each).contiguous().numpy() for each in tensors]


def _widths_fit(weights: Sequence[Tensor]) -> bool:
    """Return whether hidden layers fill whole vectors, none narrower than the next."""
    return bool(weights) and all(
        weight.shape[1] <= weight.shape[0] and weight.shape[0] % 16 == 0 for weight in weights
    )


def _layers_fit(step: LayeredPass, projected: Tensor) -> bool:
    """Return whether shapes, precisions and the layout of the masks suit the compiled layers.

    Shapes that torch cannot multiply either are left to torch, which refuses them.
    """
    widths = [projected.shape[1], *(weight.shape[1] for weight in step.weights)]
    return (
        _widths_fit(step.weights)
        and projected.shape[0] == step.matrices[0].shape[1]
        and all(weight.shape[0] == width for weight, width in zip(step.weights, widths, strict=False))
        and all(
            mask.is_contiguous()
            and mask.shape[1] == width
            and (mask.shape[0] == 1 or mask.shape[0] >= matrix.shape[0])
            for mask, width, matrix in zip(step.masks, widths, step.matrices, strict=False)
        )
        and usable(projected, *step.weights, *step.masks, *(matrix.values for matrix in step.matrices))
    )
