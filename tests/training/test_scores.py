"""F1 and class weights are scikit-learn's, and both reach the results of a run."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score
from sklearn.utils.class_weight import compute_class_weight

from bvat.data import synthetic_graph
from bvat.graph import Graph
from bvat.models import GCN
from bvat.store.results import seed_result, summary_of
from bvat.training.loop import predict, train, training_step
from bvat.training.settings import Settings
from bvat.training.state import start_training
from bvat.training.statistics import balanced_weights, f1_scores, macro_f1, summarize_f1


@pytest.mark.parametrize("seed", range(5))
def test_f1_is_that_of_scikit_learn(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (60,), generator=generator)
    predicted = torch.where(torch.rand(60, generator=generator) < 0.6, labels, labels.flip(0))
    predicted[0] = 5  # a class that is predicted but has no node; class 4 occurs nowhere
    scores = f1_scores(predicted, labels, 6)
    expected = 100 * f1_score(labels, predicted, labels=range(6), average=None, zero_division=0)
    assert scores[4] is None
    assert [score or 0.0 for score in scores] == pytest.approx(expected.tolist())
    assert macro_f1(scores) == pytest.approx(
        100 * f1_score(labels, predicted, average="macro", zero_division=0)
    )


def test_without_nodes_there_is_no_f1() -> None:
    nothing = torch.empty(0, dtype=torch.int64)
    assert f1_scores(nothing, nothing, 2) == [None, None]
    assert macro_f1([None, None]) is None


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    labels = torch.tensor([0, 0, 0, 0, 2, 2, 3])
    found = balanced_weights(labels, 5)
    expected = compute_class_weight("balanced", classes=labels.unique().numpy(), y=labels.numpy())
    assert found[[0, 2, 3]].tolist() == pytest.approx(expected.tolist())
    assert found[[1, 4]].tolist() == [0, 0]


@pytest.fixture(scope="module")
def unbalanced() -> Graph:
    """A graph in which one class has 30 training nodes and each of the others 3."""
    whole = synthetic_graph(nodes=300, edges=900, features=60, classes=3, train_per_class=30, val=30, test=90)
    common = whole.train[whole.labels[whole.train] == 0]
    rare = [whole.train[whole.labels[whole.train] == k][:3] for k in (1, 2)]
    content = {
        f: getattr(whole, f) for f in ("features", "adjacency", "labels", "val", "test", "class_names")
    }
    return Graph(train=torch.cat([common, *rare]), **content)


def test_the_weights_enter_the_supervised_loss(unbalanced: Graph) -> None:
    state = start_training(unbalanced, Settings(method="none", alpha=0, dropout=0, class_weights="balanced"))
    logits = predict(state.model, unbalanced)[unbalanced.train].double()
    losses = F.cross_entropy(logits, unbalanced.labels[unbalanced.train], reduction="none")
    weights = balanced_weights(unbalanced.labels[unbalanced.train], 3)[unbalanced.labels[unbalanced.train]]
    assert training_step(state)["supervised"] == pytest.approx(float((weights * losses).mean()), rel=1e-5)


def test_flag_weighs_classes_as_the_supervised_loss_does(unbalanced: Graph) -> None:
    """Without a perturbation FLAG's loss is the supervised loss minus itself."""
    settings = Settings(method="flag", alpha=0, dropout=0, class_weights="balanced", step_size=1e-12)
    assert training_step(start_training(unbalanced, settings))["r_vadv"] == pytest.approx(0, abs=1e-5)


def test_balanced_weights_find_more_of_the_rare_classes(unbalanced: Graph) -> None:
    settings = {"method": "none", "epochs": 40, "alpha": 0.0}
    plain, balanced = (train(unbalanced, Settings(**settings, class_weights=w)) for w in ("none", "balanced"))
    assert balanced.f1["test"]["macro"] > plain.f1["test"]["macro"]


def test_results_and_summary_have_f1_of_the_kept_weights(small: Graph) -> None:
    settings = Settings(method="none", epochs=12, select="best")
    trained = train(small, settings)
    model = GCN(small.num_features, small.num_classes).eval()
    model.load_state_dict(trained.weights)
    predicted = predict(model, small).argmax(1)
    expected = f1_scores(predicted[small.test], small.labels[small.test], 3)
    assert trained.f1["test"] == {"classes": expected, "macro": macro_f1(expected)}
    summary = summary_of(small, settings, [seed_result(trained, 1.0)] * 2)
    assert summary["test_macro_f1"]["mean"] == pytest.approx(macro_f1(expected))
    assert summary["f1_nodes"] == "test"
    assert [entry["mean"] for entry in summary["f1_classes"]] == pytest.approx(expected)
    assert sum(entry["nodes"] for entry in summary["f1_classes"]) == small.test.numel()


def test_without_held_out_nodes_f1_is_that_of_the_folds(small: Graph) -> None:
    summary = summarize_f1(small, [{"seed": 0}])
    assert summary["test_macro_f1"]["mean"] is None
    assert summary["f1_classes"] == []
    found = {"f1": [{"class": "a", "nodes": 3, "f1": 50.0}]}
    summary = summarize_f1(small, [{"seed": 0}], found)
    assert summary["f1_nodes"] == "cross-validated"
    assert summary["f1_classes"] == [{"class": "a", "nodes": 3, "mean": 50.0, "std": None}]
