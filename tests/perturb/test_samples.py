"""Several passes and one target: the literal formulas, and regularisers that take the target."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import bvat
from bvat.perturb.samples import draw_passes, nodes_of_passes, sharpened_mean, stacked
from bvat.training.loop import training_step
from bvat.training.settings import preset
from bvat.training.state import start_training


def logits(count: int = 3) -> list[torch.Tensor]:
    drawn = torch.randn(count, 9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return [part.requires_grad_() for part in 2 * drawn]


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.2])
def test_the_target_is_the_sharpened_mean(temperature: float) -> None:
    parts = logits()
    mean = torch.stack([torch.softmax(part, 1) for part in parts]).mean(0)
    expected = mean ** (1 / temperature) / (mean ** (1 / temperature)).sum(1, keepdim=True)
    target = sharpened_mean(parts, temperature)
    torch.testing.assert_close(target, expected.detach())
    assert not target.requires_grad


def test_a_target_close_to_one_class_stays_finite() -> None:
    certain = torch.tensor([[200.0, 0.0, -200.0]])
    target, loss = bvat.GRAND(2, temperature=0.05, divergence="kl").agree(certain.repeat(2, 1))
    assert torch.isfinite(target).all()
    assert torch.isfinite(loss)


def test_reused_passes_share_the_projection_and_nothing_else(graph: bvat.Graph) -> None:
    state = start_training(graph, preset("cora", "grand", model="random-propagation"), 0)
    first, second, third = draw_passes(state.model.train(), graph, state.generator, 3, reuse=True)
    assert first.projected is second.projected is third.projected
    assert first.masks.features is not None
    assert second.masks.features is None
    assert not torch.equal(second.masks.nodes, third.masks.nodes)
    assert not torch.equal(second.logits, third.logits)


@pytest.mark.parametrize("name", ["kl", "squared"])
def test_disagreement_and_its_gradient_are_the_literal_ones(name: str) -> None:
    parts, target = logits(), sharpened_mean(logits(), 0.5)
    same, found = bvat.GRAND(3, divergence=name).agree(stacked(parts))
    assert torch.equal(same, target)
    assert not same.requires_grad
    each = [
        {
            "squared": (torch.softmax(part, 1) - target).square().sum(1),
            "kl": (target * (target.log() - torch.log_softmax(part, 1))).sum(1),
        }[name].mean()
        for part in parts
    ]
    literal = sum(each) / len(each)
    torch.testing.assert_close(found, literal)
    gradients = [torch.autograd.grad(loss, parts) for loss in (found, literal)]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("classes", [4, 40])
def test_stacked_passes_lie_one_below_the_other(classes: int) -> None:
    parts = [torch.randn(9, classes), torch.randn(9, classes)]
    every, nodes = stacked(parts), torch.tensor([2, 7])
    torch.testing.assert_close(every, torch.cat(parts), rtol=0, atol=0)
    at = nodes_of_passes(nodes, 9, 2)
    torch.testing.assert_close(every[at], torch.cat([part[nodes] for part in parts]), rtol=0, atol=0)


@pytest.mark.parametrize("model", ["random-propagation", "gcn"])
def test_the_loss_of_an_epoch_is_grands(graph: bvat.Graph, model: str) -> None:
    settings = preset("cora", "grand", model=model, hidden=8, ramp=0, agreement=0.7, epochs=2)
    state = start_training(graph, settings, 3)
    model_, generator = start_training(graph, settings, 3).model.train(), torch.Generator()
    generator.set_state(state.generator.get_state())
    passes = draw_passes(model_, graph, generator, 4)
    target = sharpened_mean([part.logits for part in passes], settings.temperature)
    labels = graph.labels[graph.train]
    supervised = sum(F.cross_entropy(part.logits[graph.train], labels) for part in passes) / 4
    apart = sum((torch.softmax(part.logits, 1) - target).square().sum(1).mean() for part in passes) / 4
    measured = training_step(state)
    assert measured["supervised"] == pytest.approx(supervised.item(), rel=1e-5)
    assert measured["r_vadv"] == pytest.approx(apart.item(), rel=1e-4)
    assert measured["loss"] == pytest.approx((supervised + 0.7 * apart).item(), rel=1e-5)
    (supervised + 0.7 * apart).backward()
    for ours, literal in zip(state.model.parameters(), model_.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, literal.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("method", ["vat", "sbvat", "obvat", "random", "consistency"])
def test_regularisers_compare_with_the_target(graph: bvat.Graph, method: str) -> None:
    """Without dropout and with a tiny perturbation R_vadv is the divergence between target and prediction."""
    tiny = {"start": 1e-7, "step_size": 1e-9} if method == "obvat" else {"epsilon": 1e-7}
    tiny = {} if method == "consistency" else tiny
    settings = preset("cora", method, dropout=0.0, **tiny)
    state = start_training(graph, settings, 0)
    clean = state.model(graph)
    target = torch.full_like(clean, 1 / clean.shape[1])
    outcome = state.method.regulariser(state.model, graph, clean, None, state.model.project(graph), target)
    literal = (target * (target.log() - torch.log_softmax(clean, 1))).sum(1)
    if method != "sbvat":  # which looks at some of the nodes
        assert outcome.r_vadv == pytest.approx(literal.mean().item(), rel=1e-3)
    assert outcome.r_vadv > 1e-5


def test_with_a_target_the_first_step_needs_no_probe(graph64: bvat.Graph) -> None:
    """The gradient at R = 0 is not zero there: the direction is that of the true gradient."""
    model = bvat.GCN(graph64.num_features, graph64.num_classes, generator=torch.Generator().manual_seed(0))
    model = model.double().eval()
    clean = model(graph64)
    target = torch.softmax(
        3 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(1)), 1
    ).double()
    found = [
        bvat.VAT(0.05, space=space, generator=0)(model, graph64, clean, target=target).r_vadv
        for space in ("factored", "dense")
    ]
    x = graph64.features.to_dense().requires_grad_()
    hidden = torch.relu(graph64.propagation @ (x @ model.weights[0]))
    value = -(target * torch.log_softmax(graph64.propagation @ (hidden @ model.weights[1]), 1)).sum()
    slope = torch.autograd.grad(value, x)[0]
    r = 0.05 * slope / slope.norm(dim=1, keepdim=True).clamp_min(1e-300)
    hidden = torch.relu(graph64.propagation @ ((x + r) @ model.weights[0]))
    log_q = torch.log_softmax(graph64.propagation @ (hidden @ model.weights[1]), 1)
    literal = (target * (target.log() - log_q)).sum(1).mean().item()
    assert found == pytest.approx([literal, literal], rel=1e-6)


def test_nodes_without_a_confident_mean_do_not_count() -> None:
    parts = [part.requires_grad_() for part in logits()]
    target = sharpened_mean(parts, 0.5)
    mean = torch.stack([torch.softmax(part, 1) for part in parts]).mean(0).detach()
    bar = mean.amax(1).median().item()
    sure = mean.amax(1) >= bar
    assert 0 < int(sure.sum()) < len(sure)
    _, loss = bvat.GRAND(3, confidence=bar).agree(stacked(parts))
    squares = [(torch.softmax(part, 1) - target).square().sum(1) for part in parts]
    torch.testing.assert_close(loss, (sum(squares) * sure / len(parts)).mean())
    for gradient in torch.autograd.grad(loss, parts):
        assert not gradient[~sure].any()
        assert gradient[sure].any()


@pytest.mark.parametrize("nodes", [None, 20])
def test_grand_in_a_loop_of_ones_own_is_the_loss_of_training(graph: bvat.Graph, nodes: int | None) -> None:
    """L0 of the first pass and GRAND's loss: the mean L0 of all passes and the distance from their mean."""
    model = bvat.GCN(
        graph.num_features, graph.num_classes, generator=torch.Generator().manual_seed(0)
    ).train()
    generator = torch.Generator().manual_seed(1)
    first = model(graph, generator=generator)
    grand = bvat.GRAND(samples=3, agreement=0.7, generator=generator)
    state = generator.get_state()
    found = grand(model, graph, first, nodes=nodes).loss
    generator.set_state(state)
    more = draw_passes(model, graph, generator, 2)
    logits = [first, *(one.logits for one in more)]
    train = graph.train if nodes is None else graph.train[graph.train < nodes]
    labels = graph.labels[train]
    supervised = [torch.nn.functional.cross_entropy(part[train], labels) for part in logits]
    part = [one[:nodes] for one in logits]
    _, apart = grand.agree(stacked(part))
    expected = sum(supervised) / 3 - supervised[0] + 0.7 * apart
    assert float(found.detach()) == pytest.approx(float(expected.detach()), abs=1e-6)
    ours, theirs = (torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
                    for loss in (found, expected))  # fmt: skip
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs, strict=True))
    with pytest.raises(bvat.SettingsError, match="samples must be at least 2, not 1"):
        bvat.GRAND(samples=1)
