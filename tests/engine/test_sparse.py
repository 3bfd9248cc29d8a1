"""Sparse matrices against dense ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.engine.tensor import BY_COLUMNS_UP_TO
from bvat.graph import Graph


def matrix(rows: int = 7, columns: int = 5, seed: int = 0) -> SparseMatrix:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < 0.4)
    x[2] = 0  # an empty row
    x[:, 1] = 0  # an empty column
    return SparseMatrix.from_scipy(sp.csr_array(x), torch.float64)


def test_products_equal_the_dense_ones() -> None:
    s, h, g = matrix(), torch.randn(5, 3, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64)
    dense = s.to_dense()
    assert torch.allclose(s @ h, dense @ h)
    assert torch.allclose(s.transposed_product(g), dense.t() @ g)
    assert torch.allclose(s.T.to_dense(), dense.t())
    assert torch.allclose(s.T.T.to_dense(), dense)


def test_gradient_of_a_product() -> None:
    s = matrix()
    h = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: s @ x, h)


def test_second_derivatives() -> None:
    s = matrix()
    h = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: (s @ x) ** 2, h)


def test_gradient_of_a_sum_arrives_as_an_expanded_tensor() -> None:
    s = matrix()
    h = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    (s @ h).sum().backward()
    assert torch.allclose(h.grad, s.to_dense().t() @ torch.ones(7, 3, dtype=torch.float64))


def test_with_values_keeps_the_pattern_and_has_its_own_transpose() -> None:
    s = matrix()
    g = torch.randn(7, 2, dtype=torch.float64)
    s.transposed_product(g)  # fills the caches of s before other values take over its pattern
    other = s.with_values(torch.arange(s.nnz, dtype=torch.float64) + 1)
    assert torch.equal(other.to_dense() != 0, s.to_dense() != 0)
    assert torch.allclose(other.transposed_product(g), other.to_dense().t() @ g)
    assert torch.allclose(s.transposed_product(g), s.to_dense().t() @ g)


@pytest.mark.parametrize("rows", [[0, 3, 6], [6, 2, 0], [2], [4, 4]])
def test_select_rows_in_any_order(rows: list[int]) -> None:
    s = matrix()
    assert torch.equal(s.select(torch.tensor(rows)).to_dense(), s.to_dense()[rows])


@pytest.mark.parametrize("nodes", [[0, 1, 4], [2], [0, 1, 2, 3, 4, 5, 6]])
def test_induced_submatrix(nodes: list[int]) -> None:
    s = matrix(7, 7, seed=3)
    assert torch.equal(s.induced(torch.tensor(nodes)).to_dense(), s.to_dense()[nodes][:, nodes])


def test_symmetric_matrix_stays_symmetric() -> None:
    d = matrix(7, 7, seed=3).to_dense()
    s = SparseMatrix.from_scipy(sp.csr_array((d + d.t()).numpy()), torch.float64)
    s = SymmetricMatrix(s.crow, s.col, s.values, s.shape)
    g = torch.randn(7, 2, dtype=torch.float64)
    assert torch.allclose(s.transposed_product(g), s.to_dense().t() @ g)
    part = s.induced(torch.tensor([1, 3, 4]))
    assert isinstance(part, SymmetricMatrix)
    assert isinstance(s.to(dtype=torch.float32), SymmetricMatrix)
    assert torch.equal(part.to_dense(), part.to_dense().t())


def test_precision_changes_values_only() -> None:
    s = matrix()
    single = s.to(dtype=torch.float32)
    assert single.dtype == torch.float32
    assert torch.equal(single.col, s.col)
    assert s.to(dtype=torch.float64) is s
    assert (single @ torch.ones(5, 1)).dtype == torch.float32


def test_from_scipy_sums_duplicates_and_leaves_its_argument_alone() -> None:
    given = sp.csr_array((np.array([1.0, 2.0, 5.0]), np.array([3, 0, 3]), np.array([0, 3])), shape=(1, 4))
    s = SparseMatrix.from_scipy(given)
    assert s.to_dense().tolist() == [[2.0, 0.0, 0.0, 6.0]]
    assert s.col.tolist() == [0, 3]
    assert given.indices.tolist() == [3, 0, 3]
    assert given.data.tolist() == [1.0, 2.0, 5.0]
    s.values[0] = 9
    assert given.data.tolist() == [1.0, 2.0, 5.0]


def test_round_trip_through_scipy() -> None:
    s = matrix()
    assert torch.equal(SparseMatrix.from_scipy(s.to_scipy(), s.dtype).to_dense(), s.to_dense())


def test_a_matrix_without_entries() -> None:
    s = SparseMatrix.from_scipy(sp.csr_array((3, 4)))
    assert torch.equal(s @ torch.ones(4, 2), torch.zeros(3, 2))
    assert torch.equal(s.transposed_product(torch.ones(3, 2)), torch.zeros(4, 2))
    assert "3 x 4" in repr(s)


@pytest.mark.parametrize("columns", [5, 7000])
def test_products_of_matrices_by_columns(graph: Graph, columns: int) -> None:
    """Small ones stay by columns, large ones are laid by rows; the product is the same."""
    graph, dense = graph.with_engine("tensor"), torch.randn(columns, graph.num_nodes).t()
    found = graph.propagation.product(dense)
    assert found.is_contiguous() == (columns * graph.num_nodes > BY_COLUMNS_UP_TO)
    torch.testing.assert_close(found, graph.propagation.to_dense() @ dense)


@pytest.mark.parametrize("row", [-1, 3])
def test_rows_that_are_not_there_are_refused(row: int) -> None:
    matrix = SparseMatrix.from_scipy(np.eye(3))
    with pytest.raises(IndexError, match="no such row"):
        matrix.select(torch.tensor([0, row]))
