"""The worst case of each node, and the shortest way to another class."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from audit_helpers import build, dense_features, logits_with

from bvat.audit import audit, sample_nodes, smallest_perturbation
from bvat.audit.copied_fields import copied_fields
from bvat.audit.worst_case import RecordingProblem, local_smoothness
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models import APPNP, GAT, GCN, GPNN, MLP, SGC, GraphSAGE, MoNet
from bvat.perturb import FastAscent

KINDS = [GCN, GAT, MoNet, GPNN, GraphSAGE, APPNP, SGC, MLP]


@pytest.mark.parametrize(("kind", "dense"), [*((kind, False) for kind in KINDS), (GCN, True), (GAT, True)])
def test_the_smallest_perturbation_changes_the_class(
    kind: Any, dense: bool, make_graph: Callable[..., Graph]
) -> None:
    graph = make_graph(dense=dense)
    model = build(kind, graph, **({} if kind is SGC else {"hidden": 16}))
    clean = logits_with(model, graph, torch.zeros(graph.num_nodes, graph.num_features))
    found = audit(model, graph)
    assert bool((found.lds >= 0).all())
    assert found.predicted.tolist() == clean.argmax(1).tolist()
    flips = 0
    for node in range(0, graph.num_nodes, 10):
        r, flip = smallest_perturbation(model, graph, node)
        assert float(flip.length) == pytest.approx(float(found.smallest[node]), rel=1e-3)
        if math.isinf(float(flip.length)):
            assert int(flip.becomes) == -1
            continue
        flips += 1
        assert math.isclose(float(r.norm()), float(flip.length), rel_tol=1e-3)
        after = logits_with(model, graph, r)[node].argmax()
        assert int(after) == int(flip.becomes) != int(clean[node].argmax())
        # a little shorter along the same line, the class is still the old one
        before = logits_with(model, graph, 0.98 * r)[node].argmax()
        assert int(before) == int(clean[node].argmax())
    assert flips


@pytest.mark.parametrize("budget", ["rows", "node"])
@pytest.mark.parametrize("kind", [GCN, APPNP, GAT])
def test_the_smallest_perturbation_of_a_budget(kind: Any, budget: Any, graph: Graph) -> None:
    model = build(kind, graph, hidden=16)
    clean = logits_with(model, graph, torch.zeros(graph.num_nodes, graph.num_features)).argmax(1)
    flips = 0
    for node in range(0, graph.num_nodes, 10):
        r, flip = smallest_perturbation(model, graph, node, budget=budget)
        if int(flip.becomes) == -1:
            continue
        flips += 1
        rows = r.norm(dim=1)
        assert math.isclose(float(rows.max()), float(flip.length), rel_tol=1e-3)
        assert budget != "node" or int((rows > 0).sum()) == 1
        assert int(logits_with(model, graph, r)[node].argmax()) == int(flip.becomes) != int(clean[node])
        assert int(logits_with(model, graph, 0.98 * r)[node].argmax()) == int(clean[node])
    assert flips


@pytest.mark.parametrize("kind", [SGC, MLP])
def test_a_linear_model_has_the_exact_distance(kind: Any, graph: Graph) -> None:
    """For logits linear in X the distance is ``min_k (l_y - l_k) / |grad (l_y - l_k)|``."""
    model = build(kind, graph, **({"layers": 1} if kind is MLP else {}))
    found = audit(model, graph)
    x = dense_features(graph).requires_grad_()
    logits = model(replace(graph, features=x))
    for node in range(0, graph.num_nodes, 4):
        own = int(logits[node].argmax())
        distances = []
        for k in range(graph.num_classes):
            if k != own:
                margin = logits[node, own] - logits[node, k]
                (slope,) = torch.autograd.grad(margin, x, retain_graph=True)
                distances.append(float(margin.detach() / slope.norm()))
        # the lead that rounding must not undo makes it a little longer
        assert float(found.smallest[node]) == pytest.approx(min(distances), rel=3e-3, abs=1e-5)


def test_no_random_perturbation_is_shorter_or_worse(graph: Graph) -> None:
    model = build(GCN, graph)
    epsilon = 0.05
    found = audit(model, graph, epsilon=epsilon)
    generator = torch.Generator().manual_seed(0)
    clean = logits_with(model, graph, torch.zeros(graph.num_nodes, graph.num_features))
    reach = graph.propagation.to_dense() != 0
    balls = ((reach.float() @ reach.float()) != 0).float()
    for _ in range(100):
        r = torch.randn(graph.num_nodes, graph.num_features, generator=generator)
        r /= r.norm(dim=1, keepdim=True)
        moved = logits_with(model, graph, epsilon * r)
        kl = torch.nn.functional.kl_div(
            moved.log_softmax(1), clean.log_softmax(1), reduction="none", log_target=True
        ).sum(1)
        assert bool((kl <= found.lds + 1e-6).all())
        changed = moved.argmax(1) != clean.argmax(1)
        length = epsilon * balls.sum(1).sqrt()  # of the part within each ball
        assert bool((length[changed] >= found.smallest[changed]).all())


@pytest.mark.parametrize(("epsilon", "median", "fifth_percentile"), [(0.05, 0.99, 0.8), (0.3, 0.9, 0.7)])
def test_many_random_starts_find_hardly_a_larger_lds(
    graph: Graph, epsilon: float, median: float, fifth_percentile: float
) -> None:
    model = build(GCN, graph)
    (fields,) = copied_fields(graph, 2, torch.arange(graph.num_nodes))
    with torch.no_grad():
        one, other = (RecordingProblem.on(model, fields, model.project(graph)) for _ in range(2))
        found = local_smoothness(one, epsilon)
        search = FastAscent(epsilon, steps=20, warm=False)
        for seed in range(30):
            start = torch.randn(other.space.shape, generator=torch.Generator().manual_seed(seed))
            search.ascend(other, other.full_step(start, epsilon, "row").r)
    assert float((found / other.largest).median()) > median
    assert float((found / other.largest).quantile(0.05)) > fifth_percentile


def test_lds_grows_with_epsilon_from_zero(graph: Graph) -> None:
    model = build(GCN, graph)
    levels = [audit(model, graph, epsilon=epsilon).lds for epsilon in (0.0, 0.01, 0.1)]
    assert float(levels[0].max()) < 1e-6
    assert bool((levels[1] <= levels[2]).all())
    assert float(levels[2].median()) > 10 * float(levels[1].median())


def test_nothing_is_found_where_the_class_cannot_change(graph: Graph) -> None:
    model = GCN(graph.num_features, graph.num_classes)
    with torch.no_grad():
        for weight in model.weights:
            weight.zero_()
        model.weights[0].fill_(0.1)  # all classes have the same logits, whatever the features are
    found = audit(model, graph)
    assert bool(torch.isinf(found.smallest).all())
    assert found.becomes.unique().tolist() == [-1]
    assert found.summary()["median_smallest"] is None
    assert found.summary()["not_found"] == graph.num_nodes


def test_chosen_nodes_get_what_they_get_among_all(graph: Graph) -> None:
    model = build(GCN, graph)
    whole = audit(model, graph)
    nodes = sample_nodes(graph, 7)
    steps: list[int] = []
    part = audit(model, graph, nodes=nodes, progress=steps.append)
    assert part.nodes.tolist() == nodes.tolist() == sorted(set(nodes.tolist()))
    assert steps[-1] == 7
    torch.testing.assert_close(part.smallest, whole.smallest[nodes], rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(part.lds, whole.lds[nodes], rtol=1e-3, atol=1e-6)
    assert sample_nodes(graph, 10**6).tolist() == list(range(graph.num_nodes))


def test_an_audit_leaves_no_trace_on_the_model(graph: Graph) -> None:
    model = build(GAT, graph)
    before = [weight.detach().clone() for weight in model.parameters()]
    one, two = audit(model.train(), graph), audit(model, graph)
    assert torch.equal(one.lds, two.lds)  # dropout is off, and the search is seeded
    assert torch.equal(one.smallest, two.smallest)
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("epsilon", [-1.0, math.inf, math.nan])
def test_a_length_that_makes_no_sense_is_refused(epsilon: float, graph: Graph) -> None:
    with pytest.raises(SettingsError, match="epsilon must be finite and not negative"):
        audit(build(GCN, graph), graph, epsilon=epsilon)
    with pytest.raises(SettingsError, match="number of nodes"):
        sample_nodes(graph, 0)
