"""Explanations: contributions add up, are exact where models are linear, and show themselves."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import bvat
from bvat.audit import audit
from bvat.graph import Graph
from bvat.inference.classifier import Classifier
from bvat.models.ensemble import Ensemble
from bvat.models.table import MODELS
from bvat.training.settings import preset
from bvat.training.state import build_model
from bvat.trust.explain import Explanation, explain, feature_names, find_node, frame


def random_classifier(graph: Graph, model: str, **settings: Any) -> Classifier:
    """Return a model with random weights and biases."""
    chosen = preset("", "none", model=model, **settings)
    torch.manual_seed(1)
    made = build_model(chosen, graph.num_features, graph.num_classes, torch.Generator().manual_seed(1))
    for name, parameter in made.named_parameters():
        if "bias" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    made = made.to(graph.features.dtype).eval()
    return Classifier((made,), chosen, graph.class_names, graph.num_features)


def margin_of(classifier: Classifier, graph: Graph, found: Explanation) -> float:
    with torch.no_grad():
        logits = classifier.models[0](graph)[found.node]
    c, k = (classifier.class_names.index(name) for name in (found.predicted, found.next))
    return float(logits[c] - logits[k])


@pytest.mark.parametrize("model", MODELS)
def test_nodes_and_features_add_up_to_the_margin(graph64: Graph, model: str) -> None:
    classifier = random_classifier(graph64, model)
    found = explain(classifier, graph64, 5)
    of_nodes, of_features = (c["contribution"].sum() for c in (found.node_columns, found.feature_columns))
    assert found.margin == pytest.approx(margin_of(classifier, graph64, found))
    assert found.margin >= 0
    assert of_nodes + found.constant == pytest.approx(found.margin)
    assert of_features == pytest.approx(of_nodes)
    if model in ("gcn", "appnp", "sgc") and not any(
        "bias" in n for n, _ in classifier.models[0].named_parameters()
    ):
        assert found.constant == pytest.approx(0, abs=1e-12)
    assert np.abs(found.node_columns["share"]).sum() == pytest.approx(1)
    assert (np.diff(np.abs(found.node_columns["contribution"])) <= 0).all()


def test_contributions_to_a_linear_model_are_what_is_lost_without_them(graph64: Graph) -> None:
    classifier = random_classifier(graph64, "sgc")
    found, x = explain(classifier, graph64, 5), graph64.features.to_dense()
    for k in range(3):
        without = x.clone()
        without[found.node_columns["node"][k]] = 0
        lost = found.margin - margin_of(classifier, replace(graph64, features=without), found)
        assert lost == pytest.approx(found.node_columns["contribution"][k])
        without = x.clone()
        without[:, int(found.feature_columns["feature"][k])] = 0
        lost = found.margin - margin_of(classifier, replace(graph64, features=without), found)
        assert lost == pytest.approx(found.feature_columns["contribution"][k])


def test_a_linear_member_of_an_ensemble_is_explained_up_to_its_bias(graph64: Graph) -> None:
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    one, classes = torch.tensor(1.0, dtype=torch.float64), graph64.num_classes
    parts = {"smooth.none": one, "smooth.given": 0 * one, "smooth.features": 0 * one, "weight.x": one}
    parts |= {
        "latent.weight": normal(graph64.num_features, 4),
        "latent.shift": normal(4),
        "mean.x": normal(4),
    }
    parts |= {
        "linear.x.weight": normal(4, classes),
        "linear.x.bias": normal(classes),
        "temperature.x": 2 * one,
    }
    parts |= {"about.neighbours": torch.tensor([3, 0]), "about.temperature": one}
    model = Ensemble(**parts).eval()
    classifier = Classifier((model,), preset("", "auto"), graph64.class_names, graph64.num_features)
    found = explain(classifier, graph64, 5)
    assert found.node_columns["node"].tolist() == [5]
    row = graph64.features.to_dense()[5] @ parts["latent.weight"]
    first = (row - parts["latent.shift"]).norm()
    second = ((row - parts["latent.shift"]) / first - parts["mean.x"]).norm()
    c, k = (classifier.class_names.index(name) for name in (found.predicted, found.next))
    w, b = (parts[f"linear.x.{name}"] for name in ("weight", "bias"))
    own = 2 * row / first / second @ (w[:, c] - w[:, k])
    rest = -(parts["latent.shift"] / first + parts["mean.x"]) / second @ (w[:, c] - w[:, k]) + b[c] - b[k]
    assert found.node_columns["contribution"][0] == pytest.approx(float(own))
    assert found.constant == pytest.approx(float(2 * rest))


@pytest.fixture(scope="module")
def fitted(small: Graph) -> bvat.NodeClassifier:
    named = replace(
        small,
        node_names=tuple(f"<n{k}>" for k in range(small.num_nodes)),
        recipe={"columns": {"names": ["age"]}, "text": {"idf": {"word": 1.0}}},
    )
    return bvat.NodeClassifier("auto", effort=1).fit(named)


def test_an_ensemble_is_explained_like_it_predicts_and_is_audited(fitted: bvat.NodeClassifier) -> None:
    found, graph = fitted.explain("<n7>"), fitted._graph
    assert graph is not None
    assert found.node == 7
    probabilities = fitted.predict_proba(graph)[7]
    assert list(found.probabilities.values()) == pytest.approx(probabilities.tolist())
    assert found.predicted == fitted.classes_[probabilities.argmax()]
    flip = audit(fitted.classifier_.models[0], graph, nodes=torch.tensor([7]))
    assert found.smallest == pytest.approx(float(flip.smallest))
    hops = dict(zip(found.node_columns["node"].tolist(), found.node_columns["hops"].tolist(), strict=True))
    near = graph.adjacency.to_scipy()[[7]].indices.tolist()
    assert hops.get(7) == 0
    assert {node for node, hop in hops.items() if hop == 1} <= set(near)
    assert {*feature_names(graph)[:3]} == {"age", "word", "2"}


def test_an_ensemble_is_asked_no_more_than_it_takes_to_reach_the_next_class(
    fitted: bvat.NodeClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pass reads the whole graph: with all classes, 18,000 nodes took minutes."""
    passes, propagate = [], Ensemble.propagate

    def counted(*arguments: Any, **options: Any) -> torch.Tensor:
        passes.append(1)
        return propagate(*arguments, **options)

    monkeypatch.setattr(Ensemble, "propagate", counted)
    fitted.explain("<n7>")
    assert len(passes) <= 26


def test_tables_are_frames_with_pandas(fitted: bvat.NodeClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fitted.explain(7)
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda columns: ("frame", columns)))
    assert found.neighbours == ("frame", found.node_columns)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert all(found.features[name] is column for name, column in found.feature_columns.items())
    assert {type(column) for column in frame({"id": ["a"], "share": [0.5]}).values()} == {np.ndarray}


def test_notebooks_show_escaped_tables(fitted: bvat.NodeClassifier) -> None:
    shown = fitted.explain(7)._repr_html_()
    assert shown.count("<table>") == 3
    assert "&lt;n7&gt;" in shown
    assert "<n" not in shown


def test_what_cannot_be_explained_gets_a_sentence(small: Graph, fitted: bvat.NodeClassifier) -> None:
    for node in (-1, small.num_nodes, "7x", "", 1.5, True):
        with pytest.raises(bvat.GraphError, match="has no node"):
            find_node(small, node)  # type: ignore[arg-type]
    with pytest.raises(bvat.GraphError, match="has no node 7"):
        fitted.explain("7")
    with pytest.raises(bvat.SettingsError, match="lp, which is no network"):
        bvat.NodeClassifier("lp").fit(small).explain(0)
    classifier = random_classifier(small, "gcn")
    with pytest.raises(bvat.SettingsError, match="one seed"):
        explain(replace(classifier, models=classifier.models * 2), small, 0)
    with pytest.raises(bvat.TrainingError, match="fit"):
        bvat.NodeClassifier("none").explain(0)


def test_a_loaded_classifier_needs_the_graph(fitted: bvat.NodeClassifier, tmp_path: Any) -> None:
    fitted.save(tmp_path / "c.safetensors")
    loaded = bvat.NodeClassifier.load(tmp_path / "c.safetensors")
    with pytest.raises(bvat.TrainingError, match="give it"):
        loaded.explain(7)
    assert loaded.explain(7, fitted._graph).margin == fitted.explain(7).margin
