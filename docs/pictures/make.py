"""Draw the pictures of the guide: python docs/pictures/make.py (needs matplotlib)."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
import torch

import bvat
from bvat.audit import audit
from bvat.perturb import DisjointFields

plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "bvat", "font.size": 10})
HERE = Path(__file__).parent
COLOURS = ["#0072b2", "#c44e00", "#007a5a", "#a3407f", "#8a6d00", "#56b4e9", "#6b5bb5", "#e69f00", "#666666"]


def save(figure: plt.Figure, name: str) -> None:
    """Write a picture; the file is the same every time."""
    figure.savefig(HERE / name, bbox_inches="tight", metadata={"Date": None, "Creator": None})
    plt.close(figure)


def draw_fields(width: int = 16, height: int = 8) -> None:
    """Draw a grid, the nodes that Algorithm 1 chooses in it, and their receptive fields for two layers."""
    number = np.arange(width * height).reshape(height, width)
    pairs = np.concatenate([np.stack([number[:, :-1], number[:, 1:]], -1).reshape(-1, 2),
                            np.stack([number[:-1], number[1:]], -1).reshape(-1, 2)])  # fmt: skip
    edges = sp.coo_array((np.ones(len(pairs)), pairs.T), shape=(width * height, width * height))
    graph = bvat.Graph.build(np.eye(width * height), edges, np.zeros(width * height, int), train=[0])
    chosen = DisjointFields(100).choose(graph, 2, torch.Generator().manual_seed(4))
    figure, axes = plt.subplots(figsize=(7.2, 3.4))
    y, x = np.divmod(np.arange(width * height), width)
    gap = np.full(len(pairs), np.nan)  # one line with gaps makes a smaller file than many lines
    across, up = (np.stack([part[pairs[:, 0]], part[pairs[:, 1]], gap], 1).ravel() for part in (x, y))
    axes.plot(across, up, color="#cccccc", lw=0.8, zorder=1)
    owner = chosen.owner.numpy()
    face = [COLOURS[k % len(COLOURS)] if k >= 0 else "#ffffff" for k in owner]
    axes.scatter(x, y, s=70, c=face, edgecolors="#888888", linewidths=0.6, zorder=2)
    at = chosen.chosen.numpy()
    axes.scatter(x[at], y[at], s=190, facecolors="none", edgecolors="#000000", linewidths=1.6, zorder=3)
    axes.set_aspect("equal")
    axes.axis("off")
    save(figure, "fields.svg")


def draw_lds() -> None:
    """Draw the mean LDS against epsilon for random and worst-case changes, without and with O-BVAT."""
    graph = bvat.synthetic_graph(nodes=600, edges=1500, features=300, seed=0)
    lengths = [0.0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03]
    figure, axes = plt.subplots(figsize=(5.6, 3.6))
    for method, colour, name in (("gcn", COLOURS[1], "plain GCN"), ("obvat", COLOURS[0], "O-BVAT")):
        model = bvat.NodeClassifier(method).fit(graph).classifier_.models[0].eval()
        worst = [float(audit(model, graph, epsilon=length).lds.mean()) for length in lengths]
        generator = torch.Generator().manual_seed(0)
        logits = model(graph)
        by_chance = [
            bvat.Random(length, generator=generator)(model, graph, logits).r_vadv for length in lengths
        ]
        axes.plot(lengths, worst, color=colour, marker="o", ms=4, label=f"{name}, worst change found")
        axes.plot(lengths, by_chance, color=colour, ls="--", label=f"{name}, random change")
    axes.set(xlabel="epsilon: length of the change of each row", ylabel="mean LDS")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    save(figure, "lds.svg")


if __name__ == "__main__":
    torch.set_num_threads(1)
    draw_fields()
    draw_lds()
