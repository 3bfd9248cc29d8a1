"""One contract for all regularisers in all spaces, and what each adds to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models import GCN
from bvat.perturb import (
    OBVAT,
    SBVAT,
    VAT,
    Consistency,
    DisjointFields,
    FastAscent,
    Outcome,
    PowerIteration,
    Random,
    Regulariser,
    SquaredError,
)
from bvat.testing import check_regulariser
from core_helpers import Recorder, gradients, make_gcn, seeded

Make = Callable[..., Regulariser]
ALL: dict[str, Make] = {
    "consistency": Consistency,
    "random": Random,
    "vat": VAT,
    "sbvat": lambda **options: SBVAT(count=4, **options),
    "obvat": lambda **options: OBVAT("adam", steps=4, **options),
    "fast obvat": lambda **options: Regulariser(search=FastAscent(), **options),
}
SPACES = ["dense", "sparse", "factored"]
EPSILON = {"random": Random, "vat": VAT, "sbvat": SBVAT}


def call(
    make: Make, graph: Graph, model: GCN, *, seed: int = 3, dropout: Any = "fresh", **options: Any
) -> Outcome:
    """Run a regulariser on the prediction of one pass with masks of its own."""
    masks = model.draw_masks(graph, seeded(1))
    logits = model(graph, masks)
    regulariser = make(dropout=dropout, generator=seeded(seed), **options)
    return regulariser(model, graph, logits, masks if dropout == "shared" else None)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", ALL)
def test_contract(graph: Graph, name: str, space: str) -> None:
    make, model = ALL[name], make_gcn(graph, dropout=0.5)
    masks = model.draw_masks(graph, seeded(1))
    logits = model(graph, masks)
    regulariser = make(space=space, generator=seeded(3))
    recorder = Recorder(regulariser.search)
    regulariser.search = recorder
    outcome = regulariser(model, graph, logits)

    assert outcome.r_vadv == float(outcome.loss.detach()) >= 0
    assert outcome.space == space
    assert 1 <= outcome.nodes <= (4 if name == "sbvat" else graph.num_nodes)
    assert name == "sbvat" or outcome.nodes == graph.num_nodes
    if recorder.found is not None:
        assert not recorder.found.r.requires_grad

    # the loss reaches every weight, and not through the clean side
    grads = gradients(outcome.loss, model)
    assert all(float(g.abs().max()) > 0 for g in grads)
    assert torch.autograd.grad(outcome.loss, logits, allow_unused=True, retain_graph=True)[0] is None
    check_regulariser(lambda generator: make(space=space, generator=generator), model, graph)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", EPSILON)
def test_zero_at_epsilon_zero_with_shared_masks(graph: Graph, name: str, space: str) -> None:
    model = make_gcn(graph, dropout=0.5)
    make = EPSILON[name]
    shared = call(make, graph, model, epsilon=0.0, dropout="shared", space=space)
    assert shared.r_vadv == pytest.approx(0, abs=1e-9)
    assert float(shared.max_row_norm) == 0
    assert call(make, graph, model, epsilon=0.0, space=space).r_vadv > 1e-3
    assert call(make, graph, model, epsilon=0.1, dropout="shared", space=space).r_vadv > 1e-6
    assert call(make, graph, model.eval(), epsilon=0.0, space=space).r_vadv == pytest.approx(0, abs=1e-9)


def test_consistency_with_shared_masks_is_zero(graph: Graph) -> None:
    model = make_gcn(graph, dropout=0.5)
    assert call(Consistency, graph, model, dropout="shared").r_vadv == 0
    assert call(Consistency, graph, model).r_vadv > 1e-3


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize(
    ("name", "norm"), [("random", "row"), ("vat", "row"), ("sbvat", "row"), ("sbvat", "field")]
)
def test_norm_within_epsilon(graph: Graph, name: str, norm: str, space: str) -> None:
    options = {"norm": norm} if name == "sbvat" else {}
    outcome = call(EPSILON[name], graph, make_gcn(graph, dropout=0.5), epsilon=0.2, space=space, **options)
    assert 0 < float(outcome.max_row_norm) <= 0.2 * (1 + 1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("norm", ["row", "field"])
@pytest.mark.parametrize("part_is", ["fields", "subgraph"])
def test_pass_over_a_part_equals_whole_graph_pass(
    large_graph: Graph, monkeypatch: pytest.MonkeyPatch, norm: Any, space: Any, dropout: float, part_is: str
) -> None:
    """Only the chosen receptive fields matter; with dropout both have the masks of the clean pass."""
    graph = large_graph.to(dtype=torch.float64)
    model = make_gcn(graph, dropout=dropout)
    start = torch.randn(graph.num_nodes, graph.num_features, dtype=torch.float64, generator=seeded(5))
    results = []
    for way in ("whole", part_is):
        monkeypatch.setattr(GCN, "perturbed_on", way)
        search = Recorder(PowerIteration(0.1, 2, norm=norm), start)
        outcome = call(
            lambda search=search, **options: Regulariser(nodes=DisjointFields(8), search=search, **options),
            graph,
            model,
            dropout="shared",
            space=space,
        )
        results.append((search, outcome))
    (whole_search, whole), (part_search, part) = results
    assert whole_search.problem is not None
    assert part_search.problem is not None
    assert part_search.problem.inputs.features.shape[0] < whole_search.problem.inputs.features.shape[0] == 300
    assert part.nodes == whole.nodes == 8
    assert whole.r_vadv > 1e-4
    assert torch.allclose(part.loss, whole.loss, atol=1e-10)
    assert torch.allclose(part.row_norm, whole.row_norm)
    for ours, theirs in zip(gradients(part.loss, model), gradients(whole.loss, model), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-9)


def test_subgraph_is_used_when_it_is_small(large_graph: Graph) -> None:
    search = Recorder(PowerIteration())
    regulariser = Regulariser(nodes=DisjointFields(3), search=search, generator=seeded())
    model = make_gcn(large_graph)
    regulariser(model, large_graph, model(large_graph))
    assert search.problem is not None
    assert search.problem.inputs.features.shape[0] < 100


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("name", ALL)
def test_any_depth(graph: Graph, name: str, layers: int) -> None:
    model = make_gcn(graph, layers=layers, dropout=0.5)
    outcome = call(ALL[name], graph, model)
    assert outcome.r_vadv > 0
    assert len(gradients(outcome.loss, model)) == layers


@pytest.mark.parametrize("name", ALL)
def test_dense_features(make_graph: Callable[..., Graph], name: str) -> None:
    graph = make_graph(dense=True, signed=True)
    model = make_gcn(graph, dropout=0.5)
    for space in ("dense", "factored"):
        assert call(ALL[name], graph, model, space=space).r_vadv > 0
    if name != "consistency":
        with pytest.raises(SettingsError, match="needs sparse features"):
            call(ALL[name], graph, model, space="sparse")


class Bare:
    """A model that offers the protocol only and reads its features directly: logits = Â² X W."""

    depth, training = 2, True

    def __init__(self, graph: Graph) -> None:
        self.weight = torch.randn(graph.num_features, graph.num_classes, generator=seeded()).requires_grad_()

    def projection(self) -> None:
        return None

    def draw_masks(self, inputs: Any, generator: torch.Generator | None = None, **options: Any) -> None:
        return None

    def restrict_masks(self, masks: Any, inputs: Any, nodes: Tensor) -> Any:
        return masks

    def project(self, inputs: Any, masks: Any = None) -> Tensor:
        dense: Tensor = inputs.features.to_dense()
        return dense

    def propagate(self, inputs: Any, projected: Tensor, masks: Any = None) -> Tensor:
        spread: Tensor = inputs.propagation @ (inputs.propagation @ projected.tanh())
        return 5 * spread @ self.weight


@pytest.mark.parametrize("name", ALL)
def test_a_model_that_offers_the_protocol_only(graph: Graph, name: str) -> None:
    model = Bare(graph)
    logits = model.propagate(graph, model.project(graph))
    outcome = ALL[name](generator=seeded())(model, graph, logits)
    assert outcome.space == "dense"
    assert outcome.r_vadv == 0 if name == "consistency" else outcome.r_vadv > 0
    assert torch.autograd.grad(outcome.loss, model.weight)[0].isfinite().all()
    assert model.weight.grad is None


def test_pair_holds_one_set_of_masks_for_all_perturbed_passes(graph: Graph) -> None:
    model = make_gcn(graph, dropout=0.5)
    drawn: list[bool] = []

    def counted(*args: Any, **options: Any) -> Any:
        drawn.append(True)
        return GCN.draw_masks(model, *args, **options)

    masks = model.draw_masks(graph, seeded())
    logits = model(graph, masks)
    object.__setattr__(model, "draw_masks", counted)
    for dropout, sets in (("fresh", 4), ("pair", 1), ("shared", 0)):
        drawn.clear()
        regulariser = VAT(steps=3, dropout=dropout, generator=seeded())
        regulariser(model, graph, logits, masks if dropout == "shared" else None)
        assert len(drawn) == sets, dropout


def test_policies_are_the_same_without_dropout(graph: Graph) -> None:
    for model in (make_gcn(graph, dropout=0.5).eval(), make_gcn(graph, dropout=0.0)):
        losses = {call(VAT, graph, model, dropout=policy).r_vadv for policy in ("fresh", "pair", "shared")}
        assert len(losses) == 1


def test_the_mean_over_the_chosen_nodes(graph64: Graph) -> None:
    """R_vadv by hand from the perturbation that was found."""
    model = make_gcn(graph64)
    search = Recorder(PowerIteration(0.3))
    regulariser = Regulariser(nodes=DisjointFields(4), search=search, space="dense", generator=seeded())
    logits = model(graph64)
    outcome = regulariser(model, graph64, logits)
    assert search.problem is not None
    nodes = getattr(search.problem.inputs, "nodes", torch.arange(graph64.num_nodes))
    r = torch.zeros(graph64.num_nodes, graph64.num_features, dtype=torch.float64)
    r[nodes] = search.dense
    perturbed = model.propagate(graph64, model.project(graph64) + r @ model.projection())
    at = DisjointFields(4).choose(graph64, model.depth, seeded()).chosen  # drawn first, so drawn alike
    assert at is not None
    assert outcome.nodes == at.numel() == 4
    expected = functional.kl_div(
        perturbed[at].log_softmax(1),
        logits[at].log_softmax(1).detach(),
        log_target=True,
        reduction="batchmean",
    )
    assert torch.allclose(outcome.loss, expected, atol=1e-9)
    for ours, theirs in zip(gradients(outcome.loss, model), gradients(expected, model), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-9)


def test_other_divergence(graph: Graph) -> None:
    outcome = call(VAT, graph, make_gcn(graph, dropout=0.5), divergence=SquaredError())
    assert 0 < outcome.r_vadv <= 2


def test_training_with_a_regulariser_lowers_it(graph: Graph) -> None:
    """A smoke test of the whole: the loss of the paper can be minimised and R_vadv falls."""
    model = make_gcn(graph, dropout=0.5)
    regulariser = VAT(0.3, generator=seeded())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    measured = []
    for _ in range(40):
        optimizer.zero_grad()
        outcome = regulariser(model, graph, model(graph, generator=regulariser.generator))
        outcome.loss.backward()
        optimizer.step()
        measured.append(outcome.r_vadv)
    assert sum(measured[-5:]) < 0.5 * sum(measured[:5])


BAD: list[tuple[Make, dict[str, Any], str]] = [
    (VAT, {"xi": 0}, "xi must be above 0"),
    (VAT, {"dropout": "none"}, "dropout must be fresh, .*, not 'none'"),
    (Random, {"epsilon": math.nan}, "epsilon must be a finite number"),
    (Random, {"norm": "colum"}, "norm must be one of row, field"),
    (SBVAT, {"count": 0}, "number of sampled nodes must be at least 1"),
    (OBVAT, {"search": "adam", "reduction": "median"}, "reduction must be one of sum, mean"),
    (OBVAT, {"search": "slow"}, "search must be one of adam, fast"),
    (OBVAT, {"gamma": 1.0}, "gamma belongs to Adam's search"),
]


@pytest.mark.parametrize(("make", "settings", "message"), BAD)
def test_bad_settings(make: Make, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make(**settings)


def test_bad_calls(graph: Graph) -> None:
    model = make_gcn(graph, dropout=0.5)
    logits = model(graph, generator=seeded())
    for regulariser, message in [
        (VAT(space="cubic", generator=0), "there is no space 'cubic'"),
        (VAT(), "random numbers are drawn here: pass generator="),
        (VAT(dropout="shared", generator=0), "needs the masks of the clean pass: call with masks="),
        (Random(norm="field", generator=0), "use norm 'row'"),
    ]:
        with pytest.raises(SettingsError, match=message):
            regulariser(model, graph, logits)
