"""What every method must do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.models import GCN
from bvat.perturb.methods import METHODS, MethodRow
from bvat.testing.common import check_training, gradients, seeded, small_graph
from bvat.training.settings import Settings


def check_method(method: str | MethodRow, graph: Graph | None = None) -> None:
    """Check that a method is a regulariser which trains a GCN; a row must be in the table, or registered."""
    row = METHODS[method] if isinstance(method, str) else method
    graph = small_graph() if graph is None else graph
    settings = Settings(row.name)
    if row.home:
        model = GCN(graph.num_features, graph.num_classes, hidden=5, generator=seeded(1))
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(4)
        check_regulariser(
            lambda generator: row.build(settings.of_method, generator), model.to(graph.features.dtype), graph
        )
    _check_space(row)
    check_training(settings.replace(epochs=6), graph)


def check_regulariser(make: Callable[[torch.Generator | None], Any], model: Any, graph: Graph) -> None:
    """Check a regulariser on the prediction of one pass.

    Args:
        make: called with a generator; returns the regulariser.
        model: a model in training mode, with dropout.
        graph: with labels and training nodes.
    """
    logits = model(graph, model.draw_masks(graph, seeded(1)))

    def call(generator: torch.Generator | None) -> Any:
        return make(generator)(model, graph, logits)

    _check_outcome(call(seeded(3)), model, graph)
    _check_that_the_model_stays(call, model)
    _check_randomness(call, model)


def _check_outcome(outcome: Any, model: Any, graph: Graph) -> None:
    assert outcome.loss.shape == (), "its loss is no scalar"
    assert bool(outcome.loss.isfinite()), "its loss is not a finite number"
    assert 0 <= outcome.nodes <= graph.num_nodes
    assert 0 <= float(outcome.row_norm) <= float(outcome.max_row_norm) * (1 + 1e-6)
    assert {"r_vadv", "row_norm", "nodes"} <= outcome.measured().keys()
    found = gradients(model, outcome.loss)
    assert all(bool(torch.isfinite(g).all()) for g in found), "its gradients are not finite numbers"
    assert any(float(g.abs().max()) > 0 for g in found), "its loss has no gradient"


def _check_randomness(call: Callable[[torch.Generator | None], Any], model: Any) -> None:
    global_state = torch.get_rng_state()
    loss, again, other = (call(seeded(seed)).loss for seed in (3, 3, 4))
    assert torch.equal(global_state, torch.get_rng_state()), "it drew from torch's own generator"
    assert torch.equal(again, loss), "the same generator gives another loss"
    pairs = zip(gradients(model, loss), gradients(model, again), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs), "the same generator gives other gradients"
    assert not torch.equal(other, loss), "another generator gives the same loss"
    try:
        call(None)
    except SettingsError:
        return
    raise AssertionError("without a generator it must raise bvat.SettingsError")


def _check_that_the_model_stays(call: Callable[[torch.Generator | None], Any], model: Any) -> None:
    parameters = list(model.parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    call(seeded(3))
    assert all(parameter.grad is None for parameter in parameters), "it called backward()"
    assert all(map(torch.equal, before, parameters)), "it changed the parameters"
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 7)
    call(seeded(3))
    untouched = all(bool((parameter.grad == 7).all()) for parameter in parameters)
    for parameter in parameters:
        parameter.grad = None
    assert untouched, "it changed gradients that were there"


def _check_space(row: MethodRow) -> None:
    """Raise AssertionError unless what is searched are settings, and values of the space are valid."""
    branches = [part for parts in row.space.get("when", {}).values() for part in parts.values()]
    plain = {name: span for name, span in row.space.items() if name != "when"}
    for name, span in [pair for part in (plain, *branches) for pair in part.items()]:
        for value in span.get("choices") or (span["low"], span["high"]):
            assert getattr(Settings(row.name, **{name: value}), name) == value, name
