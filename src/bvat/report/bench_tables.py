"""The results of ``bvat bench`` as tables, for the terminal and for CSV files."""

from __future__ import annotations

import csv
import io
from typing import Any, NamedTuple

Value = str | float | int | None
Rows = list[tuple[Value, ...]]


class BenchTable(NamedTuple):
    """Rows under a header; ``name`` is the name of its file."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: Rows

    def as_csv(self) -> str:
        """Return the table as CSV; missing values are empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows(["" if value is None else value for value in row] for row in self.rows)
        return text.getvalue()


def all_tables(results: dict[str, Any]) -> list[BenchTable]:
    """Return the tables of all sections that were measured."""
    makers = (_methods, _pyg, _memory, _compiled)
    return [table for make in makers if (table := make(results)).rows]


def _methods(results: dict[str, Any]) -> BenchTable:
    header = ("dataset", "method", "epoch ms", "p10", "step ms", "step p10", "epoch / GCN", "step / GCN")
    columns = [results[key] for key in ("epoch_ms", "epoch_ms_p10", "step_ms", "step_ms_p10")]
    columns += [results["ratios"][key] for key in ("method_over_gcn", "method_step_over_gcn_step")]
    rows: Rows = [
        (dataset, method, *(column[dataset][method] for column in columns))
        for dataset, row in results["epoch_ms"].items()
        for method in row
    ]
    title = "Methods (epoch: step and evaluation; step: training step alone)"
    return BenchTable("methods", title, header, rows)


def _pyg(results: dict[str, Any]) -> BenchTable:
    header = ("dataset", "GCN", "epoch ms", "p10", "step ms", "epoch / ours", "step / ours")
    keys = ("epoch_ms", "epoch_ms_p10", "step_ms")
    ratios = [results["ratios"][key] for key in ("pyg_over_ours", "pyg_step_over_ours")]
    labels = {"ours": "ours", "edge_index": "PyG edge_index", "sparse": "PyG sparse"}
    rows: Rows = [
        (dataset, label, *(measured[form][key] for key in keys), *(r[dataset].get(form, 1.0) for r in ratios))
        for dataset, measured in results["pyg"].items()
        for form, label in labels.items()
        if form in measured
    ]
    return BenchTable("pyg", "Our GCN and torch_geometric's", header, rows)


def _memory(results: dict[str, Any]) -> BenchTable:
    columns = [results["peak_mb"], results["process_peak_mb"], results["ratios"]["memory_over_gcn"]]
    rows: Rows = [
        (dataset, method, *(column[dataset][method] for column in columns))
        for dataset, row in results["peak_mb"].items()
        for method in row
    ]
    header = ("dataset", "method", "peak MiB", "process MiB", "peak / GCN")
    return BenchTable("memory", "Memory (of training; of the whole process)", header, rows)


def _compiled(results: dict[str, Any]) -> BenchTable:
    columns = {
        "dataset": "dataset", "method": "method", "width": "hidden", "plain ms": "plain_ms",
        "compiled ms": "compiled_ms", "plain / compiled": "ratio", "plain CPU ms": "plain_cpu_ms",
        "compiled CPU ms": "compiled_cpu_ms", "CPU ratio": "cpu_ratio",
    }  # fmt: skip
    rows = [tuple(row[key] for key in columns.values()) for row in results["compiled"]]
    return BenchTable("compiled", "Compiled kernels (epoch time)", tuple(columns), rows)


def print_tables(results: dict[str, Any]) -> None:
    """Print all tables, and what was skipped and why."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    for table in all_tables(results):
        shown = Table(title=table.title, title_justify="left", box=SIMPLE)
        rows = [tuple(map(_short, row)) for row in table.rows]
        for k, title in enumerate(table.header):
            numeric = all(isinstance(row[k], int | float | None) for row in table.rows)
            widest = max(len(row[k]) for row in rows)
            shown.add_column(title, justify="right" if numeric else "left", min_width=widest)
        for cells in rows:
            shown.add_row(*cells)
        console.print(shown)
    for line in results["skipped"]:
        console.print(f"skipped: {line}", highlight=False, markup=False, soft_wrap=True)


def _short(value: Value) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
