from __future__ import annotations

import numpy as np
import pytest
import torch

from bvat.engine import philox
from bvat.engine.draws import RowDraws

ONES = 0xFFFFFFFF
# the known answers of Random123, the reference implementation (kat_vectors, philox4x32 10)
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def draws(nodes: list[int] | None = None, seed: int = 3) -> RowDraws:
    own = torch.arange(1000) if nodes is None else torch.tensor(nodes)
    return RowDraws(seed, own)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_known_answers(counter, key, expected) -> None:
    out = np.empty((1, 4), np.uint64)
    philox.words(np.array([counter], np.uint64), np.array(key, np.uint64), out)
    assert tuple(out[0].tolist()) == expected


def test_draws_of_a_node_do_not_depend_on_the_other_nodes() -> None:
    whole, some = draws(), draws([7, 500, 3])
    like = torch.zeros(1)
    for draw in (
        lambda d, n: d.dropout_mask((n, 13), 0.5, like),
        lambda d, n: d.normal((n, 13), like),
        lambda d, n: d.uniform((n, 3), -1.0, 1.0, like),
        lambda d, n: d.gamma(2.5, like),
    ):
        assert torch.equal(draw(whole, 1000)[[7, 500, 3]], draw(some, 3))


def test_draws_differ_between_calls_epochs_and_seeds_and_repeat() -> None:
    like = torch.zeros(1)
    first = draws()
    a, b = first.normal((1000, 4), like), first.normal((1000, 4), like)
    first.begin_epoch(1)
    c, d = first.normal((1000, 4), like), draws(seed=4).normal((1000, 4), like)
    seen = [a, b, c, d]
    assert all(not torch.equal(x, y) for i, x in enumerate(seen) for y in seen[:i])
    first.begin_epoch(0)
    assert torch.equal(first.normal((1000, 4), like), a)
    assert first.get_state().numel() == 0


def test_draws_have_their_distributions() -> None:
    d, like = draws(), torch.zeros(1)
    mask = d.dropout_mask((1000, 50), 0.25, like)
    assert set(mask.unique().tolist()) == {0.0, torch.tensor(4 / 3).item()}
    assert abs(float(mask.mean()) - 1) < 0.01
    z = d.normal((1000, 50), like)
    assert abs(float(z.mean())) < 0.02
    assert abs(float(z.var()) - 1) < 0.03
    assert abs(float((z**4).mean()) - 3) < 0.2
    u = d.uniform((1000, 50), -1.0, 3.0, like)
    assert float(u.min()) >= -1
    assert float(u.max()) < 3
    assert abs(float(u.mean()) - 1) < 0.03
    for shape in (0.5, 3.5, 400.0):
        many = torch.cat([d.gamma(shape, like) for _ in range(20)])
        assert abs(float(many.mean()) / shape - 1) < 0.05
        assert abs(float(many.var()) / shape - 1) < 0.1
