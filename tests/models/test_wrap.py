"""Modules called as ``model(x, edge_index)`` with the regularisers: torch_geometric's, and any other."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bvat
from bvat.errors import SettingsError, TrainingError
from bvat.models import linearize, wrap
from bvat.perturb.spaces import make_space

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what torch_geometric says while it is imported is not ours
    pyg = pytest.importorskip("torch_geometric.nn")
    from torch_geometric.data import Data

FEATURES, CLASSES = 60, 3
MODELS = {"gcn": pyg.GCN, "gat": pyg.GAT, "sage": pyg.GraphSAGE}
every_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def graph() -> bvat.Graph:
    drawn = bvat.synthetic_graph(120, 300, FEATURES, CLASSES, homophily=0.9, topic_share=0.6, seed=2)
    return drawn.with_engine("tensor")


@pytest.fixture(scope="module")
def data(graph: bvat.Graph) -> Any:
    edge_index = torch.stack([graph.adjacency.col.long(), graph.adjacency.rows])
    return Data(x=graph.features.to_dense(), edge_index=edge_index, y=graph.labels)


@pytest.fixture(autouse=True)
def _modules_draw_from_a_fixed_seed() -> Iterator[None]:
    """Modules take their weights and their dropout from torch's global generator."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        yield


def build(name: str, **options: Any) -> nn.Module:
    return MODELS[name](FEATURES, 8, 2, CLASSES, **{"dropout": 0.5, **options})


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def hooks_of(model: nn.Module) -> int:
    kinds = (
        "_forward_hooks",
        "_forward_pre_hooks",
        "_propagate_forward_hooks",
        "_propagate_forward_pre_hooks",
    )
    return sum(len(getattr(part, kind, ())) for part in model.modules() for kind in kinds)


class Plain(nn.Module):
    """A module of one's own that knows nothing of torch_geometric; ``first`` is done to x."""

    def __init__(self, first: Callable[[Tensor], Tensor] | None = None, skip: bool = False) -> None:
        super().__init__()
        self.first, self.calls = first, 0
        self.linear, self.out = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)
        self.skip = nn.Parameter(torch.zeros(FEATURES, CLASSES)) if skip else None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.calls += 1
        h = self.linear(x if self.first is None else self.first(x)).relu()
        h = h.index_add(0, edge_index[1], h[edge_index[0]])
        return self.out(h) if self.skip is None else self.out(h) + x @ self.skip


@pytest.mark.parametrize("method", [bvat.OBVAT, bvat.SBVAT])
@pytest.mark.parametrize(("name", "kind"), [*((name, "pyg") for name in MODELS), ("gcn", "bvat")])
def test_two_lines_train_a_model(graph: bvat.Graph, data: Any, name: str, method: Any, kind: str) -> None:
    model, reg = build(name, dropout=0.2), method(generator=seeded())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for _ in range(25):
        logits = model(data.x, data.edge_index)
        outcome = reg(model, data if kind == "pyg" else graph, logits)
        loss = F.cross_entropy(logits[graph.train], graph.labels[graph.train])
        loss = loss + 0.5 * bvat.entropy(logits) + outcome.loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert outcome.space == "factored"
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    predicted = model.eval()(data.x, data.edge_index).argmax(1)
    assert float((predicted == graph.labels)[graph.test].double().mean()) > 0.6


@every_model
def test_factored_equals_dense(data: Any, name: str) -> None:
    """The step of the search, the loss and the gradient of every parameter, in double precision."""
    model = build(name).double().eval()
    wide = Data(x=data.x.double(), edge_index=data.edge_index)
    p = torch.softmax(model(wide.x, wide.edge_index).detach(), 1)
    hooked, plain = wrap(model), wrap(model, factored=False)
    inputs = hooked.inputs(wide)
    assert plain.inputs(wide).features.values is wide.x
    factored, dense = make_space("factored", hooked, inputs), make_space("dense", plain, inputs)
    start, _ = factored.gaussian(seeded(1))
    results = []
    for way, space, r in ((hooked, factored, start), (plain, dense, factored.to_dense(start))):
        base = way.project(inputs)
        logits, pullback = linearize(way, inputs, base + space.effect(r), None)
        step = space.pull(pullback(torch.softmax(logits, 1) - p))
        perturbed = way.propagate(inputs, base + space.trained_effect(step))
        value = F.kl_div(torch.log_softmax(perturbed, 1), p, reduction="sum")
        gradients = torch.autograd.grad(value, list(model.parameters()))
        results.append((logits, space.to_dense(step), space.row_squares(step), value.detach(), gradients))
    assert float(results[0][3]) > 1e-6
    torch.testing.assert_close(results[0], results[1], rtol=1e-7, atol=1e-10)
    clean = way.propagate(inputs, way.project(inputs))
    torch.testing.assert_close(clean, model(wide.x, wide.edge_index), rtol=0, atol=0)


def test_factored_equals_dense_for_a_whole_regulariser(data: Any) -> None:
    """A gradient's direction does not depend on the start where the model is locally linear in x."""
    model = pyg.GATConv(FEATURES, CLASSES).double().eval()
    wide = Data(x=data.x.double(), edge_index=data.edge_index)
    logits = model(wide.x, wide.edge_index)
    losses = []
    for wrapped in (wrap(model), wrap(model, factored=False)):
        reg = bvat.VAT(epsilon=0.5, steps=40, xi=1e-3, generator=seeded())
        outcome = reg(wrapped, wide, logits)
        losses.append(outcome.r_vadv)
        torch.testing.assert_close(float(outcome.max_row_norm), 0.5)
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_wrapped_gcn_equals_ours(graph: bvat.Graph, data: Any) -> None:
    theirs, ours = build("gcn", bias=False).eval(), bvat.GCN(FEATURES, CLASSES, hidden=8).eval()
    with torch.no_grad():
        for weight, conv in zip(ours.weights, theirs.convs, strict=True):
            weight.copy_(conv.lin.weight.t())
    logits = ours(graph).detach()
    # perturbations long enough for a KL well above the rounding of single precision
    adam = partial(bvat.OBVAT, "adam", 10, start=0.1, step_size=0.05, gamma=0.0)
    for method in (partial(bvat.VAT, epsilon=0.3), adam):
        first = method(generator=seeded())(ours, graph, logits)
        second = method(generator=seeded())(theirs, data, logits)
        assert first.r_vadv > 1e-4
        assert first.r_vadv == pytest.approx(second.r_vadv, rel=1e-3)


def test_a_search_does_not_depend_on_how_a_gradient_lies_in_memory(graph: bvat.Graph) -> None:
    x, weight = graph.features.to_dense(), torch.randn(FEATURES, CLASSES, generator=seeded())
    search = partial(bvat.OBVAT, "adam", 10, start=0.1, step_size=0.05, gamma=0.0)
    rows, columns = (
        search(generator=seeded())(model, x, model(x)).r_vadv
        for model in (
            lambda x: torch.relu(x) @ weight,
            lambda x: (weight.t() @ torch.relu(x.t().contiguous())).t(),
        )
    )
    assert rows == pytest.approx(columns, rel=1e-4)


@pytest.mark.parametrize(
    ("conv", "space"),
    [
        (lambda: Plain(first=nn.Dropout(0.5)), "factored"),
        (lambda: pyg.GATv2Conv(FEATURES, CLASSES), "factored"),
        (lambda: pyg.TransformerConv(FEATURES, CLASSES), "factored"),
        (lambda: pyg.GraphConv(FEATURES, CLASSES), "factored"),
        (lambda: pyg.GATConv(FEATURES, CLASSES, residual=True), "factored"),
        (lambda: pyg.SAGEConv(FEATURES, CLASSES, aggr="max"), "dense"),
        (lambda: pyg.SGConv(FEATURES, CLASSES, K=2), "dense"),
        (lambda: pyg.ChebConv(FEATURES, CLASSES, K=2), "factored"),
        (lambda: pyg.ChebConv(FEATURES, CLASSES, K=3), "dense"),
        (lambda: pyg.GINConv(nn.Linear(FEATURES, CLASSES)), "dense"),
    ],
)
@pytest.mark.filterwarnings("ignore:bvat perturbs x itself")
def test_other_layers(data: Any, conv: Callable[[], nn.Module], space: str) -> None:
    model = conv()
    outcome = bvat.VAT(generator=seeded())(model, data, model(data.x, data.edge_index))
    assert outcome.space == space
    assert outcome.r_vadv > 0
    assert hooks_of(model) == 0


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: Plain(first=torch.sigmoid), "no Linear layer reads x directly"),
        (lambda: Plain(skip=True), "x is not read through 'linear' alone"),
        (lambda: pyg.SAGEConv(FEATURES, CLASSES, aggr="max"), "x is not read through 'lin_l', 'lin_r' alone"),
    ],
)
def test_fallback_is_announced_once_with_its_reason(data: Any, model: Any, reason: str) -> None:
    """Also where the path that is not linear has weight zero at first."""
    module = model()
    logits = module(data.x, data.edge_index)
    with pytest.warns(UserWarning, match=f"because {reason}") as caught:
        outcome = bvat.OBVAT(steps=1, generator=0)(module, data, logits)
    assert caught[0].filename == __file__
    assert outcome.space == "dense"
    bvat.OBVAT(steps=1, generator=0)(module, data, logits)  # a second warning would be an error
    bvat.OBVAT(steps=1, generator=0)(wrap(module, factored=False), data, logits)
    with pytest.raises(SettingsError, match="linear in its features"):
        bvat.OBVAT(space="factored", generator=0)(module, data, logits)


def test_a_map_that_is_used_twice_is_not_taken(data: Any) -> None:
    model = Plain()
    model.first = lambda x: x + 0 * model.linear(x).sum()
    with pytest.warns(UserWarning, match="'linear' reads x but is used more than once"):
        bvat.OBVAT(steps=1, generator=0)(model, data, model(data.x, data.edge_index))


def test_depth_is_counted_measured_or_asked_for(data: Any) -> None:
    def depth(module: nn.Module) -> int:
        wrapped = wrap(module)
        wrapped.inputs(data)
        return wrapped.depth

    assert depth(build("gat")) == 2
    assert depth(build("sage")) == 2

    class Perceptron(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(FEATURES, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.linear(x)

    assert depth(Perceptron()) == 0

    class Predict(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.spread = nn.Linear(FEATURES, CLASSES), pyg.APPNP(K=5, alpha=0.1)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.spread(self.linear(x), edge_index)

    assert depth(Predict()) == 5
    model = Plain()
    logits = model(data.x, data.edge_index)
    with pytest.raises(SettingsError, match=r"bvat\.wrap\(model, depth=K\)"):
        bvat.SBVAT(generator=0)(model, data, logits)
    assert bvat.SBVAT(generator=seeded())(wrap(model, depth=1), data, logits).nodes > 3
    with pytest.raises(SettingsError, match="must not be negative"):
        wrap(model, depth=-1)


@every_model
def test_sbvat_perturbs_within_the_fields_of_the_chosen_nodes_only(data: Any, name: str) -> None:
    """The loss at a chosen node feels features up to K hops away, and none outside of its field."""
    model = build(name).eval()
    wrapped = wrap(model)
    inputs = wrapped.inputs(data)
    selection = bvat.SBVAT().nodes.choose(inputs, wrapped.depth, seeded())
    x = data.x.clone().requires_grad_()
    model(x, data.edge_index)[selection.chosen].sum().backward()
    felt = x.grad.abs().sum(1) > 0
    assert bool(felt.any())
    assert not bool(felt[selection.owner < 0].any())
    assert bvat.SBVAT(generator=seeded())(model, data, model(data.x, data.edge_index)).r_vadv > 0


def test_edge_index_that_changes_in_place_is_noticed(data: Any) -> None:
    model = wrap(torch.nn.Linear(data.x.shape[1], 3), depth=0)
    other = Data(x=data.x, edge_index=data.edge_index.clone())
    first = model.inputs(other).propagation
    assert model.inputs(other).propagation is first
    other.edge_index[:, 0] = 0
    assert model.inputs(other).propagation is not first


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("method", [bvat.OBVAT, bvat.SBVAT, bvat.Consistency])
def test_batch_normalisation_statistics_are_left_alone(
    data: Any, momentum: float | None, method: Any
) -> None:
    model = build("gcn", norm="BatchNorm", norm_kwargs={"momentum": momentum}).train()
    logits = model(data.x, data.edge_index)
    before = copy.deepcopy(model.state_dict())
    same_objects = {name: id(buffer) for name, buffer in model.named_buffers()}
    assert int(before["norms.0.module.num_batches_tracked"]) == 1
    outcome = method(generator=seeded())(model, data, logits)
    torch.testing.assert_close(dict(model.state_dict()), dict(before), rtol=0, atol=0)
    assert {name: id(buffer) for name, buffer in model.named_buffers()} == same_objects
    (logits.sum() + outcome.loss).backward()  # both passes went through the same layers
    model(data.x, data.edge_index)
    assert int(model.state_dict()["norms.0.module.num_batches_tracked"]) == 2


def test_perturbed_passes_use_batch_statistics_in_training_mode(data: Any) -> None:
    model = build("gcn", norm="BatchNorm", dropout=0.0).train()
    logits = model(data.x, data.edge_index)
    assert bvat.Consistency(generator=0)(model, data, logits).r_vadv == pytest.approx(0, abs=1e-6)


@every_model
@pytest.mark.parametrize("method", [bvat.OBVAT, bvat.SBVAT, bvat.VAT, bvat.Random, bvat.Consistency])
def test_same_seed_same_answer_and_nothing_left_behind(data: Any, name: str, method: Any) -> None:
    model = build(name).train()
    logits = model(data.x, data.edge_index)
    modes = [part.training for part in model.modules()]
    state = torch.get_rng_state()
    first, second = (method(generator=seeded(4))(model, data, logits) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state), "the user's random numbers were used up"
    assert first.r_vadv == second.r_vadv > 0
    assert method(generator=seeded(5))(model, data, logits).r_vadv != first.r_vadv
    assert all(parameter.grad is None for parameter in model.parameters())
    assert hooks_of(model) == 0
    assert [part.training for part in model.modules()] == modes
    first.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_dropout_policies_mean_what_they_say(data: Any) -> None:
    model = build("gcn").train()
    wrapped = wrap(model)
    masks = wrapped.draw_masks(data, seeded())
    logits = wrapped(data, masks)
    assert torch.equal(logits, wrapped(data, masks))
    none = {"epsilon": 0.0, "generator": seeded()}
    assert bvat.Random(dropout="shared", **none)(wrapped, data, logits, masks).r_vadv < 1e-9
    assert bvat.Random(dropout="pair", **none)(wrapped, data, logits).r_vadv > 1e-6
    assert bvat.Random(dropout="fresh", **none)(wrapped, data, logits).r_vadv > 1e-6
    with pytest.raises(SettingsError, match="call with masks="):
        bvat.Random(dropout="shared", **none)(wrapped, data, logits)
    assert wrap(model.eval()).draw_masks(data) is None


def test_a_module_without_dropout_shares_its_passes(data: Any) -> None:
    """Power iteration then probes far enough not to follow rounding noise, and notices dropout set later."""
    model = build("gcn", dropout=0.0).train()
    wrapped = wrap(model)
    assert wrapped.draw_masks(data, seeded()) is None
    model.dropout.p = 0.5
    bvat.VAT(generator=seeded())(model, data, model(data.x, data.edge_index))
    assert wrapped.draw_masks(data, seeded()) is not None


@pytest.mark.parametrize("factored", [True, False])
def test_hooks_statistics_and_modes_are_restored_after_an_exception(data: Any, factored: bool) -> None:
    model = build("sage", norm="BatchNorm").train()
    logits = model(data.x, data.edge_index)
    wrapped = wrap(model, factored=factored)
    bvat.OBVAT(steps=1, generator=0)(wrapped, data, logits)
    before = copy.deepcopy(model.state_dict())
    inner, conv = model.convs[1].lin_l, model.convs[1]
    conv.lin_l = nn.Linear(3, 3)  # the pass fails after the first layer
    state = torch.get_rng_state()
    with pytest.raises(RuntimeError):
        bvat.OBVAT(steps=1, generator=seeded())(wrapped, data, logits)
    conv.lin_l = inner
    assert hooks_of(model) == 0
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(dict(model.state_dict()), dict(before), rtol=0, atol=0)
    fresh = build("gat")
    fresh.convs[1].lin = nn.Linear(3, 3)
    modes = [part.training for part in fresh.modules()]
    with pytest.raises(RuntimeError):
        bvat.OBVAT(generator=0)(fresh, data, logits)
    assert hooks_of(fresh) == 0
    assert [part.training for part in fresh.modules()] == modes


def test_a_module_that_changed_is_not_trusted(data: Any) -> None:
    model = Plain()
    logits = model(data.x, data.edge_index)
    bvat.OBVAT(steps=1, generator=0)(model, data, logits)
    model.first = lambda x: x + 0 * model.linear(x).sum()
    with pytest.raises(TrainingError, match="no longer reads its features"):
        bvat.OBVAT(steps=1, generator=0)(model, data, logits)


def test_a_module_that_ignores_x_is_refused(data: Any) -> None:
    model = pyg.SGConv(FEATURES, CLASSES, K=2, cached=True)
    logits = model(data.x, data.edge_index)
    with (
        pytest.warns(UserWarning, match="bvat perturbs x itself"),
        pytest.raises(SettingsError, match="cached"),
    ):
        bvat.OBVAT(generator=0)(model, data, logits)


def test_a_module_that_returns_no_logits_is_refused(data: Any) -> None:
    class Pair(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    with pytest.raises(SettingsError, match="must return logits"):
        bvat.OBVAT(generator=0)(Pair(), data, torch.zeros(120, CLASSES))


def test_inspection_happens_once_and_keeps_no_module_alive(data: Any) -> None:
    model = Plain()
    logits = model(data.x, data.edge_index)
    bvat.Consistency(generator=0)(model, data, logits)
    calls = model.calls
    bvat.Consistency(generator=0)(model, data, logits)
    assert model.calls == calls + 3  # is there dropout, are these its logits, and the pass of the loss
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_sparse_x_and_directed_edges(data: Any) -> None:
    model = build("sage").eval()
    edge_index = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    logits = model(data.x, edge_index)
    dense = bvat.SBVAT(generator=seeded())(model, Data(x=data.x, edge_index=edge_index), logits)
    sparse = Data(x=data.x.to_sparse(), edge_index=edge_index)
    assert bvat.SBVAT(generator=seeded())(model, sparse, logits).r_vadv == dense.r_vadv
