"""The mathematics of bvat on tensors: every operation that has a faster form, or one over several ranks.

A matrix and a graph carry their engine; models, searches and losses ask it and nothing else.
:class:`bvat.engine.cpu.CompiledEngine` overrides what compiled loops do faster, and
:class:`bvat.engine.ranks.RankEngine` sums, products and draws over several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from bvat.engine.attention import AttentionMath
from bvat.engine.draws import Draws
from bvat.engine.fields import grown_fields
from bvat.engine.matrix import Matrix
from bvat.engine.rows import RowMath

T = TypeVar("T")


class LayeredPass(NamedTuple):
    """One pass of a GCN after its projection: ``A_1 = S_0 P``, ``A_{l+1} = S_l (m_l * relu(A_l)) W_l``.

    Shapes: matrices S_l (n_l, n_{l-1}), one per layer; weights W_l (H_l, H_{l+1}); masks (>= n_l, H_l), none
    without dropout. ``factor`` is 1 / (1 - dropout rate), the value of the masks where they keep.
    """

    matrices: Sequence[Matrix]
    weights: tuple[Tensor, ...]
    masks: tuple[Tensor, ...] = ()
    factor: float = 1.0


class Trace(NamedTuple):
    """What the backward pass of a GCN needs of its forward pass."""

    hidden: list[Tensor]  # H_l = dropout(relu(A_l)), (N, H_l)
    inputs: list[Tensor]  # what W_l was multiplied with: H_l, or Â H_l, (N, H_l)


class AdamRates(NamedTuple):
    """Settings of Adam; ``weight_decay`` w adds the gradient of ``w/2 |values|²`` to what is minimised."""

    lr: float
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8


def adam_step_(
    values: Sequence[Tensor],
    gradients: Sequence[Tensor],
    moments: Mapping[str, Sequence[Tensor]],
    rates: AdamRates,
    *,
    maximize: bool = False,
) -> None:
    """Make one step of Adam in place, in one pass over memory: values, moments and counts of steps change.

    torch.optim.Adam takes a second to import what it needs to be compiled, and a tenth of a millisecond to go
    through its options in each step, which on a small graph is a tenth of an epoch. This is the same update.
    ``maximize`` turns the gradients around, but not that of the weight decay.

    Shapes: values, gradients, moments "first" and "second" alike; "count" scalars of the values' precision.
    """
    first, second, counts = (list(moments[name]) for name in ("first", "second", "count"))
    torch._foreach_add_(counts, 1)
    torch._fused_adam_(
        list(values),
        # it reads memory in order: a gradient that lies by columns would reach other entries of the values
        [
            g if g.stride() == v.stride() else torch.empty_like(v).copy_(g)
            for v, g in zip(values, gradients, strict=True)
        ],
        first,
        second,
        [],
        counts,
        lr=rates.lr,
        beta1=rates.betas[0],
        beta2=rates.betas[1],
        weight_decay=rates.weight_decay,
        eps=rates.epsilon,
        amsgrad=False,
        maximize=maximize,
    )


class TensorEngine(RowMath, AttentionMath):
    """One process: every operation is the plain one on tensors."""

    leads = True
    """Whether this process prints and writes files."""
    processes: int | None = None
    """How many processes already share the work; None for one that may start others."""

    # sparse matrices

    def scattered_product(self, matrix: Matrix, dense: Tensor) -> Tensor:
        """Return ``Sᵀ @ dense`` without autograd and without a stored transpose; dense (rows, H)."""
        rows = dense.detach().index_select(0, matrix.rows) * matrix.values[:, None]
        return dense.new_zeros(matrix.shape[1], dense.shape[1]).index_add_(0, matrix.col.long(), rows)

    def power_sum(
        self, adjacency: Matrix, ratio: float, steps: int, start: Tensor, *, transposed: bool = False
    ) -> Tensor:
        """Return ``sum_{k <= K} (rÂ)^k start`` by Horner's rule, without autograd; start, result (N, H)."""
        product = adjacency.transposed_product if transposed else adjacency.product
        state = start
        for _ in range(steps):
            state = product(state).mul_(ratio).add_(start)
        return state

    # the layers of a GCN

    def gcn_forward(self, step: LayeredPass, projected: Tensor) -> tuple[Tensor, Trace]:
        """Return the logits of a GCN given its projected features, without autograd.

        ``A_1 = Â P``, then for each further layer ``A_{l+1} = Â dropout(relu(A_l)) W_l``, where Â is applied
        on the narrower side of W_l.

        Shapes: projected P (N, H_1); logits (N, C).
        """
        trace = Trace([], [])
        state = step.matrices[0].product(projected)
        for layer, weight in enumerate(step.weights):
            hidden = state.clamp_min_(0)
            if step.masks:
                hidden.mul_(step.masks[layer][: hidden.shape[0]])
            matrix = step.matrices[layer + 1]
            multiplied = matrix.product(hidden) if _widens(weight) else hidden
            if _widens(weight):
                state = self.times(multiplied, weight)
            else:
                state = matrix.product(self.narrow_times(hidden, weight))
            trace.hidden.append(hidden)
            trace.inputs.append(multiplied)
        return state, trace

    def gcn_backward(
        self, step: LayeredPass, trace: Trace, grad: Tensor, *, for_weights: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """Pull a gradient with respect to the logits back to the projected features and the weights.

        One recursion through Âᵀ: ``B = Âᵀ G``, ``dW_l = H_lᵀ B``, ``G = factor (B W_lᵀ) where H_l > 0``.
        Dropout and relu together pass the gradient on, times ``factor``, exactly where their output is
        positive.

        Shapes: grad (N, C); result (N, H_1) and one (H_l, H_{l+1}) per weight (none unless ``for_weights``).
        """
        weight_grads: list[Tensor] = []
        layers = zip(step.matrices[1:], step.weights, *trace, strict=True)
        for matrix, weight, hidden, multiplied in reversed(list(layers)):
            if not _widens(weight):
                grad = matrix.transposed_product(grad)
            if for_weights:
                weight_grads.append(self.node_product(multiplied, grad))
            grad = self.times(grad, (step.factor * weight).t())
            if _widens(weight):
                grad = matrix.transposed_product(grad)
            grad = torch.ops.aten.threshold_backward(grad, hidden, 0)
        return step.matrices[0].transposed_product(grad), weight_grads[::-1]

    # searches; a problem is a :class:`bvat.perturb.problem.Problem`

    def adam_step(self, r: Tensor, gradient: Tensor, moments: dict[str, Tensor], rates: AdamRates) -> None:
        """Make one step of Adam up the gradient; r and the moments change in place."""
        adam_step_([r], [gradient], {name: [each] for name, each in moments.items()}, rates, maximize=True)

    def power_step(self, problem: Any, search: Any, last: Callable[[], Any]) -> tuple[Tensor, Tensor]:
        """Return the loss at what a power iteration from r = 0 finds, and the squared lengths of its rows.

        ``last`` gives masks and projected features of the pass in which the loss is taken.
        """
        with torch.no_grad():
            found = search.find(problem, None)
        return problem.loss(found, last), found.row_squares

    def disjoint_fields(
        self, matrix: Matrix, depth: int, count: int, draws: Draws, among: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Choose at most ``count`` nodes whose K-hop balls do not meet, at random, one after another.

        Returns the chosen nodes int64 (b), for each node the number of the chosen node in whose ball it lies,
        int64 (n), -1 for none, and the numbers of the chosen nodes among those of all ranks.
        """
        return *grown_fields(matrix, depth, count, draws, among), None

    # what a run needs

    def draws(self, seed: int, graph: Any) -> Draws:
        """Return the source of random numbers for training on a graph."""
        return Draws(torch.Generator(graph.device).manual_seed(seed))

    def own_file(self, path: Path, epoch: int) -> Path | None:
        """Return the file for what only this rank has of a checkpoint; None alone."""
        return None

    def agree(self, make: Callable[[], T]) -> T:
        """Return what ``make`` returns on the leading rank."""
        return make()

    def barrier(self) -> None:
        """Wait until all ranks are here."""


def _widens(weight: Tensor) -> bool:
    return weight.shape[1] > weight.shape[0]
