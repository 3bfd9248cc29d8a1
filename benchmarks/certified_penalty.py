"""Training for a large certified radius: the bound of the slopes as a penalty.

python benchmarks/certified_penalty.py cora citeseer pubmed --out results/certified/penalty.json

Adds ``β mean_v log sum_k exp(-margin_vk / (s_ck norm_v τ))`` to the cross-entropy of a GCN, where c is the
class of node v and s the entrywise bound, which is differentiable. c is the label at the training nodes, or
the predicted class at all nodes; with s held fixed, only the predicted classes and the margins remain. Weight
and scale: ``--beta`` and ``--tau``, the latter in norms of a feature row. Other methods with the same seeds
are in results/certified/curves.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bvat
from bvat.audit import certify
from bvat.audit.certify import _row_norms, read_layers
from bvat.data.files import write_json
from bvat.perturb.flag import CleanPass, OnLabels
from bvat.perturb.regulariser import Outcome
from bvat.training.provenance import versions
from bvat.training.settings import short_name
from certified import fitted, loaded

METHODS = {
    "penalty, all nodes": "penalty-all",
    "the same, s held fixed": "penalty-fixed",
    "penalty, training nodes": "penalty-train",
}


def entrywise(first: Tensor, second: Tensor) -> Tensor:
    """Return ``s_ck = sqrt(sum_ij max(G_ij a_i a_j, 0))``, (C, C), with ``a = second_c - second_k``."""
    a = (second[:, :, None] - second[:, None, :]).permute(1, 2, 0)
    gram = first.t() @ first
    squares = (gram * a[..., :, None] * a[..., None, :]).clamp_min(0).sum((-1, -2))
    return (squares + 1e-12).sqrt()


@dataclass
class Penalty(OnLabels):
    """The term above; ``everywhere``: at all nodes; ``fixed``: s without a gradient."""

    tau: float = 0.3
    everywhere: bool = True
    fixed: bool = False
    dropout: str = "reuse"

    def outcome(self, model: Any, inputs: Any, clean: CleanPass) -> Outcome:
        logits, zero = clean.logits, clean.logits.new_zeros(())
        if getattr(self, "kept", None) is None:
            matrix = inputs.propagation.to_scipy().astype(float)
            (norm,) = _row_norms([layer.theta for layer in read_layers(model)], matrix, ("graph",))
            row = inputs.features.row_squares().mean().sqrt()
            self.kept = torch.from_numpy(norm).to(logits) * row * self.tau
        classes = logits.detach().argmax(1).index_copy(0, clean.train, clean.labels)
        s = entrywise(*model.weights)
        chosen = slice(None) if self.everywhere else clean.train
        own, scale, logits = classes[chosen], self.kept[chosen], logits[chosen]
        s = (s.detach() if self.fixed else s)[own] * scale[:, None]
        margins = logits.gather(1, own[:, None]) - logits
        loss = torch.logsumexp(-margins / s, 1).mean()
        return Outcome(loss, len(own), zero, zero, "none")


@dataclass(frozen=True, kw_only=True)
class PenaltyOptions(bvat.RegulariserOptions):
    alpha: float = bvat.option(0.0, "weight of the entropy", at_least=0)
    beta: float = bvat.option(1.0, "weight of the penalty", at_least=0)
    tau: float = bvat.option(0.3, "its scale, in norms of a feature row", above=0)


def register() -> None:
    for name, where in (("train", {"everywhere": False}), ("all", {}), ("fixed", {"fixed": True})):

        def home(tau: float, generator: Any, where: Any = where, **unused: Any) -> Penalty:
            return Penalty(generator=generator, tau=tau, **where)

        title = f"GCN + penalty ({name})"
        bvat.register(bvat.MethodRow(f"penalty-{name}", title, "certified radius", PenaltyOptions, home))


def measure(source: str, name: str, seed: int, asked: argparse.Namespace) -> dict[str, Any]:
    graph, method = loaded(source), METHODS[name]
    model, about = fitted(graph, method, seed, beta=asked.beta, tau=asked.tau)
    test = graph.test[torch.randperm(len(graph.test), generator=torch.Generator().manual_seed(0))[:300]]
    found = certify(model, graph)
    row = float(graph.features.row_squares().mean().sqrt())
    return {**about, "median_certified": float(found.radius[test].median() / row)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--beta", type=float, default=1.0)
    parser.add_argument("--tau", type=float, default=0.3)
    asked = parser.parse_args()
    register()
    kept = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else {}
    graphs: dict[str, Any] = kept.get("graphs", {})
    about = {"beta": asked.beta, "tau": asked.tau, "seeds": asked.seeds}
    for name, source, seed in product(METHODS, asked.graphs, range(asked.seeds)):
        runs = graphs.setdefault(short_name(source), {}).setdefault(name, {})
        if str(seed) in runs:
            continue
        row = runs[str(seed)] = measure(source, name, seed, asked)
        sys.stdout.write(f"{source} {name} {seed} {row['test_accuracy']:.1f} {row['median_certified']:.4f}\n")
        sys.stdout.flush()
        write_json(asked.out, {"asked": about, "versions": versions(), "graphs": graphs})


if __name__ == "__main__":
    main()
