"""A folder of CSV files as a user has them: string ids, class names, edges that mostly join a class."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bvat.cli.main import main
from cli_helpers import bvat as call

CLASSES = ("algebra", "botany", "chess")
COLUMNS = [f"word{k}" for k in range(24)]


def rows_of(count: int, seed: int = 0) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """Return the rows of nodes.csv and the pairs of edges.csv."""
    rng = np.random.default_rng(seed)
    nodes = []
    for number in range(count):
        kind = number % len(CLASSES)
        words = rng.random(len(COLUMNS)) < np.where(np.arange(len(COLUMNS)) // 8 == kind, 0.4, 0.1)
        label = CLASSES[kind] if number < count * 3 // 4 else ""
        nodes.append(
            {"id": f"page-{number}", "label": label, **dict(zip(COLUMNS, words.astype(int), strict=True))}
        )
    edges = []
    for number in range(count):
        for _ in range(2):
            other = int(rng.integers(count))
            if rng.random() < 0.8:
                other += (number - other) % len(CLASSES)
            edges.append((f"page-{number}", f"page-{other % count}"))
    return nodes, edges


def write_folder(folder: Path, nodes: list[dict[str, Any]], edges: list[tuple[str, str]]) -> Path:
    """Write nodes.csv and edges.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "nodes.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(nodes[0]))
        writer.writeheader()
        writer.writerows(nodes)
    with (folder / "edges.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("source", "target"), *edges])
    return folder


def quietly(arguments: list[str]) -> None:
    """Run a command that has to succeed."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code


def train(source: str, *options: str, out: str = "run") -> None:
    """Train a plain GCN in this process."""
    common = ["--method", "none", "--device", "cpu", "--jobs", "1", "--no-report", "--out", out]
    quietly(["train", source, *common, *options])


def expect(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command that has to fail with one sentence."""
    code, out, err = call(arguments, capsys)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.startswith("bvat: ")
    assert err.count("\n") == 1


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
