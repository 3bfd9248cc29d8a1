"""The training loop: what it computes, that it is deterministic, and that it can be resumed."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bvat.data import synthetic_graph
from bvat.data.tensors import read_safetensors, write_safetensors
from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.perturb import entropy
from bvat.perturb.methods import METHODS
from bvat.training import loop
from bvat.training.callbacks import BestEpoch, Callback
from bvat.training.checkpoint import Checkpoint
from bvat.training.loop import train
from bvat.training.optimizer import learning_rate, make_optimizer
from bvat.training.settings import Settings, preset
from bvat.training.state import TrainState, restore_model, start_training
from bvat.training.trained import accuracy
from training_helpers import killed_and_resumed, same, without_times


@pytest.fixture(scope="module")
def graph() -> Graph:
    drawn = synthetic_graph(nodes=150, edges=450, features=60, classes=3, train_per_class=5, seed=1)
    return drawn.with_engine("tensor")


def quick(method: str = "obvat", **overrides: Any) -> Settings:
    """One phase, with the settings of all methods in the paper; test_phases.py has the other kind."""
    return preset("cora", method, **{"epochs": 12, "hidden": 8, **overrides})


MASKS = ["fresh", "pair", "reuse", "shared"]


@pytest.mark.parametrize(
    ("method", "masks"), [("none", ""), *((m, masks) for m in METHODS if m != "none" for masks in MASKS)]
)
def test_same_seed_same_result(graph: Graph, method: str, masks: str) -> None:
    settings = quick(method, epochs=2, **({"masks": masks} if masks else {}))
    first, second, other = (train(graph, settings, seed) for seed in (5, 5, 6))
    assert same(first, second)
    assert without_times(first) != without_times(other)


@pytest.mark.parametrize("method", METHODS)
def test_training_learns(graph: Graph, method: str) -> None:
    # the long perturbations of Cora's preset keep VAT from fitting so small a graph for a while
    trained = train(graph, quick(method, epochs=180 if method == "vat" else 80), 0)
    assert trained.metrics[-1]["train_accuracy"] > 90
    assert trained.last["test"] > 60  # three classes: a third by chance
    used = method != "none"
    assert (trained.metrics[-1]["r_vadv"] != 0) == used  # FLAG's is a difference
    assert (trained.metrics[-1]["nodes"] > 0) == used


def test_the_loss_is_equation_6(graph: Graph) -> None:
    settings = quick("consistency", alpha=0.3, beta=2.0, dropout=0.0)
    row = train(graph, settings.replace(epochs=1), 0).metrics[0]
    model = start_training(graph, settings, 0).model
    logits = model(graph).detach()
    supervised = F.cross_entropy(logits[graph.train], graph.labels[graph.train])
    assert row["supervised"] == pytest.approx(float(supervised), rel=1e-5)
    assert row["entropy"] == pytest.approx(float(entropy(logits)), rel=1e-5)
    assert row["r_vadv"] == pytest.approx(0, abs=1e-6)  # no dropout: two passes agree
    assert row["loss"] == pytest.approx(row["supervised"] + 0.3 * row["entropy"], rel=1e-5)


def test_weight_decay_and_rates_of_layers(graph: Graph) -> None:
    model = start_training(graph, quick(), 0).model
    first, rest = make_optimizer(model, quick(weight_decay=0.25).training).groups
    assert (len(first[0]), first[1], len(rest[0]), rest[1]) == (1, 0.25, 1, 0)
    assert first[0][0] is model.projection()
    optimizer = make_optimizer(model, quick(decay="all", weight_decay=0.1, first_lr=0.2).training)
    assert [(weight, factor) for _, weight, factor in optimizer.groups] == [(0.1, 0.2), (0.1, 1.0)]
    before = [p.detach().clone() for p in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()  # Adam's first step has the length of the rate
    moved = [(p.detach() - old).abs().max().item() for p, old in zip(model.parameters(), before, strict=True)]
    assert moved == pytest.approx([0.2 * optimizer.lr, optimizer.lr], rel=1e-3)


def test_the_cosine_schedule_falls_to_zero() -> None:
    cosine = quick(schedule="cosine", lr=0.02, epochs=10)
    rates = [learning_rate(cosine.training, epoch) for epoch in range(10)]
    assert rates[0] == 0.02
    assert rates[5] == pytest.approx(0.01)
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.001
    assert learning_rate(quick(lr=0.02).training, 7) == 0.02


def test_averaged_weights_are_what_is_evaluated_and_kept(graph: Graph) -> None:
    settings = quick("none", epochs=5, average=0.8)
    weights: list[torch.Tensor] = []

    class Keep(Callback):
        def on_start(self, state: TrainState) -> None:
            weights.append(state.model.weights[1].detach().clone())

        def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
            weights.append(state.model.weights[1].detach().clone())

    trained = train(graph, settings, 0, callbacks=[Keep()])
    expected = weights[0]
    for value in weights[1:]:
        expected = 0.8 * expected + 0.2 * value
    torch.testing.assert_close(trained.weights["weights.1"], expected)
    model = restore_model(settings, graph.num_features, graph.num_classes, trained.weights)
    assert trained.last["val"] == accuracy(model(graph), graph, graph.val)


def test_a_ramp_needs_no_first_phase(graph: Graph) -> None:
    seen: list[tuple[float, float]] = []

    class Watch(Callback):
        def on_backward(self, state: TrainState) -> None:
            seen.append((state.method.beta, state.method.agreement))

    train(graph, quick("vat", epochs=4, ramp=4, beta=2.0, samples=2, agreement=1.0), 0, callbacks=[Watch()])
    assert seen == [(0.5, 0.25), (1.0, 0.5), (1.5, 0.75), (2.0, 1.0)]


def test_last_and_best_epoch(graph: Graph) -> None:
    last = train(graph, quick("none", epochs=40), 0)
    best = train(graph, quick("none", epochs=40, select="best"), 0)
    values = [row["val_accuracy"] for row in best.metrics]
    assert best.selected["val"] == max(values)
    assert best.selected["epoch"] == 1 + values.index(max(values))  # the first of equals
    assert last.selected == last.last
    assert last.selected["epoch"] == 40
    model = restore_model(quick("none"), graph.num_features, graph.num_classes, best.weights)
    logits = loop.predict(model, graph)
    assert accuracy(logits, graph, graph.val) == best.selected["val"]
    assert accuracy(logits, graph, graph.test) == best.selected["test"]


def test_a_graph_without_validation_nodes(graph: Graph) -> None:
    empty = graph.val[:0]
    bare = Graph(**{**{f: getattr(graph, f) for f in graph.__dataclass_fields__}, "val": empty})
    trained = train(bare, quick("none"), 0)
    assert trained.last["val"] is None
    assert math.isnan(trained.metrics[-1]["val_accuracy"])
    for settings in (quick("none", select="best"), quick("none", patience=3)):
        with pytest.raises(SettingsError, match="needs validation nodes"):
            train(bare, settings, 0)


def test_a_loss_that_is_not_finite_stops_the_run(graph: Graph) -> None:
    with pytest.raises(TrainingError, match="not a finite number in epoch"):
        train(graph, quick("none", lr=1e38, epochs=50), 0)


class _Recorder(Callback):
    """Records the hooks, and acts in one of them."""

    def __init__(self, act: Any = lambda: None, hook: str = "on_epoch", epoch: int = 0) -> None:
        self.calls: list[tuple[str, int]] = []
        self.act, self.when = act, (hook, epoch)

    def record(self, hook: str, state: TrainState) -> None:
        self.calls.append((hook, state.epoch))
        if self.when == (hook, state.epoch):
            self.act()

    def on_start(self, state: TrainState) -> None:
        self.record("on_start", state)

    def on_backward(self, state: TrainState) -> None:
        self.record("on_backward", state)

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        assert row is state.metrics[-1]
        self.record("on_epoch", state)

    def on_end(self, state: TrainState) -> None:
        self.record("on_end", state)

    @property
    def epochs(self) -> list[int]:
        return [epoch for hook, epoch in self.calls if hook == "on_epoch"]


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_hooks_are_called_in_order(graph: Graph) -> None:
    seen = _Recorder()
    train(graph, quick("none", epochs=2), 0, callbacks=[seen])
    epochs = [("on_backward", 0), ("on_epoch", 1), ("on_backward", 1), ("on_epoch", 2)]
    assert seen.calls == [("on_start", 0), *epochs, ("on_end", 2)]


def test_a_callback_can_change_gradients(graph: Graph) -> None:
    class Freeze(Callback):
        def on_backward(self, state: TrainState) -> None:
            assert all(parameter.grad is not None for parameter in state.model.parameters())
            state.optimizer.zero_grad()

    trained = train(graph, quick(epochs=2), 4, callbacks=[Freeze()])
    start = start_training(graph, quick(), 4).model.state_dict()
    assert all(torch.equal(trained.weights[name], start[name]) for name in start)


def test_a_callback_can_ramp_the_weights_of_the_loss(graph: Graph) -> None:
    class Ramp(Callback):
        def on_start(self, state: TrainState) -> None:
            state.method.alpha = state.method.beta = 0.0

        def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
            state.method.alpha, state.method.beta = 0.5, 2.0

    first, second = train(graph, quick(epochs=2), 0, callbacks=[Ramp()]).metrics
    assert first["loss"] == first["supervised"]
    expected = second["supervised"] + 0.5 * second["entropy"] + 2 * second["r_vadv"]
    assert second["r_vadv"] > 0
    assert second["loss"] == pytest.approx(expected, rel=1e-6)


class _Counter(Callback):
    def __init__(self) -> None:
        self.count = 0

    def on_epoch(self, state: TrainState, row: dict[str, float]) -> None:
        self.count += 1

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"count": torch.tensor(self.count)}

    def load_state_dict(self, state: Any) -> None:
        self.count = int(state["count"])


def test_the_state_of_callbacks_is_in_the_checkpoint(graph: Graph, tmp_path: Path) -> None:
    path, counter = tmp_path / "checkpoint.safetensors", _Counter()
    killed_and_resumed(graph, quick(), path, 5, 3, counter)
    assert counter.count == 12
    with pytest.raises(TrainingError, match="two callbacks are named '_Counter'"):
        train(graph, quick(), 0, checkpoint=path, checkpoint_every=1, callbacks=[_Counter(), _Counter()])


@pytest.mark.parametrize(
    ("method", "extra"),
    [
        *((m, {"select": rule}) for m in ("none", "sbvat") for rule in ("last", "best")),
        ("obvat", {"keep_moments": True}),
        ("obvat", {"search": "fast", "select": "best"}),
        ("grand", {"model": "random-propagation", "average": 0.9, "batch_norm": True, "select": "loss"}),
        ("vat", {"samples": 2, "schedule": "cosine", "ramp": 15, "first_lr": 0.5, "decay": "all"}),
    ],
)
def test_resumed_is_bit_identical(graph: Graph, tmp_path: Path, method: str, extra: dict[str, Any]) -> None:
    settings = quick(method, epochs=21, **extra)
    seen = _Recorder()
    resumed = killed_and_resumed(graph, settings, tmp_path / "c", 14, 5, seen, seed=3)
    assert seen.calls[seen.calls.index(("on_start", 10)) + 2] == ("on_epoch", 11)
    assert same(resumed, train(graph, settings, 3))


@pytest.mark.parametrize("hook", ["on_backward", "on_epoch"])
def test_ctrl_c_finishes_the_epoch_and_saves_a_checkpoint(graph: Graph, tmp_path: Path, hook: str) -> None:
    path = tmp_path / "checkpoint.safetensors"
    settings = quick(keep_moments=True)
    whole = train(graph, settings, 0)
    epoch = {"on_backward": 6, "on_epoch": 7}[hook]  # in the middle, and at the end, of epoch 7
    before = signal.getsignal(signal.SIGINT)
    pressed = _Recorder(press_ctrl_c, hook, epoch)
    with pytest.raises(KeyboardInterrupt):
        train(graph, settings, 0, checkpoint=path, checkpoint_every=5, callbacks=[pressed])
    assert pressed.calls[-1] == ("on_epoch", 7)
    assert signal.getsignal(signal.SIGINT) is before
    seen = _Recorder()
    resumed = train(graph, settings, 0, checkpoint=path, resume=True, callbacks=[seen])
    assert seen.epochs[0] == 8
    assert same(resumed, whole)


def test_ctrl_c_twice_stops_at_once_and_keeps_the_last_checkpoint(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"

    def twice() -> None:
        press_ctrl_c()
        press_ctrl_c()

    pressed = _Recorder(twice, "on_backward", 6)
    with pytest.raises(KeyboardInterrupt):
        train(graph, quick(), 0, checkpoint=path, checkpoint_every=5, callbacks=[pressed])
    seen = _Recorder()
    train(graph, quick(), 0, checkpoint=path, resume=True, callbacks=[seen])
    assert seen.epochs[0] == 6


def test_checkpoints_of_other_runs_are_refused(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    train(graph, quick(epochs=2), 0, checkpoint=path, checkpoint_every=1)
    other = synthetic_graph(nodes=150, edges=450, features=60, classes=3, train_per_class=5, seed=2)
    for where, settings, seed, message in [
        (graph, quick(epochs=3), 0, "with different settings"),
        (graph, quick(epochs=2), 1, "with a different seed"),
        (other, quick(epochs=2), 0, "with a different graph"),
    ]:
        with pytest.raises(TrainingError, match=message):
            train(where, settings, seed, checkpoint=path, resume=True)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(TrainingError, match="cannot be read"):
        train(graph, quick(epochs=2), 0, checkpoint=path, resume=True)


ODD_CHECKPOINTS: dict[str, dict[str, Any]] = {
    "another shape": {"model.weights.0": torch.zeros(2, 2)},
    "a shape that would be broadcast": {"optimizer.0.first.0": torch.zeros(1)},
    "another type": {"optimizer.0.second.0": torch.zeros(60, 16, dtype=torch.int64)},
    "no generator": {"generator": None},
    "another generator": {"generator": torch.zeros(3)},
    "no moments": {"optimizer.0.first.0": None},
    "a search that kept something else": {"method.count": None},
    "best weights of another model": {"callback.BestEpoch/weights.weights.0": torch.zeros(2)},
    "a best epoch to come": {"callback.BestEpoch/numbers": torch.tensor([999.0, 1, 1, 1, 1])},
    "no best epoch": {"callback.BestEpoch/numbers": torch.tensor([float("inf")])},
    "too few metrics": {"metrics": torch.zeros(1, 13)},
    "no metrics": {"metrics": None},
    "no number of epochs": {"epoch": None},
    "more epochs than metrics": {"epoch": "1" * 30},
    "fewer epochs than metrics": {"epoch": "3"},
    "a negative epoch": {"epoch": "-5"},
    "columns that are no list": {"columns": "7"},
    "other columns": {"columns": json.dumps([f"c{k}" for k in range(13)])},
    "stop": {"stop": "[]"},
    "events": {"events": "3"},
    "nested": {"events": "[" * 10_000},
}


KEPT = quick("obvat", keep_moments=True, pretrain=0, select="best")


@pytest.fixture(scope="module")
def checkpoint(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is kept of ``KEPT`` after its last epoch but one."""
    path = tmp_path_factory.mktemp("kept") / "c.safetensors"
    train(graph, KEPT, 0, checkpoint=path, checkpoint_every=KEPT.epochs - 1)
    return path


@pytest.mark.parametrize("how", ODD_CHECKPOINTS)
def test_a_checkpoint_of_another_state_is_refused_before_anything_changes(
    how: str, graph: Graph, checkpoint: Path, tmp_path: Path
) -> None:
    path = tmp_path / "c.safetensors"
    about, tensors = read_safetensors(checkpoint)
    for name, value in ODD_CHECKPOINTS[how].items():
        changed: dict[str, Any] = about if name in about else tensors  # type: ignore[assignment]
        changed[name] = value
        if value is None:
            del changed[name]
    write_safetensors(path, tensors, about)
    fresh = start_training(graph, KEPT, 0)
    best = BestEpoch()
    before = {name: tensor.clone() for name, tensor in fresh.model.state_dict().items()}
    with pytest.raises(TrainingError, match=r"does not hold a state of this run .* start this seed again"):
        Checkpoint(path, [best]).load(fresh)
    assert (fresh.epoch, fresh.metrics, fresh.events, best.epoch) == (0, [], [], 0)
    assert all(torch.equal(before[name], tensor) for name, tensor in fresh.model.state_dict().items())


@pytest.mark.parametrize("select", ["last", "best"])
def test_weights_that_are_not_finite_are_a_failure(graph: Graph, select: str) -> None:
    """The loss is taken before the step, so that a single huge step does not show in it."""
    with pytest.raises(TrainingError, match=r"the weights of epoch 1 are not finite.* lower lr"):
        train(graph, quick("none", lr=1e38, epochs=1, select=select), 0)
