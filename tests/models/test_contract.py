"""What every model must do, whatever it computes: the registry's models all go through the same tests."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import bvat
from bvat.errors import SettingsError
from bvat.models import MODELS, linearize
from bvat.models.base import ProjectedModel
from bvat.perturb import DisjointFields, RandomDirection, Regulariser
from bvat.perturb.problem import Found, Problem
from bvat.perturb.spaces import make_space
from bvat.training.optimizer import make_optimizer
from bvat.training.settings import Settings
from bvat.training.state import build_model

FEATURES, CLASSES = 40, 3
every_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def graph() -> bvat.Graph:
    drawn = bvat.synthetic_graph(90, 100, FEATURES, CLASSES, words_per_node=5, train_per_class=4, seed=3)
    return drawn.to(dtype=torch.float64).with_engine("tensor")


def build(name: str, **options: object) -> torch.nn.Module:
    """A small model in double precision whose biases are not zero."""
    generator = torch.Generator().manual_seed(0)
    sizes = {"hidden": 8, "layers": 2, "dropout": 0.5}
    options = {
        **{k: v for k, v in sizes.items() if k in MODELS[name].arguments},
        "generator": generator,
        **options,
    }
    if name in ("appnp", "random-propagation"):
        options["power_steps"] = 3
    model = MODELS[name].load()(FEATURES, CLASSES, **options).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def gradients(model: torch.nn.Module, loss: Tensor) -> dict[str, Tensor]:
    parts = torch.autograd.grad(loss, list(model.parameters()))
    return dict(zip(dict(model.named_parameters()), parts, strict=True))


@every_model
def test_is_a_projected_model_with_one_parameter_as_projection(graph: bvat.Graph, name: str) -> None:
    model = build(name)
    assert isinstance(model, ProjectedModel)
    assert any(p is model.projection() for p in model.parameters())
    assert model.projection().shape[0] == FEATURES
    logits = model.eval()(graph)
    assert logits.shape == (graph.num_nodes, CLASSES)
    assert torch.equal(model.propagate(graph, model.project(graph)), logits)


@every_model
def test_factored_equals_dense_for_the_step_the_loss_and_all_gradients(graph: bvat.Graph, name: str) -> None:
    model = build(name).eval()
    p = torch.softmax(model(graph).detach(), 1)
    factored, dense = make_space("factored", model, graph), make_space("dense", model, graph)
    start, _ = factored.gaussian(torch.Generator().manual_seed(1))
    results = []
    for space, r in ((factored, start), (dense, factored.to_dense(start))):
        projected = model.project(graph).detach() + space.effect(r)
        logits, pullback = linearize(model, graph, projected, None)
        step = space.pull(pullback(torch.softmax(logits, 1) - p))
        perturbed = model.propagate(graph, model.project(graph) + space.trained_effect(step), None)
        value = torch.nn.functional.kl_div(torch.log_softmax(perturbed, 1), p, reduction="sum")
        results.append(
            (space.to_dense(step), space.row_squares(step), value.detach(), gradients(model, value))
        )
    torch.testing.assert_close(results[0], results[1], rtol=1e-7, atol=1e-10)
    assert float(results[0][2]) > 1e-6


@every_model
def test_gradients_agree_with_finite_differences(graph: bvat.Graph, name: str) -> None:
    model = build(name).train()
    masks = model.draw_masks(graph, torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(3)
    direction = torch.randn(graph.num_nodes, CLASSES, dtype=torch.float64, generator=generator)

    def value() -> Tensor:
        return (model(graph, masks) * direction).sum()

    exact = gradients(model, value())
    for key, parameter in model.named_parameters():
        way = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            parameter.add_(way, alpha=1e-6)
            above = value()
            parameter.add_(way, alpha=-2e-6)
            below = value()
            parameter.add_(way, alpha=1e-6)
        torch.testing.assert_close((exact[key] * way).sum(), (above - below) / 2e-6, rtol=1e-5, atol=1e-6)


@every_model
@pytest.mark.parametrize("training", [False, True])
def test_subgraph_equals_whole_graph_at_the_chosen_nodes(
    graph: bvat.Graph, name: str, training: bool
) -> None:
    """Also with dropout: the masks of the whole graph are cut to the subgraph."""
    model = build(name).train(training)
    chosen = DisjointFields(4).choose(graph, model.depth, torch.Generator().manual_seed(5))
    nodes = torch.nonzero(chosen.owner >= 0).flatten()
    part, rows = graph.induced(nodes), torch.searchsorted(nodes, chosen.chosen)
    masks = model.draw_masks(graph, torch.Generator().manual_seed(6))
    assert (masks is not None) == training
    whole, back = linearize(model, graph, model.project(graph, masks), masks)
    cut_masks = model.restrict_masks(masks, graph, nodes)
    cut, cut_back = linearize(model, part, model.project(part, cut_masks), cut_masks)
    torch.testing.assert_close(cut[rows], whole[chosen.chosen])
    gradient, cut_gradient = torch.zeros_like(whole), torch.zeros_like(cut)
    gradient[chosen.chosen, 0], cut_gradient[rows, 0] = 1.0, 1.0
    pulled = back(gradient)
    torch.testing.assert_close(cut_back(cut_gradient), pulled[nodes])
    outside = torch.ones(graph.num_nodes, dtype=torch.bool).index_fill_(0, nodes, False)
    assert not bool(pulled[outside].any()), "the depth is too small: a feature outside the fields matters"


class AlongFeatures(RandomDirection):
    """R along X: the same rows in the whole graph and in a subgraph, without randomness."""

    def find(self, problem: Problem, generator: torch.Generator | None) -> Found:
        r = problem.inputs.features.to_dense()
        self.nodes = r.shape[0]
        return problem.scaled(Found(r, problem.space.row_squares(r)), self.epsilon, self.norm)


@every_model
def test_sbvat_on_a_part_equals_sbvat_on_the_whole_graph(
    graph: bvat.Graph, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(name).eval()
    logits = model(graph).detach()
    results, sizes = [], []
    for way in (type(model).perturbed_on, "whole"):
        monkeypatch.setattr(type(model), "perturbed_on", way)
        generator = torch.Generator().manual_seed(7)
        search = AlongFeatures(epsilon=0.5, norm="field")
        reg = Regulariser(nodes=DisjointFields(4), search=search, space="dense", generator=generator)
        outcome = reg(model, graph, logits)
        results.append((outcome.loss.detach(), outcome.max_row_norm, gradients(model, outcome.loss)))
        sizes.append(search.nodes)
    assert float(results[0][0]) > 0
    assert sizes[0] < sizes[1] == graph.num_nodes
    torch.testing.assert_close(results[0], results[1])


@every_model
@pytest.mark.parametrize("method", [bvat.OBVAT, bvat.SBVAT, bvat.VAT])
def test_regularisers_run_and_leave_no_gradients(graph: bvat.Graph, name: str, method: object) -> None:
    model = build(name)
    logits = model.eval()(graph).detach()
    model.train()
    losses = []
    for _ in range(2):
        reg = method(generator=torch.Generator().manual_seed(0))
        losses.append(reg(model, graph, logits))
    assert losses[0].r_vadv == losses[1].r_vadv > 0
    assert losses[0].space == "factored"
    assert all(parameter.grad is None for parameter in model.parameters())


@every_model
def test_state_dict_round_trip(graph: bvat.Graph, name: str) -> None:
    first, second = build(name), build(name, generator=torch.Generator().manual_seed(9))
    assert not torch.equal(first.eval()(graph), second.eval()(graph))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(graph), second(graph))


@every_model
def test_dropout_is_off_in_eval_mode_and_repeats_with_its_masks(graph: bvat.Graph, name: str) -> None:
    model = build(name)
    assert model.eval().draw_masks(graph) is None
    rates = [rate for rate in MODELS[name].arguments if rate.endswith("dropout")]
    assert build(name, **dict.fromkeys(rates, 0.0)).train().draw_masks(graph) is None
    masks = model.train().draw_masks(graph, torch.Generator().manual_seed(1))
    again = model.draw_masks(graph, torch.Generator().manual_seed(1))
    assert torch.equal(model(graph, masks), model(graph, again))
    assert not torch.equal(model(graph, masks), model(graph, model.draw_masks(graph, torch.Generator())))
    assert not torch.equal(model(graph, masks), model.eval()(graph))


@every_model
def test_every_dropout_mask_is_used(graph: bvat.Graph, name: str) -> None:
    model = build(name).train()
    masks = model.draw_masks(graph, torch.Generator().manual_seed(1))
    base = model(graph, masks)
    for kind in ("features", "nodes"):
        mask = getattr(masks, kind, None)
        if mask is not None:
            assert not torch.equal(model(graph, replace(masks, **{kind: mask + 1})), base), kind
    for kind in ("hidden", "edges"):
        for k, mask in enumerate(getattr(masks, kind, ())):
            others = list(getattr(masks, kind))
            others[k] = mask + 1
            assert not torch.equal(model(graph, replace(masks, **{kind: tuple(others)})), base), (kind, k)


@every_model
def test_dense_features_give_the_same_as_sparse_ones(graph: bvat.Graph, name: str) -> None:
    model = build(name).eval()
    dense = replace(graph, features=graph.features.to_dense())
    torch.testing.assert_close(model(dense), model(graph))


@every_model
def test_is_built_from_settings_and_trains(graph: bvat.Graph, name: str) -> None:
    single = graph.to(dtype=torch.float32)
    sizes = {"hidden": 8} if "hidden" in MODELS[name].arguments else {}
    options = {"dropout": 0.3, "epochs": 25, "lr": 0.05, "masks": "fresh", "alpha": 0.7, "epsilon": 0.03}
    settings = Settings("sbvat", name, beta=0.5, count=5, **options, **sizes)
    trained = bvat.train(single, settings, seed=0)
    losses = [row["supervised"] for row in trained.metrics]
    assert sum(losses[-5:]) < 0.95 * sum(losses[:5])
    model = build_model(settings, single.num_features, single.num_classes)
    first, *rest = make_optimizer(model, settings.training).groups
    assert first[0] == [model.projection()]
    assert first[1] > 0
    assert sum(len(parameters) for parameters, _ in rest) == len(list(model.parameters())) - 1


@every_model
def test_presets_fit_the_model_and_leave_the_plain_method_plain(name: str) -> None:
    plain, regularised = (bvat.preset("cora", method, model=name) for method in ("none", "obvat"))
    assert plain.model == regularised.model == name
    assert plain.alpha == 0 < regularised.beta
    assert not hasattr(plain, "beta")
    assert plain.of_model == regularised.of_model
    if name != "sgc":
        widths = {"gcn": 16, "monet": 16, "random-propagation": 32, "gpnn": 128}
        assert plain.hidden == widths.get(name, 64)
    assert bvat.preset("cora", "obvat", model=name, beta=9.0).beta == 9
    MODELS[name].build(plain.of_model, FEATURES, CLASSES)


@every_model
@pytest.mark.parametrize("wrong", [{"dropout": 1.0}, {"layers": 0}])
def test_impossible_sizes_are_refused(name: str, wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        MODELS[name].load()(FEATURES, CLASSES, **wrong)


def test_gat_names_its_heads_when_the_width_does_not_fit() -> None:
    with pytest.raises(SettingsError, match="multiple of the 8 attention heads, not 12"):
        MODELS["gat"].load()(FEATURES, CLASSES, hidden=12)
