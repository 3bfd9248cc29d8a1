"""Receptive fields side by side, the worst case of each node, and the shortest way to another class."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from bvat.audit import audit, sample_nodes, smallest_perturbation
from bvat.audit.fields import _copy_fields, receptive_fields
from bvat.audit.fragility import Neighbourhoods, local_smoothness
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models import APPNP, GAT, GCN, MLP, MODELS, SGC, GraphSAGE
from bvat.perturb.divergence import KL, CleanPrediction


def build(kind: Any, graph: Graph, **options: Any) -> Any:
    """Return a model whose predictions differ from node to node."""
    generator = torch.Generator().manual_seed(3)
    model = kind(graph.num_features, graph.num_classes, generator=generator, **options).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4)
    return model


def dense_features(graph: Graph) -> Tensor:
    return graph.features.to_dense()


def logits_with(model: Any, graph: Graph, r: Tensor) -> Tensor:
    """Return the logits (N, C) of an ordinary pass over the features X + R, all N x D of them."""
    with torch.no_grad():
        return model(replace(graph, features=dense_features(graph) + r))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_node_has_the_logits_of_the_whole_graph_in_its_field(name: str, graph: Graph) -> None:
    model = build(MODELS[name].load(), graph)
    with torch.no_grad():
        whole, projected = model(graph), model.project(graph)
        order = torch.randperm(graph.num_nodes)
        seen = 0
        for fields in receptive_fields(graph, model.depth, order, rows_at_once=50):
            around = Neighbourhoods(model, fields, projected)
            assert torch.equal(fields.nodes[fields.rows], fields.centres)
            assert torch.equal(fields.centres, order[seen : seen + fields.centres.numel()])
            assert fields.owner.numel() <= 50 or fields.centres.numel() == 1
            torch.testing.assert_close(around.logits, whole[fields.centres], rtol=1e-4, atol=1e-5)
            seen += fields.centres.numel()
    assert seen == graph.num_nodes


def test_the_fields_are_the_balls(graph: Graph) -> None:
    reach = graph.propagation.to_dense() != 0
    two_hops = (reach.float() @ reach.float()) != 0
    for fields in receptive_fields(graph, 2, torch.arange(graph.num_nodes)):
        for place, node in enumerate(fields.centres.tolist()):
            ball = fields.nodes[fields.owner == place]
            assert ball.tolist() == torch.nonzero(two_hops[node]).flatten().tolist()


def test_the_compiled_walk_agrees_with_python(graph: Graph) -> None:
    a = graph.propagation
    arguments = [part.numpy() for part in (a.crow, a.col, a.values)]
    centres = torch.arange(graph.num_nodes).numpy()
    for one, two in zip(
        _copy_fields(*arguments, 2, centres, 90), _copy_fields.python(*arguments, 2, centres, 90), strict=True
    ):
        assert one.tolist() == two.tolist()


@pytest.mark.parametrize("kind", [GCN, GAT, GraphSAGE, APPNP, SGC, MLP])
@pytest.mark.parametrize("dense", [False, True])
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
    for node in range(0, graph.num_nodes, 5):
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


def test_many_random_starts_find_hardly_a_larger_lds(graph: Graph) -> None:
    model = build(GCN, graph)
    (fields,) = receptive_fields(graph, 2, torch.arange(graph.num_nodes))
    with torch.no_grad():
        around = Neighbourhoods(model, fields, model.project(graph))
        found = local_smoothness(around, 0.05)
        divergence, largest = KL(), torch.zeros_like(found)
        target = CleanPrediction.of(around.logits)
        for seed in range(30):
            generator = torch.Generator().manual_seed(seed)
            r = around.rows_of_length(torch.randn(around.zeros().shape, generator=generator), 0.05)
            for _ in range(20):
                logits, pull = around.linearised_at(r)
                value, gradient = divergence.value_and_gradient(target, logits)
                largest = torch.maximum(largest, value)
                r = around.rows_of_length(pull(gradient), 0.05)
    assert float((found / largest).median()) > 0.99
    assert float((found / largest).quantile(0.05)) > 0.8


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
