"""Copied receptive fields: the balls, and the logits of the whole graph in them."""

from __future__ import annotations

import pytest
import torch
from audit_helpers import build

from bvat.audit.copied_fields import copied_fields
from bvat.audit.worst_case import RecordingProblem
from bvat.graph import Graph
from bvat.models import MODELS


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_node_has_the_logits_of_the_whole_graph_in_its_field(name: str, graph: Graph) -> None:
    model = build(MODELS[name].load(), graph)
    with torch.no_grad():
        whole, projected = model(graph), model.project(graph)
        order = torch.randperm(graph.num_nodes)
        seen = 0
        for fields in copied_fields(graph, model.depth, order, rows_at_once=50):
            problem = RecordingProblem.on(model, fields, projected)
            assert torch.equal(fields.nodes[fields.rows], fields.centres)
            assert torch.equal(fields.centres, order[seen : seen + fields.centres.numel()])
            assert fields.owner.numel() <= 50 or fields.centres.numel() == 1
            torch.testing.assert_close(problem.clean_logits, whole[fields.centres], rtol=1e-4, atol=1e-5)
            seen += fields.centres.numel()
    assert seen == graph.num_nodes


def test_the_fields_are_the_balls(graph: Graph) -> None:
    reach = graph.propagation.to_dense() != 0
    two_hops = (reach.float() @ reach.float()) != 0
    for fields in copied_fields(graph, 2, torch.arange(graph.num_nodes)):
        for place, node in enumerate(fields.centres.tolist()):
            ball = fields.nodes[fields.owner == place]
            assert ball.tolist() == torch.nonzero(two_hops[node]).flatten().tolist()
