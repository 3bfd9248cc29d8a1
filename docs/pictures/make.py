"""Draw the pictures of the guide: python docs/pictures/make.py"""

from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from matplotlib.axes import Axes

import bvat
from bvat.audit import audit
from bvat.perturb import DisjointFields
from bvat.report.charts import SERIES, Chart, Line, line_chart, standalone
from bvat.report.svg import LIGHT

HERE = Path(__file__).parent


def fields(width: int = 16, height: int = 8, step: int = 36) -> str:
    """Draw a grid, the nodes that Algorithm 1 chooses in it, and their receptive fields for two layers."""
    number = np.arange(width * height).reshape(height, width)
    pairs = np.concatenate([np.stack([number[:, :-1], number[:, 1:]], -1).reshape(-1, 2),
                            np.stack([number[:-1], number[1:]], -1).reshape(-1, 2)])  # fmt: skip
    edges = sp.coo_array((np.ones(len(pairs)), pairs.T), shape=(width * height, width * height))
    graph = bvat.Graph.build(np.eye(width * height), edges, np.zeros(width * height, int), train=[0])
    found = DisjointFields(100).choose(graph, 2, torch.Generator().manual_seed(4))
    y, x = np.divmod(np.arange(width * height), width)

    def draw(ax: Axes) -> None:
        ax.set_axis_off()
        ax.set_aspect("equal")
        ax.plot(x[pairs.T], y[pairs.T], color=LIGHT["line"], linewidth=1, zorder=1)
        fills = [SERIES[owner % 8] if owner >= 0 else LIGHT["page"] for owner in found.owner.tolist()]
        ax.scatter(x, y, 250, fills, edgecolors=LIGHT["soft"], zorder=2)
        chosen = found.chosen.numpy()
        ax.scatter(x[chosen], y[chosen], 620, "none", edgecolors=LIGHT["ink"], linewidths=1.8, zorder=3)
        for label, fill, edge in (
            ("chosen node", "none", LIGHT["ink"]),
            ("its receptive field", SERIES[0], SERIES[0]),
            ("in no field", LIGHT["page"], LIGHT["soft"]),
        ):
            ax.scatter([], [], 70, fill, edgecolors=edge, label=label)

    label = "a grid in which the receptive fields of the chosen nodes do not overlap"
    chart = Chart(draw, label, width=width * step, height=height * step)
    return standalone("Nodes chosen by Algorithm 1: their receptive fields do not overlap", [chart])


def lds() -> str:
    """Draw mean LDS against epsilon on a GCN: random and worst changes."""
    graph = bvat.synthetic_graph(nodes=600, edges=1500, features=300, seed=0)
    lengths = [0.0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03]
    model = bvat.NodeClassifier("none").fit(graph).classifier_.models[0].eval()
    worst = [float(audit(model, graph, epsilon=length).lds.mean()) for length in lengths]
    generator, logits = torch.Generator().manual_seed(0), model(graph)
    by_chance = [bvat.Random(length, generator=generator)(model, graph, logits).r_vadv for length in lengths]
    lines = [
        Line("worst change found", lengths, worst, marks=True),
        Line("random change", lengths, by_chance, colour=1, dashed=True, marks=True),
    ]
    chart = line_chart(lines, "epsilon: norm of the change of each row", "mean LDS")
    return standalone("How far the predictions of a GCN move", [chart])


if __name__ == "__main__":
    torch.set_num_threads(1)
    (HERE / "fields.svg").write_text(fields(), "utf-8")
    (HERE / "lds.svg").write_text(lds(), "utf-8")
