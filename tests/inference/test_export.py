"""An exported model gives bvat's probabilities, from raw files, in a program without bvat."""

from __future__ import annotations

import csv
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from inference_files import COLUMNS, expect, read_csv, rows_of, write_folder

from bvat.data import load
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.inference import export as exporting
from bvat.inference import plain as plain_module
from bvat.inference.classifier import Classifier
from bvat.inference.export import exported, write_export
from bvat.inference.plain import ExportedModel, network_name
from bvat.models.table import MODELS
from bvat.training.settings import Settings
from bvat.training.state import build_model
from cli_helpers import bvat as call

EXPORTED = [name for name in MODELS if hasattr(ExportedModel, network_name(name))]


def classifier_of(graph: Graph, model: str, models: int = 2, **settings: Any) -> Classifier:
    """Return models with random weights and biases, which differ from node to node."""
    sizes = {"hidden": 16, "power_steps": 3}
    own = {name: size for name, size in sizes.items() if name in MODELS[model].arguments}
    chosen = Settings(model=model, **own, **settings)
    built = []
    for seed in range(models):
        generator = torch.Generator().manual_seed(seed)
        network = build_model(chosen, graph.num_features, graph.num_classes, generator).eval()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) / 3)
        built.append(network)
    return Classifier(tuple(built), chosen, graph.class_names, graph.num_features, graph.recipe)


def untidy(graph: Graph, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the edges once or twice, in random directions, with lower weights for repeats, and loops."""
    generator = torch.Generator().manual_seed(seed)
    row, col, weight = graph.adjacency.rows, graph.adjacency.col.long(), graph.adjacency.values
    once = row < col
    edges, weight = torch.stack([row[once], col[once]]), weight[once]
    flipped = torch.where(torch.rand(weight.shape, generator=generator) < 0.5, edges, edges.flip(0))
    loops = torch.arange(0, graph.num_nodes, 5).expand(2, -1)
    edges = torch.cat([flipped, edges[:, ::2], loops, flipped[:, ::3]], 1)
    weights = torch.cat([weight, weight[::2] / 2, torch.full((loops.shape[1],), 9.0), 0 * weight[::3]])
    order = torch.randperm(weights.numel(), generator=generator)
    return edges[:, order], weights[order]


@pytest.fixture(scope="module")
def weighted(graph: Graph) -> Graph:
    """40 nodes with an isolated one, and edges of different weights."""
    adjacency = graph.adjacency.to_scipy()
    upper = sp.triu(adjacency).tocsr()
    upper.data = np.random.default_rng(0).uniform(0.2, 3, upper.nnz)
    features = graph.features.to_scipy().toarray()
    split = {"train": graph.train, "val": graph.val, "test": graph.test}
    return Graph.build(features, upper, graph.labels, **split, normalize=True).with_engine("tensor")


def test_all_models_of_bvat_but_gpnn_can_be_exported() -> None:
    """GPNN divides the graph into clusters, which takes more than plain torch."""
    assert set(MODELS) - {"gpnn"} <= set(EXPORTED)


@pytest.mark.parametrize(
    "settings",
    [
        *({"model": model, "layers": layers} for model in EXPORTED for layers in (1, 2, 3)),
        {"model": "gat", "output_heads": 3},
        {"model": "monet", "aggregation": "mean"},
        {"model": "random-propagation", "batch_norm": True, "teleport": 0.3},
        {"model": "random-propagation", "spread": "mean", "batch_norm": True, "teleport": 0.3},
    ],
    ids=str,
)
def test_every_model_gives_the_same_probabilities(weighted: Graph, settings: dict[str, Any]) -> None:
    classifier = classifier_of(weighted, **settings)
    for norm in (norm for model in classifier.models for norm in getattr(model, "norms", ())):
        norm.running_mean.uniform_(), norm.running_var.uniform_(0.5, 2)
    plain, error = exported(classifier, weighted)
    edges, weights = untidy(weighted)
    raw = 3 * weighted.features.values  # rows are divided by their sums, so a factor does not matter
    found = plain(raw, edges, weights)
    assert torch.allclose(found, classifier.probabilities(weighted), atol=2e-6)
    assert error < 2e-6
    assert float((found.amax(0) - found.amin(0)).max()) > 0.02  # nodes differ


def test_edges_have_weight_one_unless_given(graph: Graph) -> None:
    classifier = classifier_of(graph, "gcn")
    plain, _ = exported(classifier, graph)
    edges = torch.stack([graph.adjacency.rows, graph.adjacency.col.long()])
    features = torch.from_numpy(graph.features.to_scipy().toarray())
    assert torch.allclose(plain(features, edges), classifier.probabilities(graph), atol=2e-6)
    alone = plain(features[:1], torch.empty(2, 0, dtype=torch.int64))
    assert alone.shape == (1, 3)


def test_the_file_is_read_back_by_torch_alone(weighted: Graph, tmp_path: Path) -> None:
    plain, _ = exported(classifier_of(weighted, "gat"), weighted)
    files = write_export(plain, tmp_path / "new" / "model.safetensors")
    assert [path.name for path in files] == ["model.safetensors", "model.py"]
    modules = {line.split()[1].split(".")[0] for line in files[1].read_text("utf-8").splitlines()
               if line.startswith(("import ", "from "))}  # fmt: skip
    assert modules == {"json", "re", "pathlib", "typing", "torch"}
    read = runpy.run_path(str(files[1]))["load"](files[0])
    edges, weights = untidy(weighted)
    assert torch.equal(read(weighted.features.values, edges, weights),
                       plain(weighted.features.values, edges, weights))  # fmt: skip
    assert read.about["classes"] == list(weighted.class_names)
    write_export(plain, files[0])  # once more is fine
    files[1].write_text("print('mine')")
    with pytest.raises(SettingsError, match="another program"):
        write_export(plain, files[0])


@pytest.mark.parametrize("kind", ["marks", "quantities", "text", "quantities and text", "matrix", "nothing"])
def test_raw_files_give_the_probabilities_of_bvat(tmp_path: Path, kind: str, monkeypatch: Any) -> None:
    """A program that reads nodes.csv by itself and passes the numbers on gets what bvat predicts."""
    rng = np.random.default_rng(1)
    nodes, edges = rows_of(60)
    words = ["root", "leaf", "mast", "tide", "song", "Größe"]
    plain_rows = [{"id": node["id"], "label": node["label"]} for node in nodes]
    for row, node in zip(plain_rows, nodes, strict=True):
        if kind == "marks":
            row |= {name: node[name] for name in COLUMNS}
        if "quantities" in kind:
            row |= {"height": round(rng.normal(170, 9), 3), "age": int(rng.integers(1, 90))}
        if "text" in kind:
            row["text"] = " ".join(rng.choice(words, 7)) + "!"
    folder = write_folder(tmp_path / "raw", plain_rows, edges)
    matrix = rng.random((60, 5)).astype(np.float32)
    if kind == "matrix":
        sp.save_npz(folder / "features.npz", sp.csr_array(matrix))
    if kind == "nothing":
        monkeypatch.setattr("bvat.data.readers.features.MAX_ONE_HOT", 10)
    graph = load(str(folder), text="text" if "text" in kind else None)
    classifier = classifier_of(graph, "gcn")
    model, _ = exported(classifier, graph)
    rows = read_csv(folder / "nodes.csv")
    named = [name for name in rows[0] if name not in ("id", "label", "text")]
    features = torch.tensor([[float(row[name]) for name in named] for row in rows], dtype=torch.float64)
    features = features.reshape(60, len(named))
    if "text" in kind:
        features = torch.cat([features, model.count_words([row["text"] for row in rows])], 1)
    if kind == "matrix":
        features = torch.from_numpy(matrix)
    number = {row["id"]: k for k, row in enumerate(rows)}
    ends = torch.tensor([[number[a], number[b]] for a, b in edges]).t()
    assert features.shape[1] == len(model.about["features"])
    assert torch.allclose(model(features, ends), classifier.probabilities(graph), atol=2e-6)


def test_a_wrong_export_is_refused(weighted: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExportedModel, "_gcn", lambda self, name, x, edges: 0 * self._mlp(name, x, edges))
    with pytest.raises(SettingsError, match="nothing was written"):
        exported(classifier_of(weighted, "gcn"), weighted)
    monkeypatch.delattr(ExportedModel, "_gcn")
    with pytest.raises(SettingsError, match="'gcn' cannot be exported"):
        exported(classifier_of(weighted, "gcn"), weighted)


@pytest.mark.parametrize("dense", [True, False])
def test_a_large_graph_is_checked_on_a_part(weighted: Graph, graph: Graph, dense: bool) -> None:
    chosen = weighted if dense else graph
    assert exporting._first_nodes(chosen, 10).num_nodes == 10
    assert exported(classifier_of(chosen, "sage"), chosen, largest=24 * 10)[1] < 2e-6


def test_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(folder / "run-obvat")
    code, out, _ = call(["export", run, "--out", "model.safetensors", "--json"], capsys)
    about = json.loads(out)
    assert (code, about["models"], about["files"]) == (0, 2, ["model.safetensors", "model.py"])
    call(["predict", run, "--out", "p.csv"], capsys)
    model = plain_module.load("model.safetensors")
    rows = read_csv(folder / "pages" / "nodes.csv")
    number = {row["id"]: k for k, row in enumerate(rows)}
    with (folder / "pages" / "edges.csv").open(newline="") as file:
        edges = torch.tensor([[number[end] for end in pair] for pair in list(csv.reader(file))[1:]]).t()
    features = torch.tensor([[float(row[name]) for name in model.about["features"]] for row in rows])
    found = model(features, edges)
    expected = [
        [float(row[f"p_{name}"]) for name in model.about["classes"]] for row in read_csv(Path("p.csv"))
    ]
    assert torch.allclose(found, torch.tensor(expected), atol=1e-5)
    code, out, _ = call(["export", run, "--seed", "1", "--out", "one.safetensors"], capsys)
    assert code == 0
    assert out.startswith("one.safetensors, one.py: probabilities agree")
    expect(["export", run, "--out", "model.onnx"], "ends in .safetensors", capsys)
    expect(["export", "nowhere", "--out", "model.safetensors"], "not a run folder", capsys)
