"""Write the table of costs into docs/which-method.md, from results/bench/fits.json.

python benchmarks/fits.py cora pubmed && python docs/which_method.py
"""

from __future__ import annotations

import json
from pathlib import Path

from bvat.baselines.deepwalk import WALKS
from bvat.report.pages import replace_between
from bvat.tuning.variants import Variant

HERE = Path(__file__).parent


def table(file: Path) -> str:
    """Return the processor seconds per fit as Markdown, one row per method."""
    fits = json.loads(file.read_text("utf-8"))["fits"]
    graphs = list(dict.fromkeys(graph for row in fits.values() for graph in row))
    lines = ["| seconds per fit | " + " | ".join(graphs) + " |", "|---|" + "---:|" * len(graphs)]
    for name, row in fits.items():
        cells = [f"{row[graph]['cpu_seconds']:.2g}" if graph in row else "–" for graph in graphs]
        lines.append(f"| {Variant.parse(name).title} (`{name}`) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def deepwalk(file: Path) -> str:
    """Return what DeepWalk takes on a large graph, and gensim on a share of its walks."""
    found = json.loads(file.read_text("utf-8"))
    graph, gensim = found["graph"], found["gensim"]
    seconds = {part: found[part]["seconds"] for part in ("walks", "skipgram")}
    share = gensim["tokens"] / found["tokens"]
    ratio = gensim["cpu_seconds"] / share / found["skipgram"]["cpu_seconds"]
    return (
        f"DeepWalk on {graph['nodes']:,} nodes and {graph['edges']:,} edges "
        f"with all {WALKS} walks from each node "
        f"({found['tokens'] / 1e6:.0f} million nodes on walks) takes "
        f"{sum(seconds.values()):.0f} seconds, nearly all on one core, and "
        f"{found['peak_mb'] / 1024:.1f} GiB; gensim's skip-gram takes {gensim['cpu_seconds']:.0f} processor "
        f"seconds for {100 * share:.0f} % of the same walks, {ratio:.1f} times as long. "
        "`python benchmarks/deepwalk.py --gensim-share 0.1` measures it; `results/bench/deepwalk.json` has "
        "all numbers."
    )


def with_table(text: str) -> str:
    """Return the page with the current table and sentence between their marks."""
    results = HERE.parent / "results" / "bench"
    text = replace_between(text, "table of costs", table(results / "fits.json"))
    return replace_between(text, "deepwalk", deepwalk(results / "deepwalk.json"))


if __name__ == "__main__":
    page = HERE / "which-method.md"
    page.write_text(with_table(page.read_text("utf-8")), "utf-8")
