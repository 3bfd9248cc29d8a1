"""FLAG against a literal implementation of its algorithm."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.perturb.flag import FLAG
from bvat.training.loop import train
from bvat.training.settings import Settings
from core_helpers import gradients, make_gcn, seeded


def literal(graph: Graph, model: Any, steps: int, size: float, start: torch.Tensor) -> list[torch.Tensor]:
    """Return the parameters' gradients of FLAG, N x D numbers and ``backward`` at every step."""
    x, a = graph.features.to_dense(), graph.propagation.to_dense()
    r = start.clone()
    model.zero_grad()
    for _ in range(steps):
        r.requires_grad_()
        hidden = (a @ (x + r) @ model.weights[0]).relu()
        logits = a @ hidden @ model.weights[1]
        (F.cross_entropy(logits[graph.train], graph.labels[graph.train]) / steps).backward()
        r = (r + size * r.grad.sign()).detach()  # type: ignore[union-attr]
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_dense_space_is_flag_itself(graph64: Graph) -> None:
    """The supervised loss plus what FLAG returns has the averaged gradients of the M perturbed passes."""
    model = make_gcn(graph64)
    start = torch.empty(graph64.num_nodes, graph64.num_features, dtype=torch.float64)
    expected = literal(graph64, model, 4, 0.03, start.uniform_(-0.03, 0.03, generator=seeded(5)))
    model.zero_grad()
    logits = model(graph64)
    outcome = FLAG(4, 0.03, space="dense", generator=seeded(5))(model, graph64, logits)
    total = F.cross_entropy(logits[graph64.train], graph64.labels[graph64.train]) + outcome.loss
    for ours, theirs in zip(gradients(total, model), expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)
    assert outcome.nodes == len(graph64.train)


@pytest.mark.parametrize("policy", ["fresh", "pair", "reuse", "shared"])
def test_factored_space_goes_up_under_every_policy(graph64: Graph, policy: Any) -> None:
    """The loss grows with the number of steps; parameters and their gradients are left alone."""
    model = make_gcn(graph64, dropout=0.5)
    masks = model.draw_masks(graph64, seeded(1))
    projected = model.project(graph64, masks)
    logits = model.propagate(graph64, projected, masks)
    before = [parameter.clone() for parameter in model.parameters()]
    values = []
    for steps in (1, 6):
        flag = FLAG(steps, 0.2, space="factored", dropout=policy, generator=seeded(2))
        outcome = flag(model, graph64, logits, masks, projected)
        assert outcome.space == "factored"
        gradients(outcome.loss, model)
        values.append(outcome.r_vadv)
    assert values[1] > values[0]
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_bad_settings_and_a_missing_generator(graph: Graph) -> None:
    for wrong in ({"steps": 0}, {"step_size": 0.0}):
        with pytest.raises(SettingsError, match=r"must be (at least 1|above 0), not 0"):
            FLAG(**wrong)  # type: ignore[arg-type]
    model = make_gcn(graph)
    with pytest.raises(SettingsError, match="pass generator="):
        FLAG()(model, graph, model(graph))


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("masks", ["fresh", "pair", "reuse", "shared"])
def test_trains_with_all_masks_on_all_features(masks: str, dense: bool, make_graph: Any) -> None:
    found = train(make_graph(dense=dense), Settings(method="flag", masks=masks, epochs=2, steps=2), 0)
    assert all(math.isfinite(row["loss"]) for row in found.metrics)
