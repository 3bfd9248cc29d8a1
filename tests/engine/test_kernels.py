"""Compiled sparse products against plain torch and scipy."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch.multiprocessing  # its import teaches ForkingPickler to share tensors
from torch import Tensor

from bvat.engine import cpu, loops
from bvat.engine.sparse import SparseMatrix
from bvat.graph.inputs import Block
from kernel_helpers import DTYPES, WIDTHS, assert_same, random, sparse, times, without_numba

F32 = torch.float32


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_any_width(dtype: torch.dtype) -> None:
    """Also of those that do not fill vectors: nothing is read or written beyond a row."""
    s = sparse(40, 30, dtype)
    for width in range(41):
        h, g = random(30, width, dtype=dtype), random(40, width, dtype=dtype)
        assert_same(s.product(h), times(s.to_scipy(), h))
        assert_same(s.transposed_product(g), times(s.to_scipy().T, g))
        assert_same(s.T.product(g), times(s.to_scipy().T, g))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)  # those of ranks run in double precision too
def test_nothing_is_written_beside_the_result(dtype: torch.dtype, width: int) -> None:
    """The result starts at an odd place too, so that no vector is aligned."""
    s, h = sparse(20, 30, dtype), random(30, width, dtype=dtype)
    memory = torch.full((20 * width + 31,), 7.0, dtype=dtype)
    out = memory[1 : 1 + 20 * width].view(20, width)
    base = random(20, width, dtype=dtype, seed=1)
    loops.product(s.arrays, h.numpy(), base.numpy(), out.numpy())
    assert_same(out, base + times(s.to_scipy(), h))
    assert float(memory[0]) == 7
    assert memory[1 + 20 * width :].unique().tolist() == [7]


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_matrices_that_do_not_lie_by_rows(dtype: torch.dtype) -> None:
    s, block = sparse(40, 30, dtype), sparse(40, 30, dtype, Block)
    scipy_matrix = s.to_scipy()

    def views(rows: int) -> dict[str, Tensor]:
        return {
            "by columns": random(16, rows, dtype=dtype).t(),
            "every second column": random(rows, 32, dtype=dtype)[:, ::2],
            "every second row": random(2 * rows, 16, dtype=dtype)[::2],
            "one row again and again": random(1, 16, dtype=dtype).expand(rows, 16),
            "one number": random(1, 1, dtype=dtype).expand(rows, 16),
            "from the middle": random(rows * 16 + 3, dtype=dtype)[3:].view(rows, 16),
        }

    for h, g in zip(views(30).values(), views(40).values(), strict=True):
        assert_same(s.product(h), times(scipy_matrix, h))
        for matrix in (s, block):
            assert_same(matrix.transposed_product(g), times(scipy_matrix.T, g))


@pytest.mark.parametrize("limit", [0, 2**17])
def test_a_transposed_product_with_dropped_rows(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Scattered where the result is small, else row by row of the transpose; what is not finite is seen."""
    monkeypatch.setattr(cpu, "SCATTERED_UP_TO", limit)
    s, g = sparse(40, 30, F32), random(40, 16, dtype=F32)
    g[::2] = 0
    assert_same(s.transposed_product(g), times(s.to_scipy().T, g))
    g[1, 3] = torch.nan
    assert s.transposed_product(g).isnan().any()


def test_many_threads_use_the_products_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    s, h = sparse(30, 40, F32), random(40, 8, dtype=F32)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(loops, "product", None)
    assert_same(s.product(h), times(s.to_scipy(), h))


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (3, 4), (1, 1)])
def test_matrices_without_entries(shape: tuple[int, int]) -> None:
    rows, columns = shape
    for kind in (SparseMatrix, Block):
        none = torch.zeros(0, dtype=torch.int32)
        s = kind(torch.zeros(rows + 1, dtype=torch.int32), none, torch.zeros(0), shape)
        assert torch.equal(s.product(torch.ones(columns, 8)), torch.zeros(rows, 8))
        assert torch.equal(s.transposed_product(torch.ones(rows, 8)), torch.zeros(columns, 8))


@pytest.mark.parametrize("width", [*WIDTHS, 1, 3, 12])
@pytest.mark.parametrize("dtype", DTYPES)
def test_scattered_product_of_a_block(dtype: torch.dtype, width: int) -> None:
    s, g = sparse(50, 30, dtype, Block), random(50, width, dtype=dtype)
    turned = torch.from_numpy(s.to_scipy().toarray()).flip(1)
    # the same with columns in another order: those of a block are not ascending
    other = Block(s.crow, 29 - s.col, s.values, s.shape)
    for block, dense in ((s, turned.flip(1)), (other, turned)):
        assert_same(block.transposed_product(g), dense.t() @ g)
        assert_same(block.product(g[:30]), dense @ g[:30])
        with without_numba():
            assert_same(block.transposed_product(g), dense.t() @ g)
            assert_same(block.product(g[:30]), dense @ g[:30])


def test_gradient_of_a_product() -> None:
    for s in (sparse(9, 7, torch.float64), sparse(9, 7, torch.float64, Block)):
        h = random(7, 8, dtype=torch.float64).requires_grad_()
        assert torch.autograd.gradcheck(lambda x, s=s: s @ x, h)
        assert torch.autograd.gradgradcheck(lambda x, s=s: (s @ x) ** 2, h)


def test_a_matrix_sent_to_another_process_is_still_itself() -> None:
    """Sending moves its tensors to shared memory and frees what they were in; loops must not go on there."""
    s, h, g = sparse(40, 30, torch.float32), random(30, 8, dtype=torch.float32), torch.ones(40, 8)
    before = s.product(h), s.transposed_product(g)
    place = s.values.data_ptr()
    sent = ForkingPickler.loads(bytes(ForkingPickler.dumps(s)))
    assert s.values.data_ptr() != place
    for matrix in (s, sent):
        tensors = matrix.crow, matrix.col, matrix.values
        read = [array.__array_interface__["data"][0] for array in matrix.arrays]
        assert read == [tensor.data_ptr() for tensor in tensors]
        assert torch.equal(matrix.product(h), before[0])
        assert torch.equal(matrix.transposed_product(g), before[1])


@pytest.mark.parametrize("rows", [0, 29, 31, 3000])
def test_a_product_with_a_wrong_number_of_rows_is_refused(rows: int) -> None:
    s = sparse(30, 30, torch.float32)
    for multiply in (s.product, s.transposed_product, s.__matmul__):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            multiply(torch.ones(rows, 8))
    with pytest.raises(RuntimeError, match="dtype"):
        s.product(torch.ones(30, 8, dtype=torch.float64))
