"""Each model against torch_geometric's with the same weights: logits and gradients of every parameter."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import bvat
from bvat.models import APPNP, GAT, GCN, MLP, SGC, GraphSAGE, MoNet
from bvat.models.monet import pseudo_coordinates

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what torch_geometric says while it is imported is not ours
    pyg = pytest.importorskip("torch_geometric.nn")

CLASSES, FEATURES = 3, 20


@pytest.fixture(scope="module")
def graph() -> bvat.Graph:
    """A random graph with isolated nodes."""
    drawn = bvat.synthetic_graph(60, 70, FEATURES, CLASSES, words_per_node=5, train_per_class=4, seed=1)
    assert bool((torch.diff(drawn.adjacency.crow) == 0).any())
    return drawn.to(dtype=torch.float64)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def edge_index(graph: bvat.Graph) -> Tensor:
    return torch.stack([graph.adjacency.col.long(), graph.adjacency.rows])


def copy(theirs: torch.nn.Module, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put values into a module's parameters; returns the parameters by name; all must be given."""
    parameters = dict(theirs.named_parameters())
    assert set(parameters) == set(values)
    with torch.no_grad():
        for name, value in values.items():
            parameters[name].copy_(value.reshape(parameters[name].shape))
    return parameters


def randomize(model: torch.nn.Module) -> None:
    """Biases start at 0, where a test could not see them."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.normal_()


def check(
    graph: bvat.Graph,
    ours: torch.nn.Module,
    their_logits: Tensor,
    same: Callable[[], list[tuple[Tensor, Tensor]]],
) -> None:
    """Compare logits and, after the same backward pass, the gradients that ``same()`` lines up."""
    our_logits = ours(graph)
    torch.testing.assert_close(our_logits, their_logits, atol=1e-5, rtol=0)
    direction = torch.randn(our_logits.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (our_logits * direction).sum().backward()
    (their_logits * direction).sum().backward()
    for our_grad, their_grad in same():
        assert float(our_grad.abs().max()) > 0
        torch.testing.assert_close(our_grad, their_grad.reshape(our_grad.shape), atol=1e-5, rtol=0)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_gcn(graph: bvat.Graph, generator: torch.Generator, layers: int) -> None:
    ours = GCN(FEATURES, CLASSES, hidden=8, layers=layers, generator=generator).double().eval()
    theirs = pyg.GCN(FEATURES, 8, layers, CLASSES, bias=False).double().eval()
    names = [f"convs.{k}.lin.weight" for k in range(layers)]
    parameters = copy(theirs, {name: w.t() for name, w in zip(names, ours.weights, strict=True)})
    logits = theirs(graph.features.to_dense(), edge_index(graph))
    check(
        graph,
        ours,
        logits,
        lambda: [(w.grad.t(), parameters[n].grad) for n, w in zip(names, ours.weights, strict=True)],
    )


@pytest.mark.parametrize("output_heads", [1, 5])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_gat(graph: bvat.Graph, generator: torch.Generator, layers: int, output_heads: int) -> None:
    options = {"hidden": 12, "heads": 4, "layers": layers, "output_heads": output_heads}
    ours = GAT(FEATURES, CLASSES, **options, generator=generator).double().eval()
    randomize(ours)
    convs = [pyg.GATConv(FEATURES if k == 0 else 12, 3, heads=4) for k in range(layers - 1)]
    last_width = FEATURES if layers == 1 else 12
    convs.append(pyg.GATConv(last_width, CLASSES, heads=output_heads, concat=False))
    theirs = torch.nn.ModuleList(convs).double().eval()
    values = {}
    for k in range(layers):
        values |= {f"{k}.att_src": ours.source[k], f"{k}.att_dst": ours.target[k]}
        values |= {f"{k}.bias": ours.biases[k], f"{k}.lin.weight": ours.weights[k].t()}
    parameters = copy(theirs, values)
    state = graph.features.to_dense()
    for k, conv in enumerate(theirs):
        state = conv(state if k == 0 else torch.nn.functional.elu(state), edge_index(graph))

    def same() -> list[tuple[Tensor, Tensor]]:
        pairs = []
        for k in range(layers):
            pairs.append((ours.source[k].grad, parameters[f"{k}.att_src"].grad))
            pairs.append((ours.target[k].grad, parameters[f"{k}.att_dst"].grad))
            pairs.append((ours.biases[k].grad, parameters[f"{k}.bias"].grad))
            pairs.append((ours.weights[k].grad.t(), parameters[f"{k}.lin.weight"].grad))
        return pairs

    check(graph, ours, state, same)


@pytest.mark.parametrize("aggregation", ["sum", "mean"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_monet(graph: bvat.Graph, generator: torch.Generator, layers: int, aggregation: str) -> None:
    """GMMConv sums Gaussians of given coordinates; the coordinates and the loops are made here."""
    options = {"hidden": 8, "layers": layers, "kernels": 4, "coordinates": 3, "aggregation": aggregation}
    ours = MoNet(FEATURES, CLASSES, **options, generator=generator).double().eval()
    randomize(ours)
    widths = [FEATURES, *[8] * (layers - 1), CLASSES]
    aggr = "add" if aggregation == "sum" else "mean"
    convs = [pyg.GMMConv(widths[k], widths[k + 1], 3, 4, aggr=aggr) for k in range(layers)]
    theirs = torch.nn.ModuleList(convs).double()
    values = {}
    for k in range(layers):
        values |= {f"{k}.g": ours.weights[k], f"{k}.mu": ours.centres[k]}
        values |= {f"{k}.sigma": 1 / ours.sharpness[k], f"{k}.bias": ours.biases[k]}
        values[f"{k}.root.weight"] = torch.zeros(widths[k + 1], widths[k])
    parameters = copy(theirs, values)
    pattern = graph.propagation
    edges = torch.stack([pattern.col.long(), pattern.rows])
    degrees = 1.0 + torch.diff(graph.adjacency.crow).double()
    pseudo = torch.stack([degrees[edges[1]], degrees[edges[0]]], 1).rsqrt()
    different, place = pseudo_coordinates(pattern)
    torch.testing.assert_close(different[place], pseudo)
    assert len(different) < len(place)
    state = graph.features.to_dense()
    for k, conv in enumerate(theirs):
        v = torch.tanh(pseudo @ ours.maps[k].detach() + ours.shifts[k].detach())
        state = conv(state if k == 0 else torch.relu(state), edges, v)

    def same() -> list[tuple[Tensor, Tensor]]:
        pairs = []
        for k in range(layers):
            pairs.append((ours.weights[k].grad, parameters[f"{k}.g"].grad))
            pairs.append((ours.centres[k].grad, parameters[f"{k}.mu"].grad))
            pairs.append((ours.biases[k].grad, parameters[f"{k}.bias"].grad))
            sigma = parameters[f"{k}.sigma"]  # s = 1 / sigma
            pairs.append((ours.sharpness[k].grad, -sigma.grad * sigma.detach().square()))
        return pairs

    check(graph, ours, state, same)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_sage(graph: bvat.Graph, generator: torch.Generator, layers: int) -> None:
    ours = GraphSAGE(FEATURES, CLASSES, hidden=8, layers=layers, generator=generator).double().eval()
    randomize(ours)
    theirs = pyg.GraphSAGE(FEATURES, 8, layers, CLASSES).double().eval()
    values = {}
    for k, weight in enumerate(ours.weights):
        from_neighbours, from_self = weight.chunk(2, 1)
        values |= {f"convs.{k}.lin_l.weight": from_neighbours.t(), f"convs.{k}.lin_r.weight": from_self.t()}
        values[f"convs.{k}.lin_l.bias"] = ours.biases[k]
    parameters = copy(theirs, values)

    def same() -> list[tuple[Tensor, Tensor]]:
        pairs = []
        for k, weight in enumerate(ours.weights):
            left, right = (parameters[f"convs.{k}.lin_{side}.weight"].grad for side in "lr")
            pairs.append((weight.grad.t().contiguous(), torch.cat([left, right])))
            pairs.append((ours.biases[k].grad, parameters[f"convs.{k}.lin_l.bias"].grad))
        return pairs

    check(graph, ours, theirs(graph.features.to_dense(), edge_index(graph)), same)


def test_appnp(graph: bvat.Graph, generator: torch.Generator) -> None:
    ours = (
        APPNP(FEATURES, CLASSES, hidden=8, power_steps=4, teleport=0.2, generator=generator).double().eval()
    )
    linear = pyg.MLP([FEATURES, 8, CLASSES], norm=None, bias=False).double().eval()
    names = ["lins.0.weight", "lins.1.weight"]
    parameters = copy(linear, {name: w.t() for name, w in zip(names, ours.weights, strict=True)})
    logits = pyg.APPNP(4, 0.2)(linear(graph.features.to_dense()), edge_index(graph))
    check(
        graph,
        ours,
        logits,
        lambda: [(w.grad.t(), parameters[n].grad) for n, w in zip(names, ours.weights, strict=True)],
    )


def test_sgc(graph: bvat.Graph, generator: torch.Generator) -> None:
    ours = SGC(FEATURES, CLASSES, layers=3, generator=generator).double().eval()
    theirs = pyg.SGConv(FEATURES, CLASSES, K=3, bias=False).double()
    parameters = copy(theirs, {"lin.weight": ours.projection().t()})
    logits = theirs(graph.features.to_dense(), edge_index(graph))
    check(graph, ours, logits, lambda: [(ours.projection().grad.t(), parameters["lin.weight"].grad)])


@pytest.mark.parametrize("layers", [1, 3])
def test_mlp(graph: bvat.Graph, generator: torch.Generator, layers: int) -> None:
    ours = MLP(FEATURES, CLASSES, hidden=8, layers=layers, generator=generator).double().eval()
    randomize(ours)
    theirs = pyg.MLP([FEATURES, *[8] * (layers - 1), CLASSES], norm=None).double().eval()
    values = {f"lins.{k}.weight": w.t() for k, w in enumerate(ours.weights)}
    values |= {f"lins.{k}.bias": b for k, b in enumerate(ours.biases)}
    parameters = copy(theirs, values)

    def same() -> list[tuple[Tensor, Tensor]]:
        weights = [(w.grad.t(), parameters[f"lins.{k}.weight"].grad) for k, w in enumerate(ours.weights)]
        return weights + [(b.grad, parameters[f"lins.{k}.bias"].grad) for k, b in enumerate(ours.biases)]

    check(graph, ours, theirs(graph.features.to_dense()), same)
