"""The results as tables: for the terminal and as CSV files."""

from __future__ import annotations

from typing import Any, NamedTuple

from bvat.data.files import csv_text

Value = str | float | int | None


class Table(NamedTuple):
    """Rows under a header; ``name`` is that of the file."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: list[tuple[Value, ...]]

    def as_csv(self) -> str:
        """Return the table as CSV, with nothing where a value is missing."""
        return csv_text(self.header, self.rows)


def all_tables(results: dict[str, Any]) -> list[Table]:
    """Return the tables of all points that were measured."""
    tables = [methods_table(results), pyg_table(results), spaces_table(results)]
    if results["growth"] is not None:
        tables += [growth_table(results), exponents_table(results)]
    if results["limit"] is not None:
        tables.append(limit_table(results))
    return [table for table in tables if table.rows]


def methods_table(results: dict[str, Any]) -> Table:
    """Point 1."""
    header = ("dataset", "method", "epoch ms", "10 %", "step ms", "step 10 %", "epoch / GCN", "step / GCN")
    keys = ("epoch_ms", "epoch_ms_p10", "step_ms", "step_ms_p10")
    ratios = ("method_over_gcn", "method_step_over_gcn_step")
    rows: list[tuple[Value, ...]] = [
        (
            dataset,
            method,
            *(results[key][dataset][method] for key in keys),
            *(results["ratios"][key][dataset][method] for key in ratios),
        )
        for dataset, row in results["epoch_ms"].items()
        for method in row
    ]
    return Table("methods", "Methods (epoch = step and evaluation, step = training step alone)", header, rows)


def pyg_table(results: dict[str, Any]) -> Table:
    """Point 2."""
    header = ("dataset", "GCN", "epoch ms", "10 %", "step ms", "epoch / ours", "step / ours")
    rows: list[tuple[Value, ...]] = []
    for dataset, measured in results["pyg"].items():
        for form, label in (("ours", "ours"), ("edge_index", "PyG edge_index"), ("sparse", "PyG sparse")):
            if form in measured:
                times = measured[form]
                over = (
                    results["ratios"][key][dataset].get(form, 1.0)
                    for key in ("pyg_over_ours", "pyg_step_over_ours")
                )
                rows.append(
                    (dataset, label, times["epoch_ms"], times["epoch_ms_p10"], times["step_ms"], *over)
                )
    return Table("pyg", "Our GCN and torch_geometric's", header, rows)


def spaces_table(results: dict[str, Any]) -> Table:
    """Point 3."""
    header = ("dataset", "method", "space", "epoch ms", "peak MiB", "process MiB", "time / factored",
              "memory / factored")  # fmt: skip
    keys = ("space_epoch_ms", "space_peak_mb", "space_process_peak_mb")
    ratios = ("space_over_factored", "space_memory_over_factored")
    rows: list[tuple[Value, ...]] = [
        (
            dataset,
            method,
            space,
            *(results[key][dataset][method][space] for key in keys),
            *(results["ratios"][key][dataset][method][space] for key in ratios),
        )
        for dataset, measured in results["space_epoch_ms"].items()
        for method, row in measured.items()
        for space in row
    ]
    return Table("spaces", "Perturbation spaces", header, rows)


def growth_table(results: dict[str, Any]) -> Table:
    """Point 4, the points."""
    keys = ("axis", "method", "nodes", "edges", "features", "hidden", "epoch_ms", "epoch_ms_p10", "step_ms",
            "peak_mb", "process_peak_mb")  # fmt: skip
    header = (*keys[:6], "epoch ms", "10 %", "step ms", "peak MiB", "process MiB")
    rows = [tuple(point[key] for key in keys) for point in results["growth"]["points"]]
    return Table("growth", "Growth (synthetic graphs of average degree 20)", header, rows)


def exponents_table(results: dict[str, Any]) -> Table:
    """Point 4, the fitted exponents."""
    rows: list[tuple[Value, ...]] = [
        (axis, method, fitted["epoch_ms"], fitted["peak_mb"])
        for axis, row in results["growth"]["exponents"].items()
        for method, fitted in row.items()
    ]
    return Table("exponents", "Fitted exponents", ("against", "method", "of time", "of memory"), rows)


def limit_table(results: dict[str, Any]) -> Table:
    """Point 5."""
    header = ("graph", "method", "MB moved", "MFLOP", "limit ms", "products ms", "epoch ms", "limit / epoch",
              "products / epoch")  # fmt: skip
    limit = results["limit"]
    found = [(dataset, name, row) for dataset, each in limit["datasets"].items()
             for name, row in each["methods"].items()]  # fmt: skip
    found += [(f"{row['edges']} edges", row["method"], row) for row in limit["growth"]]
    rows: list[tuple[Value, ...]] = [
        (
            graph,
            method,
            row["bytes"] / 1e6,
            row["flops"] / 1e6,
            row["limit_ms"],
            row.get("products_ms"),
            row["epoch_ms"],
            row["fraction"],
            row.get("products_fraction"),
        )
        for graph, method, row in found
    ]
    rates = limit["rates"]
    title = (
        f"Limit (memory {rates['memory_gb_s']:.1f} GB/s, cache {rates['cache_gb_s']:.1f} GB/s, "
        f"dense product {rates['gflop_s']:.0f} GFLOP/s)"
    )
    return Table("limit", title, header, rows)


def show(results: dict[str, Any]) -> None:
    """Print all tables, and what was skipped and why."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    for table in all_tables(results):
        shown = RichTable(title=table.title, title_justify="left", box=SIMPLE)
        numeric = [
            all(isinstance(row[k], int | float | None) for row in table.rows)
            for k in range(len(table.header))
        ]
        rows = [tuple(map(_short, row)) for row in table.rows]
        for k, title in enumerate(table.header):
            widest = max(len(row[k]) for row in rows)
            shown.add_column(title, justify="right" if numeric[k] else "left", min_width=widest)
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
