"""What the first layer reads is what the whole product with Â_1 gives."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from audit_helpers import build

from bvat.audit.audit import Attack
from bvat.audit.certify import BUDGETS, Budget
from bvat.audit.copied_fields import copied_fields
from bvat.audit.first_layer import MeasuredSpace, ReadSpace
from bvat.audit.worst_case import RecordingProblem, local_smoothness
from bvat.graph import Graph
from bvat.models import GCN
from bvat.perturb.searches import SmallestFlip


def spaces(graph: Graph) -> tuple[ReadSpace, torch.Tensor, torch.Tensor]:
    """Return the space of some fields, Â_1 with negative entries as a dense matrix, and a gradient Y."""
    graph = graph.to(dtype=torch.float64)
    graph.propagation.values.mul_(torch.where(torch.arange(graph.propagation.nnz) % 5 == 0, -1.0, 1.0))
    (fields,) = copied_fields(graph, 2, torch.arange(0, graph.num_nodes, 3), layered=True)
    assert fields.layers is not None
    weight = build(GCN, graph).double().projection()
    space = ReadSpace(weight, fields.layers[0])
    y = torch.randn(space.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return space, fields.layers[0].to_dense(), y


def test_rows_of_a_length(graph: Graph) -> None:
    space, dense, y = spaces(graph)
    z = torch.nn.functional.normalize(dense.t() @ y, dim=1)
    torch.testing.assert_close(space.full_rows(y, 0.3), 0.3 * dense @ z)


def test_length_and_effect_along_a_gradient(graph: Graph) -> None:
    read, dense, y = spaces(graph)
    space, z = MeasuredSpace(read), dense.t() @ y
    r = space.scale_rows(space.pull(y), torch.full((len(y),), 2.0, dtype=torch.float64))
    torch.testing.assert_close(space.effect(r), 2 * dense @ z)
    torch.testing.assert_close(space.row_squares(r).sum(), 4 * (z * z).sum())
    full = space.to_dense(r)
    torch.testing.assert_close(full @ read.weight.detach(), 2 * z @ read.upper)
    torch.testing.assert_close(full.square().sum(), 4 * (z * z).sum())


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("layers", [2, 3])
def test_searches_find_what_they_find_on_whole_fields(graph: Graph, layers: int, budget: Budget) -> None:
    """The same numbers as for a model that is run on copies of the fields."""
    model, nodes = build(GCN, graph, layers=layers), torch.arange(0, graph.num_nodes, 5)
    found = []
    with torch.no_grad():
        for layered in (False, True):
            (fields,) = copied_fields(graph, layers, nodes, 10**6, layered=layered)
            problem = RecordingProblem.on(model, fields, model.project(graph))
            assert isinstance(problem.space, ReadSpace) == layered
            attack = Attack(model, graph, model.project(graph), SmallestFlip(reach=1.0), on_whole=False)
            for flip in attack.shortest(problem, budget=budget):
                found.append((layered, local_smoothness(problem, 0.1), flip.length, flip.becomes))
    plain, read = ([each[1:] for each in found if each[0] == layered] for layered in (False, True))
    assert len(plain) == len(read) == (4 if budget == "node" else 1)
    for one, other in zip(chain(*plain), chain(*read), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-6)
