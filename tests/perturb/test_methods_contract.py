"""Every method of the table keeps the contract, also those that read labels; and it finds what breaks it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import bvat
from bvat.perturb.methods import METHODS
from bvat.perturb.regulariser import Outcome
from bvat.testing import check_method, check_regulariser
from bvat.testing.common import small_graph


@pytest.mark.parametrize("name", METHODS)
def test_contract(name: str) -> None:
    check_method(name)


class Wrong:
    """A regulariser that calls backward(), draws from torch's own generator, or needs no generator."""

    def __init__(self, what: str, generator: Any) -> None:
        self.what, self.regulariser = what, bvat.VAT(generator=generator)

    def __call__(self, model: Any, graph: Any, logits: Tensor, *rest: Any) -> Outcome:
        if self.what == "backward":
            self.regulariser(model, graph, logits).loss.backward()
        if self.what == "parameters":
            with torch.no_grad():
                next(model.parameters()).add_(1e-3)
        if self.what == "global":
            torch.rand(1)
        if self.regulariser.generator is None and self.what == "generator":
            return Outcome(0 * logits.sum(), 0, logits.new_zeros(()), logits.new_zeros(()), "none")
        return self.regulariser(model, graph, logits)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("backward", r"it called backward\(\)"),
        ("parameters", "it changed the parameters"),
        ("global", "it drew from torch's own generator"),
        ("generator", "without a generator it must raise"),
    ],
)
def test_what_breaks_the_contract_is_found(what: str, message: str) -> None:
    graph = small_graph()
    model = bvat.GCN(
        graph.num_features, graph.num_classes, generator=torch.Generator().manual_seed(0)
    ).double()
    with pytest.raises(AssertionError, match=message):
        check_regulariser(lambda generator: Wrong(what, generator), model, graph)
