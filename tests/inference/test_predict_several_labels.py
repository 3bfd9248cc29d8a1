"""Several labels per node, from tables to predictions; and one logit, from training to audit."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bvat
from bvat.errors import DataError, GraphError, SettingsError
from bvat.inference.runs import open_run
from bvat.runs.run import RunOptions
from cli_helpers import bvat as command
from own_models import yes_or_no
from several_labels import NAMES, songs, write_songs

QUICK: dict[str, Any] = {"epochs": 40, "pretrain": 20, "lr": 0.05, "margin": 0.0, "ramp": 5}


@pytest.fixture(scope="module")
def graph() -> bvat.Graph:
    return songs()


@pytest.fixture(scope="module")
def fitted(graph: bvat.Graph) -> bvat.NodeClassifier:
    return bvat.NodeClassifier("vat", **QUICK).fit(graph)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tables ``songs`` and ``new``, and the run ``run``."""
    path = tmp_path_factory.mktemp("several")
    write_songs(path / "songs", songs())
    write_songs(path / "new", songs(nodes=150, seed=1), labels=False, split=False)
    write_songs(path / "known", songs(nodes=150, seed=1), split=False)
    bvat.run(bvat.load(path / "songs"), folder=path / "run", seeds=2, **QUICK)
    return path


def test_the_classifier_predicts_sets(fitted: bvat.NodeClassifier, graph: bvat.Graph, tmp_path: Path) -> None:
    sets, p, test = fitted.predict(graph), fitted.predict_proba(graph), graph.test.numpy()
    assert sets.shape == p.shape == (160, 4)
    assert sets.dtype == bool
    assert (sets == (p > 0.5)).all()
    true = graph.labels.numpy()[test] == 1
    micro = 2 * (true & sets[test]).sum() / (true.sum() + sets[test].sum())
    assert fitted.score(graph) == fitted.score(graph, metric="micro_f1") > 0.75
    assert fitted.score(graph) == pytest.approx(micro)
    assert fitted.score(graph, metric="accuracy") == np.mean((sets[test] == true).all(1))
    assert list(fitted.f1_per_class(graph)) == list(NAMES)
    fitted.save(tmp_path / "songs.safetensors")
    loaded = bvat.NodeClassifier.load(tmp_path / "songs.safetensors")
    assert (loaded.predict_proba(graph) == p).all()
    assert (loaded.predict(graph) == sets).all()


def test_what_needs_one_class_is_refused(fitted: bvat.NodeClassifier, graph: bvat.Graph) -> None:
    model = fitted.classifier_.models[0]
    for refused in (
        lambda: fitted.predict_set(graph),
        lambda: fitted.review(),
        lambda: fitted.suggest(3),
        lambda: fitted.explain(0),
        lambda: bvat.audit.audit(model, graph),
        lambda: bvat.audit.smallest_perturbation(model, graph, 0),
        lambda: bvat.certify(model, graph),
        lambda: bvat.NodeClassifier("auto").fit(graph),
    ):
        with pytest.raises(
            SettingsError, match="needs one class per node, and these nodes have several labels"
        ):
            refused()


def test_graphs_of_the_other_kind_are_refused(fitted: bvat.NodeClassifier, graph: bvat.Graph) -> None:
    one = bvat.Graph.build(
        graph.features, graph.adjacency.to_scipy(), graph.labels[:, 0], train=graph.train, class_names="ab"
    )
    with pytest.raises(
        GraphError, match="are one class per node, but the model was trained with several labels"
    ):
        fitted.predict(one)


def test_cross_validation_takes_the_place_of_validation_nodes(graph: bvat.Graph) -> None:
    labels = graph.labels.clone()
    labels[60:] = -1
    some = bvat.Graph.build(
        graph.features, graph.adjacency.to_scipy(), labels, train=range(60), normalize=False
    )
    fitted = bvat.NodeClassifier("none", epochs=20, pretrain=0, patience=0, select="last").fit(some)
    found = fitted.cross_validation_
    assert found is not None
    assert (found["folds"], found["nodes"]) == (5, 60)
    assert 0 < found["low"] < found["accuracy"] < found["high"] < 100
    assert found["micro_f1"] > 40
    assert fitted.classifier_.temperature != 1  # probabilities of labels are calibrated too
    assert fitted.predict(some).shape == (160, 4)


def test_tables_train_and_predict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = open_run(folder / "run")
    assert run.method == "vat"  # the default
    assert (folder / "run" / "report.html").is_file()
    summary = json.loads((folder / "run" / "result.json").read_text())
    assert summary["test_micro_f1"]["mean"] > 75
    out = folder / "predicted.csv"
    code, said, _ = command(["predict", str(folder / "run"), "--out", str(out)], capsys)
    assert code == 0
    graph, rows = run.graph(), list(csv.DictReader(io.StringIO(out.read_text())))
    p = run.classifier(graph).probabilities(graph)
    assert [row["id"] for row in rows] == list(graph.node_names or ())
    for row, probabilities in zip(rows, p.tolist(), strict=True):
        names = [name for name, one in zip(graph.class_names, probabilities, strict=True) if one > 0.5]
        assert row["predicted"].split("|") == (names or [""])
        assert [float(row[f"p_{name}"]) for name in graph.class_names] == pytest.approx(
            probabilities, rel=1e-4
        )
        least = min(max(one, 1 - one) for one in probabilities)
        assert float(row["confidence"]) == pytest.approx(least, rel=1e-4)
    assert "micro F1" in said
    assert "on 60 test nodes" in said
    new = ["predict", str(folder / "run"), "--graph", str(folder / "new"), "--out", str(out)]
    code, said, _ = command(new, capsys)
    assert code == 0
    assert "accuracy" not in said
    assert len(out.read_text().splitlines()) == 151
    code, said, _ = command(
        ["predict", str(folder / "run"), "--graph", str(folder / "known"), "--out", str(out), "--json"],
        capsys,
    )
    assert json.loads(said)["scores"].keys() >= {"micro_f1", "macro_f1", "accuracy"}


@pytest.mark.parametrize("name", ["audit", "suggest", "review", "explain", "export", "predict"])
def test_commands_refuse_in_a_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    more = {"explain": ["--node", "n3"], "predict": ["--coverage", "0.9"]}.get(name, [])
    out = tmp_path / ("x.safetensors" if name == "export" else "x.csv")
    code, _, error = command([name, str(folder / "run"), "--out", str(out), *more], capsys)
    assert code == 2
    assert "needs one class per node, and these nodes have several labels: " in error
    assert not list(tmp_path.iterdir())


def test_a_damaged_kind_of_targets_is_named(folder: Path) -> None:
    run = open_run(folder / "run")
    run.about["targets"] = "images"
    with pytest.raises(DataError, match=r"settings.json is damaged \(targets are 'images'\): train again"):
        run.classifier(run.graph())


def test_compare_has_both_means_of_f1(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rest = ["--labels", "5", "--val", "20", "--splits", "2", "--epochs", "8", "--jobs", "1", "--methods"]
    metrics = ["gcn,vat", "--metric", "micro_f1,macro_f1", "--json", "--out", str(tmp_path / "out")]
    code, out, _ = command(["compare", str(folder / "songs"), *rest, *metrics], capsys)
    assert code == 0
    found = json.loads(out)
    assert (found["metric"], found["more"][0]["metric"]) == ("micro_f1", "macro_f1")
    assert found["rows"][0]["variants"]["vat"]["mean"] > 0
    asked = ["compare", str(folder / "songs"), *rest, "gcn,auto", "--out", str(tmp_path / "o")]
    code, _, error = command(asked, capsys)
    assert code == 2
    assert "method auto needs one class per node" in error


def test_one_logit_from_training_to_audit(tmp_path: Path) -> None:
    """A run folder, predictions and an audit of a module with one logit for two classes."""
    graph = bvat.synthetic_graph(nodes=120, edges=300, features=40, classes=2, val=30, test=40)
    settings = bvat.preset("", "vat", model=yes_or_no, decay="all", **QUICK)
    done = bvat.run(graph, settings, folder=tmp_path / "run", options=RunOptions(page=False))
    assert done.results[0]["selected"]["test"] > 60
    run = open_run(done.path, [yes_or_no])
    classifier = run.classifier(graph)
    p = classifier.probabilities(graph)
    trained = bvat.train(graph, settings)
    assert all(torch.equal(trained.weights[name], tensor) for name, tensor in run.folder.weights(0).items())
    module = yes_or_no(graph.num_features, 2).module
    module.load_state_dict(trained.weights)
    one = torch.sigmoid(module.eval()(graph.as_data.x, graph.as_data.edge_index)[:, 0]).detach()
    torch.testing.assert_close(p, torch.stack([1 - one, one], 1), rtol=1e-5, atol=1e-6)
    nodes = torch.arange(5)
    found = bvat.audit.audit(classifier.models[0], graph, nodes=nodes)
    alone = bvat.audit.audit(bvat.wrap(module, depth=1), graph, nodes=nodes)
    assert torch.equal(found.predicted, alone.predicted)
    torch.testing.assert_close(found.lds, alone.lds, rtol=1e-2, atol=1e-5)
    fitted = bvat.NodeClassifier("vat", model=yes_or_no, decay="all", **QUICK).fit(graph)
    fitted.save(tmp_path / "one.safetensors")
    loaded = bvat.NodeClassifier.load(tmp_path / "one.safetensors", model=yes_or_no)
    assert loaded.predict(graph).tolist() == fitted.predict(graph).tolist()
    assert set(fitted.predict(graph)) == set(graph.class_names)
