"""One contract for all spaces: a subclass says how to make one and what it holds, and inherits every test."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import scipy.sparse as sp
import torch
from scipy import stats
from torch import Tensor

import bvat.perturb.spaces as module
from bvat.engine.sparse import SparseMatrix
from bvat.errors import SettingsError
from bvat.perturb.spaces import DenseSpace, FactoredSpace, Space, SparseSpace
from core_helpers import seeded

ROWS = 12
SHAPES = [(9, 4), (4, 4), (5, 4), (60, 4), (2, 1)]


close = partial(torch.testing.assert_close, rtol=1e-7, atol=1e-9)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(seed))


class SpaceContract:
    """Override :meth:`make`, and :meth:`held` where the space cannot hold every R with an effect."""

    classes: tuple[type[Any], ...] = ()

    def make(self, weight: Tensor, rows: int) -> Space:
        """Return the space for W0 (D, H) and N rows."""
        raise NotImplementedError

    def held(self, dense: Tensor) -> Tensor:
        """Return the part of a gradient with respect to R (N, D) that the space can hold."""
        return dense

    @pytest.fixture(params=SHAPES, ids=str)
    def weight(self, request: pytest.FixtureRequest) -> Tensor:
        return normal(*request.param).requires_grad_()

    @pytest.fixture
    def space(self, weight: Tensor) -> Space:
        return self.make(weight, ROWS)

    @pytest.fixture
    def r(self, space: Space) -> Tensor:
        return space.draw(seeded(1))

    def test_the_effect_is_linear_and_that_of_r_itself(self, space: Space, weight: Tensor, r: Tensor) -> None:
        other = space.draw(seeded(2))
        effect = space.effect(2 * r - 3 * other)
        close(effect, 2 * space.effect(r) - 3 * space.effect(other))
        close(space.effect(r), space.to_dense(r) @ weight.detach())
        base = normal(ROWS, weight.shape[1], seed=3)
        kept = base.clone()
        close(space.add_effect(base, r), base + space.effect(r))
        assert torch.equal(base, kept)

    def test_pull_is_the_adjoint_of_effect(self, space: Space, weight: Tensor, r: Tensor) -> None:
        gradient = normal(ROWS, weight.shape[1], seed=4)
        pulled = space.pull(gradient)
        assert tuple(pulled.shape) == space.shape
        close((pulled * r).sum(), (gradient * space.effect(r)).sum())
        close(space.to_dense(pulled), self.held(gradient @ weight.detach().t()))

    def test_lengths_are_those_of_r_itself(self, space: Space, r: Tensor) -> None:
        other, dense = space.draw(seeded(2)), space.to_dense(r)
        close(space.row_squares(r), dense.pow(2).sum(1))
        close((r * other).sum(), (dense * space.to_dense(other)).sum())

    def test_rows_are_scaled_one_by_one(self, space: Space, r: Tensor) -> None:
        factor, kept = normal(ROWS, seed=5), r.clone()
        scaled = space.scale_rows(r, factor)
        close(space.to_dense(scaled), factor[:, None] * space.to_dense(r))
        assert torch.equal(r, kept)

    def test_the_trained_effect_has_the_value_of_the_effect_and_trains_w0(
        self, space: Space, weight: Tensor, r: Tensor
    ) -> None:
        gradient = normal(ROWS, weight.shape[1], seed=6)
        effect = space.trained_effect(r)
        close(effect.detach(), space.effect(r))
        assert effect.requires_grad == weight.requires_grad
        if weight.requires_grad:
            (of_weight,) = torch.autograd.grad((effect * gradient).sum(), weight)
            close(of_weight, space.to_dense(r).t() @ gradient)

    def test_no_gradient_reaches_r(self, space: Space, r: Tensor) -> None:
        effect = space.effect(r)
        assert not effect.requires_grad
        assert not space.add_effect(effect, r).requires_grad
        assert not space.pull(effect).requires_grad
        assert not r.requires_grad

    def test_gaussian_lengths_are_those_of_normal_entries(self, weight: Tensor) -> None:
        """|R_v|² is chi-squared with as many degrees of freedom as row v of R has entries."""
        space = self.make(weight, 5000)
        r, squares = space.gaussian(seeded(7))
        assert tuple(r.shape) == space.shape
        assert squares.shape == (5000,)
        assert bool((space.row_squares(r) <= squares * (1 + 1e-9)).all())
        degrees = self.held(torch.ones(5000, weight.shape[0], dtype=torch.float64)).sum(1)
        rows = degrees > 0
        assert float(squares[~rows].sum()) == 0
        assert stats.kstest(stats.chi2(degrees[rows]).cdf(squares[rows]), "uniform").pvalue > 1e-3
        assert stats.kstest(r.flatten(), "norm").pvalue > 1e-3

    def test_randomness_comes_from_the_generator_only(self, space: Space) -> None:
        before = torch.get_rng_state()
        for draw in (space.draw, lambda generator: space.gaussian(generator)[1]):
            assert torch.equal(draw(seeded(3)), draw(seeded(3)))
            assert not torch.equal(draw(seeded(3)), draw(seeded(4)))
            with pytest.raises(SettingsError, match="pass generator="):
                draw(None)
        assert torch.equal(before, torch.get_rng_state())


class TestDense(SpaceContract):
    classes = (DenseSpace,)

    def make(self, weight: Tensor, rows: int) -> Space:
        return DenseSpace(weight, (rows, weight.shape[0]), weight.detach())


class TestDenseWithoutProjection(SpaceContract):
    """The space of a model that is not linear in X: W0 is the identity."""

    @pytest.fixture
    def weight(self) -> Tensor:
        return torch.eye(7, dtype=torch.float64)

    def make(self, weight: Tensor, rows: int) -> Space:
        return DenseSpace(None, (rows, weight.shape[0]), weight)


class TestSparse(SpaceContract):
    classes = (SparseSpace,)

    def pattern(self, rows: int, columns: int) -> Tensor:
        return (torch.rand(rows, columns, generator=seeded(8)) < 0.5).double()

    def make(self, weight: Tensor, rows: int) -> Space:
        entries = sp.csr_array(self.pattern(rows, weight.shape[0]).numpy())
        return SparseSpace(weight, SparseMatrix.from_scipy(entries, torch.float64))

    def held(self, dense: Tensor) -> Tensor:
        return dense * self.pattern(*dense.shape)


class TestFactored(SpaceContract):
    classes = (FactoredSpace,)

    def make(self, weight: Tensor, rows: int) -> Space:
        return FactoredSpace(weight, rows)


def test_every_space_is_in_the_contract() -> None:
    spaces = {item for item in vars(module).values() if isinstance(item, type) and hasattr(item, "pull")}
    tested = {space for contract in SpaceContract.__subclasses__() for space in contract.classes}
    assert spaces - {Space} == tested
