"""Calibration, prediction sets and doubtful labels, judged where the truth is known."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import bvat
from bvat.errors import DataError, SettingsError
from bvat.graph import Graph
from bvat.trust.conformal import adaptive_scores, prediction_sets
from bvat.trust.held_out import HeldOut
from bvat.trust.review import review
from bvat.tuning.cross_validation import calibration_of, checked_logits


def drawn(nodes: int, seed: int = 0, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities (N, C) and labels that were drawn with them."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(classes, 0.5), nodes)
    labels = np.array([rng.choice(classes, p=row) for row in p])
    return p, labels


def as_held(p: np.ndarray, labels: np.ndarray) -> HeldOut:
    return HeldOut(np.arange(labels.size), labels, p)


@pytest.mark.parametrize("coverage", [0.7, 0.9])
@pytest.mark.parametrize("labels", [400, 40])
def test_sets_cover_as_often_as_asked(coverage: float, labels: int) -> None:
    found = []
    for seed in range(20):
        p, y = drawn(labels + 1000, seed)
        sets = prediction_sets(as_held(p[:labels], y[:labels]), p[labels:], coverage)
        found.append(sets.member[np.arange(1000), y[labels:]].mean())
    assert coverage - 0.02 < np.mean(found) < coverage + 0.08  # ten labels of a class have coarse quantiles


def test_labels_drawn_per_class_cover_every_class() -> None:
    """The same number of labels of each class says nothing of how large the classes are."""
    found = np.zeros(4)
    for seed in range(10):
        p, y = drawn(4000, seed)
        p[:, 0] += 3  # predictions favour a class that is as large as the others
        p /= p.sum(1, keepdims=True)
        kept = np.concatenate([np.flatnonzero(y == k)[:30] for k in range(4)])
        sets = prediction_sets(as_held(p[kept], y[kept]), p, 0.9)
        assert sets.per_class
        found += [sets.member[y == k, k].mean() / 10 for k in range(4)]
    assert found.min() > 0.87


def test_a_score_is_what_is_more_likely() -> None:
    scores = adaptive_scores(np.array([[0.2, 0.5, 0.3]]))
    assert np.allclose(scores, [[0.9, 0.25, 0.65]])


def test_too_few_labels_are_told_how_many_are_needed() -> None:
    p, y = drawn(20)
    with pytest.raises(SettingsError, match="label at least 99 nodes of each class, 396 in all"):
        prediction_sets(as_held(p, y), p, 0.99)


def test_a_class_with_few_labels_is_judged_with_the_others() -> None:
    p, y = drawn(60)
    kept = (y != 0) | (np.cumsum(y == 0) < 3)
    assert not prediction_sets(as_held(p[kept], y[kept]), p, 0.9).per_class


def test_sets_for_all_nodes_at_once_are_smaller_and_cover_too() -> None:
    covered, sizes = [], []
    for seed in range(20):
        p, y = drawn(1080, seed)
        held = as_held(p[:80], y[:80])
        each, at_once = (prediction_sets(held, p[80:], 0.9, per_class=k) for k in (True, False))
        assert (each.per_class, at_once.per_class, at_once.missing) == (True, False, 0)
        covered.append(at_once.member[np.arange(1000), y[80:]].mean())
        sizes.append((each.about["mean_size"], at_once.about["mean_size"]))
    assert 0.88 < np.mean(covered) < 0.93
    assert np.diff(np.mean(sizes, 0)) < 0


def test_a_class_without_held_out_labels_is_in_every_set() -> None:
    p, y = drawn(80)
    sets = prediction_sets(as_held(p[y != 2], y[y != 2]), p, 0.9)
    assert sets.member[:, 2].all()
    assert "9 labels are missing" in sets.text
    assert "1 without a held-out label cannot be excluded" in sets.text


def test_flipped_labels_come_first_in_a_review() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 90)
    p = np.full((90, 3), 0.02)
    p[np.arange(90), y] = 0.96
    given = y.copy()
    given[:9] = (y[:9] + 1) % 3
    found = review(as_held(p, given))
    assert set(found.nodes[:9].tolist()) == set(range(9))
    assert found.suspect.sum() == 9
    assert (found.suggested[:9] == y[found.nodes[:9]]).all()


def test_a_label_is_suspect_where_another_class_is_more_than_four_times_as_likely() -> None:
    found = review(as_held(np.array([[0.15, 0.85], [0.19, 0.81], [0.21, 0.79]]), np.zeros(3, int)))
    assert found.suspect.tolist() == [True, True, False]


def test_the_temperature_undoes_overconfidence_and_shrinks_with_few_labels() -> None:
    p, y = drawn(2000, 3)
    stored = {"nodes": list(range(2000)), "labels": y.tolist(), "logits": (3 * np.log(p)).tolist()}
    assert abs(calibration_of(stored) - 1 / 3) < 0.05
    few = {name: values[:8] for name, values in stored.items()}
    assert 1 / 3 < calibration_of(few) < 1.2
    assert calibration_of(None) == 1


@pytest.mark.parametrize(
    "change", [{"labels": [5, 0]}, {"nodes": [0]}, {"logits": [1.0, 2.0]}, {"nodes": [-1, 0]}]
)
def test_damaged_logits_are_refused(change: dict[str, object]) -> None:
    good = {"nodes": [0, 1], "labels": [0, 1], "logits": [[1.0, 2.0], [0.0, 1.0]]}
    assert checked_logits(good) == good
    with pytest.raises((ValueError, TypeError)):
        checked_logits(good | change)


@pytest.fixture(scope="module")
def graph() -> Graph:
    whole = bvat.synthetic_graph(nodes=200, edges=600, features=40, classes=3, train_per_class=12)
    none = whole.train[:0]
    hidden = torch.full_like(whole.labels, -1)
    hidden[whole.train] = whole.labels[whole.train]
    return dataclasses.replace(whole, labels=hidden, val=none, test=none)


@pytest.mark.parametrize("method", ["auto", "none"])
def test_the_estimator_answers_all_questions(graph: Graph, method: str, tmp_path: Path) -> None:
    more = {"effort": 1} if method == "auto" else {"epochs": 12}
    fitted = bvat.NodeClassifier(method, **more).fit(graph)
    sets = fitted.predict_set(graph, 0.8)
    assert sets.shape == (200, 3)
    assert len(fitted.review()["id"]) == 36
    assert len(set(fitted.suggest(7)["id"])) == 7
    assert fitted.explain(3).predicted in graph.class_names
    fitted.save(tmp_path / "a.safetensors")
    loaded = bvat.NodeClassifier.load(tmp_path / "a.safetensors")
    assert np.array_equal(loaded.predict_set(graph, 0.8), sets)
    assert np.array_equal(loaded.predict_proba(graph), fitted.predict_proba(graph))


@pytest.mark.parametrize("method", ["auto", "none"])
def test_calibration_changes_confidence_but_no_class(graph: Graph, method: str) -> None:
    more = {"effort": 1} if method == "auto" else {"epochs": 12}
    calibrated = bvat.NodeClassifier(method, **more).fit(graph)
    raw = bvat.NodeClassifier(method, calibrate=False, **more).fit(graph)
    assert (calibrated.predict(graph) == raw.predict(graph)).all()
    assert not np.allclose(calibrated.predict_proba(graph), raw.predict_proba(graph))


def test_one_label_per_class_has_nothing_to_judge_by(graph: Graph) -> None:
    ones = torch.cat([graph.train[graph.labels[graph.train] == k][:1] for k in range(3)])
    fitted = bvat.NodeClassifier("none", epochs=10).fit(dataclasses.replace(graph, train=ones.sort().values))
    with pytest.raises(DataError, match="label at least two nodes of each class"):
        fitted.predict_set(graph)
