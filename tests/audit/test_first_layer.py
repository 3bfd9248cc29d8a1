"""What the first layer reads is what the whole product with Â_1 gives."""

from __future__ import annotations

import pytest
import torch
from audit_helpers import build

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


@pytest.mark.parametrize("layers", [2, 3])
def test_searches_find_what_they_find_on_whole_fields(graph: Graph, layers: int) -> None:
    """The same numbers as for a model that is run on copies of the fields."""
    model, nodes = build(GCN, graph, layers=layers), torch.arange(0, graph.num_nodes, 5)
    found = []
    with torch.no_grad():
        for layered in (False, True):
            (fields,) = copied_fields(graph, layers, nodes, 10**6, layered=layered)
            problem = RecordingProblem.on(model, fields, model.project(graph))
            assert isinstance(problem.space, ReadSpace) == layered
            flip = SmallestFlip(reach=1.0).flips(problem.for_flips())
            found.append((local_smoothness(problem, 0.1), flip.length, flip.becomes))
    for plain, read in zip(*found, strict=True):
        torch.testing.assert_close(read, plain, rtol=1e-3, atol=1e-6)
