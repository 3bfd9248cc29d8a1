"""The candidates for members of ``auto``: they are what their papers say, and are measured like members."""

from __future__ import annotations

import pytest
import torch

import bvat
import few_candidates as few
from bvat.models.appnp import APPNP
from bvat.perturb.flag import OnLabels

MODELS = {name: row for name, row in few.CANDIDATES.items() if isinstance(row, bvat.Model)}


@pytest.mark.parametrize("name", MODELS)
def test_networks_are_split_and_dropout_is_their_masks(name: str, small: bvat.Graph) -> None:
    model = MODELS[name].load()(40, 3, generator=torch.Generator().manual_seed(0))
    masks = model.draw_masks(small, torch.Generator().manual_seed(1))
    passes = [model.propagate(small, model.project(small, masks), masks) for _ in range(2)]
    assert passes[0].shape == (120, 3)
    assert torch.equal(*passes)
    passes[0].sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not torch.equal(model.eval()(small), passes[0])


def test_gpr_gnn_starts_as_appnp(small: bvat.Graph) -> None:
    start = {"hidden": 8, "dropout": 0.0}
    learnt = few.GPRGNN(40, 3, generator=torch.Generator().manual_seed(0), **start)
    fixed = APPNP(40, 3, generator=torch.Generator().manual_seed(0), **start)
    learnt.load_state_dict(fixed.state_dict(), strict=False)
    with torch.no_grad():
        for bias in learnt.biases:
            bias.zero_()
    torch.testing.assert_close(learnt(small), fixed(small))


def test_a_second_gcn_starts_elsewhere() -> None:
    first, second = (
        kind(40, 3, generator=torch.Generator().manual_seed(0)) for kind in (bvat.GCN, few.SecondGCN)
    )
    assert not torch.equal(first.projection(), second.projection())


def test_sharpening_pulls_labelled_and_unlabelled_nodes_apart(small: bvat.Graph) -> None:
    term: OnLabels = few.Sharpening(generator=0)
    logits = torch.zeros(120, 3)
    logits[small.train, 0] = 50.0  # sure of these, and of nothing else
    loss = term(bvat.GCN(40, 3), small, logits.requires_grad_()).loss
    assert loss.detach().item() == pytest.approx(torch.tensor(3.0).log().item(), rel=1e-4)
