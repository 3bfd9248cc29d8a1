"""What is proved holds: against enumeration, exact fractions and an attack stronger than the audit's."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from audit_helpers import build, dense_features
from torch import Tensor

import bvat
from bvat.audit import audit, certify, smallest_perturbation
from bvat.audit.certify import BUDGETS, certificates
from bvat.audit.slopes import slope_bounds
from bvat.audit.tangents import Pair, Relus
from bvat.engine.dense import DenseMatrix
from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.inference.classifier import Classifier
from bvat.models import APPNP, GAT, GCN, GPNN, MLP, SGC, GraphSAGE, MoNet, RandomPropagation

KINDS: list[tuple[Any, dict[str, Any]]] = [
    (GCN, {"hidden": 5}),
    (GCN, {"hidden": 4, "layers": 3}),
    (GCN, {"hidden": 3, "layers": 4}),
    (GCN, {"layers": 1}),
    (SGC, {}),
    (APPNP, {"hidden": 5, "power_steps": 3}),
    (RandomPropagation, {"hidden": 5, "power_steps": 2, "batch_norm": True}),
    (RandomPropagation, {"hidden": 4, "power_steps": 3, "spread": "mean"}),
    (MLP, {"hidden": 5, "layers": 3}),
]


def small_graph(seed: int, nodes: int = 8, features: int = 6, *, directed: bool = False) -> Graph:
    """Return a random graph with weighted edges and an isolated node, in double precision."""
    random = np.random.default_rng(seed)
    edges = random.random((nodes, nodes)) * (random.random((nodes, nodes)) < 0.3)
    edges[0], edges[:, 0] = 0, 0
    labels = random.integers(0, 3, nodes)
    graph = Graph.build(
        random.normal(size=(nodes, features)), edges, labels, train=[0, 1, 2],
        class_names=["a", "b", "c"], normalize=False, directed=directed,
    )  # fmt: skip
    return graph.to(dtype=torch.float64)


def small_model(kind: Any, graph: Graph, seed: int, options: dict[str, Any]) -> Any:
    """Return a model in double precision with random weights, biases and statistics."""
    generator = torch.Generator().manual_seed(seed)
    model = kind(graph.num_features, graph.num_classes, generator=generator, **options).double().eval()
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(torch.randn(each.shape, generator=generator, dtype=torch.float64))
        for name, each in model.named_buffers():
            if each.is_floating_point():
                drawn = torch.rand(each.shape, generator=generator, dtype=torch.float64)
                each.copy_(drawn + 0.2 if name.endswith("var") else drawn)
    return model


def worst(model: Any, graph: Graph, v: int, budget: str, radius: float, starts: int = 2) -> float:
    """Return the smallest margin of v that projected gradients find at a radius, over all other classes."""
    x = dense_features(graph)
    generator = torch.Generator().manual_seed(v)
    with torch.no_grad():
        own = int(model(graph)[v].argmax())
    smallest = np.inf
    for k in set(range(graph.num_classes)) - {own}:
        for _ in range(starts):
            r = projected(torch.randn(x.shape, generator=generator, dtype=x.dtype), budget, radius)
            for _ in range(8):
                point = (x + r).requires_grad_()
                logits = model(graph.with_features(DenseMatrix(point, graph.engine)))[v]
                margin = logits[own] - logits[k]
                smallest = min(smallest, float(margin.detach()))
                (slope,) = torch.autograd.grad(margin, point)
                r = projected(-slope, budget, radius)
    return smallest


def projected(step: Tensor, budget: str, radius: float) -> Tensor:
    """Return the point of a budget's ball at which a linear function with this gradient is largest."""
    tiny = torch.finfo(step.dtype).tiny
    if budget == "graph":
        return step * (radius / step.norm().clamp_min(tiny))
    rows = step.norm(dim=1, keepdim=True)
    if budget == "node":
        step = step * (rows == rows.max())
    return step * (radius / rows.clamp_min(tiny))


@pytest.mark.parametrize(("seed", "directed"), [(0, False), (2, True)])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_a_strong_attack_never_flips_what_is_proved(
    kind: Any, options: dict[str, Any], seed: int, directed: bool
) -> None:
    graph = small_graph(seed, directed=directed)
    model = small_model(kind, graph, seed, options)
    for found in certificates(model, graph):
        assert found.radius.dtype == torch.float64
        first, second = model(graph).detach().topk(2).values.t()
        assert torch.equal(found.radius > 0, first > second)
        assert found.predicted.tolist() == model(graph).argmax(1).tolist()
        for v in range(0, graph.num_nodes, 3):
            assert worst(model, graph, v, found.budget, float(found.radius[v])) >= -1e-12


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize(
    ("kind", "options"), [(SGC, {"layers": 3}), (GCN, {"layers": 1}), (MLP, {"layers": 1})]
)
def test_a_linear_model_flips_just_beyond_its_radius(
    kind: Any, options: dict[str, Any], budget: Any, directed: bool
) -> None:
    graph = small_graph(3, directed=directed)
    model = small_model(kind, graph, 3, options)
    radius = certify(model, graph, budget).radius
    for v in range(graph.num_nodes):
        assert worst(model, graph, v, budget, float(radius[v]), starts=1) >= -1e-12
        assert worst(model, graph, v, budget, float(radius[v]) * (1 + 1e-9), starts=1) < 0


@pytest.mark.parametrize("seed", range(18))
def test_random_graphs_weights_and_depths(seed: int) -> None:
    """Sizes, scales of weights and features, biases and kinds of models are drawn."""
    random = np.random.default_rng(100 + seed)
    kind, options = KINDS[seed % len(KINDS)]
    if "hidden" in options:
        options = options | {"hidden": int(random.integers(1, 12))}
    graph = small_graph(100 + seed, nodes=int(random.integers(3, 10)), features=int(random.integers(1, 12)))
    graph = replace(graph, features=dense_features(graph) * 10 ** random.uniform(-2, 2))
    model = small_model(kind, graph, seed, options)
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(10 ** random.uniform(-1, 1))
    with torch.no_grad():
        size = float(model(graph).abs().max())
    for found in certificates(model, graph):
        for v in range(0, graph.num_nodes, 2):
            assert worst(model, graph, v, found.budget, float(found.radius[v])) >= -1e-12 * size


def test_slopes_hold_only_up_to_the_radius_they_were_computed_for() -> None:
    """``logits = (1, 5 relu(x - 1))`` at x = 0: up to 1 no relu moves, but the class changes at 1.2."""
    graph = small_graph(0, nodes=3, features=1)
    graph = replace(graph, features=torch.zeros(3, 1, dtype=torch.float64))
    model = MLP(1, 2, hidden=1).double().eval()
    with torch.no_grad():
        for parameter, value in zip(
            (*model.weights, *model.biases), ([[1.0]], [[0, 5.0]], [-1.0], [1.0, 0]), strict=True
        ):
            parameter.copy_(torch.tensor(value))
    one, z = np.ones((1, 1)), np.full((1, 1), -1.0)
    relus = Relus(z, 0 * z, np.ones(1), one, np.array([[0.0, 5.0]]))
    pair = Pair(relus, one, 0 * one, np.array([-5.0]), np.array([0]))
    assert pair.slopes(np.array([0]), np.array([0.9]))[0] < 1e-6  # read off, any radius would be proved
    radius = certify(model, graph).radius
    assert bool((radius <= 1.2).all())
    assert bool((radius > 0.2).all())  # more than the slopes of all relus prove


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e30])
def test_rounding_never_makes_a_radius_too_large(scale: float) -> None:
    """Compared with exact fractions, for weights and features whose products cancel."""
    graph = small_graph(5, nodes=12, features=9)
    graph = replace(graph, features=dense_features(graph) * 1e3 + 1e6)
    model = small_model(MLP, graph, 5, {"layers": 1})
    with torch.no_grad():
        model.weights[0].mul_(scale)
        model.weights[0][0] = -model.weights[0][1:].sum(0)  # rows of equal features cancel
    found = certify(model, graph)
    w = [[Fraction(float(e)) for e in row] for row in model.weights[0].detach()]
    b = [Fraction(float(e)) for e in model.biases[0].detach()]
    for v, row in enumerate(dense_features(graph).tolist()):
        x = [Fraction(e) for e in row]
        logits = [sum(e * line[k] for e, line in zip(x, w, strict=True)) + b[k] for k in range(3)]
        own = int(found.predicted[v])
        squared = min(
            max(logits[own] - logits[k], Fraction(0)) ** 2 / sum((line[own] - line[k]) ** 2 for line in w)
            for k in range(3)
            if k != own
        )
        radius = Fraction(float(found.radius[v]))
        assert radius**2 <= squared
        assert radius == 0 or float(squared) ** 0.5 == pytest.approx(float(radius), rel=1e-6)


@pytest.mark.parametrize("widths", [(4, 6, 3), (7, 5, 4, 3)])
def test_the_bound_of_the_slopes_holds_for_every_slope(widths: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    weights = [random.normal(size=shape) for shape in pairwise(widths)]
    bounds = slope_bounds(weights)
    assert np.array_equal(bounds, bounds.T)
    for c, k in ((0, 1), (0, 2), (1, 2)):
        largest = 0.0
        for slopes in product((0.0, 1.0), repeat=sum(widths[1:-1])):
            q, left = weights[-1][:, c] - weights[-1][:, k], list(slopes)
            for weight in weights[-2::-1]:
                here, left = left[: q.size], left[q.size :]
                q = weight @ (np.array(here) * q)
            largest = max(largest, float(np.linalg.norm(q)))
        assert largest <= bounds[c, k] <= largest * ((np.pi / 2) ** 0.5 if len(widths) == 3 else 3)


def test_the_audit_finds_nothing_shorter(graph: Graph) -> None:
    model = build(GCN, graph)
    found, proved = audit(model, graph), certify(model, graph)
    both = audit(model, graph, certify=True)
    assert torch.equal(both.certified, proved.radius)
    assert torch.equal(both.smallest, found.smallest)
    for budget in BUDGETS:
        states = torch.stack(list(both.states(float(both.smallest.median()), budget).values()))
        assert states.sum(0).unique().tolist() == [1]  # each node is proved, broken or between
        assert bool(states[1].any())
    assert not bool(found.certified.any())
    assert torch.equal(found.smallest_rows, found.smallest)  # all that is known without a search of its own
    assert bool((found.smallest_node.isfinite() <= (found.field_size == 1)).all())
    for budget in BUDGETS:
        certified, smallest = both.norms(budget)
        assert bool((certified < smallest).all())
        assert float((certified / smallest).median()) > 0.5


@pytest.mark.parametrize("seed", range(36))
def test_what_is_found_is_longer_than_what_is_proved_for_every_budget(seed: int) -> None:
    """And longer for fewer changes: a change of one row is one of the field, which has no longer row."""
    random = np.random.default_rng(seed)
    kind, options = KINDS[seed % len(KINDS)]
    graph = small_graph(
        seed, int(random.integers(3, 14)), int(random.integers(1, 12)), directed=seed % 2 == 1
    )
    model = small_model(kind, graph, seed, options)
    found = audit(model, graph, certify=True)
    for budget in BUDGETS:
        certified, smallest = found.norms(budget)
        assert bool((certified <= smallest).all())
        for node in range(0, graph.num_nodes, 3):  # by a pass over the whole graph
            r, flip = smallest_perturbation(model, graph, node, budget=budget)
            rows = r.norm(dim=1)
            norm = rows.norm() if budget == "graph" else rows.max()
            changed = model(graph.with_features(DenseMatrix(dense_features(graph) + r, graph.engine)))[node]
            assert norm >= certified[node] or not bool(r.any())
            assert int(flip.becomes) == (int(changed.argmax()) if bool(r.any()) else -1)
    assert bool((found.smallest_rows <= found.smallest).all())
    assert bool((found.smallest <= found.smallest_node).all())


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(("kind", "options"), [(SGC, {"layers": 3}), (GCN, {"layers": 1})])
def test_a_linear_model_has_nothing_between(kind: Any, options: dict[str, Any], budget: Any) -> None:
    graph = small_graph(3)
    found = audit(small_model(kind, graph, 3, options), graph, certify=True)
    certified, smallest = found.norms(budget)
    known = smallest.isfinite()
    assert bool(known.any())
    torch.testing.assert_close(certified[known], smallest[known], rtol=2e-3, atol=0)


def test_isolated_nodes_have_one_radius() -> None:
    """Without edges a change of the field, of its rows and of its only node are the same."""
    graph = small_graph(4, nodes=12)
    graph = Graph.build(
        dense_features(graph).numpy(), np.zeros((12, 12)), graph.labels, train=[0, 1, 2],
        class_names=["a", "b", "c"], normalize=False,
    ).to(dtype=torch.float64)  # fmt: skip
    found = audit(small_model(GCN, graph, 4, {"hidden": 5}), graph, certify=True)
    torch.testing.assert_close(found.certified_rows, found.certified)
    torch.testing.assert_close(found.certified_node, found.certified)
    torch.testing.assert_close(found.smallest_rows, found.smallest)
    torch.testing.assert_close(found.smallest_node, found.smallest)
    assert bool((found.certified <= found.smallest).all())
    size = float(found.smallest.median())
    assert bool(found.states(size, "node")["broken"].any())


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", ["weights", "features"])
@pytest.mark.parametrize("kind", [GCN, SGC])
def test_numbers_that_are_not_finite_are_refused(kind: Any, where: str, value: float) -> None:
    graph = small_graph(1)
    model = small_model(kind, graph, 1, {})
    with torch.no_grad():
        (model.weights[0] if where == "weights" else graph.features.values).view(-1)[1] = value
    for refused in (certify, lambda *given: audit(*given, certify=True)):
        with pytest.raises(TrainingError, match="not finite"):
            refused(model, graph)


def test_negative_entries_count_by_their_size() -> None:
    graph = small_graph(7)
    graph.propagation.values.mul_(torch.where(torch.arange(graph.propagation.nnz) % 3 == 0, -1.0, 1.0))
    model = small_model(GCN, graph, 7, {"hidden": 4})
    for found in certificates(model, graph):
        for v in range(graph.num_nodes):
            assert worst(model, graph, v, found.budget, float(found.radius[v])) >= -1e-12


def test_one_logit_counts_as_two_classes() -> None:
    graph = replace(small_graph(2), labels=torch.zeros(8, dtype=torch.int64), class_names=("only",))
    model = small_model(GCN, graph, 2, {"hidden": 4})
    found = certify(model, graph)
    with torch.no_grad():
        logits = model(graph)[:, 0]
    assert torch.equal(found.predicted, (logits > 0).long())
    assert bool((found.radius > 0).all())


def test_nothing_is_proved_without_a_margin(graph: Graph) -> None:
    model = build(GCN, graph)
    with torch.no_grad():
        model.weights[-1].zero_()
    assert certify(model, graph).radius.unique().tolist() == [0.0]


def test_accuracy_falls_with_the_size(graph: Graph) -> None:
    found = certify(build(GCN, graph), graph)
    accuracy = found.certified_accuracy(found.predicted, [0.0, float(found.radius.median()), 1e9])
    assert accuracy.tolist() == sorted(accuracy.tolist(), reverse=True)
    assert accuracy[0] == 1
    assert accuracy[2] == 0
    assert "median radius" in found._repr_html_()


def test_a_node_classifier_has_a_certificate(graph: Graph) -> None:
    fitted = bvat.NodeClassifier(method="none", epochs=3).fit(graph)
    found = bvat.certify(fitted, graph, budget="rows")
    assert found.predicted.tolist() == fitted.classifier_.probabilities(graph).argmax(1).tolist()
    assert bool((found.radius > 0).any())


@pytest.mark.parametrize("kind", [GAT, MoNet, GPNN, GraphSAGE])
def test_other_models_are_refused(kind: Any, graph: Graph) -> None:
    with pytest.raises(SettingsError, match=f"no certificate for {kind.__name__}"):
        certify(build(kind, graph), graph)


def test_what_cannot_be_proved_is_refused(graph: Graph) -> None:
    model = build(GCN, graph)
    with pytest.raises(SettingsError, match="no budget 'edges'"):
        certify(model, graph, "edges")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="no certificate for WrappedModule"):
        certify(bvat.wrap(torch.nn.Linear(graph.num_features, 3), depth=0), graph)
    twice = Classifier((model, model), bvat.Settings(), graph.class_names, graph.num_features)
    with pytest.raises(SettingsError, match="2 models"):
        certify(twice, graph)
    once = replace(twice, models=(model,))
    assert torch.equal(certify(once, graph).radius, certify(model, graph).radius)
