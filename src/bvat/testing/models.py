"""What every model must do, whatever it computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bvat.graph import DenseMatrix, Graph
from bvat.models import linearize
from bvat.models.base import ProjectedModel, first_weights
from bvat.models.own import OwnModule
from bvat.models.table import Model
from bvat.models.wrapped import adapt
from bvat.perturb import OBVAT, SBVAT, VAT, DisjointFields, RandomDirection, Regulariser, regulariser
from bvat.perturb.problem import Found, Problem
from bvat.perturb.spaces import make_space
from bvat.testing.common import check_training, gradients, seeded, small_graph
from bvat.training.loop import train
from bvat.training.optimizer import make_optimizer
from bvat.training.settings import Settings


def check_model(model: Any, graph: Graph | None = None) -> None:
    """Check that a model can be trained, perturbed and stored.

    Args:
        model: the row of a table, or its name, or what :class:`bvat.Settings` takes as a model.
        graph: in double precision; by default a small synthetic one.
    """
    case = ModelCase(model, small_graph() if graph is None else graph)
    for check in (*MODEL_CHECKS, *(() if case.is_module else SPLIT_CHECKS)):
        check(case)


@dataclass(frozen=True)
class ModelCase:
    """A model to check, and the graph."""

    model: Any
    graph: Graph = field(default_factory=small_graph)

    @cached_property
    def row(self) -> Model:
        if isinstance(self.model, Model):
            return self.model
        return Settings("none", self.model).model_row

    @cached_property
    def is_module(self) -> bool:
        """Whether it is any module, and not split into ``project`` and ``propagate``."""
        return isinstance(self.build(), OwnModule)

    def build(self, seed: int = 0, **options: Any) -> Any:
        """Return a small model in double precision whose biases are not zero."""
        generator = seeded(seed)
        sizes = {"hidden": 8, "layers": 2, "dropout": 0.5, "power_steps": 3} | options
        known = {name: value for name, value in sizes.items() if name in self.row.arguments}
        graph, width = self.graph, 0 if self.graph.edge_attr is None else self.graph.edge_attr.shape[1]
        sizes_of_data = (graph.num_features, graph.num_classes, generator, width)
        model = self.row.build(self.row.options(**known), *sizes_of_data).to(torch.float64)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        return model


def returns_logits(case: ModelCase) -> None:
    """It is a ``ProjectedModel`` that returns a row per node; split models have one weight as projection."""
    model, graph = case.build().eval(), case.graph
    logits = model(graph)
    complete = isinstance(model, ProjectedModel)
    assert complete, "it lacks a method of bvat.models.base.ProjectedModel"
    assert logits.shape == (graph.num_nodes, graph.num_classes), "its logits are not (N, C)"
    if not case.is_module:
        assert any(p is model.projection() for p in model.parameters()), "its projection is no parameter"
        assert model.projection().shape[0] == graph.num_features
    torch.testing.assert_close(model.propagate(graph, model.project(graph)), logits, rtol=1e-9, atol=1e-9)


def factored_equals_dense(case: ModelCase) -> None:
    """A perturbation in the factored space has the effect of the same one added to the features."""
    model = case.build().eval()
    wrapped, inputs = adapt(model, case.graph)
    if wrapped.projection() is None:
        return
    p = torch.softmax(model(case.graph).detach(), 1)
    factored = make_space("factored", wrapped, inputs)
    start, _ = factored.gaussian(seeded(1))
    results = []
    spaces = [(factored, start)]
    if not case.is_module:  # its projected features are not what a dense perturbation is added to
        spaces.append((make_space("dense", wrapped, inputs), factored.to_dense(start)))
    for space, r in spaces:
        projected = wrapped.project(inputs).detach() + space.effect(r)
        logits, pullback = linearize(wrapped, inputs, projected, None)
        step = space.pull(pullback(torch.softmax(logits, 1) - p))
        perturbed = wrapped.propagate(inputs, wrapped.project(inputs) + space.trained_effect(step), None)
        value = F.kl_div(torch.log_softmax(perturbed, 1), p, reduction="sum")
        found = (space.to_dense(step), space.row_squares(step), value.detach(), gradients(model, value))
        results.append((logits, *found))
    if case.is_module:
        moved = DenseMatrix(case.graph.features.to_dense() + factored.to_dense(start))
        changed = case.graph.with_features(moved)
        torch.testing.assert_close(results[0][0], model(changed).detach(), rtol=1e-6, atol=1e-8)
        return
    torch.testing.assert_close(results[0], results[1], rtol=1e-7, atol=1e-10)
    assert float(results[0][3]) > 1e-6, "a perturbation changes nothing"


def gradients_are_right(case: ModelCase) -> None:
    """Gradients agree with finite differences, with the masks of one pass."""
    model, graph = case.build().train(), case.graph
    masks = model.draw_masks(graph, seeded(2))
    generator = seeded(3)
    direction = torch.randn(graph.num_nodes, graph.num_classes, dtype=torch.float64, generator=generator)

    def value() -> Tensor:
        found: Tensor = (model(graph, masks) * direction).sum()
        return found

    for parameter, exact in zip(model.parameters(), gradients(model, value()), strict=True):
        way = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            parameter.add_(way, alpha=1e-6)
            above = value()
            parameter.add_(way, alpha=-2e-6)
            below = value()
            parameter.add_(way, alpha=1e-6)
        torch.testing.assert_close((exact * way).sum(), (above - below) / 2e-6, rtol=1e-5, atol=1e-6)


def methods_run(case: ModelCase) -> None:
    """O-BVAT, S-BVAT and VAT find something, the same again, and leave no gradients."""
    model, graph = case.build(), case.graph
    logits = model.eval()(graph).detach()
    model.train()
    for method in (OBVAT, SBVAT, VAT):
        if model.depth < 0 and method is SBVAT:
            continue
        first, again = (method(generator=seeded(0))(model, graph, logits) for _ in range(2))
        assert first.r_vadv == again.r_vadv > 0, f"{method.__name__} does not repeat, or finds nothing"
        assert case.is_module or first.space == "factored"
        assert all(parameter.grad is None for parameter in model.parameters()), "a gradient was left behind"


def state_can_be_restored(case: ModelCase) -> None:
    """The state of one model makes another one the same."""
    first, second = case.build(), case.build(seed=9)
    assert not torch.equal(first.eval()(case.graph), second.eval()(case.graph)), "its weights ignore the seed"
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(case.graph), second(case.graph)), "a part of its state is not in state_dict()"


def dropout_comes_from_the_masks(case: ModelCase) -> None:
    """No dropout in evaluation mode; in training mode the same masks give the same logits."""
    model, graph = case.build(), case.graph
    assert model.eval().draw_masks(graph) is None, "there are masks in evaluation mode"
    assert torch.equal(model(graph), model(graph)), "it is random in evaluation mode"
    rates = [name for name in case.row.arguments if name.endswith("dropout")]
    without: Any = case.build(**dict.fromkeys(rates, 0)).train()
    assert not rates or without.draw_masks(graph, seeded(1)) is None, "there are masks at a rate of 0"
    masks, again = (model.train().draw_masks(graph, seeded(1)) for _ in range(2))
    if masks is None:
        return
    before = torch.get_rng_state()
    assert torch.equal(model(graph, masks), model(graph, again)), "masks do not decide about dropout"
    assert torch.equal(before, torch.get_rng_state()), "it draws from torch's own generator"
    other = model.draw_masks(graph, seeded(2))
    assert not torch.equal(model(graph, masks), model(graph, other)), "other masks change nothing"
    assert not torch.equal(model(graph, masks), model.eval()(graph)), "masks change nothing"


def reads_dense_features(case: ModelCase) -> None:
    """Dense features give the same logits as sparse ones."""
    model = case.build().eval()
    dense = case.graph.with_features(DenseMatrix(case.graph.features.to_dense()))
    torch.testing.assert_close(model(dense), model(case.graph))


def trains(case: ModelCase) -> None:
    """It learns with S-BVAT, or VAT where its depth is not known, and resumes with the same weights."""
    single, model = case.graph.to(dtype=torch.float32), case.build().eval()
    model(case.graph)  # a module is known once it has been seen
    named = case.row.name if isinstance(case.model, str | Model) else case.model
    options: dict[str, Any] = {"epochs": 25, "lr": 0.05, "masks": "fresh", "alpha": 0.7, "beta": 0.5}
    options |= {k: v for k, v in {"hidden": 8, "dropout": 0.3}.items() if k in case.row.arguments}
    if model.depth < 0:
        method = "vat"
    else:
        method, options["count"] = "sbvat", 5
    if case.is_module:
        options["decay"] = "all"
    settings = Settings(method, named, epsilon=0.03, **options)
    losses = [row["supervised"] for row in train(single, settings).metrics]
    assert sum(losses[-5:]) < 0.95 * sum(losses[:5]), "the loss does not fall"
    check_training(settings.replace(epochs=6), single)
    first, *others = make_optimizer(model, settings.training).groups
    expected = first_weights(model)
    if expected:
        assert len(first[0]) == len(expected)
        assert all(one is other for one, other in zip(first[0], expected, strict=True))
        assert sum(len(group) for group, *_ in others) == len(list(model.parameters())) - len(expected)


class _AlongFeatures(RandomDirection):
    """R along X: the same rows in the whole graph and in a subgraph, without randomness."""

    def find(self, problem: Problem, generator: Any) -> Found:
        r = problem.inputs.features.to_dense()
        return problem.scaled(Found(r, problem.space.row_squares(r)), self.epsilon, self.norm)


def subgraph_equals_graph(case: ModelCase) -> None:
    """At chosen nodes a pass on their receptive fields gives what one on the whole graph gives."""
    graph = case.graph
    for training in (False, True):
        model = case.build().train(training)
        chosen = DisjointFields(4).choose(graph, model.depth, seeded(5))
        assert chosen.owner is not None
        assert chosen.chosen is not None
        nodes = torch.nonzero(chosen.owner >= 0).flatten()
        part, rows = graph.induced(nodes), torch.searchsorted(nodes, chosen.chosen)
        masks = model.draw_masks(graph, seeded(6))
        whole, back = linearize(model, graph, model.project(graph, masks), masks)
        cut_masks = model.restrict_masks(masks, graph, nodes)
        cut, cut_back = linearize(model, part, model.project(part, cut_masks), cut_masks)
        torch.testing.assert_close(cut[rows], whole[chosen.chosen])
        gradient, cut_gradient = torch.zeros_like(whole), torch.zeros_like(cut)
        gradient[chosen.chosen, 0], cut_gradient[rows, 0] = 1.0, 1.0
        pulled = back(gradient)
        torch.testing.assert_close(cut_back(cut_gradient), pulled[nodes])
        outside = torch.ones(graph.num_nodes, dtype=torch.bool).index_fill_(0, nodes, False)
        assert not bool(pulled[outside].any()), "its depth is too small: a feature outside the fields matters"


def sbvat_on_a_subgraph_equals_sbvat(case: ModelCase) -> None:
    """S-BVAT has the same loss and gradients wherever its passes run."""
    model, results = case.build().eval(), []
    logits, before = model(case.graph).detach(), regulariser.SUBGRAPH_SHARE
    try:
        for share in (0.0, 1.0):
            regulariser.SUBGRAPH_SHARE = share
            search = _AlongFeatures(epsilon=0.5, norm="field")
            reg = Regulariser(nodes=DisjointFields(4), search=search, space="dense", generator=seeded(7))
            outcome = reg(model, case.graph, logits)
            results.append((outcome.loss.detach(), outcome.max_row_norm, gradients(model, outcome.loss)))
    finally:
        regulariser.SUBGRAPH_SHARE = before
    assert float(results[0][0]) > 0
    torch.testing.assert_close(results[0], results[1])


Check = Callable[[ModelCase], None]
MODEL_CHECKS: tuple[Check, ...] = (
    returns_logits,
    factored_equals_dense,
    gradients_are_right,
    methods_run,
    state_can_be_restored,
    dropout_comes_from_the_masks,
    reads_dense_features,
    trains,
)
"""What every model must do."""
SPLIT_CHECKS: tuple[Check, ...] = (subgraph_equals_graph, sbvat_on_a_subgraph_equals_sbvat)
"""What a model split into ``project`` and ``propagate`` must do too."""
