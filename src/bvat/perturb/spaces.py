"""Spaces of perturbations: dense, sparse and factored, behind one interface.

A model reads its features through ``X W0`` only, so a perturbation R (N, D) acts through its *effect*
``P = R W0`` (N, H) only. A space says how R is stored (its coordinates r), and maps between coordinates,
effects and lengths. Lengths are always those of R itself, in the units of the features.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bvat.engine.cpu import DEFAULT_ENGINE
from bvat.engine.draws import Source, as_draws
from bvat.engine.sparse import SparseMatrix
from bvat.engine.tensor import TensorEngine
from bvat.errors import SettingsError
from bvat.graph import GraphInputs
from bvat.models.base import ProjectedModel

SpaceName = Literal["auto", "dense", "sparse", "factored"]


class Space:
    """How perturbations are stored; r stands for coordinates of whatever shape the space uses.

    Where r is a matrix with a row per node, R W0 is ``r M`` and lengths are those of its rows: what is here.
    """

    name: str
    shape: tuple[int, ...]
    """The shape of r."""
    like: Tensor
    """Has the type and the device of r."""
    engine: TensorEngine

    @property
    def effect_map(self) -> Tensor | None:
        """M, by which r is multiplied, without gradient; None for the identity."""
        raise NotImplementedError

    def draw(self, generator: Source | None) -> Tensor:
        """Draw R with independent N(0, 1) entries; return its coordinates r."""
        return as_draws(generator).normal(self.shape, self.like)

    def gaussian(self, generator: Source | None) -> tuple[Tensor, Tensor]:
        """Draw as :meth:`draw` does; return r and the squared length of each row (N)."""
        r = self.draw(generator)
        return r, self.row_squares(r)

    def effect(self, r: Tensor) -> Tensor:
        """Return R W0 (N, H) without gradient."""
        return r if self.effect_map is None else self.engine.times(r, self.effect_map)

    def add_effect(self, base: Tensor, r: Tensor) -> Tensor:
        """Return base + R W0 (N, H) without gradient."""
        return base + r if self.effect_map is None else self.engine.plus_times(base, r, self.effect_map)

    def pull(self, gradient: Tensor) -> Tensor:
        """Turn a gradient with respect to the effect (N, H) into one with respect to r."""
        return gradient if self.effect_map is None else self.engine.times(gradient, self.effect_map.t())

    def row_squares(self, r: Tensor) -> Tensor:
        """Return the squared length of each row of R, shape (N)."""
        return self.engine.row_dots(r, r)

    def scale_rows(self, r: Tensor, factor: Tensor) -> Tensor:
        """Multiply row v of R by factor[v]; factor (N)."""
        return r * factor[:, None]

    def trained_effect(self, r: Tensor) -> Tensor:
        """Return R W0 (N, H) with R held fixed: W0 has the gradient Rᵀ G."""
        raise NotImplementedError

    def to_dense(self, r: Tensor) -> Tensor:
        """Return R itself, shape (N, D): for tests and small graphs."""
        raise NotImplementedError


class DenseSpace(Space):
    """R stored in full, (N, D): the reference, and the space of models that are not linear in X.

    Args:
        weight: W0 (D, H), or None when the model perturbs X itself (W0 = identity).
        shape: (N, D).
    """

    name = "dense"

    def __init__(
        self,
        weight: Tensor | None,
        shape: tuple[int, int],
        like: Tensor,
        engine: TensorEngine = DEFAULT_ENGINE,
    ) -> None:
        self.weight, self.shape, self.like, self.engine = weight, shape, like, engine

    @property
    def effect_map(self) -> Tensor | None:
        return None if self.weight is None else self.weight.detach()

    def trained_effect(self, r: Tensor) -> Tensor:
        return r if self.weight is None else self.engine.times(r, self.weight)

    def to_dense(self, r: Tensor) -> Tensor:
        return r


class SparseSpace(Space):
    """R non-zero only where X is: coordinates are one number per stored entry of X, (nnz). The paper's NELL.

    Args:
        weight: W0, shape (D, H).
        pattern: the features X; only where its entries stand matters.
    """

    name = "sparse"

    def __init__(self, weight: Tensor, pattern: SparseMatrix) -> None:
        self.weight, self.pattern = weight, pattern
        self.shape = (pattern.nnz,)

    def draw(self, generator: Source | None) -> Tensor:
        return as_draws(generator).entry_normal(self.pattern)

    def effect(self, r: Tensor) -> Tensor:
        return self.pattern.with_values(r).product(self.weight.detach())

    def add_effect(self, base: Tensor, r: Tensor) -> Tensor:
        return self.effect(r).add_(base)

    def pull(self, gradient: Tensor) -> Tensor:
        """Return the entries of G W0ᵀ at the pattern, in blocks so that memory stays small."""
        rows, col, weight = self.pattern.rows, self.pattern.col, self.weight.detach()
        pulled = torch.empty_like(self.pattern.values)
        block = max(1, (1 << 22) // max(1, gradient.shape[1]))
        for start in range(0, pulled.numel(), block):
            part = slice(start, start + block)
            pulled[part] = self.pattern.engine.row_dots(gradient[rows[part]], weight[col[part]])
        return pulled

    def row_squares(self, r: Tensor) -> Tensor:
        return r.new_zeros(self.pattern.shape[0]).index_add_(0, self.pattern.rows, r * r)

    def scale_rows(self, r: Tensor, factor: Tensor) -> Tensor:
        return r * factor[self.pattern.rows]

    def trained_effect(self, r: Tensor) -> Tensor:
        return self.pattern.with_values(r) @ self.weight

    def to_dense(self, r: Tensor) -> Tensor:
        return self.pattern.with_values(r).to_dense()


class _FactoredEffect(torch.autograd.Function):
    """``Z (Q̂ᵀ W0)`` with Q̂ = Ŵ0 U⁻¹ held fixed: the value is Z U, the gradient of W0 is Q̂ Zᵀ G."""

    @staticmethod
    def forward(ctx: Any, engine: TensorEngine, z: Tensor, weight: Tensor, upper: Tensor) -> Tensor:
        ctx.engine = engine
        ctx.save_for_backward(z, weight, upper)
        return engine.times(z, upper)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, Tensor, None]:
        z, weight, upper = ctx.saved_tensors
        summed = ctx.engine.node_product(z, grads[0])
        return None, None, weight @ torch.linalg.solve_triangular(upper, summed, upper=True), None


class FactoredSpace(Space):
    """R = Z Qᵀ with W0 = Q U, Q orthonormal (D, H), U upper triangular (H, H): coordinates Z, (N, H).

    Only the part of R in span(Q) has an effect, so nothing is lost: gradients lie in the span anyway, and
    lengths are |Z_v|. U comes from Cholesky, ``Uᵀ U = W0ᵀ W0``; Q itself is never formed.

    Args:
        weight: W0, shape (D, H).
        rows: N.
    """

    name = "factored"

    def __init__(self, weight: Tensor, rows: int, engine: TensorEngine = DEFAULT_ENGINE) -> None:
        if weight.shape[0] < weight.shape[1]:
            raise SettingsError(
                f"space 'factored' needs at least as many features as hidden units, "
                f"not {weight.shape[0]} and {weight.shape[1]}: use 'auto' or 'dense'"
            )
        self.weight, self.shape, self.engine = weight, (rows, int(weight.shape[1])), engine
        self.like = weight.detach()

    @cached_property
    def upper(self) -> Tensor:
        """U, upper triangular (H, H)."""
        weight = self.weight.detach()
        # A wide W0 is multiplied in its own precision: doubling it would take longer than the rest of a step.
        small = weight.numel() <= 2**20
        wide = weight.double() if small else weight
        gram = (wide.t() @ wide).double()
        diagonal = gram.diagonal()
        # The shift keeps Cholesky defined when columns of W0 depend on each other, or rounding makes them;
        # it changes |R|² by the same share.
        shift = 1e-12 if small or weight.dtype == torch.float64 else 1e-6
        diagonal.add_(shift * diagonal.mean() + torch.finfo(weight.dtype).tiny)
        factor: Tensor = torch.linalg.cholesky(gram, upper=True)
        return factor.to(weight.dtype).contiguous()

    def gaussian(self, generator: Source | None) -> tuple[Tensor, Tensor]:
        """Draw Z (N, H); the D - H directions that have no effect add a chi-squared number to each |R_v|².

        This is exact: for R with independent N(0, 1) entries, R Q is N(0, I_H) and the rest is independent.
        """
        features, hidden = self.weight.shape
        z = self.draw(generator)
        squares = self.row_squares(z)
        if features > hidden:
            squares = squares + 2 * as_draws(generator).gamma((features - hidden) / 2, squares)
        return z, squares

    @property
    def effect_map(self) -> Tensor:
        return self.upper

    def pull(self, gradient: Tensor) -> Tensor:
        return self.engine.times(gradient, self.upper.t().contiguous())

    def trained_effect(self, r: Tensor) -> Tensor:
        effect: Tensor = _FactoredEffect.apply(self.engine, r, self.weight, self.upper)  # type: ignore[no-untyped-call]
        return effect

    def to_dense(self, r: Tensor) -> Tensor:
        """Return R = Z U⁻ᵀ W0ᵀ."""
        by_column: Tensor = torch.linalg.solve_triangular(self.upper.t(), r, upper=False, left=False)
        return by_column @ self.weight.detach().t()


def make_space(name: SpaceName, model: ProjectedModel, inputs: GraphInputs) -> Space:
    """Build the space called ``name`` for a model and a graph; "auto": factored wherever that is smaller."""
    weight = model.projection()
    if name == "auto":
        name = "dense" if weight is None or weight.shape[0] <= weight.shape[1] else "factored"
    if name == "factored" and weight is not None:  # the features of a subgraph are not cut out for nothing
        return FactoredSpace(weight, inputs.propagation.shape[1], inputs.engine)
    features = inputs.features
    if name == "dense":
        return DenseSpace(weight, features.shape, features.values, inputs.engine)
    if weight is None:
        raise SettingsError(f"space {name!r} needs a model that is linear in its features: use 'dense'")
    if name == "sparse":
        if not isinstance(features, SparseMatrix):
            raise SettingsError("space 'sparse' needs sparse features: use 'dense' or 'factored'")
        return SparseSpace(weight, features)
    raise SettingsError(f"there is no space {name!r}: use auto, dense, sparse or factored")
