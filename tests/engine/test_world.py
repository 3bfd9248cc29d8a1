from __future__ import annotations

import numpy as np
import pytest
import torch

from bvat.data.synthetic import synthetic_graph
from bvat.engine.cpu import DEFAULT_ENGINE
from bvat.engine.draws import RowDraws
from bvat.engine.fields import disjoint_fields, grow
from bvat.graph.inputs import ReceptiveFields
from bvat.models.table import MODELS
from bvat.training.loop import train
from bvat.tuning.variants import Variant
from graph_helpers import random_graph
from rank_helpers import one_part

PLAIN = {"pretrain": 0, "ramp": 0, "beta": 1.0, "confidence": 0.0, "dropout": 0.0}


def test_alone_is_the_default_and_costs_nothing() -> None:
    values = torch.randn(5)
    here = synthetic_graph(nodes=60, edges=90, features=64, classes=2, train_per_class=2).engine
    assert here is DEFAULT_ENGINE
    assert torch.equal(here.mean(values), values.mean())
    assert here.total(3) == 3
    assert here.agree(lambda: 4) == 4


@pytest.mark.parametrize("model", [name for name, model in MODELS.items() if model.distributed])
def test_one_rank_trains_as_alone_up_to_rounding(model) -> None:
    graph = random_graph(dense=model == "sage")
    settings = Variant(model, "none").settings(epochs=5, **PLAIN)
    if model == "random-propagation":
        settings = settings.replace(node_dropout=0.0, input_dropout=0.0)
    alone = train(graph, settings)
    _, part = one_part(graph)
    ranked = train(part, settings)
    for name, weights in alone.weights.items():
        assert torch.allclose(ranked.weights[name], weights, atol=1e-4), name
    assert ranked.f1 == alone.f1


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("obvat", {"search": "adam", "start": 0.0}),
        ("obvat", {"search": "adam", "start": 0.0, "divergence": "squared"}),
        ("consistency", {"confidence": 0.3, "alpha": 0.7}),
        ("none", {"class_weights": "balanced", "scale": "unit"}),
    ],
)
def test_one_rank_regularises_as_alone_up_to_rounding(method, more) -> None:
    graph = random_graph()
    settings = Variant("gcn", method).settings(epochs=4, **{**PLAIN, **more})
    alone = train(graph, settings)
    _, part = one_part(graph)
    ranked = train(part, settings)
    assert ranked.metrics[-1]["loss"] == pytest.approx(alone.metrics[-1]["loss"], abs=1e-4)


@pytest.mark.parametrize("space", ["dense", "sparse", "factored"])
@pytest.mark.parametrize("method", ["vat", "sbvat", "random", "obvat", "flag", "grand"])
def test_every_method_trains_in_every_space(method, space) -> None:
    graph = random_graph()
    settings = Variant("gcn", method).settings(
        epochs=3, **{**PLAIN, "dropout": 0.5, "space": space, "hidden": 16}
    )
    if method == "sbvat":
        settings = settings.replace(confidence=0.2, norm="field")
    _, part = one_part(graph)
    results = [train(part, settings) for _ in range(2)]
    assert all(torch.equal(results[0].weights[name], results[1].weights[name]) for name in results[0].weights)
    assert (
        results[0].metrics[-1]["loss"] != train(graph, settings).metrics[-1]["loss"]
    )  # other random numbers


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("count", [3, 40])
def test_fields_are_those_of_the_greedy_algorithm(depth, count) -> None:
    graph = random_graph()
    _, part = one_part(graph)
    chosen, owner, numbers = disjoint_fields(part.propagation, depth, count, RowDraws(5, part.own_nodes))
    assert numbers.tolist() == list(range(len(chosen)))
    draws, size = RowDraws(5, part.own_nodes), graph.num_nodes
    few = (draws.words(8 * min(count, size)) % np.uint64(size)).astype(np.int64)
    rest = np.argsort(draws.words(size), kind="stable")
    expected, rejected = np.full(size, -1), np.zeros(size, bool)
    found = np.empty(min(count, size), np.int64)
    matrix = graph.propagation
    number = 0
    for candidates in (few, rest):
        arrays = matrix.crow.numpy(), matrix.col.numpy()
        number = grow.python(arrays, depth, candidates, expected, rejected, found, number)
    assert part.own_nodes[chosen].tolist() == found[:number].tolist()
    assert owner.tolist() == expected[part.own_nodes.numpy()].tolist()
    if depth:
        fields = ReceptiveFields.around(graph, part.own_nodes[chosen[:1]], depth)
        assert set(fields.nodes.tolist()) == set(part.own_nodes[owner == 0].tolist())
