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
    makers = (_methods, _pyg, _spaces, _compiled, _growth, _exponents, _limit)
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


def _spaces(results: dict[str, Any]) -> BenchTable:
    header = ("dataset", "method", "space", "epoch ms", "peak MiB", "process MiB", "time / factored",
              "memory / factored")  # fmt: skip
    columns = [results[key] for key in ("space_epoch_ms", "space_peak_mb", "space_process_peak_mb")]
    columns += [results["ratios"][key] for key in ("space_over_factored", "space_memory_over_factored")]
    rows: Rows = [
        (dataset, method, space, *(column[dataset][method][space] for column in columns))
        for dataset, measured in results["space_epoch_ms"].items()
        for method, row in measured.items()
        for space in row
    ]
    return BenchTable("spaces", "Perturbation spaces", header, rows)


def _compiled(results: dict[str, Any]) -> BenchTable:
    columns = {
        "dataset": "dataset", "method": "method", "width": "hidden", "plain ms": "plain_ms",
        "compiled ms": "compiled_ms", "plain / compiled": "ratio", "plain CPU ms": "plain_cpu_ms",
        "compiled CPU ms": "compiled_cpu_ms", "CPU ratio": "cpu_ratio",
    }  # fmt: skip
    rows = [tuple(row[key] for key in columns.values()) for row in results.get("compiled", ())]
    return BenchTable("compiled", "Compiled kernels (epoch time)", tuple(columns), rows)


def _growth(results: dict[str, Any]) -> BenchTable:
    columns = {
        "axis": "axis", "method": "method", "nodes": "nodes", "edges": "edges", "features": "features",
        "hidden": "hidden", "epoch ms": "epoch_ms", "p10": "epoch_ms_p10", "step ms": "step_ms",
        "peak MiB": "peak_mb", "process MiB": "process_peak_mb",
    }  # fmt: skip
    points = results["growth"]["points"] if results["growth"] else ()
    rows = [tuple(point[key] for key in columns.values()) for point in points]
    return BenchTable("growth", "Growth (synthetic graphs with average degree 20)", tuple(columns), rows)


def _exponents(results: dict[str, Any]) -> BenchTable:
    exponents = results["growth"]["exponents"] if results["growth"] else {}
    rows: Rows = [
        (axis, method, fitted["epoch_ms"], fitted["peak_mb"])
        for axis, row in exponents.items()
        for method, fitted in row.items()
    ]
    return BenchTable("exponents", "Fitted exponents", ("against", "method", "of time", "of memory"), rows)


def _limit(results: dict[str, Any]) -> BenchTable:
    header = ("graph", "method", "MB moved", "MFLOP", "limit ms", "products ms", "epoch ms", "limit / epoch",
              "products / epoch")  # fmt: skip
    limit = results["limit"]
    if limit is None:
        return BenchTable("limit", "Limit", header, [])
    found = [(dataset, name, row) for dataset, each in limit["datasets"].items()
             for name, row in each["methods"].items()]  # fmt: skip
    found += [(f"{row['edges']} edges", row["method"], row) for row in limit["growth"]]
    keys = ("limit_ms", "products_ms", "epoch_ms", "fraction", "products_fraction")
    rows: Rows = [
        (graph, method, row["bytes"] / 1e6, row["flops"] / 1e6, *(row.get(key) for key in keys))
        for graph, method, row in found
    ]
    title = "Limit (memory {memory_gb_s:.1f} GB/s, cache {cache_gb_s:.1f} GB/s, dense {gflop_s:.0f} GFLOP/s)"
    return BenchTable("limit", title.format(**limit["rates"]), header, rows)


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
