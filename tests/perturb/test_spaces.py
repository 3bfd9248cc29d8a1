"""What is particular to each space; what they share is in ``test_space_contract.py``."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.perturb.spaces import DenseSpace, FactoredSpace, SparseSpace, make_space
from core_helpers import coordinates, make_gcn, seeded

D, H, ROWS = 9, 4, 20_000


def weight(features: int = D, hidden: int = H, seed: int = 0) -> Tensor:
    return torch.randn(features, hidden, dtype=torch.float64, generator=seeded(seed)).requires_grad_()


def pair(w: Tensor, rows: int = 12) -> tuple[DenseSpace, FactoredSpace]:
    return DenseSpace(w, (rows, w.shape[0]), w.detach()), FactoredSpace(w, rows)


def test_the_part_outside_the_span_has_no_effect_and_only_costs_length() -> None:
    w = weight()
    dense, factored = pair(w)
    r = torch.randn(12, D, dtype=torch.float64)
    z = coordinates(factored, r)
    inside = factored.to_dense(z)
    assert torch.allclose(dense.effect(inside), dense.effect(r), atol=1e-9)
    rest = r - inside
    assert torch.allclose(dense.effect(rest), torch.zeros(12, H, dtype=torch.float64), atol=1e-9)
    assert torch.allclose(factored.row_squares(z) + dense.row_squares(rest), dense.row_squares(r))


@pytest.mark.parametrize(("features", "hidden"), [(9, 4), (4, 4), (5, 4), (40, 3)])
def test_factored_gaussian_has_the_distribution_of_the_dense_one(features: int, hidden: int) -> None:
    """Effect, length, and both together (the effect of a row of length one is what power iteration uses)."""
    w = weight(features, hidden)
    dense, factored = pair(w, ROWS)
    (r, r_squares), (z, z_squares) = dense.gaussian(seeded(1)), factored.gaussian(seeded(2))
    p_dense, p = dense.effect(r), factored.effect(z)

    covariance = (w.t() @ w).detach()
    sigma = covariance.diagonal().sqrt()
    assert bool((p.mean(0).abs() < 4 * sigma / math.sqrt(ROWS)).all())
    assert torch.allclose(
        p.t() @ p / ROWS, covariance, atol=6 * float(covariance.abs().max()) / math.sqrt(ROWS)
    )
    for column in range(hidden):
        assert stats.kstest(p[:, column] / sigma[column], "norm").pvalue > 1e-3

    assert stats.kstest(z_squares, stats.chi2(features).cdf).pvalue > 1e-3
    assert stats.ks_2samp(z_squares, r_squares).pvalue > 1e-3
    for unit, dense_unit in (
        (p.norm(dim=1) / z_squares.sqrt(), p_dense.norm(dim=1) / r_squares.sqrt()),
        (p[:, 0] / z_squares.sqrt(), p_dense[:, 0] / r_squares.sqrt()),
    ):
        assert stats.ks_2samp(unit, dense_unit).pvalue > 1e-3


def test_factored_gaussian_adds_nothing_where_there_is_nothing_to_add() -> None:
    factored = FactoredSpace(weight(4, 4), 50)
    z, squares = factored.gaussian(seeded())
    assert torch.equal(squares, factored.row_squares(z))
    factored = FactoredSpace(weight(5, 4), 5000)
    z, squares = factored.gaussian(seeded())
    rest = squares - factored.row_squares(z)
    assert bool((rest >= 0).all())
    assert stats.kstest(rest, stats.chi2(1).cdf).pvalue > 1e-3
    correlation = torch.corrcoef(torch.stack([rest, factored.row_squares(z)]))[0, 1]
    assert abs(float(correlation)) < 4 / math.sqrt(5000)


def test_factored_random_direction_trains_w0_like_the_dense_one_on_average() -> None:
    """The part of R outside the span is left out of the gradient of W0: its mean there is zero."""
    w = weight(6, 2)
    for space in pair(w, 200_000):
        r, squares = space.gaussian(seeded(4))
        effect = space.trained_effect(space.scale_rows(r, squares.rsqrt()))
        mean = torch.autograd.grad(effect.pow(2).sum(), w)[0] / 200_000
        # rows of length one: E[Rᵀ 2 R W0] / N = 2 W0 / D
        assert torch.allclose(mean, 2 * w / 6, atol=0.01 * float(w.detach().abs().max()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", ["a zero column", "equal columns", "all zero"])
def test_weights_without_full_rank(columns: str, dtype: torch.dtype) -> None:
    """Dead hidden units happen in training; effects and gradients must stay those of the dense space."""
    w = weight(30, 4).detach().to(dtype)
    if columns == "a zero column":
        w[:, 2] = 0
    elif columns == "equal columns":
        w[:, 3] = w[:, 1]
    else:
        w.zero_()
    w.requires_grad_()
    dense, factored = pair(w)
    g = torch.randn(12, 4, dtype=dtype)
    z, r = factored.pull(g), dense.pull(g)
    tolerance = 1e-3 if dtype == torch.float32 else 1e-5
    assert torch.allclose(factored.effect(z), dense.effect(r), rtol=tolerance, atol=tolerance)
    assert torch.allclose(factored.row_squares(z), dense.row_squares(r), rtol=tolerance, atol=tolerance)
    one, other = (
        torch.autograd.grad((space.trained_effect(x) * g).sum(), w)[0]
        for space, x in ((factored, z), (dense, r))
    )
    assert torch.allclose(one, other, rtol=tolerance, atol=tolerance * float(other.abs().max() + 1))
    start, squares = factored.gaussian(seeded())
    assert bool(torch.isfinite(torch.autograd.grad(factored.trained_effect(start).sum(), w)[0]).all())
    assert stats.kstest(squares.double(), stats.chi2(30).cdf).pvalue > 1e-3


def test_sparse_gradient_in_blocks(graph64: Graph) -> None:
    """Wide effects make several blocks; an entry must not be lost at their borders."""
    w = torch.randn(graph64.num_features, 1 << 17, dtype=torch.float64)
    sparse = SparseSpace(w, graph64.features)  # type: ignore[arg-type]
    assert graph64.features.nnz > 2 * ((1 << 22) // (1 << 17))  # type: ignore[union-attr]
    g = torch.zeros(graph64.num_nodes, 1 << 17, dtype=torch.float64)
    g[:, :3] = torch.randn(graph64.num_nodes, 3, dtype=torch.float64)
    expected = g[:, :3] @ w[:, :3].t()
    at = (graph64.features.rows, graph64.features.col.long())  # type: ignore[union-attr]
    assert torch.allclose(sparse.pull(g), expected[at])


def test_auto(graph: Graph) -> None:
    assert make_space("auto", make_gcn(graph), graph).name == "factored"
    assert make_space("auto", make_gcn(graph, hidden=graph.num_features), graph).name == "dense"
    assert make_space("auto", Identity(), graph).name == "dense"  # type: ignore[arg-type]


class Identity:
    """A model that perturbs its features directly."""

    def projection(self) -> None:
        return


def test_faults_are_named(graph: Graph, make_graph: Any) -> None:
    wide, dense = make_gcn(graph, hidden=30), make_graph(dense=True)
    for name, model, inputs, message in [
        ("factored", Identity(), graph, "linear in its features: use 'dense'"),
        ("sparse", Identity(), graph, "linear in its features: use 'dense'"),
        ("sparse", make_gcn(graph), dense, "needs sparse features: use 'dense' or 'factored'"),
        ("factored", wide, graph, "as many features as hidden units, not 24 and 30: use 'auto'"),
        ("quantum", make_gcn(graph), graph, "no space 'quantum': use auto, dense, sparse or factored"),
    ]:
        with pytest.raises(SettingsError, match=message):
            make_space(name, model, inputs)  # type: ignore[arg-type]
