"""What modules and functions are called with, what their logits mean, and which nodes are regularised."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bvat
from bvat.audit import audit, smallest_perturbation
from bvat.errors import GraphError, SettingsError
from bvat.models.table import MODELS
from bvat.perturb.flag import FLAG
from bvat.training.settings import preset
from bvat.training.state import build_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what torch_geometric says while it is imported is not ours
    pyg = pytest.importorskip("torch_geometric.nn")
    from torch_geometric.data import Data, HeteroData

FEATURES, CLASSES = 30, 3
METHODS: list[Callable[..., Any]] = [bvat.VAT, bvat.OBVAT, bvat.SBVAT, bvat.Random, bvat.Consistency]


@pytest.fixture(autouse=True)
def _fixed_seed() -> Iterator[None]:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="module")
def graph() -> bvat.Graph:
    return bvat.synthetic_graph(80, 160, FEATURES, CLASSES, seed=1).with_engine("tensor")


@pytest.fixture(scope="module")
def data(graph: bvat.Graph) -> Any:
    edge_index = torch.stack([graph.adjacency.col.long(), graph.adjacency.rows])
    weight = torch.rand(edge_index.shape[1], generator=torch.Generator().manual_seed(5)) * 3 + 0.01
    mask = torch.zeros(80, dtype=torch.bool).index_fill(0, graph.train, True)
    return Data(
        x=graph.features.to_dense(),
        edge_index=edge_index,
        edge_weight=weight,
        y=graph.labels,
        train_mask=mask,
    )


class Edges(nn.Module):
    """A module that needs attributes of the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.edges = nn.Linear(FEATURES, CLASSES), nn.Linear(2, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        h = self.linear(x)
        return h.index_add(0, edge_index[1], self.edges(edge_attr) * h[edge_index[0]])


class Sum(nn.Module):
    """Calls a torch_geometric layer with whatever it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = pyg.GCN(FEATURES, 8, 2, CLASSES)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = self.inner(*args, **kwargs)
        return out


def own_pass(model: nn.Module, data: Any) -> Tensor:
    """The clean pass as a user writes it."""
    logits: Tensor = model(data.x, data.edge_index, data.edge_weight)
    return logits


@pytest.mark.parametrize("name", ["gcn", "sequential", "appnp", "sage"])
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_edge_weights_reach_perturbed_passes(data: Any, name: str, mode: str) -> None:
    """R = 0 without dropout gives loss 0; before, KL between the weighted and the unweighted model."""

    class Spread(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.spread = nn.Linear(FEATURES, CLASSES), pyg.APPNP(K=3, alpha=0.1)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            out: Tensor = self.spread(self.linear(x), edge_index, edge_weight)
            return out

    model = {
        "gcn": lambda: pyg.GCN(FEATURES, 8, 2, CLASSES),
        "sequential": lambda: pyg.Sequential(
            "x, edge_index, edge_weight",
            [(pyg.GCNConv(FEATURES, CLASSES), "x, edge_index, edge_weight -> x")],
        ),
        "appnp": Spread,
        "sage": lambda: pyg.GraphSAGE(FEATURES, 8, 2, CLASSES),  # takes edge_weight and does not use it
    }[name]()
    model.train(mode == "train")
    logits = own_pass(model, data)
    if name != "sage":
        plain = model(data.x, data.edge_index, torch.ones_like(data.edge_weight))
        assert float((logits - plain).detach().abs().max()) > 1e-3
    assert bvat.Consistency(generator=0)(model, data, logits).r_vadv < 1e-9
    assert bvat.VAT(generator=0)(model, data, logits).r_vadv > 1e-7


def test_weights_of_a_graph_reach_a_module(graph: bvat.Graph, data: Any) -> None:
    half = torch.rand(80, 80, generator=torch.Generator().manual_seed(3))
    dense = graph.adjacency.to_dense() * (half + half.t())
    weighted = bvat.Graph.build(
        graph.features, dense.numpy(), graph.labels, train=graph.train, class_names=graph.class_names
    )
    assert bool((weighted.adjacency.values != 1).any())
    model = pyg.GCN(FEATURES, 8, 2, CLASSES)
    edge_index = torch.stack([weighted.adjacency.col.long(), weighted.adjacency.rows])
    logits = model(weighted.features.to_dense(), edge_index, weighted.adjacency.values)
    assert bvat.Consistency(generator=0)(model, weighted, logits).r_vadv < 1e-9


def test_arguments_can_be_given_by_name(graph: bvat.Graph, data: Any) -> None:
    model = pyg.GCN(FEATURES, 8, 2, CLASSES)
    plain = Data(x=data.x, edge_index=data.edge_index)
    logits = own_pass(model, data)
    vat = bvat.VAT(generator=0)
    assert vat(model, plain, logits, edge_weight=data.edge_weight).r_vadv > 0
    assert bvat.Consistency(generator=0)(model, data, logits, edge_weight=data.edge_weight).r_vadv < 1e-9
    other = model(data.x, data.edge_index)  # data has weights; this call did not use them, which is said
    with pytest.raises(SettingsError, match="does not give the logits"):
        vat(model, data, other)
    assert vat(model, data, other, edge_weight=torch.ones_like(data.edge_weight)).r_vadv > 0
    with pytest.raises(SettingsError, match="GCN takes no argument 'weights'"):
        vat(model, data, logits, weights=1)
    ours = bvat.GCN(FEATURES, CLASSES).eval()
    with pytest.raises(SettingsError, match="GCN reads the graph only"):
        vat(ours, graph, ours(graph), edge_weight=data.edge_weight)


def test_required_arguments_are_named(data: Any) -> None:
    model, attributes = Edges(), torch.rand(data.edge_index.shape[1], 2)
    logits = model(data.x, data.edge_index, attributes)
    with pytest.raises(SettingsError, match="Edges needs 'edge_attr', which the data does not have"):
        bvat.VAT(generator=0)(model, data, logits)
    assert bvat.VAT(generator=0)(model, data, logits, edge_attr=attributes).space == "factored"
    full = Data(x=data.x, edge_index=data.edge_index, edge_attr=attributes)
    assert bvat.Consistency(generator=0)(model, full, logits).r_vadv < 1e-9


def test_a_signature_that_names_nothing_is_said(data: Any) -> None:
    model = Sum()
    with pytest.warns(UserWarning, match="edge_weight of the data is not passed to Sum") as caught:
        bvat.VAT(generator=0)(model, data, model(data.x, data.edge_index))
    assert caught[0].filename == __file__
    logits = own_pass(model, data)
    found = bvat.Consistency(generator=0)(model, data, logits, edge_weight=data.edge_weight)
    assert found.r_vadv < 1e-9


@pytest.mark.parametrize("method", [bvat.VAT, bvat.OBVAT, bvat.Random, bvat.Consistency])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_any_function_of_the_features(data: Any, method: Any, dropout: float) -> None:
    model = pyg.GCN(FEATURES, 8, 2, CLASSES, dropout=dropout, norm="BatchNorm").train()
    logits = own_pass(model, data)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    state = torch.get_rng_state()
    outcome = method(generator=0)(lambda x: model(x, data.edge_index, data.edge_weight), data.x, logits)
    assert outcome.space == "dense"
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(dict(model.named_buffers()), before, rtol=0, atol=0)
    assert (outcome.r_vadv < 1e-9) == (method is bvat.Consistency and not dropout)
    outcome.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_function_equals_its_module(data: Any) -> None:
    model = pyg.GCN(FEATURES, 8, 2, CLASSES).double().eval()
    wide = Data(x=data.x.double(), edge_index=data.edge_index, edge_weight=data.edge_weight.double())
    logits = own_pass(model, wide)
    losses = []
    for called, what in (
        (lambda x: model(x, wide.edge_index, wide.edge_weight), wide.x),
        (bvat.wrap(model, factored=False), wide),
    ):
        losses.append(bvat.VAT(epsilon=0.3, generator=0)(called, what, logits).r_vadv)
    assert losses[0] == losses[1] > 0
    wrapped = bvat.wrap(lambda x: model(x, wide.edge_index, wide.edge_weight), depth=2)
    assert bvat.SBVAT(generator=0)(wrapped, wide, logits).nodes > 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MODELS)
def test_loss_is_zero_without_perturbation_and_dropout(graph: bvat.Graph, name: str, method: Any) -> None:
    """For every model of ours; every method has some way to say R = 0."""
    settings = preset("", "none", model=name)
    model = build_model(settings, FEATURES, CLASSES, torch.Generator().manual_seed(0)).eval()
    zero = {
        bvat.VAT: {"epsilon": 0.0}, bvat.SBVAT: {"epsilon": 0.0}, bvat.Random: {"epsilon": 0.0},
        bvat.OBVAT: {"search": "adam", "steps": 0, "start": 0.0}, bvat.Consistency: {},
    }[method]  # fmt: skip
    assert method(generator=0, **zero)(model, graph, model(graph)).r_vadv < 1e-6


@pytest.mark.parametrize("kind", ["ours", "module"])
def test_other_logits_than_the_models_are_refused(graph: bvat.Graph, data: Any, kind: str) -> None:
    ours, module = bvat.GCN(FEATURES, CLASSES).eval(), pyg.GCN(FEATURES, 8, 2, CLASSES).eval()
    model, inputs = (ours, graph) if kind == "ours" else (module, data)
    logits = ours(graph) if kind == "ours" else own_pass(module, data)
    with torch.no_grad():
        for parameter in model.parameters():  # an optimizer's step in between
            parameter.mul_(1.5)
    with pytest.raises(SettingsError, match="before the weights change"):
        bvat.VAT(generator=0)(model, inputs, logits)
    with pytest.raises(SettingsError, match="a row for each of the 80 nodes"):
        bvat.VAT(generator=0)(model, inputs, logits[:40])


def test_probabilities_are_refused(graph: bvat.Graph, data: Any) -> None:
    class Softmax(nn.Module):
        def __init__(self, log: bool) -> None:
            super().__init__()
            self.linear, self.log = nn.Linear(FEATURES, CLASSES), log

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.linear(x)
            return h.log_softmax(1) if self.log else h.softmax(1)

    model = Softmax(log=False)
    with pytest.raises(SettingsError, match="returns probabilities, not logits"):
        bvat.VAT(generator=0)(model, data, model(data.x, data.edge_index))
    model = Softmax(log=True)
    assert bvat.VAT(generator=0)(model, data, model(data.x, data.edge_index)).r_vadv > 0
    several = pyg.GCN(FEATURES, 8, 2, CLASSES)
    with pytest.warns(UserWarning, match="remove the sigmoid"):
        bvat.Consistency(generator=0, divergence="bernoulli")(
            lambda x: several(x, data.edge_index).sigmoid(),
            data.x,
            several(data.x, data.edge_index).sigmoid(),
        )


@pytest.mark.parametrize("method", METHODS)
def test_one_logit_equals_two_classes(data: Any, method: Any) -> None:
    """The loss of one logit l is that of the logits (0, l); before it was 0."""

    class Binary(nn.Module):
        def __init__(self, two: bool) -> None:
            super().__init__()
            self.two, self.conv = two, pyg.GCNConv(FEATURES, 1)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.conv(x, edge_index)
            return torch.cat([torch.zeros_like(h), h], 1) if self.two else h

    one, two = Binary(two=False).double().eval(), Binary(two=True).double().eval()
    two.load_state_dict(one.state_dict())
    wide = Data(x=data.x.double(), edge_index=data.edge_index)
    losses = [method(generator=0)(model, wide, model(wide.x, wide.edge_index)).r_vadv for model in (one, two)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6, abs=1e-15)
    assert losses[0] > 0 or method is bvat.Consistency


def test_several_independent_labels(data: Any) -> None:
    model = pyg.GCN(FEATURES, 8, 2, CLASSES).double().eval()
    wide = Data(x=data.x.double(), edge_index=data.edge_index)
    logits = model(wide.x, wide.edge_index)
    shifted = logits + 5  # softmax does not see it, sigmoid does

    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return model(x, edge_index) + 5

    def loss(divergence: str, called: nn.Module, of: Tensor) -> float:
        regulariser = bvat.VAT(epsilon=0.1, generator=0, divergence=divergence)
        return float(regulariser(called, wide, of).r_vadv)

    assert loss("kl", model, logits) == pytest.approx(loss("kl", Shifted(), shifted))
    assert loss("bernoulli", Shifted(), shifted) < 0.5 * loss("bernoulli", model, logits)
    with pytest.raises(SettingsError, match="divergence must be kl, squared, bernoulli"):
        bvat.VAT(divergence="hinge")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["ours", "module"])
def test_only_the_nodes_asked_for_are_regularised(
    graph: bvat.Graph, data: Any, kind: str, method: Any
) -> None:
    """The loss is the mean over these nodes: gradients of the other rows of the logits are zero."""
    ours, module = (
        bvat.GCN(FEATURES, CLASSES, dropout=0.5).train(),
        pyg.GCN(FEATURES, 8, 2, CLASSES, dropout=0.5),
    )
    if kind == "ours":
        model, inputs, logits = ours, graph, ours(graph, generator=torch.Generator().manual_seed(0))
    else:
        model, inputs, logits = module, data, own_pass(module, data)
    first, mask = torch.arange(25), torch.arange(80) < 25
    losses = [
        method(generator=3)(model, inputs, logits, nodes=nodes)
        for nodes in (25, first, mask, first.flip(0).tolist())
    ]
    assert len({outcome.r_vadv for outcome in losses}) == 1
    assert losses[0].r_vadv > 0
    assert losses[0].nodes == 25 if method is not bvat.SBVAT else 1 <= losses[0].nodes <= 25
    far = logits.clone()
    far[25:] += 10 * torch.randn_like(far[25:])  # what these nodes predict must not matter
    assert method(generator=3)(model, inputs, far, nodes=25).r_vadv == losses[0].r_vadv
    everything = method(generator=3)(model, inputs, logits, nodes=80).r_vadv
    assert everything == pytest.approx(method(generator=3)(model, inputs, logits).r_vadv, rel=1e-4)
    assert method(generator=3)(model, inputs, logits, nodes=np.int64(25)).r_vadv == losses[0].r_vadv
    for wrong in (0, 81, True, mask[:10], mask & ~mask, torch.tensor([80]), torch.tensor([0.5])):
        with pytest.raises(SettingsError, match="nodes"):
            method(generator=3)(model, inputs, logits, nodes=wrong)


def test_confidence_and_nodes_together(data: Any) -> None:
    model = pyg.GCN(FEATURES, 8, 2, CLASSES, dropout=0.5).train()
    logits = 30 * own_pass(model, data)
    sure = int((logits[:40].softmax(1).amax(1) >= 0.5).sum())
    assert 0 < sure < 40, logits
    assert bvat.Consistency(generator=0, confidence=0.5)(model, data, logits, nodes=40).nodes == sure


def test_flag_on_data_of_torch_geometric(data: Any) -> None:
    model = pyg.GCN(FEATURES, 8, 2, CLASSES).train()
    logits = own_pass(model, data)
    flag = FLAG(generator=0)
    assert flag(model, data, logits).nodes == int(data.train_mask.sum())
    few = flag(model, data, logits, nodes=data.train_mask.nonzero()[:2].flatten())
    assert few.nodes == 2
    few.loss.backward()
    none = flag(model, data, logits, nodes=(~data.train_mask).nonzero().flatten())
    assert (none.nodes, none.r_vadv) == (0, 0.0)
    with pytest.raises(SettingsError, match=r"set data\.y and data\.train_mask"):
        flag(model, Data(x=data.x, edge_index=data.edge_index), logits)


def test_neighbour_loader_and_batch_size(data: Any) -> None:
    """The loop of docs/your-model.md: seed nodes come first in a batch."""
    from torch_geometric.loader import NeighborLoader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sampling without pyg-lib
        try:
            loader = NeighborLoader(data, num_neighbors=[5, 5], batch_size=16, input_nodes=data.train_mask)
            batch = next(iter(loader))
        except ImportError:
            batch = Data(x=data.x, edge_index=data.edge_index, edge_weight=data.edge_weight, batch_size=16)
    model = pyg.GCN(FEATURES, 8, 2, CLASSES, dropout=0.5).train()
    logits = own_pass(model, batch)
    outcome = bvat.VAT(generator=0)(model, batch, logits, nodes=batch.batch_size)
    assert outcome.nodes == batch.batch_size


@pytest.mark.parametrize("wrapped", [False, True])
def test_audit_of_a_module_equals_the_audit_of_ours(graph: bvat.Graph, wrapped: bool) -> None:
    ours, theirs = bvat.GCN(FEATURES, CLASSES, hidden=8), pyg.GCN(FEATURES, 8, 2, CLASSES, bias=False)
    with torch.no_grad():
        for weight, conv in zip(ours.weights, theirs.convs, strict=True):
            weight.copy_(conv.lin.weight.t())
    edge_index = torch.stack([graph.adjacency.col.long(), graph.adjacency.rows])
    plain = Data(x=graph.features.to_dense(), edge_index=edge_index)
    nodes = torch.tensor([5, 0, 40, 17])
    first = audit(ours, graph, nodes=nodes)
    second = audit(bvat.wrap(theirs) if wrapped else theirs, plain, nodes=nodes)
    for name in ("nodes", "predicted", "field_size", "becomes"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    for name in ("confidence", "lds", "smallest", "relative"):
        torch.testing.assert_close(getattr(first, name), getattr(second, name), rtol=1e-3, atol=1e-6)
    r, flip = smallest_perturbation(theirs, plain, 5)
    assert int((theirs(plain.x + r, edge_index))[5].argmax()) == int(flip.becomes) != int(second.predicted[0])


def test_audit_of_one_logit(data: Any) -> None:
    model = pyg.GCN(FEATURES, 8, 2, 1)
    found = audit(model, data, nodes=torch.arange(10))
    logits = own_pass(model, data)[:10, 0]
    assert torch.equal(found.predicted, (logits > 0).long())
    assert bool((found.becomes == 1 - found.predicted)[found.becomes >= 0].all())
    assert bool((found.becomes >= 0).any())


def test_bad_data_is_named(data: Any) -> None:
    model = pyg.GCN(FEATURES, 8, 2, CLASSES)
    logits = own_pass(model, data)
    hetero = HeteroData()
    hetero["paper"].x = data.x
    bipartite = SimpleNamespace(x=(data.x, data.x), edge_index=data.edge_index)
    for wrong in (hetero, bipartite):
        for use in (lambda d: bvat.VAT(generator=0)(model, d, logits), lambda d: audit(model, d)):
            with pytest.raises(GraphError, match=r"not supported: use data\.to_homogeneous"):
                use(wrong)
    with pytest.raises(GraphError, match=r"set data\.x and data\.edge_index"):
        audit(model, SimpleNamespace(x=data.x))
    with pytest.raises(SettingsError, match="an audit needs the depth"):
        audit(lambda x: model(x, data.edge_index), data)
    with pytest.raises(SettingsError, match="module or a function"):
        bvat.VAT(generator=0)("gcn", data, logits)


def test_compiled_modules_are_called_as_their_original(data: Any) -> None:
    model = pyg.GCN(FEATURES, 8, 2, CLASSES).eval()
    compiled = torch.compile(model, backend="eager")
    assert bvat.Consistency(generator=0)(compiled, data, own_pass(model, data)).r_vadv < 1e-9


def test_keyword_arguments_that_are_not_named_are_said(data: Any) -> None:
    class Open(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = pyg.GCN(FEATURES, 8, 2, CLASSES, dropout=0.5)

        def forward(self, x: Tensor, edge_index: Tensor, **rest: Any) -> Tensor:
            out: Tensor = self.inner(x, edge_index, **rest)
            return out

    model = Open().train()
    logits = model(data.x, data.edge_index, edge_weight=data.edge_weight)
    with pytest.warns(UserWarning, match="edge_weight of the data is not passed to Open"):
        bvat.Consistency(generator=0)(model, data, logits)
    bvat.Consistency(generator=0)(model, data, logits, edge_weight=data.edge_weight)


def test_modules_that_read_no_edges_need_none(data: Any) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    for method in METHODS:
        assert method(generator=0)(model, data.x, model(data.x)).nodes > 0

    class Whole(nn.Module):
        def forward(self, data: Any) -> Tensor:
            return data.x  # type: ignore[no-any-return]

    with pytest.raises(SettingsError, match="Whole is called with data, not with x"):
        bvat.VAT(generator=0)(Whole(), data, data.x)


def test_an_audit_leaves_the_mode_of_a_module_and_refuses_probabilities(data: Any) -> None:
    model = pyg.GCN(FEATURES, 8, 2, CLASSES, dropout=0.5).train()
    first = audit(model, data, nodes=torch.arange(4))
    assert model.training
    assert torch.equal(first.smallest, audit(model, data, nodes=torch.arange(4)).smallest)
    smallest_perturbation(model, data, 3)
    assert model.training
    spread = bvat.wrap(lambda x: model(x, data.edge_index).softmax(1), depth=2)
    with pytest.raises(SettingsError, match="returns probabilities"):
        audit(spread, data)
