"""Planetoid (Yang, Cohen, Salakhutdinov 2016): embeddings that predict contexts and labels at once.

A context of a node is a node near it on a random walk, or a training node of its class. Contexts are learned
with negative samples, as the paper prints it; the authors' code evaluates the whole softmax, which is too
slow for NELL. Their script keeps the step that is best on the test nodes; here the validation nodes decide.
The classifier has no weights for features that no training node has: they would keep their random start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bvat.baselines.base import (
    Fit,
    Frozen,
    Once,
    VisiblePart,
    always,
    choose,
    glorot,
    largest_one,
    node_table,
    take_columns,
    used_columns,
    visible_part,
)
from bvat.baselines.skipgram import LEAST_RATE, NO_TREE, learn, noise_table
from bvat.baselines.walks import Nodes, walks_from_all, walks_per_node
from bvat.graph import Graph
from bvat.graph.inputs import FeatureMatrix

DIM, NEGATIVES = 50, 5
LENGTH, WINDOW = 40, 10
"""Walks of the embeddings of nodes, chosen on the validation nodes of Cora; the paper has 10 and 3."""
SHORT, NEAR = 10, 3
"""Walks of the function of the features, as in the paper."""
ROUNDS, MOST = 10, 10_000_000
"""Walks from every node, and how many nodes all of them may have, as many as on Pubmed: NELL gets 4 of each,
with which it validates no worse (Planetoid-G 73.4 against 66.6)."""
SHORT_ROUNDS, SHORT_MOST = 5, 1_000_000
"""The same for the function of the features, which NELL learns from 2 walks of each node."""
STEPS, EVERY, PATIENCE = 500, 10, 150
LABEL_WALKS = (20, 0)
"""Walks among the training nodes of each class; the first is used where there are no validation nodes."""
DECAYS = (0.01, 0.0, 0.03, 0.1)
"""L2 penalties of the classifier; the first is used where there are no validation nodes."""
RATES = (0.1, 1.0)
"""Its learning rates: the paper's, and one for many classes, for which 0.1 does not converge in STEPS."""
Weights = dict[str, Tensor]


def fit_t(graph: Graph, seed: int, once: Once = always) -> Fit:
    """Fit Planetoid-T: a free embedding beside the features."""
    return _fit_table(graph, largest_one(graph.features), seed, once)


def fit_g(graph: Graph, seed: int, once: Once = always) -> Fit:
    """Fit Planetoid-G: a free embedding alone, the same as of Planetoid-T."""
    return _fit_table(graph, None, seed, once)


def _fit_table(graph: Graph, features: FeatureMatrix | None, seed: int, once: Once) -> Fit:
    dtype, val = graph.features.dtype, graph.val
    if features is not None:
        features = take_columns(features, used_columns(features.select(graph.train)))
    x, x_val = (None if features is None else features.select(nodes) for nodes in (graph.train, val))
    embeddings: dict[float, Tensor] = {}

    def fitted(count: float, decay: float, rate: float) -> tuple[float, tuple[int, Weights]]:
        if count not in embeddings:
            contexts = partial(context_embedding, graph, seed, label_walks=int(count))
            embeddings[count] = once(f"contexts-{int(count)}", contexts).to(dtype)
        weights = head(None if x is None else x.shape[1], graph.num_classes, seed, dtype)
        weights["e"] = embeddings[count][graph.train].requires_grad_()
        e_val = embeddings[count][val]
        train = graph.labels[graph.train], lambda: head_logits(weights, x, weights["e"])
        held_out = graph.labels[val], lambda: head_logits(weights, x_val, e_val)
        return descend(weights, train, held_out, decay, rate)

    (count, decay, rate), (step, weights) = choose(graph, LABEL_WALKS, DECAYS, RATES, fit=fitted)
    embedding = embeddings[count]
    embedding[graph.train] = weights["e"].detach()
    with torch.no_grad():
        p = head_logits(weights, features, embedding)[0].softmax(1)
    if features is None:
        p[torch.from_numpy(np.diff(graph.adjacency.crow.numpy()) == 0)] = 0
    return node_table(graph, p, {"label_walks": count, "weight_decay": decay, "lr": rate, "steps": step})


def context_embedding(graph: Graph, seed: int, *, label_walks: int, lr: float = 0.025) -> Tensor:
    """Return an embedding (N, DIM) that predicts the classes of training nodes, then also walks."""
    adjacency, size = graph.adjacency.to_scipy(), graph.num_nodes
    rng = np.random.default_rng(seed)
    inputs: NDArray[np.float32] = (0.01 * rng.standard_normal((size, DIM))).astype(np.float32)
    outputs = (0.01 * rng.standard_normal((size, DIM))).astype(np.float32)

    def contexts(walks: Nodes, noise: Nodes, first: float, last: float) -> None:
        number = int(rng.integers(1 << 31))
        learn(walks, WINDOW, (inputs, outputs), NO_TREE, (noise, NEGATIVES), (first, last), number)

    train, labels = graph.train.numpy().astype(np.int32), graph.labels[graph.train].numpy()
    for label in np.unique(labels) if len(np.unique(labels)) > 1 else ():
        contexts(rng.choice(train[labels == label], (label_walks, LENGTH)), train[labels != label], lr, lr)
    rounds = walks_per_node(size, LENGTH, ROUNDS, MOST)
    walks = walks_from_all(adjacency, rounds, LENGTH, int(rng.integers(1 << 31)))
    if walks.size:
        contexts(walks, noise_table(np.diff(adjacency.indptr)), lr, lr * LEAST_RATE)
    return torch.from_numpy(inputs)


class Inductive(Frozen):
    """Planetoid-I, with the embedding ReLU(X V + c). Shapes: v (D, DIM), c (DIM), more as :func:`head`."""

    shapes: ClassVar = {"v": "DE", "c": "E", "we": "EC", "be": "C",
                        "wx": "DC", "bx": "C", "wf": "BC", "bf": "C"}  # fmt: skip

    def forward(self, graph: Graph) -> Tensor:
        return inductive_logits(dict(self.named_parameters()), largest_one(graph.features))[0]


def inductive_logits(weights: Weights, x: FeatureMatrix, rest: Tensor | float = 0.0) -> list[Tensor]:
    """Return the logits of the head with the embedding of the features; ``rest`` is added to X V."""
    return head_logits(weights, x, (x @ weights["v"] + rest + weights["c"]).relu())


def fit_i(graph: Graph, seed: int) -> Fit:
    """Fit Planetoid-I without validation and test nodes, which walks do not cross either."""
    features, dtype = largest_one(graph.features), graph.features.dtype
    part, held_out = visible_part(graph, features), features.select(graph.val)
    generator = torch.Generator().manual_seed(seed)
    v, c = learn_function(part, glorot(graph.num_features, DIM, generator, dtype), seed)
    x = part.features.select(part.train)
    used = used_columns(x)
    x, x_val = take_columns(x, used), take_columns(held_out, used)
    rest = held_out @ v.index_fill(0, used, 0.0)

    def fitted(decay: float, rate: float) -> tuple[float, tuple[int, Weights]]:
        weights = {"v": v[used].requires_grad_(), "c": c.clone().requires_grad_()}
        weights |= head(used.numel(), graph.num_classes, seed, dtype)
        train = part.labels, lambda: inductive_logits(weights, x)
        held_out = graph.labels[graph.val], lambda: inductive_logits(weights, x_val, rest)
        return descend(weights, train, held_out, decay, rate)

    (decay, rate), (step, weights) = choose(graph, DECAYS, RATES, fit=fitted)
    tensors = {name: tensor.detach() for name, tensor in weights.items()}
    tensors["v"] = v.index_copy(0, used, tensors["v"])
    unseen = tensors["wx"].new_zeros(graph.num_features, graph.num_classes)
    tensors["wx"] = unseen.index_copy(0, used, tensors["wx"])
    return Fit(Inductive(**tensors), {"weight_decay": decay, "lr": rate, "steps": step})


def learn_function(
    part: VisiblePart, start: Tensor, seed: int, batch: int = 200, lr: float = 0.01
) -> tuple[Tensor, Tensor]:
    """Return V and c, trained so that ReLU(X V + c) predicts walks and the classes of training nodes."""
    rng = np.random.default_rng(seed)
    v, c = start.requires_grad_(), torch.zeros(DIM, dtype=start.dtype, requires_grad=True)
    outputs = torch.zeros(len(part.nodes), DIM, dtype=v.dtype, requires_grad=True)
    optimizer = torch.optim.Adam([v, c, outputs], lr=lr)
    rounds = walks_per_node(len(part.nodes), SHORT, SHORT_ROUNDS, SHORT_MOST)
    walks = walks_from_all(part.adjacency, rounds, SHORT, int(rng.integers(1 << 31)))
    noise = noise_table(np.diff(part.adjacency.indptr)) if walks.size else np.zeros(1, np.int32)
    train, labels = part.train.numpy(), part.labels.numpy()
    for first in range(0, max(len(walks), 1), batch):
        ends, near = pairs_of(walks[first : first + batch])
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
    return v.detach(), c.detach()


def pairs_of(walks: Nodes) -> tuple[Nodes, Nodes]:
    """Return all pairs of nodes at most NEAR steps apart on a walk, in both orders."""
    ends, near = [], []
    for gap in range(1, NEAR + 1):
        a, b = walks[:, :-gap].ravel(), walks[:, gap:].ravel()
        ends += [a, b]
        near += [b, a]
    return np.concatenate(ends), np.concatenate(near)


def head(features: int | None, classes: int, seed: int, dtype: torch.dtype) -> Weights:
    """Return the weights of the classifier: of the embedding, and with features of these and of both."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"we": (DIM, classes)}
    if features is not None:
        shapes |= {"wx": (features, classes), "wf": (2 * classes, classes)}
    weights = {name: glorot(*shape, generator, dtype) for name, shape in shapes.items()}
    weights |= {name.replace("w", "b"): torch.zeros(classes, dtype=dtype) for name in shapes}
    return {name: tensor.requires_grad_() for name, tensor in weights.items()}


def head_logits(weights: Weights, x: FeatureMatrix | None, e: Tensor) -> list[Tensor]:
    """Return the logits (m, C), and those of the features and the embedding alone where both count."""
    of_e = e @ weights["we"] + weights["be"]
    if x is None:
        return [of_e]
    of_x = x @ weights["wx"] + weights["bx"]
    both = torch.cat([of_x.softmax(1), of_e.softmax(1)], 1)
    return [both @ weights["wf"] + weights["bf"], of_x, of_e]


Labelled = tuple[Tensor, Callable[[], list[Tensor]]]
"""Labels (m), and a function that returns logits for them, the first (m, C) those of the classifier."""


def descend(
    weights: Weights, train: Labelled, held_out: Labelled, decay: float, rate: float
) -> tuple[float, tuple[int, Weights]]:
    """Descend the sum of all losses by SGD; leave the weights as when most validation nodes were right.

    Return how many these were, the step and the weights. Without validation nodes the last step is kept.
    """
    parameters = list(weights.values())
    optimizer = torch.optim.SGD(parameters, lr=rate, weight_decay=decay)
    most, at, kept = -1.0, 0, parameters
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = torch.stack([F.cross_entropy(logits, train[0]) for logits in train[1]()]).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % EVERY and step < STEPS:
            continue
        with torch.no_grad():
            found = held_out[1]()[0].argmax(1) == held_out[0]
        if not found.numel() or float(found.sum()) > most:
            most, at, kept = float(found.sum()), step, [p.detach().clone() for p in parameters]
        elif step - at >= PATIENCE:
            break
    with torch.no_grad():
        for parameter, value in zip(parameters, kept, strict=True):
            parameter.copy_(value)
    return most, (at, weights)
