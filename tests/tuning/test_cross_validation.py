"""Training on all labelled nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import bvat
from bvat.data import synthetic_graph
from bvat.data.splits import folds
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.training.settings import Settings, preset
from bvat.training.trained import accuracy
from bvat.tuning.cross_validation import (
    Choice,
    cross_validate,
    estimate,
    labelled_folds,
    pooled,
    refitted,
    without_validation,
)

QUICK = {"epochs": 16, "hidden": 16}


@pytest.fixture(scope="module")
def graph() -> Graph:
    """30 labelled nodes, all for training."""
    drawn = synthetic_graph(200, 500, features=60, classes=3, train_per_class=10, val=6, test=50, seed=3)
    return replace(drawn, val=drawn.val[:0], test=drawn.test[:0]).with_engine("tensor")


def test_all_labels_train_and_the_folds_say_how_accurate_that_is(graph: Graph) -> None:
    choice = cross_validate(graph, preset("", "vat", **QUICK))
    assert torch.equal(choice.graph.train, graph.train)
    assert (choice.settings.select, choice.settings.patience) == ("last", 0)
    assert 1 <= choice.settings.epochs <= 16
    found = choice.estimate
    assert found is not None
    assert (found["folds"], found["nodes"]) == (5, 30)
    assert found["accuracy"] == pytest.approx(100 * found["correct"] / 30)
    assert found["low"] < found["accuracy"] < found["high"]
    assert [entry["nodes"] for entry in found["f1"]] == [10, 10, 10]
    again = Choice.read(choice.as_dict(), graph, "gcn")
    assert (again.settings, again.estimate) == (choice.settings, found)
    assert torch.equal(again.graph.train, choice.graph.train)


def test_no_fold_reads_the_labels_that_it_is_measured_on(graph: Graph, tmp_path: Path) -> None:
    settings = preset("", "none", **QUICK, select="last", patience=0)
    found, _ = estimate(graph, settings, labelled_folds(graph), tmp_path)
    right = 0.0
    for fold in folds(graph, 5):
        hidden = graph.labels.clone()
        hidden[fold.val] = -1
        blind = replace(graph, labels=hidden, train=fold.train)
        trained = bvat.train(blind, settings)
        model = bvat.training.state.restore_model(settings, graph.num_features, 3, trained.weights)
        right += accuracy(bvat.training.trained.predict(model, graph), graph, fold.val) * len(fold.val) / 100
    assert found["correct"] == round(right)


@pytest.mark.parametrize(
    ("settings", "phases", "expected"),
    [
        (preset("", "none"), {"first": 40, "second": 0}, {"epochs": 40, "pretrain": 0}),
        (preset("", "none", epochs=60), {"first": 0, "second": 40}, {"epochs": 40, "pretrain": 0}),
        (preset("", "vat"), {"first": 40, "second": 7}, {"method": "vat", "epochs": 47, "pretrain": 40}),
        (preset("", "vat"), {"first": 40, "second": 0}, {"method": "none", "epochs": 40, "alpha": 0.0}),
        (preset("", "vat", pretrain=0), {"first": 0, "second": 9}, {"method": "vat", "epochs": 9}),
    ],
)
def test_the_epochs_are_those_of_the_folds(
    settings: Settings, phases: dict[str, int], expected: dict[str, int]
) -> None:
    found = refitted(settings, [phases] * 3 + [{"first": 1, "second": 1}] * 2)
    assert {name: getattr(found, name) for name in expected} == expected
    assert (found.select, found.patience, found.guard, found.margin) == ("last", 0, False, 0.0)


def test_a_baseline_is_measured_as_it_is_fitted(graph: Graph) -> None:
    choice = cross_validate(graph, preset("", "lp"))
    assert choice.settings == preset("", "lp")
    assert choice.estimate is not None
    assert choice.estimate["nodes"] == 30


def test_a_regulariser_that_brought_nothing_is_mentioned(graph: Graph) -> None:
    plain = Choice("vat", preset("", "none"), graph, {})
    assert plain.notes == [
        "the regulariser of vat brought nothing on most folds, so the plain model is trained"
    ]
    assert Choice("vat", preset("", "vat"), graph, {}).notes == []


def test_one_label_is_too_few(graph: Graph) -> None:
    with pytest.raises(SettingsError, match="too few labels for cross-validation: label more nodes"):
        labelled_folds(replace(graph, train=graph.train[:1]))
    assert pooled(graph).validation == "none: all 30 labelled nodes are training nodes"


def test_estimator(graph: Graph) -> None:
    classifier = bvat.NodeClassifier("vat", **QUICK).fit(graph)
    found = classifier.cross_validation_
    assert found is not None
    assert found["nodes"] == 30
    assert classifier.training_ is not None
    shown = classifier.training_._repr_html_()
    assert "test accuracy" not in shown
    assert "validation accuracy" not in shown
    held = replace(graph, train=graph.train[6:], val=graph.train[:6])
    classifier.fit(held)
    assert classifier.cross_validation_ is None
    assert classifier.training_ is not None
    assert "on 6 nodes)" in classifier.training_._repr_html_()


@pytest.mark.slow
def test_parallel_processes_find_the_same(graph: Graph) -> None:
    settings = preset("", "none", **QUICK)
    one, two = (cross_validate(graph, settings, jobs=jobs) for jobs in (1, 2))
    assert (one.settings, one.estimate) == (two.settings, two.estimate)


def test_the_only_label_of_a_class_is_in_no_fold(graph: Graph) -> None:
    one = graph.train[graph.labels[graph.train] == 0][:1]
    few = replace(graph, train=torch.cat([one, graph.train[graph.labels[graph.train] != 0]]).sort().values)
    parts = labelled_folds(few)
    assert all(bool((part.train == one).any()) for part in parts)
    assert sum(len(part.val) for part in parts) == 20


@pytest.mark.parametrize("method", ["none", "vat"])
def test_one_label_per_class_trains_all_epochs_and_claims_nothing(graph: Graph, method: str) -> None:
    ones = [graph.train[graph.labels[graph.train] == k][:1] for k in range(3)]
    few = replace(graph, train=torch.cat(ones).sort().values)
    fitted = bvat.NodeClassifier(method, epochs=12).fit(few)
    assert fitted.cross_validation_ is None
    choice = cross_validate(few, preset("", method, epochs=12))
    asked = preset("", method, epochs=12)
    assert choice.settings.epochs == (asked.pretrain or 12)
    assert choice.settings.method == "none"  # a regulariser that nothing checks collapses with so few labels
    assert ("the plain model is trained" in choice.notes[0]) == (method != "none")
    assert "no class has two labelled nodes" in choice.notes[0]
    assert torch.equal(Choice.read(choice.as_dict(), few, "gcn").graph.train, few.train)


def test_with_labels_alone_usual_values_change_and_chosen_ones_stay() -> None:
    usual = preset("", "grand", model="random-propagation")
    blind = without_validation(usual)
    assert (usual.weight_decay, usual.confidence) == (5e-3, 0)
    assert (blind.weight_decay, blind.confidence, blind.input_dropout) == (5e-5, 0.9, 0)
    assert without_validation(usual.replace(weight_decay=1e-2)).weight_decay == 1e-2
    assert without_validation(preset("", "none", model="random-propagation")).weight_decay == 5e-5
    assert without_validation(preset("", "vat", model="appnp")).weight_decay == 5e-4
    assert without_validation(preset("", "vat")).confidence == preset("", "vat").confidence
