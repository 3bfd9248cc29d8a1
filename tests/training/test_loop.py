"""The training loop: what it computes, that it repeats itself, and that it can be taken up again."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bvat.data import synthetic_graph
from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.perturb import entropy
from bvat.perturb.methods import METHODS
from bvat.training import loop
from bvat.training.loop import train
from bvat.training.settings import Settings, preset


@pytest.fixture(scope="module")
def graph() -> Graph:
    return synthetic_graph(nodes=150, edges=450, features=60, classes=3, train_per_class=5, seed=1)


def quick(method: str = "obvat", **overrides: Any) -> Settings:
    return preset("none", method, **{"epochs": 12, "hidden": 8, **overrides})


def without_times(metrics: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{name: value for name, value in row.items() if name != "ms"} for row in metrics]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("masks", ["fresh", "pair", "reuse", "shared"])
def test_same_seed_same_result(graph: Graph, method: str, masks: str) -> None:
    settings = quick(method, masks=masks, epochs=4)
    first, second, other = (train(graph, settings, seed) for seed in (5, 5, 6))
    assert without_times(first.metrics) == without_times(second.metrics)
    assert all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)
    assert without_times(first.metrics) != without_times(other.metrics)


@pytest.mark.parametrize("method", METHODS)
def test_training_learns(graph: Graph, method: str) -> None:
    trained = train(graph, quick(method, epochs=80), 0)
    assert trained.metrics[-1]["train_accuracy"] > 90
    assert trained.last["test"] > 60  # three classes: a third by chance
    used = method != "gcn"
    assert (trained.metrics[-1]["r_vadv"] > 0) == used
    assert (trained.metrics[-1]["nodes"] > 0) == used


def test_the_loss_is_equation_6(graph: Graph) -> None:
    settings = quick("consistency", alpha=0.3, beta=2.0, dropout=0.0)
    row = train(graph, replace(settings, epochs=1), 0).metrics[0]
    model = loop.build_model(
        settings, graph.num_features, graph.num_classes, torch.Generator().manual_seed(0)
    )
    logits = model(graph).detach()
    supervised = F.cross_entropy(logits[graph.train], graph.labels[graph.train])
    assert row["supervised"] == pytest.approx(float(supervised), rel=1e-5)
    assert row["entropy"] == pytest.approx(float(entropy(logits)), rel=1e-5)
    assert row["r_vadv"] == pytest.approx(0, abs=1e-6)  # no dropout: two passes agree
    assert row["loss"] == pytest.approx(row["supervised"] + 0.3 * row["entropy"], rel=1e-5)


def test_weight_decay_is_on_the_first_layer_only(graph: Graph) -> None:
    model = loop.build_model(quick(), graph.num_features, graph.num_classes)
    groups = loop.make_optimizer(model, quick(weight_decay=0.25)).groups
    assert [(weight, len(parameters)) for parameters, weight in groups] == [(0.25, 1), (0, 1)]
    assert groups[0][0][0] is model.projection()


def test_last_and_best_epoch(graph: Graph) -> None:
    last = train(graph, quick("gcn", epochs=40), 0)
    best = train(graph, quick("gcn", epochs=40, select="best"), 0)
    values = [row["val_accuracy"] for row in best.metrics]
    assert best.selected["val"] == max(values)
    assert best.selected["epoch"] == 1 + values.index(max(values))  # the first of equals
    assert last.selected == last.last
    assert last.selected["epoch"] == 40
    model = loop.build_model(quick("gcn"), graph.num_features, graph.num_classes)
    model.load_state_dict(best.weights)
    predicted = loop.predict(model, graph).argmax(1)
    assert loop.accuracy(predicted, graph, graph.val) == best.selected["val"]
    assert loop.accuracy(predicted, graph, graph.test) == best.selected["test"]


def test_early_stopping(graph: Graph) -> None:
    trained = train(graph, quick("gcn", epochs=500, patience=5), 0)
    assert len(trained.metrics) < 500
    assert trained.last["epoch"] == trained.best["epoch"] + 5


def test_a_graph_without_validation_nodes(graph: Graph) -> None:
    empty = graph.val[:0]
    bare = Graph(**{**{f: getattr(graph, f) for f in graph.__dataclass_fields__}, "val": empty})
    trained = train(bare, quick("gcn"), 0)
    assert trained.last["val"] is None
    assert math.isnan(trained.metrics[-1]["val_accuracy"])
    for settings in (quick("gcn", select="best"), quick("gcn", patience=3)):
        with pytest.raises(SettingsError, match="needs validation nodes"):
            train(bare, settings, 0)


def test_a_loss_that_is_not_finite_stops_the_run(graph: Graph) -> None:
    with pytest.raises(TrainingError, match="not a finite number in epoch"):
        train(graph, quick("gcn", lr=1e38, epochs=50), 0)


class _Killed(Exception):
    pass


@pytest.mark.parametrize("method", ["gcn", "sbvat", "obvat"])
@pytest.mark.parametrize("extra", [{"keep_moments": True}, {"search": "fast", "select": "best"}])
def test_resumed_is_bit_identical(graph: Graph, tmp_path: Path, method: str, extra: dict[str, Any]) -> None:
    settings = quick(method, epochs=21, **extra)
    whole = train(graph, settings, 3)
    path = tmp_path / "checkpoint.safetensors"

    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == 14:
            raise _Killed

    with pytest.raises(_Killed):
        train(graph, settings, 3, checkpoint=path, checkpoint_every=5, on_epoch=stop)
    resumed_from: list[float] = []
    resumed = train(
        graph, settings, 3, checkpoint=path, resume=True, on_epoch=lambda r: resumed_from.append(r["epoch"])
    )
    assert resumed_from[0] == 11
    assert without_times(resumed.metrics) == without_times(whole.metrics)
    assert all(torch.equal(resumed.weights[name], whole.weights[name]) for name in whole.weights)
    assert resumed.best == whole.best


def test_an_interrupt_saves_a_checkpoint(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"

    def interrupt(row: dict[str, float]) -> None:
        if row["epoch"] == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(graph, quick(), 0, checkpoint=path, on_epoch=interrupt)
    seen: list[float] = []
    train(graph, quick(), 0, checkpoint=path, resume=True, on_epoch=lambda row: seen.append(row["epoch"]))
    assert seen[0] == 8


def test_checkpoints_of_other_runs_are_refused(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    train(graph, quick(epochs=2), 0, checkpoint=path, checkpoint_every=1)
    other = synthetic_graph(nodes=150, edges=450, features=60, classes=3, train_per_class=5, seed=2)
    for where, settings, seed, message in [
        (graph, quick(epochs=3), 0, "another settings"),
        (graph, quick(epochs=2), 1, "another seed"),
        (other, quick(epochs=2), 0, "another graph"),
    ]:
        with pytest.raises(TrainingError, match=message):
            train(where, settings, seed, checkpoint=path, resume=True)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(TrainingError, match="cannot be read"):
        train(graph, quick(epochs=2), 0, checkpoint=path, resume=True)
