"""Two phases, features of unit length, and the guard against collapse."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import Field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from bvat.data import synthetic_graph
from bvat.data.splits import resplit
from bvat.data.tensors import read_safetensors
from bvat.engine.dense import DenseMatrix
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models.table import MODELS
from bvat.perturb.methods import METHODS
from bvat.store.results import seed_result, summary_of
from bvat.training.callbacks import Callback
from bvat.training.loop import predict, train
from bvat.training.settings import Settings, all_fields, preset
from bvat.training.state import TrainState, feature_factor, restore_model, start_training
from training_helpers import killed_and_resumed, other_values, same


@pytest.fixture(scope="module")
def graph() -> Graph:
    drawn = synthetic_graph(300, 900, features=60, classes=3, train_per_class=5, val=60, test=100, seed=4)
    return drawn.with_engine("tensor")


def quick(method: str = "vat", **settings: Any) -> Settings:
    return preset("", method, **{"hidden": 16, "epochs": 40, "pretrain": 25, "patience": 10, **settings})


class Watch(Callback):
    def __init__(self) -> None:
        self.weights: list[tuple[float, float]] = []

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        self.weights.append((row["entropy"], state.method.beta))


@pytest.mark.parametrize("method", ["none", "vat", "sbvat", "obvat", "random"])
def test_scaling_all_features_changes_nothing(graph: Graph, method: str) -> None:
    """Lengths are relative to the features; a power of two does not even change the rounding."""
    settings = quick(method, epochs=12, pretrain=6, patience=0)
    one = train(graph, settings)
    for factor in (8, 10):
        larger = graph.with_features(graph.features.with_values(graph.features.values * factor))
        other = train(larger, settings)
        if factor == 8:
            assert [row["loss"] for row in one.metrics] == [row["loss"] for row in other.metrics]
        assert one.metrics[-1]["loss"] == pytest.approx(other.metrics[-1]["loss"], rel=1e-3)
        assert one.selected["val"] == pytest.approx(other.selected["val"], abs=5)


@pytest.mark.parametrize("scale", ["unit", "columns"])
def test_selected_weights_are_for_the_features_of_the_graph(graph: Graph, scale: str) -> None:
    """Training scales the features, but what it returns predicts on the graph as it is."""
    settings = quick(scale=scale)
    factor = feature_factor(graph, settings)
    assert factor.numel() == graph.num_features if scale == "columns" else factor != 1
    trained = train(graph, settings)
    model = restore_model(settings, graph.num_features, graph.num_classes, trained.weights)
    right = predict(model, graph).argmax(1)[graph.val] == graph.labels[graph.val]
    assert 100 * float(right.double().mean()) == pytest.approx(trained.selected["val"])


@pytest.mark.parametrize("dense", [False, True])
def test_scaled_columns_vary_alike_but_for_the_least(graph: Graph, dense: bool) -> None:
    x = graph.features.to_dense()
    given = graph.with_features(DenseMatrix(x)) if dense else graph
    settings = preset("", "none", scale="columns")
    variances = x.double().var(0, correction=0)
    expected = x / (variances + variances.mean() / 2).sqrt()
    torch.testing.assert_close(
        start_training(given, settings).graph.features.to_dense(), expected.to(x.dtype)
    )
    constant = given.with_features(DenseMatrix(torch.ones_like(x)))
    assert torch.equal(start_training(constant, settings).graph.features.to_dense(), torch.ones_like(x))


def test_the_regulariser_starts_from_the_best_plain_epoch_and_grows(graph: Graph) -> None:
    watch = Watch()
    settings = quick(ramp=5, patience=0, epochs=40, pretrain=25, guard=False)
    trained = train(graph, settings, callbacks=[watch])
    entropies, betas = zip(*watch.weights, strict=True)
    assert not any(entropies[:25]), "the first phase has no regulariser"
    assert all(entropies[25:])
    assert [round(beta, 6) for beta in betas[24:30]] == [0.2, 0.4, 0.6, 0.8, 1.0, 1.0]
    assert len(trained.metrics) == 40
    plain = train(graph, quick("none", patience=0, pretrain=25))
    assert len(plain.metrics) == 25, "a plain model has one phase"
    assert [row["loss"] for row in plain.metrics] == [row["loss"] for row in trained.metrics[:25]]
    assert plain.selected["val"] <= trained.selected["val"], "the second phase is kept only if it is better"


def test_a_margin_has_to_be_won(graph: Graph) -> None:
    settings = quick("consistency", margin=100.0)
    trained = train(graph, settings)
    assert trained.phases["second"] == 0
    assert trained.selected["epoch"] <= 25


def test_methods_share_the_first_phase(graph: Graph, tmp_path: Path) -> None:
    """A phase that was read from a file gives the same numbers as one that was trained."""
    for method in ("none", "vat", "consistency"):
        alone = train(graph, quick(method))
        shared = train(graph, quick(method), pretrained=tmp_path)
        assert same(alone, shared)
    assert len(list(tmp_path.iterdir())) == 1
    train(graph, quick("none", lr=0.02), pretrained=tmp_path)
    train(graph, quick("none"), seed=1, pretrained=tmp_path)
    assert len(list(tmp_path.iterdir())) == 3, "other settings and seeds have a first phase of their own"
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    assert same(train(graph, quick("vat")), train(graph, quick("vat"), pretrained=tmp_path))


def test_the_first_phase_of_a_shorter_run_is_not_taken_over(graph: Graph, tmp_path: Path) -> None:
    """A cosine falls over all epochs, so that the first phase of 30 epochs is not that of 60."""
    short, long = (quick("vat", schedule="cosine", epochs=epochs, patience=0) for epochs in (30, 60))
    train(graph, short, pretrained=tmp_path)
    shared, alone = train(graph, long, pretrained=tmp_path), train(graph, long)
    assert [row["loss"] for row in shared.metrics] == [row["loss"] for row in alone.metrics]
    assert same(shared, alone)


NARROW: dict[str, Any] = {"epochs": 7, "pretrain": 3}
SHORT: dict[str, Any] = {**NARROW, "hidden": 16}
BASES = [
    Settings(method="vat", schedule="cosine", average=0.5, masks="reuse", confidence=0.1, **SHORT),
    Settings(method="sbvat", **SHORT),
    Settings(method="obvat", search="adam", **SHORT),
    Settings(method="grand", model="random-propagation", samples=2, **SHORT),
]


class FirstPhaseOnly(Callback):
    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        state.stop = state.epoch >= state.settings.pretrain


FirstPhaseOf = Callable[[Settings], tuple[str, dict[str, torch.Tensor]]]


@pytest.fixture(scope="module")
def first_phase_of(tmp_path_factory: pytest.TempPathFactory) -> FirstPhaseOf:
    """The name and the content of the file in which a first phase is kept; time does not count."""
    drawn = synthetic_graph(90, 250, features=20, classes=3, train_per_class=4, val=20, test=20, seed=4)
    graph = drawn.with_engine("tensor")

    @cache
    def trained(settings: Settings) -> tuple[str, dict[str, torch.Tensor]]:
        folder = tmp_path_factory.mktemp("phase")
        train(graph, settings, pretrained=folder, callbacks=[FirstPhaseOnly()])
        (path,) = folder.iterdir()
        about, tensors = read_safetensors(path)
        columns = [i for i, name in enumerate(json.loads(about["columns"])) if name != "ms"]
        tensors["metrics"] = tensors["metrics"][:, columns].nan_to_num(-1)
        return path.name, {name: tensor for name, tensor in tensors.items() if "CollapseGuard" not in name}

    return trained


@pytest.mark.parametrize("field", list(all_fields().values()), ids=lambda f: f.name)
def test_what_changes_the_first_phase_has_a_file_of_its_own(
    field: Field[Any], first_phase_of: FirstPhaseOf
) -> None:
    """For every setting: runs that would share a first phase go through the same one, bit for bit."""
    takers = [model.name for model in MODELS.values() if field.name in model.arguments]
    bases = [Settings("none", model, **(SHORT if model != "sgc" else NARROW)) for model in takers]
    for base in bases or [base for base in BASES if hasattr(base, field.name)]:
        name, kept = first_phase_of(base)
        for value in other_values(field, getattr(base, field.name)):
            other, found = first_phase_of(base.replace(**{field.name: value}))
            if other == name:
                assert found.keys() == kept.keys()
                assert all(torch.equal(found[key], kept[key]) for key in kept), f"{base.model}: {value}"


def test_all_methods_share_the_first_phase_of_a_model(first_phase_of: FirstPhaseOf) -> None:
    assert len({first_phase_of(Settings(method, **SHORT))[0] for method in METHODS}) == 1


def test_resumed_equals_uninterrupted(graph: Graph, tmp_path: Path) -> None:
    """In either phase, and across the change of phases."""
    settings = quick("obvat", patience=0)
    whole = train(graph, settings)
    for at in (4, 20, 30):
        assert same(whole, killed_and_resumed(graph, settings, tmp_path / str(at), at, 3))


def test_collapse_is_noticed_weakened_and_reported(graph: Graph) -> None:
    """Far too much entropy regularisation pulls all nodes to one class."""
    wild = {
        "alpha": 30.0,
        "beta": 30.0,
        "ramp": 0,
        "patience": 0,
        "epochs": 60,
        "confidence": 0.0,
        "lr": 0.05,
    }
    unguarded = train(graph, quick("vat", **{**wild, "guard": False}))
    assert max(row["largest_class"] for row in unguarded.metrics[26:]) > 0.95
    guarded = train(graph, quick("vat", **wild))
    assert guarded.events
    assert "the regulariser was weakened to 0.5 of its weight" in guarded.events[0]
    assert guarded.selected["val"] >= train(graph, quick("none", patience=0, lr=0.05)).selected["val"]


def test_collapse_is_noticed_without_validation_nodes(graph: Graph, tmp_path: Path) -> None:
    """By the sizes of the predicted classes; what the first phase ended with is kept, also after resuming."""
    blind = resplit(graph, 1, 0, 0)
    wild = quick("vat", alpha=30.0, beta=30.0, ramp=0, confidence=0.0, lr=0.02, select="last", patience=0)
    plain = train(blind, quick("none", epochs=25, pretrain=0, lr=0.02, select="last", patience=0))
    assert max(row["largest_class"] for row in train(blind, wild.replace(guard=False)).metrics) == 1
    guarded = train(blind, wild, checkpoint=tmp_path / "c", checkpoint_every=27)
    assert "the sizes of the predicted classes moved by" in guarded.events[0]
    assert guarded.selected == {**plain.selected, "epoch": 25}
    assert all(torch.equal(guarded.weights[name], plain.weights[name]) for name in plain.weights)
    assert same(guarded, train(blind, wild, checkpoint=tmp_path / "c", resume=True))


def test_a_run_says_once_that_few_nodes_are_sampled(graph: Graph, tmp_path: Path) -> None:
    settings = quick("sbvat", layers=3, count=300, confidence=0.0, guard=False, patience=0)
    trained = train(graph, settings, checkpoint=tmp_path / "c", checkpoint_every=38)
    again = train(graph, settings, checkpoint=tmp_path / "c", resume=True)
    (said,) = trained.events
    assert said.startswith("S-BVAT finds fewer than half of the 300 nodes asked for")
    assert again.events == trained.events
    seeds = [seed_result(replace(trained, seed=seed), 1.0) for seed in (0, 1)]
    assert summary_of(graph, settings, seeds)["events"] == [f"seeds 0, 1, {said}"]


def test_without_validation_nodes_both_phases_run_to_their_end(graph: Graph) -> None:
    trained = train(replace(graph, val=graph.val[:0]), quick(patience=5))
    assert len(trained.metrics) == 40
    assert trained.selected["epoch"] == 40
    assert trained.phases == {"first": 25, "second": 15}


def test_selection_by_accuracy_breaks_ties_by_loss(graph: Graph) -> None:
    trained = train(graph, quick("none"))
    best = max(trained.metrics, key=lambda row: (row["val_accuracy"], -row["val_loss"]))
    assert trained.selected["epoch"] == best["epoch"]
    trained = train(graph, quick("none", select="loss"))
    assert trained.selected["epoch"] == min(trained.metrics, key=lambda row: row["val_loss"])["epoch"]


def test_impossible_phases_are_refused() -> None:
    with pytest.raises(SettingsError, match="pretrain must be below epochs"):
        Settings(pretrain=50, epochs=50)
    assert preset("", "vat", epochs=8).pretrain == 6
    assert preset("", "none", epochs=8).pretrain == 0, "a plain model has all the epochs that are asked for"
