"""Random propagation and a plain dense implementation of GRAND, both trained to the end.

Seconds and accuracies of some seeds, as JSON; finished seeds are kept when the command is repeated:

    python benchmarks/grand.py cora --seeds 3 --out results/grand/cora.json
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from bvat.data import load
from bvat.data.checksums import read_sealed_json, write_sealed_json
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.store.pool import thread_count
from bvat.training.loop import train
from bvat.training.provenance import versions
from bvat.training.settings import Settings, preset
from bvat.training.statistics import sample
from dense_grand import PUBLISHED, DenseGrand


def train_ours(graph: Graph, settings: Settings, seed: int) -> dict[str, Any]:
    """Train random propagation; return accuracies, epochs and seconds."""
    started, cpu = time.perf_counter(), time.process_time()
    trained = train(graph, settings, seed)
    return {
        **{name: trained.selected[name] for name in ("val", "test", "epoch")},
        "epochs": len(trained.metrics),
        "seconds": round(time.perf_counter() - started, 2),
        "cpu_seconds": round(time.process_time() - cpu, 6),
    }


def compare_grand(dataset: str, seeds: int, path: Path, *, dense: bool = True) -> dict[str, Any]:
    """Train all seeds with both, in turn and with one thread, and write the result after every seed."""
    if dataset not in PUBLISHED:
        raise SettingsError(f"GRAND has no settings for {dataset!r}: use {', '.join(PUBLISHED)}")
    graph, settings = load(dataset), preset(dataset, "grand", model="random-propagation")
    result: dict[str, Any] = {
        "command": f"python benchmarks/grand.py {dataset} --seeds {seeds}" + ("" if dense else " --no-dense"),
        "versions": versions(),
        "settings": {"ours": settings.as_dict(), "dense": asdict(PUBLISHED[dataset])},
        "rows": {},
    }
    if path.exists():
        before = read_sealed_json(path)
        same = [name for name, given in result["settings"].items() if before["settings"][name] == given]
        result["rows"] = {
            seed: {name: row[name] for name in same if name in row} for seed, row in before["rows"].items()
        }
    with thread_count(1):
        for seed in map(str, range(seeds)):
            row = result["rows"].setdefault(seed, {})
            if "ours" not in row:
                row["ours"] = train_ours(graph, settings, int(seed))
            if dense and "dense" not in row:
                row["dense"] = DenseGrand(graph, PUBLISHED[dataset], int(seed)).train()
            result["summary"] = summarised(result["rows"])
            write_sealed_json(path, result)
    return result


def summarised(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the mean accuracy and seconds of both, and the ratio of their CPU seconds."""
    summary: dict[str, Any] = {}
    for name in ("ours", "dense"):
        of = [row[name] for row in rows.values() if name in row]
        if of:
            summary[name] = {key: sample([each[key] for each in of]).as_dict()
                             for key in ("val", "test", "epochs", "seconds", "cpu_seconds")}  # fmt: skip
    if len(summary) == 2:
        summary["ours_over_dense"] = (
            summary["ours"]["cpu_seconds"]["mean"] / summary["dense"]["cpu_seconds"]["mean"]
        )
    return summary


def main(
    dataset: Annotated[str, typer.Argument(help="cora, citeseer or pubmed")],
    seeds: Annotated[int, typer.Option(help="number of seeds", min=1)] = 3,
    out: Annotated[Path, typer.Option(help="JSON file")] = Path("grand.json"),
    dense: Annotated[bool, typer.Option(help="also train the dense implementation")] = True,
) -> None:
    """Train random propagation and a plain dense GRAND, and compare seconds and accuracies."""
    compare_grand(dataset, seeds, out, dense=dense)


if __name__ == "__main__":
    typer.run(main)
