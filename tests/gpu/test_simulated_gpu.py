"""What trains or reads a model runs on a simulated GPU, with the bits of the CPU and few transfers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bvat
from bvat.audit import audit
from bvat.audit.result import MEASURED
from bvat.bench import measure
from bvat.engine.cpu import choose_device
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models.table import MODELS
from bvat.parts.part_graph import PartGraph
from bvat.perturb.methods import METHODS
from bvat.training.loop import run_epoch
from bvat.training.state import restore_model, start_training
from cli_helpers import bvat as command
from graph_helpers import random_graph
from simulated_device import host, simulated_device

LOGGED = 7
"""Transfers of numbers per epoch: those of the loss in one, three accuracies, the validation loss, the
largest class, and how many nodes were regularised."""
FIELDS = {"up": 6, "down": LOGGED + 4}
"""For S-BVAT, whose disjoint fields are chosen on the CPU: candidates come down, the fields go up."""
HERE = torch.ones(3)


@pytest.fixture(scope="module")
def graphs() -> dict[str, Graph]:
    """The engine is the one of a CPU: a kernel of numba that is tried on the device fails."""
    return {kind: random_graph(dense=kind == "dense").with_engine("compiled") for kind in ("sparse", "dense")}


MISTAKES: list[Callable[[Tensor], Any]] = [
    lambda x: x + HERE,
    lambda x: x @ HERE,
    lambda x: HERE.clone().add_(x),
    lambda x: torch.stack([x.sum(), HERE.sum()]),
    lambda x: torch.where(x > 0, x, HERE),
    lambda x: HERE[x.long()],
    lambda x: x.index_select(0, torch.tensor([0])),
    lambda x: torch.tensor(0.0).add_(x.sum()),
    lambda x: torch.nn.Linear(3, 2)(x),
    lambda x: x.normal_(generator=torch.Generator()),
    lambda x: torch.rand(3, generator=torch.Generator("cuda")),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_operands_of_both_devices_are_refused(mistake: Callable[[Tensor], Any]) -> None:
    with simulated_device():
        x = torch.ones(3).to("cuda")
        with pytest.raises(RuntimeError, match=r"same device|device type for generator"):
            mistake(x)
        for refused in (lambda: x.numpy(), lambda: x.detach().numpy(), lambda: np.asarray(x)):
            with pytest.raises(TypeError, match="cuda:0"):
                refused()
        with pytest.raises(AssertionError, match="pickled"):
            pickle.dumps(x)


def test_what_torch_allows_is_allowed_and_counted() -> None:
    with simulated_device() as traffic:
        x = torch.ones(3, requires_grad=True)
        y = x.to("cuda")  # up
        ((y * torch.tensor(2.0)).square().sum() / 3).backward()  # the gradient comes down
        assert x.grad is not None
        assert x.grad.tolist() == pytest.approx([8 / 3] * 3)
        z = torch.zeros(3, device="cuda")
        assert (z.device, z.is_cuda, z.is_cpu) == (torch.device("cuda", 0), True, False)
        z.copy_(torch.ones(3))  # up
        assert bool(z.any())  # down
        assert (
            z[torch.tensor([True, False, True])].numel() == 2
        )  # the mask goes up, and its result is waited for
        assert z.cpu().is_cpu  # down
        assert traffic == {"up": 3, "down": 3, "wait": 1}


class WithConstant(nn.Module):
    """A module of a user that forgot to register a tensor as a buffer."""

    def __init__(self, in_features: int, classes: int, *, registered: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, classes)
        if registered:
            self.register_buffer("scale", torch.ones(classes))
        else:
            self.scale = torch.ones(classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(x) * self.scale
        return logits


def test_a_planted_mistake_in_a_module_is_found(graphs: dict[str, Graph]) -> None:
    with simulated_device():
        graph = graphs["dense"].to("cuda")
        x = graph.features.to_dense()
        for registered in (True, False):
            module = WithConstant(graph.num_features, graph.num_classes, registered=registered).to("cuda")
            regulariser = bvat.VAT(generator=torch.Generator("cuda").manual_seed(0))
            if registered:
                assert regulariser(module, x, module(x)).loss.is_cuda
            else:
                with pytest.raises(RuntimeError, match="same device"):
                    module(x)


def test_the_first_nodes_of_a_batch_cost_no_transfer(graphs: dict[str, Graph]) -> None:
    """A number stays on the CPU, and what it stands for is made on the GPU."""
    with simulated_device() as traffic:
        graph = graphs["dense"].to("cuda")
        module = nn.Linear(graph.num_features, graph.num_classes).to("cuda")
        x, regulariser = graph.features.to_dense(), bvat.VAT(generator=torch.Generator("cuda").manual_seed(0))
        counts = []
        for nodes in (None, None, 20):  # the first call inspects the module
            before = dict(traffic)
            assert regulariser(module, x, module(x), nodes=nodes).loss.is_cuda
            counts.append({name: traffic[name] - before[name] for name in traffic})
    assert counts[2] == counts[1]


def settings_of(method: str, model: str = "gcn") -> bvat.Settings:
    width = {} if model == "sgc" else {"hidden": 8}
    return bvat.preset("", method, model=model, epochs=4, pretrain=2, ramp=0, **width)


ALL = [(method, "gcn") for method in METHODS]
ALL += [(method, model) for model in MODELS if model != "gcn" for method in ("vat", "sbvat")]


DENSE = [(method, "gcn") for method in METHODS] + [("vat", "gat"), ("vat", "random-propagation")]
"""What reads features in a way of its own: other models read dense ones as a GCN does."""


@pytest.mark.parametrize(
    ("method", "model", "kind"),
    [(*pair, kind) for kind, pairs in (("sparse", ALL), ("dense", DENSE)) for pair in pairs],
)
def test_training_gives_the_bits_of_the_cpu(
    method: str, model: str, kind: str, graphs: dict[str, Graph]
) -> None:
    settings = settings_of(method, model)
    with simulated_device():
        found = bvat.train(graphs[kind].to("cuda"), settings)
    expected = bvat.train(graphs[kind].with_engine("tensor"), settings)
    assert found.selected == expected.selected
    for name, tensor in expected.weights.items():
        assert found.weights[name].device.type == "cuda"
        np.testing.assert_array_equal(host(found.weights[name]), tensor.numpy(), err_msg=name)


@pytest.mark.parametrize(("method", "model"), ALL)
def test_an_epoch_transfers_what_is_logged(method: str, model: str, graphs: dict[str, Graph]) -> None:
    with simulated_device() as traffic:
        state = start_training(graphs["sparse"].to("cuda"), settings_of(method, model))
        run_epoch(state)  # what is computed once and kept
        for _ in range(2):
            before = traffic.copy()
            run_epoch(state)
            spent = traffic.since(before)
            most = FIELDS if method == "sbvat" else {"up": 0, "down": LOGGED}
            assert spent["up"] <= most["up"]
            assert spent["down"] <= most["down"]
            assert method == "sbvat" or spent["wait"] <= 1  # for how many nodes each class is predicted


@pytest.mark.parametrize("clip", [1e-3, 1e3])
def test_clipping_does_not_wait(clip: float, graphs: dict[str, Graph]) -> None:
    settings = bvat.preset("", "none", hidden=8, epochs=3, clip=clip)
    with simulated_device() as traffic:
        state = start_training(graphs["sparse"].to("cuda"), settings)
        run_epoch(state)
        before = traffic.copy()
        run_epoch(state)
        assert traffic.since(before)["down"] <= LOGGED
        found = bvat.train(graphs["sparse"].to("cuda"), settings).weights
    for name, tensor in bvat.train(graphs["sparse"].with_engine("tensor"), settings).weights.items():
        np.testing.assert_array_equal(host(found[name]), tensor.numpy())


PROVED = ("gcn", "sgc", "appnp", "random-propagation", "mlp")


@pytest.mark.slow
@pytest.mark.parametrize("model", list(MODELS))
def test_audits_and_certificates(model: str, graphs: dict[str, Graph]) -> None:
    graph, settings = graphs["sparse"].with_engine("tensor"), settings_of("none", model)
    weights = bvat.train(graph, settings).weights
    found = {}
    for device in ("cpu", "cuda"):
        with simulated_device():
            network = restore_model(settings, graph.num_features, graph.num_classes, weights).to(device)
            found_here = audit(network, graph.to(device), nodes=torch.arange(3), certify=model in PROVED)
            found[device] = {name: host(getattr(found_here, name)) for name in MEASURED}
    for name in MEASURED:
        np.testing.assert_allclose(found["cuda"][name], found["cpu"][name], rtol=1e-4, err_msg=name)


def test_an_audit_of_a_module(graphs: dict[str, Graph]) -> None:
    with simulated_device():
        data = graphs["sparse"].to("cuda").as_data
        module = WithConstant(data.x.shape[1], 3, registered=True).to("cuda")
        assert audit(bvat.wrap(module, depth=0), data.x, nodes=torch.arange(4)).smallest.shape == (4,)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["vat", "lp", "auto"])
def test_the_estimator(method: str, small: Graph) -> None:
    chosen = {"effort": 1} if method == "auto" else {"epochs": 4, "hidden": 8} if method == "vat" else {}
    expected = bvat.NodeClassifier(method, device="cpu", **chosen).fit(small)
    with simulated_device():
        given = small.to("cuda")
        for graph in (small, given):
            found = bvat.NodeClassifier(method, **chosen).fit(graph)  # a GPU is chosen where there is one
            np.testing.assert_allclose(found.predict_proba(graph), expected.predict_proba(small), atol=1e-6)
            assert found.score(graph) == expected.score(small)
        assert found.predict_set(given).shape == (120, 3)
        known = given.labels[given.train]
        unknown = torch.full_like(given.labels, -1).index_copy(0, given.train, known)
        unlabelled = replace(given, labels=unknown, val=given.val[:0], test=given.test[:0])
        assert len(found.suggest(3, unlabelled)["id"]) == 3
        assert len(found.review()["id"])
        if method == "vat":
            found.explain(5)


@pytest.mark.parametrize("method", ["lp", pytest.param("manireg", marks=pytest.mark.slow)])
def test_baselines_are_fitted_on_the_cpu(method: str, small: Graph) -> None:
    with simulated_device():
        trained = bvat.train(small.to("cuda"), bvat.preset("", method))
    assert all(tensor.is_cpu for tensor in trained.weights.values())


@pytest.mark.slow
def test_cross_validation(small: Graph) -> None:
    blind = replace(small, val=small.val[:0])
    chosen = {"epochs": 4, "hidden": 8, "pretrain": 0}
    expected = bvat.NodeClassifier("none", device="cpu", **chosen).fit(blind).predict_proba(blind)
    with simulated_device():
        found = bvat.NodeClassifier("none", **chosen).fit(blind.to("cuda")).predict_proba(blind)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.slow
def test_commands(small_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    options = ["--method", "vat", "--epochs", "12", "--hidden", "8", "--jobs", "1", "--out", out]
    with simulated_device():
        assert command(["train", str(small_file), *options, "--device", "cuda"], capsys)[0] == 0
        assert command(["train", str(small_file), *options, "--device", "cuda", "--resume"], capsys)[0] == 0
        assert command(["predict", out, "--out", str(tmp_path / "p.csv")], capsys)[0] == 0
        assert command(["audit", out, "--nodes", "4", "--out", str(tmp_path / "a.csv")], capsys)[0] == 0


def test_a_run_that_was_interrupted_continues_there(small: Graph, tmp_path: Path) -> None:
    class Stop(bvat.Callback):
        def on_epoch(self, state: Any, row: dict[str, float]) -> None:
            if state.epoch == 7:
                raise RuntimeError("switched off")

    settings, kept = settings_of("vat"), {"checkpoint": tmp_path / "c", "checkpoint_every": 2}
    settings = replace(settings, epochs=10)
    with simulated_device():
        graph = small.to("cuda")
        with pytest.raises(RuntimeError, match="switched off"):
            bvat.train(graph, settings, callbacks=[Stop()], **kept)
        resumed = bvat.train(graph, settings, resume=True, **kept)
        whole = bvat.train(graph, settings)
    for name, tensor in whole.weights.items():
        np.testing.assert_array_equal(host(resumed.weights[name]), host(tensor))


def test_ranks_are_refused_there() -> None:
    with pytest.raises(SettingsError, match="nccl is untested"):
        PartGraph.to(object.__new__(PartGraph), "cuda")


def test_bench_names_the_device(small_file: Path) -> None:
    budget = measure.Budget(warmup=1, rounds=1, seconds=0.0, min_rounds=1)
    with simulated_device():
        found = measure.run_bench([str(small_file)], budget, lambda text: None, ("gcn", "vat"), "cuda")
    assert found["machine"]["device"] == "simulated device"


def test_one_rule_for_the_device() -> None:
    assert [choose_device(name) for name in (None, "auto", "cpu")] == ["cpu"] * 3
    with simulated_device():
        assert [choose_device(name) for name in (None, "auto", "cuda")] == ["cuda"] * 3
        assert choose_device("cpu") == "cpu"
    with pytest.raises(SettingsError, match="no CUDA device"):
        choose_device("cuda")
