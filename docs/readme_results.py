"""Write the results into the README, between its markers: python docs/readme_results.py"""

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
METHODS = {"sbvat": "S-BVAT", "obvat": "O-BVAT, 10 steps", "obvat-fast": "O-BVAT, fast search", "vat": "VAT"}


def speed(bench: dict) -> str:
    """Return the ratios of epoch times, to our GCN and to the GCN of torch_geometric, as a table."""
    ratios, datasets = bench["ratios"], list(bench["epoch_ms"])
    rows = [
        (f"{title} / GCN", [ratios["method_over_gcn"][name].get(method) for name in datasets])
        for method, title in METHODS.items()
    ]
    rows += [
        (f"PyG's GCN ({form}) / GCN", [ratios["pyg_over_ours"].get(name, {}).get(form) for name in datasets])
        for form in ("edge_index", "sparse")
    ]
    dense = [ratios["space_over_factored"].get(name, {}).get("obvat", {}).get("dense") for name in datasets]
    rows.append(("O-BVAT: dense / factored", dense))
    lines = ["| epoch time, ratio | " + " | ".join(datasets) + " |", "|---|" + "---:|" * len(datasets)]
    lines += [f"| {title} | " + " | ".join(map(_number, values)) + " |" for title, values in rows]
    epochs = ", ".join(f"{name} {_number(row['gcn'])} ms" for name, row in bench["epoch_ms"].items())
    return "\n".join(lines) + f"\n\nMedians of one run, one thread. A GCN's epoch: {epochs}.\n"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def sections() -> dict[str, str]:
    """Return the text for each pair of markers."""
    found = {}
    table, bench = ROOT / "results/paper/table2.md", ROOT / "results/bench/bench.json"
    if table.exists():
        found["table2"] = table.read_text("utf-8")
    if bench.exists():
        found["speed"] = speed(json.loads(bench.read_text("utf-8")))
    return found


def with_results(text: str) -> str:
    """Return the README with the current results."""
    for name, content in sections().items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, _, rest = text.partition(start)
        _, _, after = rest.partition(end)
        text = before + start + "\n" + content.strip() + "\n\n" + end + after
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(with_results(readme.read_text("utf-8")), "utf-8")
