"""Figures for papers, as SVG and PNG (needs the extra "report": matplotlib)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from bvat.data.files import write_atomic
from bvat.report.paper_page import paper_label

LOOKS = {
    "vat": ("#0072b2", "o"),
    "sbvat": ("#d55e00", "s"),
    "obvat": ("#009e73", "^"),
    "gcn": ("#666666", "D"),
}
OTHER = ("#aa4499", "D")
"""Colour and marker of each method, told apart by those who do not see colours too."""


def matplotlib_there() -> bool:
    """Whether figures can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def write_figure(result: dict[str, Any], folder: Path) -> list[Path]:
    """Draw a figure of :mod:`bvat.paper.figures` into ``TARGET.svg`` and ``TARGET.png``.

    The same numbers give the same files: no date, no random names in the SVG.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    look: Any = {
        "svg.hashsalt": "bvat",
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "legend.frameon": False,
    }
    written = []
    with mpl.rc_context(look):
        panels = result["panels"]
        figure = Figure(figsize=(4.2 * len(panels), 3.7), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _draw(axes, panel, result)
        for kind, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 200})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, **options)
            path = folder / f"{result['target']}.{kind}"
            write_atomic(path, buffer.getvalue())
            written.append(path)
    return written


def _draw(axes: Any, panel: dict[str, Any], result: dict[str, Any]) -> None:
    x = result["x"]["values"]
    for line in panel["series"]:
        look = dict(zip(("color", "marker"), LOOKS.get(line["name"], OTHER), strict=True))
        low = [mean - std for mean, std in zip(line["mean"], line["std"], strict=True)]
        high = [mean + std for mean, std in zip(line["mean"], line["std"], strict=True)]
        axes.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)
        axes.plot(x, line["mean"], label=line["label"], markersize=4, **look)
        if line["paper"]:
            points = line["paper"]
            axes.plot(x[: len(points)], points, label=paper_label(panel, line), linestyle="--",
                      markerfacecolor="none", markersize=4, linewidth=1, **look)  # fmt: skip
    axes.set_title(panel["title"], fontsize=9)
    axes.set_xlabel(result["x"]["label"])
    axes.set_ylabel(result["y"]["label"].replace("R_vadv", r"$R_{\mathrm{vadv}}$"))
    axes.legend(fontsize=7, ncol=2, loc="upper center", bbox_to_anchor=(0.5, -0.18))
