"""Planetoid (Yang, Cohen, Salakhutdinov 2016): embeddings that predict contexts and labels at once.

A context of a node is a node near it on a random walk, or a training node of its class. Contexts are learned
with negative samples, as the paper prints it; the authors' code evaluates the whole softmax, which is too
slow for NELL. Their script keeps the step that is best on the test nodes; here the validation nodes decide.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bvat.baselines.base import Fit, Frozen, VisiblePart, largest_one, node_table, visible_part
from bvat.baselines.skipgram import LEAST_RATE, NO_TREE, learn, noise_table
from bvat.baselines.walks import Nodes, walks_from_all
from bvat.graph import Graph
from bvat.graph.inputs import FeatureMatrix

DIM, LENGTH, WINDOW, NEGATIVES = 50, 10, 3, 5
STEPS, EVERY, LR = 1000, 10, 0.1
Weights = dict[str, Tensor]


def fit_t(graph: Graph, variant: str, seed: int) -> Fit:
    """Fit Planetoid-T: a free embedding beside the features."""
    return _fit_table(graph, largest_one(graph.features), seed)


def fit_g(graph: Graph, variant: str, seed: int) -> Fit:
    """Fit Planetoid-G: a free embedding alone."""
    return _fit_table(graph, None, seed)


def _fit_table(graph: Graph, features: FeatureMatrix | None, seed: int) -> Fit:
    embedding = torch.from_numpy(context_embedding(graph, seed)).to(graph.features.dtype)
    generator = torch.Generator().manual_seed(seed)
    shown = embedding[graph.train].clone().requires_grad_()
    weights = head(features, DIM, graph.num_classes, generator)
    x = None if features is None else features.select(graph.train)

    def loss() -> Tensor:
        return sum_of_losses(head_logits(weights, x, shown), graph.labels[graph.train])

    def logits(nodes: Tensor) -> Tensor:
        here = embedding.clone()
        here[graph.train] = shown.detach()
        x = None if features is None else features.select(nodes)
        return head_logits(weights, x, here[nodes])[0].detach()

    step = descend(graph, [*weights.values(), shown], loss, logits)
    p = logits(torch.arange(graph.num_nodes)).softmax(1)
    alone = torch.from_numpy(np.diff(graph.adjacency.crow.numpy()) == 0)
    if features is None:
        p[alone] = 0
    return node_table(graph, p, {"steps": step})


def context_embedding(
    graph: Graph, seed: int, rounds: int = 10, lr: float = 0.05, label_walks: int = 100
) -> NDArray[np.float32]:
    """Return an embedding (N, DIM) that predicts the classes of training nodes, then also walks."""
    adjacency, size = graph.adjacency.to_scipy(), graph.num_nodes
    rng = np.random.default_rng(seed)
    inputs: NDArray[np.float32] = (0.01 * rng.standard_normal((size, DIM))).astype(np.float32)
    outputs = (0.01 * rng.standard_normal((size, DIM))).astype(np.float32)

    def contexts(walks: Nodes, noise: Nodes, first: float, last: float) -> None:
        number = int(rng.integers(1 << 31))
        learn(walks, WINDOW, inputs, outputs, *NO_TREE, noise, NEGATIVES, first, last, number)

    train, labels = graph.train.numpy().astype(np.int32), graph.labels[graph.train].numpy()
    for label in np.unique(labels) if len(np.unique(labels)) > 1 else ():
        contexts(rng.choice(train[labels == label], (label_walks, LENGTH)), train[labels != label], lr, lr)
    walks = walks_from_all(adjacency, rounds, LENGTH, int(rng.integers(1 << 31)))
    if walks.size:
        contexts(walks, noise_table(np.diff(adjacency.indptr)), lr, lr * LEAST_RATE)
    return inputs


class Inductive(Frozen):
    """Planetoid-I, with the embedding ReLU(X V + c). Shapes: v (D, DIM), c (DIM), more as :func:`head`."""

    def __init__(self, *, v: Tensor, c: Tensor, we: Tensor, be: Tensor, wx: Tensor, bx: Tensor, wf: Tensor,
                 bf: Tensor) -> None:  # fmt: skip
        super().__init__(v=v, c=c, we=we, be=be, wx=wx, bx=bx, wf=wf, bf=bf)

    def forward(self, graph: Graph) -> Tensor:
        """Return the logits (N, C)."""
        return inductive_logits(dict(self.named_parameters()), largest_one(graph.features))[0]


def inductive_logits(weights: Weights, x: FeatureMatrix) -> list[Tensor]:
    """Return the logits of the head with the embedding of the features."""
    return head_logits(weights, x, (x @ weights["v"] + weights["c"]).relu())


def fit_i(graph: Graph, variant: str, seed: int) -> Fit:
    """Fit Planetoid-I without validation and test nodes: also walks do not cross them."""
    features = largest_one(graph.features)
    part, held_out = visible_part(graph, features), features.select(graph.val)
    generator = torch.Generator().manual_seed(seed)
    weights = {"v": glorot(graph.num_features, DIM, generator), "c": torch.zeros(DIM).requires_grad_()}
    weights |= head(features, DIM, graph.num_classes, generator)
    learn_function(part, weights["v"], weights["c"], seed)
    x = part.features.select(part.train)

    def loss() -> Tensor:
        return sum_of_losses(inductive_logits(weights, x), part.labels)

    def logits(_: Tensor) -> Tensor:
        return inductive_logits(weights, held_out)[0].detach()

    step = descend(graph, list(weights.values()), loss, logits)
    tensors = {name: tensor.detach().to(graph.features.dtype) for name, tensor in weights.items()}
    return Fit(Inductive(**tensors), {"steps": step})


def learn_function(
    part: VisiblePart, v: Tensor, c: Tensor, seed: int, rounds: int = 5, batch: int = 200, lr: float = 0.01
) -> None:
    """Train V and c so that ReLU(X V + c) predicts walks and the classes of training nodes."""
    rng = np.random.default_rng(seed)
    outputs = torch.zeros(len(part.nodes), DIM, requires_grad=True)
    optimizer = torch.optim.Adam([v, c, outputs], lr=lr)
    walks = walks_from_all(part.adjacency, rounds, LENGTH, int(rng.integers(1 << 31)))
    noise = noise_table(np.diff(part.adjacency.indptr)) if walks.size else np.zeros(1, np.int32)
    train, labels = part.train.numpy(), part.labels.numpy()
    for start in range(0, max(len(walks), 1), batch):
        ends, near = pairs_of(walks[start : start + batch])
        far = noise[rng.integers(len(noise), size=(len(ends), NEGATIVES))]
        one, other = rng.integers(len(train), size=(2, batch))
        same = labels[one] == labels[other]
        used, place = np.unique(np.concatenate([ends, train[one]]), return_inverse=True)
        hidden = (part.features.select(torch.from_numpy(used).long()) @ v + c).relu()
        e = hidden[torch.from_numpy(place[: len(ends)])]
        score = (e * outputs[torch.from_numpy(near).long()]).sum(1)
        against = torch.einsum("pd,pnd->pn", e, outputs[torch.from_numpy(far).long()])
        of_label = (
            hidden[torch.from_numpy(place[len(ends) :])] * outputs[torch.from_numpy(train[other])]
        ).sum(1)
        signs = torch.from_numpy(np.where(same, 1.0, -1.0)).to(of_label.dtype)
        loss = -F.logsigmoid(signs * of_label).mean()
        if len(ends):
            loss = loss - F.logsigmoid(score).mean() - F.logsigmoid(-against).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def pairs_of(walks: Nodes) -> tuple[Nodes, Nodes]:
    """Return all pairs of nodes at most WINDOW steps apart on a walk, in both orders."""
    ends, near = [], []
    for gap in range(1, WINDOW + 1):
        a, b = walks[:, :-gap].ravel(), walks[:, gap:].ravel()
        ends += [a, b]
        near += [b, a]
    return np.concatenate(ends), np.concatenate(near)


def glorot(inputs: int, outputs: int, generator: torch.Generator) -> Tensor:
    """Return weights drawn as Glorot and Bengio do."""
    limit = (6 / (inputs + outputs)) ** 0.5
    values: Tensor = (2 * torch.rand(inputs, outputs, generator=generator) - 1) * limit
    return values.requires_grad_()


def head(features: FeatureMatrix | None, width: int, classes: int, generator: torch.Generator) -> Weights:
    """Return the weights of the classifier: of the embedding, and with features of these and of both."""
    weights = {"we": glorot(width, classes, generator), "be": torch.zeros(classes).requires_grad_()}
    if features is not None:
        weights |= {
            "wx": glorot(features.shape[1], classes, generator),
            "wf": glorot(2 * classes, classes, generator),
        }
        weights |= {name: torch.zeros(classes).requires_grad_() for name in ("bx", "bf")}
    return weights


def head_logits(weights: Weights, x: FeatureMatrix | None, e: Tensor) -> list[Tensor]:
    """Return the logits (m, C), and those of the features and the embedding alone where both count."""
    of_e = e @ weights["we"] + weights["be"]
    if x is None:
        return [of_e]
    of_x = x @ weights["wx"] + weights["bx"]
    both = torch.cat([of_x.softmax(1), of_e.softmax(1)], 1)
    return [both @ weights["wf"] + weights["bf"], of_x, of_e]


def sum_of_losses(every: list[Tensor], labels: Tensor) -> Tensor:
    """Return the sum of the cross-entropies of all logits."""
    return torch.stack([F.cross_entropy(logits, labels) for logits in every]).sum()


def descend(graph: Graph, parameters: list[Tensor], loss: Any, logits: Any, steps: int = STEPS) -> int:
    """Descend by SGD; leave the parameters as they were when the validation nodes were predicted best."""
    optimizer = torch.optim.SGD(parameters, lr=LR)
    best, kept, at = -1.0, [p.detach().clone() for p in parameters], 0
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        if step % EVERY and step < steps:
            continue
        with torch.no_grad():
            right = float((logits(graph.val).argmax(1) == graph.labels[graph.val]).sum())
        if right > best or not graph.val.numel():
            best, at, kept = right, step, [p.detach().clone() for p in parameters]
    with torch.no_grad():
        for parameter, value in zip(parameters, kept, strict=True):
            parameter.copy_(value)
    return at
