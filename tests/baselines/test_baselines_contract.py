"""What every row of the table of baselines must do; a new row is included."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse as sp
import torch

from bvat.baselines import planetoid
from bvat.baselines.base import largest_one, take_columns, used_columns
from bvat.baselines.table import AUTO, BASELINES, PUBLISHED
from bvat.baselines.walks import walks_per_node
from bvat.cli.main import main
from bvat.data import load
from bvat.data.tensors import read_safetensors, write_safetensors
from bvat.engine.dense import DenseMatrix
from bvat.errors import DataError, GraphError, SettingsError
from bvat.estimator.node_classifier import NodeClassifier
from bvat.graph import Graph
from bvat.graph.repair import normalize_rows
from bvat.inference.runs import open_run
from bvat.training.loop import train
from bvat.training.settings import Settings, preset
from bvat.tuning import networks
from bvat.tuning.variants import Variant

SLOW = ("manireg", "semiemb")
"""Several seconds per fit, because they try many strengths."""


def rows(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in names]


INDUCTIVE = [name for name in PUBLISHED if not BASELINES[name].model.endswith("NodeTable")]


@pytest.fixture(scope="module", autouse=True)
def _few_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planetoid, "STEPS", 30)
        patched.setattr(networks, "EPOCHS", 30)
        yield


@pytest.fixture(scope="module", params=rows(BASELINES))
def fitted(request: pytest.FixtureRequest, small: Graph) -> tuple[str, Any]:
    """A baseline and its fit to a small graph."""
    return request.param, train(small, preset("", request.param), seed=3)


def test_it_learns_and_is_the_same_again_whatever_the_test_labels_are(
    fitted: tuple[str, Any], small: Graph
) -> None:
    name, trained = fitted
    assert trained.selected["test"] > 45  # three classes
    of_auto = {"members", "estimate", "out_of_fold", "seconds", "smoothing", "edges_agree", "labels"}
    more = of_auto if name == AUTO else set()
    assert trained.fit.keys() == {"chosen", "unscored", "unscored_test", *more}
    labels = small.labels.clone()
    labels[small.test] = (labels[small.test] + 1) % 3
    again = train(replace(small, labels=labels), preset("cora", name), seed=3)
    assert again.weights.keys() == trained.weights.keys()
    assert all(torch.equal(again.weights[key], trained.weights[key]) for key in again.weights)


def test_the_seed_counts_where_the_table_says_so(fitted: tuple[str, Any], small: Graph) -> None:
    name, trained = fitted
    other = train(small, preset("", name), seed=4)
    same = all(torch.equal(other.weights[key], trained.weights[key]) for key in other.weights)
    assert same != BASELINES[name].random


def test_a_graph_without_validation_nodes_can_be_fitted(fitted: tuple[str, Any], small: Graph) -> None:
    blind = replace(small, val=small.val[:0], test=small.test[:0])
    trained = train(blind, preset("", fitted[0]))
    assert trained.selected["val"] is None
    assert trained.fit["chosen"] == {}


def test_columns_that_some_rows_use(graph: Graph) -> None:
    rows, dense = graph.train, graph.features.to_dense()
    used = used_columns(graph.features.select(rows))
    assert torch.equal(used, dense[rows].any(0).nonzero().flatten())
    assert 0 < used.numel() < graph.num_features
    assert torch.equal(take_columns(graph.features, used).to_dense(), dense[:, used])
    matrix = DenseMatrix(dense)
    assert torch.equal(used_columns(matrix.select(rows)), used)
    assert torch.equal(take_columns(matrix, used).to_dense(), dense[:, used])


def test_features_of_no_training_node_do_not_reach_planetoids_classifier(small: Graph) -> None:
    few = replace(small, train=small.train[::5])
    unseen = torch.ones(small.num_features, dtype=torch.bool)
    unseen[used_columns(small.features.select(few.train))] = False
    assert unseen.any()
    weights = train(few, preset("", "planetoid-i"), seed=3).weights
    assert not weights["wx"][unseen].any()
    assert weights["wx"][~unseen].any(1).all()
    assert weights["v"][unseen].any()  # the embedding has learned from all visible nodes


def test_large_graphs_get_fewer_walks_from_each_node() -> None:
    assert walks_per_node(2708, 40, 10, 10_000_000) == 10
    assert walks_per_node(65_755, 40, 10, 10_000_000) == 4
    assert walks_per_node(10**9, 40, 10, 10_000_000) == 1


@pytest.mark.parametrize("name", rows(INDUCTIVE))
def test_inductive_ones_do_not_see_what_they_predict(name: str, small: Graph) -> None:
    """Other features and edges of the test nodes change nothing."""
    hidden = small.test
    x = small.features.to_dense().clone()
    x[hidden] = torch.rand(len(hidden), x.shape[1])
    adjacency = small.adjacency.to_scipy().tolil()
    adjacency[hidden.numpy()] = 0
    adjacency[:, hidden.numpy()] = 0
    first, last = int(hidden[0]), int(small.train[0])
    adjacency[first, last] = adjacency[last, first] = 1
    changed = Graph.build(
        sp.csr_array(x.numpy()),
        adjacency.tocsr(),
        small.labels,
        train=small.train,
        val=small.val,
        test=small.test,
        normalize=False,
    )
    before, after = (train(graph, preset("", name)) for graph in (small, changed))
    for key, tensor in before.weights.items():
        torch.testing.assert_close(after.weights[key], tensor, atol=1e-5, rtol=1e-4)


def test_binary_features_get_their_values_back(graph: Graph) -> None:
    binary = graph.features.with_values(torch.ones_like(graph.features.values))
    for features in (
        normalize_rows(binary),
        normalize_rows(type(graph.features).from_scipy(binary.to_scipy())),
    ):  # type: ignore[union-attr]
        torch.testing.assert_close(largest_one(features).to_dense(), binary.to_dense())


@pytest.mark.parametrize("name", rows(["lp", "manireg"]))
def test_a_run_folder_predicts(
    name: str, small: Graph, small_file: Path, tmp_path: Path, capsys: Any
) -> None:
    run = tmp_path / "run"
    arguments = ["train", str(small_file), "--method", name, "--out", str(run), "--jobs", "1"]
    for more in (["--seeds", "1"], ["--seeds", "2", "--resume", "--json"]):
        with pytest.raises(SystemExit) as end:
            main([*arguments, *more])
        assert end.value.code == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["seeds"] == 2
    assert len(summary["fit"]) == 2
    assert "chosen on the validation nodes" in summary["events"][0]
    assert BASELINES[name].title in (run / "report.html").read_text("utf-8")
    saved = open_run(run)
    found = saved.classifier(small).probabilities(small)
    torch.testing.assert_close(found.sum(1), torch.ones(small.num_nodes))
    loaded = load(small_file)  # with the engine of the command
    assert torch.equal(found, NodeClassifier(name).fit(loaded).classifier_.probabilities(small))
    for command in (["audit", str(run), "--out", "a.csv"], ["export", str(run), "--out", "a.safetensors"]):
        with pytest.raises(SystemExit) as end:
            main(command)
        assert end.value.code == 2


@pytest.mark.parametrize("name", rows(["lp", "semiemb"]))
def test_a_classifier_is_saved_and_loaded(name: str, small: Graph, tmp_path: Path) -> None:
    classifier = NodeClassifier(name).fit(small)
    classifier.save(tmp_path / "c.safetensors")
    loaded = NodeClassifier.load(tmp_path / "c.safetensors")
    assert (loaded.predict_proba(small) == classifier.predict_proba(small)).all()
    other = replace(small, adjacency=small.adjacency.with_values(2 * small.adjacency.values))
    if name == "lp":
        with pytest.raises(GraphError, match="transductive method predicts only"):
            loaded.predict(other)
    else:
        assert (loaded.predict(other) == loaded.predict(small)).all()


@pytest.mark.parametrize("name", rows(["lp", "manireg", "semiemb", "planetoid-i"]))
def test_tensors_of_another_shape_or_type_are_refused(name: str, small: Graph, tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    NodeClassifier(name).fit(small).save(path)
    about, tensors = read_safetensors(path)
    for key, tensor in tensors.items():
        for changed in (tensor[:1], tensor[None], torch.cat([tensor, tensor]), tensor.to(torch.complex64)):
            write_safetensors(path, {**tensors, key: changed}, about)
            with pytest.raises((DataError, GraphError), match=r"do not fit the model|other nodes or edges"):
                NodeClassifier.load(path).predict(small)


def test_settings_refuse_what_makes_no_sense() -> None:
    with pytest.raises(SettingsError, match="without --model gat"):
        Settings(method="lp", model="gat")
    with pytest.raises(SettingsError, match="no method 'gat/lp'"):
        Variant.parse("gat/lp")
