"""Few labels on tables without edges: ``auto`` and classifiers of scikit-learn on the same labels.

python benchmarks/few_tables.py --out results/few-labels/tables.json
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import datasets

from bvat.data import load
from bvat.data.checksums import read_sealed_json, write_sealed_json
from bvat.data.files import write_csv
from bvat.data.splits import resplit
from bvat.graph import Graph
from bvat.store.pool import thread_count
from bvat.training.provenance import package_versions, versions
from few_labels import LABELS, about, measure_auto, numbers
from few_recipes import Inputs, measure_recipe

TABLES = ("wine", "breast_cancer", "digits", "cora", "citeseer")
"""Those of scikit-learn, and the texts of articles without their citations."""
TITLES = {
    "features": "LogisticRegression",
    "spreading": "LabelSpreading(knn)",
    "self-training": "SelfTrainingClassifier",
    "auto": "auto",
}


def table(name: str) -> tuple[Graph, Inputs]:
    """Return a table as bvat reads it, and as recipes do."""
    if name in ("cora", "citeseer"):
        graph = load(name)
        none = sp.csr_array((graph.num_nodes, graph.num_nodes))
        bare = Graph.build(
            graph.features, none, graph.labels, train=graph.train, class_names=graph.class_names,
            normalize=False, name=f"{name}, text alone",
        )  # fmt: skip
        return bare, Inputs(bare)
    found: Any = getattr(datasets, f"load_{name}")()
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.csv"
        header = ["label", *(f"column {k}" for k in range(found.data.shape[1]))]
        write_csv(
            path,
            header,
            ([f"class {y}", *row] for row, y in zip(found.data.tolist(), found.target, strict=True)),
        )
        graph = load(path)
    return dataclasses.replace(graph, name=name), Inputs(graph, np.asarray(found.data))


def measure(graph: Graph, inputs: Inputs, effort: int) -> dict[str, float]:
    """Return the test accuracies of all classifiers on one draw."""
    recipes = [name for name in TITLES if name != "auto"]
    return {name: measure_recipe(inputs, graph, name)["accuracy"] for name in recipes} | {
        "auto": measure_auto(graph, effort)["accuracy"]
    }


def main(arguments: Sequence[str]) -> None:
    """Measure the draws that are missing in the file, and write it after each one."""
    parser = argparse.ArgumentParser(prog="python benchmarks/few_tables.py")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--labels", type=numbers, default=LABELS, help="per class, such as 1,2,5,20")
    parser.add_argument("--draws", type=numbers, default=tuple(range(20, 25)), help="such as 20-24")
    parser.add_argument("--effort", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/few-labels/tables.json"))
    asked = parser.parse_args(arguments)
    found: dict[str, Any] = read_sealed_json(asked.out) if asked.out.exists() else {"tables": {}}
    with thread_count(1):
        for name in asked.tables.split(","):
            graph, inputs = table(name)
            rows = found["tables"].setdefault(graph.name, {**about(graph), "runs": {}})["runs"]
            for draw in map(str, asked.draws):
                for count in map(str, asked.labels):
                    done = rows.setdefault(count, {})
                    if draw not in done:
                        done[draw] = measure(resplit(graph, int(count), 0, int(draw)), inputs, asked.effort)
                found |= {
                    "command": f"python benchmarks/few_tables.py --effort {asked.effort}",
                    "versions": versions() | package_versions(["scikit-learn"]),
                    "mean": means(found["tables"]),
                }
                write_sealed_json(asked.out, found)
            sys.stdout.write(f"{graph.name} is measured\n")


def means(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the mean accuracy over draws by table, labels per class and classifier."""
    return {
        name: {
            count: {key: fmean(run[key] for run in runs.values()) for key in TITLES}
            for count, runs in row["runs"].items()
            if runs
        }
        for name, row in tables.items()
    }


if __name__ == "__main__":
    main(sys.argv[1:])
