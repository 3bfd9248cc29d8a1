"""NodeClassifier: the calls of scikit-learn, and files that give the same predictions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sklearn.metrics import f1_score

import bvat
from bvat.data.tensors import write_safetensors
from bvat.errors import BvatError, DataError, GraphError, SettingsError, TrainingError
from bvat.graph import Graph


@pytest.fixture(scope="module")
def graph() -> Graph:
    made = bvat.synthetic_graph(nodes=160, edges=400, features=60, classes=3, train_per_class=8, seed=2)
    made = made.with_engine("tensor")
    return replace(made, class_names=("cats", "dogs", "fish"), recipe={"matrix": 60})


@pytest.fixture(scope="module")
def fitted(graph: Graph) -> bvat.NodeClassifier:
    return bvat.NodeClassifier(method="obvat", epochs=60, seed=3).fit(graph)


def test_it_learns_and_predicts_names(fitted: bvat.NodeClassifier, graph: Graph) -> None:
    names, probabilities = fitted.predict(graph), fitted.predict_proba(graph)
    assert fitted.classes_.tolist() == ["cats", "dogs", "fish"]
    assert fitted.n_features_in_ == 60
    assert probabilities.shape == (160, 3)
    assert np.allclose(probabilities.sum(1), 1, atol=1e-6)
    assert names.tolist() == fitted.classes_[probabilities.argmax(1)].tolist()
    true = np.array(graph.class_names)[graph.labels.numpy()]
    assert fitted.score(graph) == np.mean((names == true)[graph.test.numpy()]) > 0.6
    assert fitted.score(graph, [0, 1, 2]) == np.mean((names == true)[:3])
    test = graph.test.numpy()
    assert fitted.score(graph, metric="macro_f1") == pytest.approx(
        f1_score(true[test], names[test], average="macro")
    )
    each = f1_score(true[test], names[test], average=None, labels=list(fitted.f1_per_class(graph)))
    assert list(fitted.f1_per_class(graph).values()) == pytest.approx(each.tolist())
    with pytest.raises(SettingsError, match="accuracy or macro_f1"):
        fitted.score(graph, metric="f1")


def test_it_is_the_model_that_train_gives(fitted: bvat.NodeClassifier, graph: Graph) -> None:
    settings = bvat.preset(graph.name, "obvat", epochs=60)
    assert fitted.settings_ == settings
    weights = bvat.train(graph, settings, seed=3).weights
    own = fitted.classifier_.models[0].state_dict()
    assert all(torch.equal(weights[name], own[name]) for name in weights)
    assert fitted.training_ is not None
    assert len(fitted.training_.metrics) == 60


@pytest.mark.parametrize(
    ("method", "model"), [("none", "gat"), ("sbvat", "sage"), ("vat", "sgc"), ("none", "mlp")]
)
def test_a_saved_classifier_predicts_the_same(method: str, model: str, graph: Graph, tmp_path: Path) -> None:
    width = {} if model == "sgc" else {"hidden": 16}
    before = bvat.NodeClassifier(method=method, model=model, epochs=3, **width).fit(graph)
    before.save(tmp_path / "model.safetensors")
    after = bvat.NodeClassifier.load(tmp_path / "model.safetensors")
    assert np.array_equal(before.predict_proba(graph), after.predict_proba(graph))
    assert after.predict(graph).tolist() == before.predict(graph).tolist()
    assert after.get_params() == before.get_params()
    assert after.settings_ == before.settings_
    assert after.classes_.tolist() == before.classes_.tolist()
    assert after.training_ is None
    again = after.fit(graph)  # with the parameters that were saved
    assert np.array_equal(before.predict_proba(graph), again.predict_proba(graph))


def test_the_file_says_what_it_is(fitted: bvat.NodeClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.safetensors")
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        about = file.metadata()
    assert about["version"] == bvat.__version__
    assert json.loads(about["classes"]) == ["cats", "dogs", "fish"]
    assert json.loads(about["settings"])["method"] == "obvat"
    assert json.loads(about["recipe"]) == {"matrix": 60}


def rewritten(fitted: bvat.NodeClassifier, path: Path, **changes: str | None) -> Path:
    """Save, with other metadata."""
    fitted.save(path)
    with safe_open(path, framework="pt") as file:
        about = {**file.metadata(), **changes}
    write_safetensors(
        path, load_file(path), {key: value for key, value in about.items() if value is not None}
    )
    return path


SETTINGS = bvat.Settings().as_dict()
BAD_FILES = [
    ({"format": "4", "version": "9.0"}, "has format 4 of bvat 9.0, and bvat .* reads format 3: install that"),
    ({"format": "0", "version": "0.0.1"}, "has format 0 of bvat 0.0.1.* or fit and save again"),
    ({"kind": "something"}, "is not a saved NodeClassifier"),
    ({"kind": None, "format": None}, "is not a saved NodeClassifier"),
    ({"classes": None}, "is damaged"),
    ({"recipe": "{"}, "is damaged"),
    ({"recipe": "7"}, "is damaged"),
    ({"temperature": "1" * 400}, "is damaged"),
    ({"params": "[1]"}, "is damaged"),
    ({"classes": "3"}, "is damaged"),
    ({"settings": "[]"}, "with settings that are not valid here"),
    ({"settings": json.dumps({**SETTINGS, "hidden": "x"})}, "with settings that are not valid here"),
    ({"features": "61"}, "do not fit the model 'gcn'"),
    (
        {"settings": json.dumps({**SETTINGS, "magic": 1}), "version": "9.1"},
        "written by bvat 9.1 with settings",
    ),
]


@pytest.mark.parametrize(("changes", "message"), BAD_FILES)
def test_a_file_that_cannot_be_used_says_what_to_do(
    changes: dict[str, str | None], message: str, fitted: bvat.NodeClassifier, tmp_path: Path
) -> None:
    path = rewritten(fitted, tmp_path / "model.safetensors", **changes)
    with pytest.raises(DataError, match=message):
        bvat.NodeClassifier.load(path)


def test_settings_and_parameters_of_other_versions_are_filled_up(
    fitted: bvat.NodeClassifier, graph: Graph, tmp_path: Path
) -> None:
    stored = {name: value for name, value in fitted.settings_.as_dict().items() if name != "keep_moments"}
    params = {**fitted.get_params(), "a_setting_that_is_gone": 1}
    changes = {"settings": json.dumps(stored), "params": json.dumps(params)}
    loaded = bvat.NodeClassifier.load(rewritten(fitted, tmp_path / "model.safetensors", **changes))
    assert np.array_equal(loaded.predict_proba(graph), fitted.predict_proba(graph))


def test_a_file_without_its_checksum_is_refused(fitted: bvat.NodeClassifier, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    with safe_open(path, framework="pt") as file:
        about = {key: value for key, value in file.metadata().items() if key != "checksum"}
    save_file(load_file(path), path, about)
    with pytest.raises(DataError, match="its checksum is missing"):
        bvat.NodeClassifier.load(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for name in ("text", "missing"):
        with pytest.raises(DataError, match="cannot be read as a saved NodeClassifier"):
            bvat.NodeClassifier.load(tmp_path / name)


def test_a_failed_save_keeps_the_file_before(
    fitted: bvat.NodeClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DataError, match="No space left on device"):
        fitted.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


def test_nothing_works_before_fit(graph: Graph, tmp_path: Path) -> None:
    classifier = bvat.NodeClassifier()
    calls: list[Any] = [
        lambda: classifier.predict(graph),
        lambda: classifier.predict_proba(graph),
        lambda: classifier.score(graph),
        lambda: classifier.classes_,
        lambda: classifier.settings_,
        lambda: classifier.save(tmp_path / "x"),
    ]
    for call in calls:
        with pytest.raises(TrainingError, match="not fitted: call fit"):
            call()
    assert not list(tmp_path.iterdir())


def test_graphs_that_do_not_fit_are_refused(fitted: bvat.NodeClassifier, graph: Graph) -> None:
    wide = bvat.synthetic_graph(nodes=160, edges=400, features=61, classes=3, train_per_class=8)
    for bad, message in (
        (wide, "has 61 features, but the model was trained with 60"),
        (
            replace(graph, class_names=("cats", "dogs", "birds")),
            "a class 'birds', which the model does not know",
        ),
        (replace(graph, recipe={"columns": {"names": ["a"]}}), "were made differently from those of"),
    ):
        with pytest.raises(GraphError, match=message):
            fitted.predict(bad)
    with pytest.raises(GraphError, match=r"bvat\.from_pyg"):
        fitted.predict(np.eye(3))  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"expected a bvat\.Graph, not str"):
        bvat.NodeClassifier().fit("cora")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="needs test nodes, or nodes with labels"):
        fitted.score(graph, [])


def test_labels_are_compared_by_name(fitted: bvat.NodeClassifier, graph: Graph) -> None:
    """The same graph with its classes numbered in another order scores the same."""
    turned = replace(graph, class_names=("dogs", "fish", "cats"), labels=(graph.labels + 2) % 3)
    assert fitted.score(turned) == fitted.score(graph)


def test_presets_of_the_paper_are_for_its_data_sets(graph: Graph) -> None:
    theirs = bvat.NodeClassifier(epochs=1).fit(replace(graph, name="nell", recipe={}))
    mine = bvat.NodeClassifier(epochs=1).fit(replace(graph, name="nell"))  # a folder of that name
    assert theirs.settings_ == bvat.preset("nell", "obvat", epochs=1)
    assert mine.settings_ == bvat.preset("", "obvat", epochs=1) != theirs.settings_


def test_parameters() -> None:
    classifier = bvat.NodeClassifier("sbvat", alpha=0.5)
    assert classifier.get_params()["alpha"] == 0.5
    assert classifier.get_params()["beta"] is None
    assert classifier.set_params(beta=2.0, seed=4, method="vat") is classifier
    shown = "NodeClassifier(method='vat', seed=4, calibrate=True, alpha=0.5, beta=2.0)"
    assert repr(classifier) == shown
    with pytest.raises(SettingsError, match="there is no setting 'apha'"):
        bvat.NodeClassifier(apha=1)
    with pytest.raises(SettingsError, match="there is no setting 'x'"):
        classifier.set_params(x=1)


def test_wrong_values_are_refused_at_fit(graph: Graph) -> None:
    for params in ({"method": "best"}, {"epochs": 0}, {"alpha": "much"}, {"model": "cnn"}):
        with pytest.raises(BvatError):
            bvat.NodeClassifier(**params).fit(graph)


def test_scikit_learn_can_clone_it(fitted: bvat.NodeClassifier, graph: Graph) -> None:
    base = pytest.importorskip("sklearn.base")
    copy = base.clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(TrainingError):
        copy.predict(graph)
    assert np.array_equal(copy.fit(graph).predict_proba(graph), fitted.predict_proba(graph))
