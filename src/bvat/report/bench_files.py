"""The results of ``bvat bench``: tables for the terminal and as CSV files, charts as SVG files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bvat.bench.plan import ROWS
from bvat.data.files import write_atomic, write_csv, write_json
from bvat.errors import SettingsError
from bvat.report.charts import Chart, Line, bar_chart, line_chart, standalone

WIDE = 880
LOOKS = {name: (row.title, row.colour) for name, row in ROWS.items()}


def check_folder(folder: Path) -> None:
    """Raise SettingsError unless ``folder`` is a folder or can be created, before minutes are spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"--out {folder} cannot be a folder ({error.strerror}): use another path"
        ) from error


def write_bench_files(results: dict[str, Any], folder: Path) -> None:
    write_json(folder / "bench.json", results)
    for table in all_tables(results):
        write_csv(folder / f"{table.name}.csv", table.header, table.rows)
    for name, title, charts, columns in _figures(results):
        write_atomic(folder / f"{name}.svg", standalone(title, charts, columns))


class BenchTable(NamedTuple):
    """Rows under a header; ``name`` is the name of its file."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: list[tuple[str | float | int | None, ...]]


def all_tables(results: dict[str, Any]) -> list[BenchTable]:
    ratios = results["ratios"]
    times = {
        "epoch ms": results["epoch_ms"],
        "p10": results["epoch_ms_p10"],
        "step ms": results["step_ms"],
        "step p10": results["step_ms_p10"],
        "epoch / GCN": ratios["method_over_gcn"],
        "step / GCN": ratios["method_step_over_gcn_step"],
    }
    memory = {
        "peak MiB": results["peak_mb"],
        "process MiB": results["process_peak_mb"],
        "peak / GCN": ratios["memory_over_gcn"],
    }
    tables = [
        _by_method("methods", "Methods (epoch: step and evaluation; step: training step alone)", times),
        _pyg(results),
        _by_method("memory", "Memory (of training; of the whole process)", memory),
        _compiled(results),
    ]
    return [table for table in tables if table.rows]


def _by_method(name: str, title: str, columns: Mapping[str, Any]) -> BenchTable:
    first = next(iter(columns.values()))
    rows = [
        (dataset, method, *(column[dataset][method] for column in columns.values()))
        for dataset, row in first.items()
        for method in row
    ]
    return BenchTable(name, title, ("dataset", "method", *columns), rows)


def _pyg(results: dict[str, Any]) -> BenchTable:
    header = ("dataset", "GCN", "epoch ms", "p10", "step ms", "epoch / ours", "step / ours")
    keys = ("epoch_ms", "epoch_ms_p10", "step_ms")
    ratios = [results["ratios"][key] for key in ("pyg_over_ours", "pyg_step_over_ours")]
    labels = {"ours": "ours", "edge_index": "PyG edge_index", "sparse": "PyG sparse"}
    rows = [
        (dataset, label, *(measured[form][key] for key in keys), *(r[dataset].get(form, 1.0) for r in ratios))
        for dataset, measured in results["pyg"].items()
        for form, label in labels.items()
        if form in measured
    ]
    return BenchTable("pyg", "Our GCN and torch_geometric's", header, rows)


def _compiled(results: dict[str, Any]) -> BenchTable:
    columns = {
        "dataset": "dataset", "method": "method", "width": "hidden", "plain ms": "plain_ms",
        "compiled ms": "compiled_ms", "plain / compiled": "ratio", "plain CPU ms": "plain_cpu_ms",
        "compiled CPU ms": "compiled_cpu_ms", "CPU ratio": "cpu_ratio",
    }  # fmt: skip
    rows = [tuple(row[key] for key in columns.values()) for row in results["compiled"]]
    return BenchTable("compiled", "Compiled kernels (epoch time)", tuple(columns), rows)


def shown_value(value: str | float | int | None) -> str:
    """Return a value for the terminal; floats with three digits."""
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _figures(results: dict[str, Any]) -> Iterator[tuple[str, str, list[Chart], int]]:
    """Yield name, title, panels and panels per row."""
    ratios = results["ratios"]
    methods = _bars(ratios["method_over_gcn"], "epoch / GCN epoch", reference=1)
    yield "methods", "Epoch time of the methods, relative to a GCN", [methods], 1
    if any(ratios["pyg_over_ours"].values()):
        forms = _bars(ratios["pyg_over_ours"], "PyG epoch / our epoch", log=True, reference=1)
        yield "pyg", "Epoch time of torch_geometric's GCN, relative to ours", [forms], 1
    memory = _bars(results["peak_mb"], "peak MiB", log=True)
    yield "memory", "Memory of the methods", [memory], 1
    if results["compiled"]:
        gains = _compiled_charts(results["compiled"])
        yield "compiled", "Gain of the compiled kernels: plain / compiled", gains, 2


def _bars(groups: Mapping[str, Mapping[str, float | None]], y_label: str, **options: Any) -> Chart:
    return bar_chart(groups, y_label, looks=LOOKS, width=WIDE, **options)


def _compiled_charts(rows: list[dict[str, Any]]) -> list[Chart]:
    """Draw the gain against the width: one row of panels per data set, CPU time and wall time."""
    widths = sorted({row["hidden"] for row in rows})
    panels = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        for key, unit in (("cpu_ratio", "CPU time"), ("ratio", "wall time")):
            lines = [Line("no gain", [widths[0], widths[-1]], [1.0, 1.0], colour=7, dashed=True)]
            for method in dict.fromkeys(row["method"] for row in rows):
                chosen = [
                    row for row in rows if (row["dataset"], row["method"]) == (dataset, method) and row[key]
                ]
                label, colour = LOOKS[method]
                x, y = ([row[name] for row in chosen] for name in ("hidden", key))
                lines.append(Line(label, x, y, colour=colour, marks=True))
            panels.append(
                line_chart(lines, "hidden units", "plain / compiled", title=f"{dataset}, {unit}", floor=0,
                           log="x", x_ticks=widths)
            )  # fmt: skip
    return panels
