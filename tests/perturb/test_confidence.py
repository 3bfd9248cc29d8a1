"""Nodes whose clean prediction is a guess do not count."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.perturb import KL, OBVAT, SBVAT, VAT, Consistency, FastAscent, Regulariser
from core_helpers import gradients, make_gcn, seeded

MAKE: dict[str, Any] = {
    "consistency": Consistency,
    "vat": lambda **o: VAT(0.3, **o),
    "obvat": lambda **o: OBVAT("adam", 3, step_size=0.1, gamma=0.01, start=0.1, **o),
    "fast": lambda **o: Regulariser(search=FastAscent(0.3), **o),
    "sbvat": lambda **o: SBVAT(0.3, 6, **o),
}


def sure_nodes(logits: torch.Tensor, confidence: float) -> torch.Tensor:
    return torch.softmax(logits, 1).amax(1) >= confidence


@pytest.mark.parametrize("name", MAKE)
def test_everything_is_sure_at_a_confidence_of_nearly_zero(graph64: Graph, name: str) -> None:
    model = make_gcn(graph64, dropout=0.5)
    logits = model(graph64, generator=seeded(1)).detach()
    plain, tiny = (
        MAKE[name](generator=seeded(3), confidence=confidence)(model, graph64, logits)
        for confidence in (0.0, 1e-9)
    )
    assert plain.nodes == tiny.nodes
    assert plain.r_vadv == pytest.approx(tiny.r_vadv, rel=1e-9)


def test_the_loss_of_consistency_is_the_literal_one(graph64: Graph) -> None:
    """1/N sum over sure nodes, with its gradient."""
    model = make_gcn(graph64, dropout=0.5)
    logits = model(graph64, generator=seeded(1)).detach()
    confidence = float(torch.softmax(logits, 1).amax(1).median())
    outcome = Consistency(generator=seeded(3), confidence=confidence)(model, graph64, logits)
    masks = model.draw_masks(graph64, seeded(3))
    perturbed = model(graph64, masks)
    sure = sure_nodes(logits, confidence)
    assert 0 < int(sure.sum()) < graph64.num_nodes
    value = KL().value_and_gradient(KL().predict(logits), perturbed.detach())[0]
    assert outcome.r_vadv == pytest.approx(float((value * sure).sum() / graph64.num_nodes))
    assert outcome.nodes == int(sure.sum())
    log_q = torch.log_softmax(perturbed, 1)
    p = torch.softmax(logits, 1)
    literal = ((p * (p.log() - log_q)).sum(1) * sure).sum() / graph64.num_nodes
    for ours, theirs in zip(gradients(outcome.loss, model), gradients(literal, model), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


def test_sampled_nodes_that_are_not_sure_leave_with_their_fields(large_graph: Graph) -> None:
    model = make_gcn(large_graph, hidden=16, dropout=0.5)
    logits = model(large_graph, generator=seeded(1)).detach()
    confidence = float(torch.softmax(logits, 1).amax(1).median())
    regulariser = SBVAT(0.3, 12, generator=seeded(3), confidence=confidence)
    chosen = regulariser.nodes.choose(large_graph, 2, seeded(3))
    assert chosen.chosen is not None
    assert chosen.owner is not None
    kept = sure_nodes(logits, confidence)[chosen.chosen]
    fewer = chosen.only(kept, large_graph.engine)
    assert fewer.chosen is not None
    assert fewer.owner is not None
    assert fewer.chosen.tolist() == chosen.chosen[kept].tolist()
    for place, node in enumerate(fewer.chosen.tolist()):
        before = int(torch.nonzero(chosen.chosen == node))
        assert torch.equal(fewer.owner == place, chosen.owner == before)
    outcome = regulariser(model, large_graph, logits)
    assert outcome.nodes == int(kept.sum())


def test_nobody_is_sure(graph: Graph) -> None:
    model = make_gcn(graph, dropout=0.5)
    logits = torch.zeros(graph.num_nodes, graph.num_classes, requires_grad=True)
    for make in MAKE.values():
        outcome = make(generator=seeded(), confidence=0.9)(model, graph, logits)
        assert outcome.nodes == 0
        assert float(outcome.loss.detach()) == 0
        outcome.loss.backward()
    with pytest.raises(SettingsError, match="confidence must be at least 0 and below 1"):
        VAT(confidence=1.0)
