"""The benchmark of few labels: its recipes, runs that continue, and the summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.semi_supervised import LabelSpreading

import bvat
import few_labels
import few_members
import few_recipes
import few_summary
import few_tables
from bvat.data.splits import resplit
from bvat.errors import SettingsError


def test_every_recipe_learns_and_reads_no_test_label(small: bvat.Graph) -> None:
    graph = resplit(small, 5, 0, 3)
    inputs = few_recipes.Inputs(graph)
    found = {
        name: few_recipes.measure_recipe(inputs, graph, name)["accuracy"] for name in few_recipes.RECIPES
    }
    assert found["two-graphs"] > 60
    assert max(found.values()) > 70


def test_label_spreading_with_shared_neighbours_is_that_of_scikit_learn(small: bvat.Graph) -> None:
    inputs = few_recipes.Inputs(small)
    labels = np.full(small.num_nodes, -1)
    labels[small.train.numpy()] = small.labels.numpy()[small.train.numpy()]
    expected = LabelSpreading(kernel="knn").fit(inputs.x, labels).transduction_
    np.testing.assert_array_equal(few_recipes._spreading(inputs, labels), expected)


def test_nodes_without_features_are_nobodys_neighbours(small: bvat.Graph) -> None:
    features = small.features.to_dense().clone()
    features[:9] = 0
    graph = bvat.Graph.build(features, small.adjacency.to_scipy(), small.labels, train=small.train)
    inputs = few_recipes.Inputs(graph)
    inputs.text, inputs.x = True, TfidfTransformer().fit_transform(sp.csr_matrix(features.numpy()))
    shared = (inputs.x[9:] @ inputs.x[9:].T).toarray() > 0
    busy = 9 + np.flatnonzero(shared.sum(1) > few_recipes.K)
    assert busy.size
    assert (inputs.nearest[busy] >= 9).all()


@pytest.mark.slow
def test_runs_continue_and_are_summarised(small: bvat.Graph, small_file: Path, tmp_path: Path) -> None:
    command = [str(small_file), "--labels", "1,5", "--draws", "20", "--effort", "1", "--out", str(tmp_path)]
    few_labels.main(command)
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert str(small_file) not in lines[0]
    (tmp_path / "runs.jsonl").write_text(lines[0] + "\n" + lines[1][:50])  # killed while it wrote
    few_labels.main([*command, "--report", "--pictures", str(tmp_path)])
    runs = few_labels.read_runs(tmp_path / "runs.jsonl")
    assert [run["labels"] for run in runs] == [1, 5]
    assert runs[1]["auto"]["accuracy"] == json.loads(lines[1])["auto"]["accuracy"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["draws"] == [20]
    assert set(summary["labels"]) == {"1", "5"}
    assert summary["labels"]["1"]["estimates"]["runs"] == 0  # nothing can be held out
    assert summary["labels"]["5"]["weights"]["networks"] == 0  # effort 1
    assert "<svg" in (tmp_path / "few-labels.svg").read_text()


@pytest.mark.slow
def test_auto_alone_is_measured_again_if_its_code_has_changed(small_file: Path, tmp_path: Path) -> None:
    command = [str(small_file), "--labels", "5", "--draws", "20", "--effort", "1", "--out", str(tmp_path)]
    few_labels.main(command)
    path = tmp_path / "runs.jsonl"
    few_labels.main([*command, "--again"])
    (run,) = map(json.loads, path.read_text().splitlines())  # the same code: nothing to do
    old = {**run, "source": "older", "gcn": {"accuracy": 1.0, "cpu_seconds": 1.0}}
    path.write_text(json.dumps(old | {"auto": {**run["auto"], "accuracy": 2.0}}) + "\n")
    few_labels.main([*command, "--again"])
    (found,) = few_labels.read_runs(path)
    assert (found["source"], found["gcn"]["accuracy"]) == ("older", 1.0)
    assert found["auto"]["accuracy"] == run["auto"]["accuracy"]
    assert few_summary.auto_source(found) == run["source"]
    assert few_summary.auto_source(old) == "older"


def made(graph: str, draw: int, auto: float, gcn: float, members: dict[str, float]) -> dict[str, Any]:
    parts = {name: {"accuracy": value, "weight": 1 / len(members)} for name, value in members.items()}
    estimate = {"low": 50.0, "high": 60.0}
    recipes = {name: {"accuracy": 40.0 + k} for k, name in enumerate(few_recipes.RECIPES)}
    return {
        "graph": graph, "labels": 5, "draw": draw, "gcn": {"accuracy": gcn}, "recipes": recipes,
        "auto": {"accuracy": auto, "members": parts, "estimate": estimate},
    }  # fmt: skip


def test_gains_are_paired_and_the_worst_graph_is_named() -> None:
    members = {"x": 50.0, "gcn+none-given": 58.0}
    runs = [
        made("a", 20, 55, 50, members),
        made("a", 21, 57, 50, {"x": 50.0, "gcn+none-features": 60.0}),
        made("b", 20, 62, 63, {"x": 60.0, "gcn+none-both": 20.0}),
        made("b", 21, 62, 65, {"x": 60.0, "gcn+none-both": 20.0}),
    ]
    found = few_summary.with_labels(runs, "two-graphs")
    assert found["over_gcn"]["mean"] == 2
    assert found["over_gcn"]["n"] == 4
    assert found["worst_against_gcn"] == {"graph": "b", "points": -2}
    assert found["worst_against_member"] == {"graph": "a", "points": -3}
    assert found["estimates"] == {"runs": 4, "held": 2}
    assert found["weights"]["networks"] == pytest.approx(0.5)
    assert few_summary.best_recipe(runs) == "two-graphs"
    checked = few_summary.targets({"5": found})
    assert not checked["over_gcn"]["5"]["met"]
    assert checked["worst_against_member"]["5"]["met"]


def test_incomplete_draws_are_left_out() -> None:
    runs = [made(graph, draw, 50, 50, {"x": 1.0}) for graph, draw in (("a", 20), ("b", 20), ("a", 21))]
    assert few_summary.complete_runs(runs) == runs[:2]
    with pytest.raises(SettingsError, match="no draw is complete"):
        few_summary.summarised([], few_labels.gcn_settings())


def test_tables_are_measured_as_bvat_reads_them(tmp_path: Path) -> None:
    out = tmp_path / "tables.json"
    few_tables.main(["--tables", "wine", "--labels", "5", "--draws", "3", "--out", str(out)])
    found = json.loads(out.read_text())
    assert found["tables"]["wine"]["nodes"] == 178
    assert found["tables"]["wine"]["edges"] == 0
    assert min(found["mean"]["wine"]["5"].values()) > 80


@pytest.mark.slow
def test_every_ensemble_is_that_of_its_effort(small: bvat.Graph) -> None:
    graph = resplit(small.with_engine("tensor"), 3, 0, 3)
    sets = {"none": (), "effort 2": ("gcn",), "vat": ("gcn", "vat")}
    found = few_members.measure(graph, sets)
    for effort, title in ((1, "none"), (2, "effort 2")):
        measured = few_labels.measure_auto(graph, effort)["accuracy"]
        assert found[title]["accuracy"] == pytest.approx(measured)
    assert set(found["vat"]["weights"]) == {"gcn+none", "gcn+vat"}
    assert found["vat"]["training_cpu_seconds"] > found["effort 2"]["training_cpu_seconds"] > 0
    summary = few_members.summarised([{"labels": 3, "ensembles": found}] * 2)["3"]
    expected = found["none"]["accuracy"] - found["effort 2"]["accuracy"]
    assert summary["none"]["gain"]["mean"] == pytest.approx(expected)
