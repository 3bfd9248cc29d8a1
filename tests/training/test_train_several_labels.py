"""Training on several labels per node: it learns, resumes bit for bit, and refuses what needs one class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score
from torch import Tensor, nn

import bvat
from bvat.errors import SettingsError
from bvat.models.own import OwnModule
from bvat.perturb import KL, Bernoulli
from bvat.perturb.methods import METHODS
from bvat.training.callbacks import BestEpoch
from bvat.training.metrics import all_metrics
from bvat.training.statistics import f1_scores, macro_f1, micro_f1
from own_models import Net, yes_or_no
from several_labels import songs
from training_helpers import killed_and_resumed, same

SHORT: dict[str, Any] = {"epochs": 30, "pretrain": 15, "ramp": 5, "margin": 0.0, "patience": 0, "lr": 0.05}
SAMPLED = {"grand"}  # compares passes by their softmax


@pytest.fixture(scope="module")
def graph() -> bvat.Graph:
    return songs()


def test_the_bernoulli_divergence_is_kl_of_as_many_problems_of_two_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    clean, other = torch.randn(2, 20, 4, generator=generator, dtype=torch.float64)
    value, gradient = Bernoulli().value_and_gradient(Bernoulli().predict(clean), other)
    two = [torch.stack([torch.zeros_like(one), one], 2).reshape(-1, 2) for one in (clean, other)]
    expected, slope = KL().value_and_gradient(KL().predict(two[0]), two[1])
    torch.testing.assert_close(value, expected.view(20, 4).sum(1))
    torch.testing.assert_close(gradient, slope[:, 1].view(20, 4))


@pytest.mark.parametrize("method", sorted(METHODS.keys() - SAMPLED))
def test_every_method_learns_them(graph: bvat.Graph, method: str) -> None:
    few = {"count": 5} if method == "sbvat" else {}
    trained = bvat.train(graph, bvat.preset("", method, **SHORT, **few))
    everything = micro_f1(torch.ones_like(graph.labels[graph.test]), graph.labels[graph.test])
    assert trained.f1["test"]["micro"] > 75 > 20 + everything
    assert trained.metrics[-1]["r_vadv"] > 0 or method == "none"
    assert trained.selected["epoch"] == trained.best["epoch"]


def test_scores_are_those_of_scikit_learn(graph: bvat.Graph) -> None:
    trained = bvat.train(graph, bvat.preset("", "none", epochs=12, pretrain=0, patience=0))
    model = bvat.GCN(graph.num_features, 4, hidden=64)
    model.load_state_dict(trained.weights)
    logits = bvat.predict(model, graph)
    p, y = torch.sigmoid(logits[graph.test].double()).numpy(), graph.labels[graph.test].numpy()
    for average in ("micro", "macro"):
        expected = 100 * f1_score(y, p > 0.5, average=average)
        assert trained.f1["test"][average] == pytest.approx(expected)
        assert all_metrics(p, y)[f"{average}_f1"] == pytest.approx(expected)
    exact = 100 * float(((p > 0.5) == y).all(1).mean())
    assert trained.selected["test"] == pytest.approx(exact) == all_metrics(p, y)["accuracy"]
    bce = F.binary_cross_entropy_with_logits(logits[graph.test], graph.labels[graph.test].float())
    assert all_metrics(p, y)["log_loss"] == pytest.approx(float(bce), rel=1e-5)


def test_labels_that_never_occur_do_not_count() -> None:
    labels, predicted = torch.tensor([[1, 0, 0], [1, 1, 0]]), torch.tensor([[1, 0, 0], [0, 1, 0]])
    scores = f1_scores(predicted, labels, 3)
    assert scores == pytest.approx([200 / 3, 100, None])
    assert macro_f1(scores) == pytest.approx(250 / 3)
    assert micro_f1(predicted, labels) == pytest.approx(80)
    found = all_metrics(predicted.numpy().astype(float), labels.numpy())
    assert found["macro_f1"] == pytest.approx(250 / 3)
    assert micro_f1(0 * labels, 0 * labels) == 100


def test_micro_f1_chooses_the_epoch() -> None:
    rows = [{"val_accuracy": 90.0, "val_micro_f1": 50.0}, {"val_accuracy": 10.0, "val_micro_f1": 60.0}]

    class State:
        epoch = 0
        evaluated = nn.Linear(1, 1)

    best, state = BestEpoch("best"), State()
    for state.epoch, row in enumerate(rows, 1):
        best.on_epoch(state, {**row, "val_loss": 1.0})  # type: ignore[arg-type]
    assert best.epoch == 2


def test_killed_and_resumed_equals_uninterrupted(graph: bvat.Graph, tmp_path: Path) -> None:
    settings = bvat.preset("", "obvat", **SHORT)
    whole = bvat.train(graph, settings)
    assert whole.metrics[-1]["r_vadv"] > 0
    for at in (8, 25):
        assert same(whole, killed_and_resumed(graph, settings, tmp_path / str(at), at, 3))


def test_a_module_of_your_own_has_one_logit_per_label(graph: bvat.Graph) -> None:
    settings = bvat.preset("", "vat", model=Net, **SHORT)
    assert bvat.train(graph, settings).f1["test"]["micro"] > 75
    two = bvat.Graph.build(
        graph.features, graph.adjacency.to_scipy(), graph.labels[:, :2], train=graph.train, val=graph.val
    )
    with pytest.raises(SettingsError, match="returns 1 logits per node, but there are 2 classes or labels"):
        bvat.train(two, settings.replace(model=yes_or_no))


def test_own_loops_get_the_right_divergence(graph: bvat.Graph) -> None:
    """A regulariser asks the graph; FLAG reads its labels, and those of torch_geometric's Data."""
    model = bvat.GCN(graph.num_features, 4, generator=torch.Generator().manual_seed(0)).eval()
    logits = model(graph)
    found = bvat.VAT(generator=0)(model, graph, logits)
    same = bvat.VAT(generator=0, divergence="bernoulli")(model, graph, logits)
    assert found.r_vadv == same.r_vadv > 0
    with pytest.raises(SettingsError, match="GRAND needs one class per node"):
        bvat.GRAND(samples=2, generator=0)(model, graph, logits)

    class Data:
        x, edge_index = graph.as_data.x, graph.as_data.edge_index
        y = graph.labels.float()
        train_mask = torch.zeros(graph.num_nodes, dtype=torch.bool).index_fill_(0, graph.train, True)

    module = Net(graph.num_features, 4).eval()

    def loss(logits: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(logits[graph.train], Data.y[graph.train]) * 4

    logits = module(Data.x, Data.edge_index)
    tiny = bvat.FLAG(steps=2, step_size=1e-9, generator=0)(module, Data, logits)
    given = torch.autograd.grad(tiny.loss + loss(logits), list(module.parameters()))
    expected = torch.autograd.grad(loss(module(Data.x, Data.edge_index)), list(module.parameters()))
    for one, other in zip(given, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_probabilities_of_several_labels_are_noticed(graph: bvat.Graph) -> None:
    class Sigmoid(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).sigmoid()

    module = bvat.wrap(Sigmoid(graph.num_features, graph.num_classes), factored=False)
    with pytest.warns(UserWarning, match="remove the sigmoid of the model"):
        bvat.Consistency(generator=0)(module, graph, module.module(graph.features.to_dense()))


REFUSED = [
    ({"method": "auto"}, "method auto needs one class per node.*use vat, or none"),
    ({"method": "lp"}, "method lp needs one class per node"),
    ({"method": "grand"}, "samples above 1, GRAND's agreement of several passes, needs one class"),
    ({"method": "vat", "divergence": "squared"}, "divergence squared needs one class per node"),
    ({"method": "vat", "class_weights": "balanced"}, "class_weights needs one class per node"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=[str(each) for each, _ in REFUSED])
def test_what_needs_one_class_is_refused(graph: bvat.Graph, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        bvat.train(graph, bvat.preset("", **settings))


def test_the_metric_of_one_class_is_as_before(small: bvat.Graph) -> None:
    trained = bvat.train(small, bvat.preset("", "none", epochs=3, pretrain=0, patience=0))
    assert all(row["val_micro_f1"] != row["val_micro_f1"] for row in trained.metrics)  # NaN
    assert trained.f1["test"].keys() == {"macro", "classes"}
    assert OwnModule(Net(3, 2), classes=2).independent is False
