"""Draw the pictures of the guide: python docs/pictures/make.py"""

from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from bvat.report.html import join, tag
from bvat.report.palette import colour

import bvat
from bvat.audit import audit
from bvat.perturb import DisjointFields
from bvat.perturb.methods import METHODS
from bvat.report.charts import Drawing, Line, dot_key, line_chart, standalone

HERE = Path(__file__).parent


def fields(width: int = 16, height: int = 8, step: int = 36) -> str:
    """Draw a grid, the nodes that Algorithm 1 chooses in it, and their receptive fields for two layers."""
    number = np.arange(width * height).reshape(height, width)
    pairs = np.concatenate([np.stack([number[:, :-1], number[:, 1:]], -1).reshape(-1, 2),
                            np.stack([number[:-1], number[1:]], -1).reshape(-1, 2)])  # fmt: skip
    edges = sp.coo_array((np.ones(len(pairs)), pairs.T), shape=(width * height, width * height))
    graph = bvat.Graph.build(np.eye(width * height), edges, np.zeros(width * height, int), train=[0])
    found = DisjointFields(100).choose(graph, 2, torch.Generator().manual_seed(4))
    y, x = (step * (place + 0.5) for place in np.divmod(np.arange(width * height), width))
    lines = "".join(f"M{x[u]:g} {y[u]:g}L{x[v]:g} {y[v]:g}" for u, v in pairs)
    parts = [tag("path", d=lines, stroke="var(--line)", fill="none")]
    for u, owner in enumerate(found.owner.tolist()):
        fill = colour(owner) if owner >= 0 else "var(--page)"
        parts.append(tag("circle", cx=f"{x[u]:g}", cy=f"{y[u]:g}", r=8, fill=fill, stroke="var(--soft)"))
    parts += [
        tag(
            "circle", cx=f"{x[u]:g}", cy=f"{y[u]:g}", r=13, fill="none", stroke="var(--ink)", stroke_width=1.8
        )
        for u in found.chosen.tolist()
    ]
    keys = (
        dot_key("chosen node", "none", outline="var(--ink)"),
        dot_key("its receptive field", colour(0)),
        dot_key("in no field", "var(--page)", outline="var(--soft)"),
    )
    label = "a grid in which the receptive fields of the chosen nodes do not overlap"
    drawing = Drawing(join(parts), label, keys, width=width * step, height=height * step)
    return standalone("Nodes chosen by Algorithm 1: their receptive fields do not overlap", [drawing])


def lds() -> str:
    """Draw mean LDS against epsilon: random and worst changes, without and with O-BVAT."""
    graph = bvat.synthetic_graph(nodes=600, edges=1500, features=300, seed=0)
    lengths = [0.0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03]
    lines = []
    for method in ("none", "obvat"):
        model = bvat.NodeClassifier(method).fit(graph).classifier_.models[0].eval()
        worst = [float(audit(model, graph, epsilon=length).lds.mean()) for length in lengths]
        generator = torch.Generator().manual_seed(0)
        logits = model(graph)
        by_chance = [
            bvat.Random(length, generator=generator)(model, graph, logits).r_vadv for length in lengths
        ]
        name, number = METHODS[method].short, METHODS[method].colour
        lines.append(Line(f"{name}, worst change found", lengths, worst, colour=number, marks=True))
        lines.append(
            Line(f"{name}, random change", lengths, by_chance, colour=number, dashed=True, marks=True)
        )
    chart = line_chart(lines, "epsilon: norm of the change of each row", "mean LDS")
    return standalone("How far predictions move", [chart])


if __name__ == "__main__":
    torch.set_num_threads(1)
    (HERE / "fields.svg").write_text(fields(), "utf-8")
    (HERE / "lds.svg").write_text(lds(), "utf-8")
