"""The true radius of some nodes: what is weak where proved and attacked norms differ, bound or attack?

python benchmarks/certified_exact.py cora citeseer --out results/certified/exact.json

For GCNs with one hidden layer of a few units, and nodes for which at most ``--most`` relus can change their
slope within the norm that the attack needs. For each choice of these slopes the logits are affine, and the
shortest change that keeps to them and closes a margin is a projection onto a polyhedron; the shortest of all
is the true radius. "Share of the bound" is log(true / certified) / log(attacked / certified).
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls

from bvat.audit import audit
from bvat.audit.certify import read_layers
from bvat.data.files import write_json
from bvat.graph import Graph
from bvat.training.provenance import versions
from bvat.training.settings import short_name
from certified import fitted, loaded

Array = NDArray[np.float64]
RUNS = {"GCN": "none", "VAT": "vat", "S-BVAT": "sbvat", "O-BVAT": "obvat"}


def shortest(g: Array, h: Array) -> float:
    """Return the least |x| with ``G x >= h``, infinite if there is none (Lawson and Hanson's LDP)."""
    if bool((h <= 0).all()):
        return 0.0
    e = np.vstack([g.T, h])
    f = np.zeros(len(e))
    f[-1] = 1
    rest = e @ nnls(e, f)[0] - f
    if rest[-1] > -1e-9:
        return np.inf
    return float(np.linalg.norm(rest[:-1] / rest[-1]))


class Node:
    """How the logits of a node of a GCN depend on the features, in coordinates x with |x| = |R|.

    Shapes: z (S, H), the inputs of the relus of the S nodes that it reads; outer (S), their weights; effect
    (S, H, X), by which x changes z; second (H, C); bias (C).
    """

    def __init__(self, model: Any, graph: Graph, node: int) -> None:
        first, last = read_layers(model)
        matrix = graph.propagation.to_scipy().astype(np.float64)
        read = matrix[[node]].indices
        rows = matrix[read]
        x = (
            graph.features.to_scipy()
            if hasattr(graph.features, "to_scipy")
            else graph.features.values.numpy()
        )
        self.z = np.asarray(rows @ (x.astype(np.float64) @ first.weight)) + first.bias
        self.outer, self.second, self.bias = matrix[[node]].data, last.weight, last.bias
        gram = (rows @ rows.T).toarray()
        value, vector = np.linalg.eigh(gram)
        root = (vector * np.sqrt(value.clip(0)))[:, value > 1e-12]
        upper = np.linalg.cholesky(first.weight.T @ first.weight + 1e-14 * np.eye(self.z.shape[1])).T
        self.effect = np.einsum("sr,gh->shrg", root, upper).reshape(*self.z.shape, -1)
        logits = self.outer @ np.maximum(self.z, 0) @ self.second + self.bias
        self.predicted = int(logits.argmax())

    def loose(self, length: float) -> NDArray[np.bool_]:
        """Return which relus can change their slope within a length, (S, H)."""
        found: NDArray[np.bool_] = np.abs(self.z) <= length * np.linalg.norm(self.effect, axis=2)
        return found

    def radius(self, attacked: float) -> float:
        """Return the norm of the shortest change of the class, at most ``attacked``."""
        loose, best = self.loose(attacked), attacked
        for slopes in product((False, True), repeat=int(loose.sum())):
            active = self.z > 0
            active[loose] = slopes
            sign = np.where(active, 1.0, -1.0)[loose]
            keeps, from_here = sign[:, None] * self.effect[loose], -sign * self.z[loose]
            if shortest(keeps, from_here) >= best:
                continue
            for k in set(range(self.second.shape[1])) - {self.predicted}:
                a = self.second[:, self.predicted] - self.second[:, k]
                weights = self.outer[:, None] * active * a
                margin = (weights * self.z).sum() + self.bias[self.predicted] - self.bias[k]
                closing = -np.einsum("sh,shx->x", weights, self.effect)
                best = min(best, shortest(np.vstack([keeps, closing]), np.append(from_here, margin)))
        return best


def measure(graph: Graph, method: str, asked: argparse.Namespace) -> dict[str, Any]:
    model, about = fitted(graph, method, 0, hidden=asked.hidden)
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))[: 20 * asked.nodes]
    found = audit(model, graph, nodes=order, certify=True)
    rows = []
    for node, proved, attacked in zip(
        order.tolist(), found.certified.tolist(), found.smallest.tolist(), strict=True
    ):
        here = Node(model, graph, node)
        if proved > 0 and here.loose(attacked).sum() <= asked.most:
            rows.append((proved, here.radius(attacked), attacked))
        if len(rows) == asked.nodes:
            break
    proved, true, attacked = np.array(rows).T
    gap = np.log(attacked / proved)
    return {
        **about,
        "nodes": len(rows),
        "certified_by_true": float(np.median(proved / true)),
        "true_by_attacked": float(np.median(true / attacked)),
        "certified_by_attacked": float(np.median(proved / attacked)),
        "share_of_bound": float(np.log(true / proved).sum() / gap.sum()),
        "violations": int((proved > true * (1 + 1e-6)).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--hidden", type=int, default=8)
    parser.add_argument("--most", type=int, default=8, help="relus that may change, at most")
    parser.add_argument("--nodes", type=int, default=40)
    asked = parser.parse_args()
    about = {key: getattr(asked, key) for key in ("hidden", "most", "nodes")}
    found: dict[str, Any] = {"asked": about, "versions": versions(), "graphs": {}}
    for source in asked.graphs:
        rows = found["graphs"].setdefault(short_name(source), {})
        for name, method in RUNS.items():
            row = rows[name] = measure(loaded(source), method, asked)
            sys.stdout.write(f"{source} {name} { ({key: row[key] for key in row if key != 'settings'}) }\n")
            sys.stdout.flush()
            write_json(asked.out, found)


if __name__ == "__main__":
    main()
