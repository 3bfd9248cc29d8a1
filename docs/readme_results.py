"""Insert the results into README.md and docs/results.md: python docs/readme_results.py"""

import json
from pathlib import Path

from bvat.bench.measure import ROWS
from bvat.data.checksums import read_sealed_json
from bvat.report.pages import replace_between
from bvat.report.paper_page import table2_markdown

ROOT = Path(__file__).parents[1]
SHORT = ("gcn", "random", "vat", "sbvat", "obvat", "random-propagation/grand")
"""The rows of Table 2 in the README."""


def speed(bench: dict, pyg: dict, spaces: dict, kernels: dict) -> str:
    """Return tables of epoch times: methods and PyG's GCN relative to a GCN, and plain to compiled.

    Rows that were not measured are left out. ``pyg``, ``spaces`` and ``kernels`` are what scripts in
    benchmarks/ write.
    """
    datasets = list(bench["epoch_ms"])
    rows = [
        (f"{ROWS[row].title} / GCN", [bench["over_gcn"][name].get(row) for name in datasets])
        for row in ROWS
        if row != "gcn"
    ]
    rows += [
        (f"PyG's GCN ({form}) / GCN", [pyg["over_ours"].get(name, {}).get(form) for name in datasets])
        for form in ("edge_index", "sparse")
    ]
    dense = [spaces["spaces"].get(name, {}).get("obvat", {}).get("dense", {}) for name in datasets]
    rows.append(("O-BVAT: dense / factored", [row.get("over_factored") for row in dense]))
    rows = [(title, values) for title, values in rows if any(value is not None for value in values)]
    epochs = ", ".join(f"{name} {_number(row['gcn'])} ms" for name, row in bench["epoch_ms"].items())
    text = f"{_table('ratio of epoch times', datasets, rows)}\n\n{_compiled(kernels)}"
    return f"{text}Medians of one run with one thread. Epoch time of the GCN: {epochs}.\n"


def _compiled(measured: dict) -> str:
    """Return a table of epoch times without compiled kernels relative to those with them."""
    rows: dict[str, list[float | None]] = {}
    for row in measured["kernels"]:
        rows.setdefault(row["row"], []).append(row["ratio"])
    widths = dict.fromkeys(f"width {row['hidden']}" for row in measured["kernels"])
    corner = f"plain torch / compiled, {measured['graph']}"
    return f"{_table(corner, list(widths), list(rows.items()))}\n\n"


def _table(corner: str, header: list[str], rows: list[tuple[str, list[float | None]]]) -> str:
    lines = [f"| {corner} | " + " | ".join(header) + " |", "|---|" + "---:|" * len(header)]
    lines += [f"| {title} | " + " | ".join(map(_number, values)) + " |" for title, values in rows]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def ensemble(now: dict, before: dict) -> str:
    """Return mean gains over the GCN of the ensemble, and of the choice before it, on the same splits."""

    def gains(row: dict) -> list[float]:
        auto, gcn = (row["variants"][name]["values"] for name in ("auto", "gcn"))
        return [value - base for value, base in zip(auto, gcn, strict=True)]

    known = {(row["graph"], row["labels"]): gains(row) for row in before["rows"]}
    rows: list[tuple[str, list[float]]] = []
    for labels in now["labels"]:
        cells = [row for row in now["rows"] if row["labels"] == labels]
        chosen = [[known[row["graph"], labels][k] for k in row["splits"]] for row in cells]
        for title, each in (("the ensemble", map(gains, cells)), ("the choice before it", chosen)):
            means = [sum(values) / len(values) for values in each]
            rows.append((f"{labels} labels, {title}", [*means, sum(means) / len(means)]))
    header = [row["graph"] for row in now["rows"] if row["labels"] == now["labels"][0]]
    lines = [f"| points above the GCN | {' | '.join(header)} | mean |", "|---|" + "---:|" * (len(header) + 1)]
    lines += [
        f"| {title} | " + " | ".join(f"{value:+.1f}" for value in values) + " |" for title, values in rows
    ]
    return "\n".join([*lines, "", f"Means over {now['splits']} splits."])


def sections(results: Path) -> dict[str, str]:
    """Return what belongs between each pair of markers, for the results that exist."""
    found = {}
    paths = ("paper/table2.json", "compare/compare.md", "bench/bench.json")
    table, compare, bench = (results / path for path in paths)
    if table.exists():
        numbers = read_sealed_json(table)
        found["table2"], found["short"] = table2_markdown(numbers), table2_markdown(numbers, SHORT)
    if compare.exists():
        found["compare"] = compare.read_text("utf-8")
    if (results / "compare/auto/compare.json").exists():
        pair = (results / "compare" / name for name in ("auto/compare.json", "compare.json"))
        found["ensemble"] = ensemble(*map(read_sealed_json, pair))
    if bench.exists():
        files = [results / f"bench/{name}.json" for name in ("bench", "pyg", "spaces", "kernels")]
        found["speed"] = speed(*(json.loads(path.read_text("utf-8")) for path in files))
    return found


def with_results(text: str, results: Path = ROOT / "results") -> str:
    """Return a page with the current results."""
    for name, content in sections(results).items():
        if f"<!-- {name} -->" in text:
            text = replace_between(text, name, content)
    return text


if __name__ == "__main__":
    for page in (ROOT / "README.md", ROOT / "docs" / "results.md"):
        page.write_text(with_results(page.read_text("utf-8")), "utf-8")
