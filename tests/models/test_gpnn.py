"""GPNN against a loop over nodes, and its partition in training, storage and prediction."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import bvat
from bvat.errors import SettingsError
from bvat.models import GPNN
from bvat.models.gpnn import _clusters


def made(graph: bvat.Graph, seed: int = 0, **options: object) -> GPNN:
    generator = torch.Generator().manual_seed(seed)
    sizes = {"hidden": 4, "layers": 2, "clusters": 3, **options}
    return GPNN(graph.num_features, graph.num_classes, generator=generator, **sizes).double().eval()


def gru(model: GPNN, message: Tensor, state: Tensor) -> Tensor:
    """The cell as its paper writes it, with a matrix per gate."""
    x_update, x_reset, x_new = model.from_mean.chunk(3, 1)
    h_update, h_reset = model.from_state.chunk(2, 1)
    b_update, b_reset, b_new = model.gates.chunk(3)
    update = torch.sigmoid(message @ x_update + state @ h_update + b_update)
    reset = torch.sigmoid(message @ x_reset + state @ h_reset + b_reset)
    new = torch.tanh(message @ x_new + (reset * state) @ model.from_reset + b_new)
    return update * state + (1 - update) * new


@pytest.mark.parametrize("partition", ["flood", "spectral"])
@pytest.mark.parametrize("readout_layers", [0, 2])
def test_equals_a_loop_over_nodes(graph64: bvat.Graph, partition: str, readout_layers: int) -> None:
    model = made(graph64, partition=partition, readout_layers=readout_layers)
    with torch.no_grad():
        for bias in model.biases:
            bias.normal_()
    clusters = _clusters(graph64.propagation, int(model.partition_seed), partition, 3)
    near = graph64.adjacency.to_dense() > 0
    x = graph64.features.to_dense()
    first = model.projection()
    state = x @ first[:, :4] + model.biases[0]
    for _ in range(2):
        for within in (True, False):
            after = state.clone()
            for v in range(graph64.num_nodes):
                others = [u for u in near[v].nonzero().flatten() if (clusters[u] == clusters[v]) == within]
                mean = torch.stack([state[u] for u in others]).mean(0) if others else torch.zeros(4)
                if others or within:
                    after[v] = gru(model, mean.double(), state[v])
            state = after
    direct = first[:, 4:]
    out = torch.cat([state, x], 1) @ torch.cat([model.weights[1], direct]) + model.biases[1]
    for weight, bias in zip(model.weights[2:], model.biases[2:], strict=True):
        out = torch.tanh(out) @ weight + bias
    torch.testing.assert_close(model(graph64), out)
    assert len(model.divided(graph64).border)


def test_the_partition_is_drawn_with_the_weights_and_kept_with_them(graph64: bvat.Graph) -> None:
    one, other = made(graph64), made(graph64, seed=1)
    assert int(one.partition_seed) != int(other.partition_seed)
    before = graph64.propagation.values.clone()
    logits = one(graph64)
    assert not torch.equal(logits, other(graph64))
    other.load_state_dict(one.state_dict())
    assert torch.equal(logits, other(graph64))
    assert torch.equal(before, graph64.propagation.values)


def test_a_saved_classifier_predicts_the_same(graph: bvat.Graph, tmp_path: Path) -> None:
    classifier = bvat.NodeClassifier("vat", model="gpnn", epochs=6, hidden=8, clusters=4).fit(graph)
    classifier.save(tmp_path / "saved")
    again = bvat.NodeClassifier.load(tmp_path / "saved")
    assert (classifier.predict_proba(graph) == again.predict_proba(graph)).all()


def test_a_graph_without_edges(graph: bvat.Graph) -> None:
    import scipy.sparse as sp

    alone = bvat.Graph.build(
        graph.features.to_scipy(), sp.csr_array((40, 40)), graph.labels, train=graph.train
    )
    model = GPNN(alone.num_features, alone.num_classes, hidden=4).eval()
    assert model(alone).isfinite().all()


def test_impossible_partitions_are_refused() -> None:
    for wrong in ({"clusters": 0}, {"partition": "metis"}, {"readout_layers": -1}):
        with pytest.raises(SettingsError, match="GPNN needs clusters >= 1"):
            GPNN(10, 2, **wrong)
