"""The one place that decides what runs compiled.

The mathematics of bvat is written in tensor operations. A few operations have a compiled twin that does the
same in fewer passes over memory; the code that needs one asks here, and gets None where the twin does not
apply (another device or precision, shapes that do not fill whole vectors, numba missing, :func:`plain`):

    result = backend.product(...)
    if result is None:
        result = ...  # tensor operations

Twins check nothing: their inputs are checked here, and in ``attention_backend`` and ``propagation_backend``
those of GAT's and of random propagation's. Tests compare every twin with its tensor operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from bvat.engine.compiled import rowwise
from bvat.engine.compiled.compile import has_numba

_enabled: ContextVar[bool] = ContextVar("compiled", default=True)

FUSED_UP_TO = 64
"""Width up to which a step of the search multiplies by U row by row; beyond, U does not stay in the nearest
cache, and one matrix product over all rows is several times faster."""


SCATTERED_UP_TO = 2**17
"""Numbers of a result up to which adding to its rows in any order is fast."""

BLOCKED_FROM, LONG_ROWS = 2**19, 64
"""A product with more numbers than this on its right, which do not fit the cache of a core, is made in blocks
if the rows of the sparse matrix have more entries than this on average."""


class Matrix(Protocol):
    """What the twins need of a sparse matrix."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""

    @property
    def values(self) -> Tensor:
        """The entries."""

    @property
    def stores_transpose(self) -> bool:
        """Whether ``transposed_arrays`` cost nothing after their first use."""

    @property
    def arrays(self) -> tuple[Any, Any, Any]:
        """Row pointers, columns and values as numpy arrays."""

    @property
    def transposed_arrays(self) -> tuple[Any, Any, Any]:
        """The same of the transpose."""

    def product(self, dense: Tensor) -> Tensor:
        """Return ``S @ dense``."""

    def transposed_product(self, dense: Tensor) -> Tensor:
        """Return ``Sᵀ @ dense``."""


class LayeredPass(NamedTuple):
    """One pass of a GCN after its projection: ``A_1 = S_0 P``, ``A_{l+1} = S_l (m_l * relu(A_l)) W_l``.

    Shapes: matrices S_l (n_l, n_{l-1}), one per layer; weights W_l (H_l, H_{l+1}); masks (>= n_l, H_l), none
    without dropout. ``factor`` is 1 / (1 - dropout rate), the value of the masks where they keep.
    """

    matrices: Sequence[Matrix]
    weights: tuple[Tensor, ...]
    masks: tuple[Tensor, ...] = ()
    factor: float = 1.0


@contextmanager
def plain() -> Iterator[None]:
    """Use tensor operations only within the block: for comparisons and for debugging."""
    before = _enabled.set(False)
    try:
        yield
    finally:
        _enabled.reset(before)


def usable(*tensors: Tensor) -> bool:
    """Return whether compiled twins work on these tensors: one precision, on a CPU, and numba installed.

    Most fuse work across rows or reorder sums: none runs where results must not depend on other rows.
    """
    first = tensors[0]
    return (
        first.device.type == "cpu"
        and first.dtype in (torch.float32, torch.float64)
        and all(tensor.dtype == first.dtype and tensor.device == first.device for tensor in tensors)
        and _enabled.get()
        and not rowwise.active()
        and has_numba()
    )


def product(crow: Tensor, col: Tensor, values: Tensor, dense: Tensor, columns: int) -> Tensor | None:
    """Return ``S @ dense`` for rows of 4 or a multiple of 8 numbers; dense (columns, H).

    Inputs with the wrong number of rows are left to torch, which refuses them.
    """
    width = dense.shape[1]
    fits = dense.shape[0] == columns and (width == 4 or width % 8 == 0) and dense.is_contiguous()
    if not fits or not usable(values, dense):
        return None
    from bvat.engine.compiled import layers

    result = dense.new_empty(crow.shape[0] - 1, width)
    arrays = crow.numpy(), col.numpy(), values.detach().numpy()
    if width % 16 == 0 and dense.numel() > BLOCKED_FROM and col.shape[0] > LONG_ROWS * result.shape[0]:
        layers.blocked_product(*arrays, dense.detach().numpy(), BLOCKED_FROM // 2 // width, result.numpy())
    else:
        layers.product(*arrays, dense.detach().numpy(), result.numpy())
    return result


def dropout_factors(drawn: Tensor, level: int, factor: float, like: Tensor) -> Tensor | None:
    """Return ``factor`` where ``drawn >= level``, else 0, in the precision of ``like``; drawn uint8 (n)."""
    if not usable(like):
        return None
    from bvat.engine.compiled import layers

    result = like.new_empty(drawn.shape[0])
    out = result.numpy()
    layers.dropout_factors(drawn.numpy(), level, out.dtype.type(factor), out)
    return result


def scattered_product(matrix: Matrix, dense: Tensor) -> Tensor | None:
    """Return ``Sᵀ @ dense`` without a stored transpose; dense (rows, H)."""
    if dense.shape[0] != matrix.shape[0] or not usable(matrix.values, dense):
        return None
    from bvat.engine.compiled import layers

    result = dense.new_empty(matrix.shape[1], dense.shape[1])
    layers.scattered_product(*matrix.arrays, dense.detach().contiguous().numpy(), result.numpy())
    return result


def entropy(logits: Tensor, classes: int) -> tuple[float, Tensor] | None:
    """Return ``sum_u E(p_u)`` and ``p (log p + E)``; the classes are along dimension ``classes``."""
    if logits.dtype != torch.float32 or not logits.is_contiguous() or not usable(logits):
        return None
    from bvat.engine.compiled.entropy import entropy_by_classes, entropy_by_nodes

    gradient = torch.empty_like(logits)
    kernel = entropy_by_nodes if classes == 1 else entropy_by_classes
    return float(kernel(logits.numpy(), gradient.numpy())), gradient


def forward(step: LayeredPass, projected: Tensor) -> tuple[Tensor, list[Tensor]] | None:
    """Return the logits (n_K, C) and the hidden layers (n_l, H_l) of a pass; projected (N, H_1)."""
    if not _layers_fit(step, projected):
        return None
    from bvat.engine.compiled import layers

    hidden_layers, narrow = _run_layers(step, projected.detach().contiguous())
    last = step.matrices[-1]
    logits = narrow.new_empty(step.weights[-1].shape[1], last.shape[0])
    layers.product_by_columns(*last.arrays, narrow.numpy(), logits.numpy())
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
    from bvat.engine.compiled import layers

    packed = grad.new_empty(grad.shape[0], layers.padded_width(grad.shape[1]))
    layers.pack(grad.detach().t().contiguous().numpy(), packed.numpy())
    gated, weight_grads = _pull_back(step, hidden_layers, packed, step.factor, for_weights=for_weights)
    return step.matrices[0].transposed_product(gated), weight_grads


def adam_ascent(
    step: LayeredPass,
    base: Tensor,
    upper: Tensor,
    target: Tensor,
    z: Tensor,
    moments: dict[str, Tensor],
    *,
    steps: int,
    step_size: float,
    betas: tuple[float, float],
    penalty: float,
    scale: float,
) -> bool:
    """Make steps of Adam up ``scale sum_u KL(p_u || softmax(pass(base + Z U))_u) - penalty/2 |Z|²`` in place.

    Returns whether it did: in single precision only. All steps use the same masks.

    Shapes: base, z and the moments (N, H), upper U (H, H), target p (N, C).
    """
    if z.dtype != torch.float32 or not _layers_fit(step, base):
        return False
    from bvat.engine.compiled import layers, searches

    first, last = step.matrices[0], step.matrices[-1]
    base, target = base.detach().contiguous(), target.t().contiguous()
    projected, spare = torch.addmm(base, z, upper), torch.empty_like(z)
    slopes = z.new_zeros(z.shape[0], layers.padded_width(target.shape[0]))
    state = z.numpy(), moments["first"].numpy(), moments["second"].numpy()
    (b1, b2), count = betas, int(moments["count"])
    for number in range(count + 1, count + steps + 1):
        # fresh memory for every step would cost more than the arithmetic: two arrays change their roles
        hidden_layers, narrow = _run_layers(step, projected, spare)
        searches.kl_slopes(*last.arrays, narrow.numpy(), target.numpy(), slopes.numpy())
        gated, _ = _pull_back(
            step, hidden_layers, slopes, np.float32(step.factor), for_weights=False, into=projected
        )
        spare = gated
        rates = step_size / (1 - b1**number), (1 - b2**number) ** -0.5, betas, penalty, scale
        if z.shape[1] > FUSED_UP_TO:
            gradient = first.transposed_product(gated) @ upper.t()
            searches.adam_entries(gradient.numpy(), *state, *rates)
            projected = torch.addmm(base, z, upper, out=hidden_layers[0])
        else:
            projected = hidden_layers[0]  # its memory is free now
            operands = gated.numpy(), upper.numpy(), base.numpy()
            searches.adam_rows(*first.transposed_arrays, *operands, *state, *rates, projected.numpy())
    moments["count"] += steps
    return True


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
    return (
        widths_fit
        and clean.dtype == torch.float32
        and usable(clean, *step.weights, *(matrix.values for matrix in step.matrices))
    )


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
    from bvat.engine.compiled import layers, searches

    inner, outer = final.matrices
    weight = final.weights[0].detach()
    ones = gram.new_ones(1, gram.shape[0])
    results = searches.fields_step(
        *inner.arrays,
        (outer.shape[0], *inner.shape, layers.padded_width(weight.shape[1])),
        clean.detach().t().contiguous().numpy(),
        search_base.detach().contiguous().numpy(),
        (searching.masks[0] if searching.masks else ones).numpy(),
        last_base.detach().contiguous().numpy(),
        (final.masks[0] if final.masks else ones).numpy(),
        weight.numpy(),
        final.factor,
        gram.numpy(),
        epsilon,
        torch.empty(0, dtype=torch.int64).numpy() if owner is None else owner.numpy(),
    )
    value, squares, direction, for_base, hidden, summed = (torch.from_numpy(each) for each in results)
    return FieldsStep(value, squares, direction, for_base, (hidden.t() @ summed)[:, : weight.shape[1]])


def _run_layers(step: LayeredPass, state: Tensor, into: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
    """Return the hidden layers, and the last one times its weight, padded with zeros to whole vectors.

    Shapes: state (N, H_1), contiguous; hidden (n_l, H_l), the first one in ``into`` if given; result
    (n_{K-1}, C) with C a whole vector.
    """
    from bvat.engine.compiled import layers

    hidden_layers = []
    for layer, weight in enumerate(step.weights):
        matrix, width = step.matrices[layer], weight.shape[0]
        hidden = state.new_empty(matrix.shape[0], width) if into is None or layer else into
        out = state.new_empty(matrix.shape[0], layers.padded_width(weight.shape[1]))
        mask = step.masks[layer] if step.masks else state.new_ones(1, width)
        arrays = state.numpy(), mask.numpy(), weight.detach().numpy(), hidden.numpy(), out.numpy()
        layers.layer_forward(*matrix.arrays, *arrays)
        hidden_layers.append(hidden)
        state = out
    return hidden_layers, state


def _pull_back(
    step: LayeredPass,
    hidden_layers: Sequence[Tensor],
    grad: Tensor,
    factor: Any,
    *,
    for_weights: bool,
    into: Tensor | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Pull a gradient (n_K, C), padded, back to ``S_0 P`` (n_0, H_1), and to the weights if asked.

    The result is written to ``into`` if given.
    """
    from bvat.engine.compiled import layers

    weight_grads = []
    for matrix, weight, hidden in zip(
        reversed(step.matrices[1:]), reversed(step.weights), reversed(hidden_layers), strict=True
    ):
        first = hidden is hidden_layers[0]
        result = into if first and into is not None else torch.empty_like(hidden)
        operands = weight.detach().numpy(), factor, hidden.numpy(), result.numpy()
        if for_weights or not matrix.stores_transpose:
            summed = matrix.transposed_product(grad)
            layers.layer_backward(summed.numpy(), *operands)
            if for_weights:
                weight_grads.append((hidden.t() @ summed)[:, : weight.shape[1]])
        else:
            layers.layer_backward_of_product(*matrix.transposed_arrays, grad.numpy(), *operands)
        grad = result
    return grad, weight_grads[::-1]


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
