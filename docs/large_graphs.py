"""Write the measured tables of docs/large-graphs.md, from results/distributed.

python docs/large_graphs.py
"""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from pathlib import Path

from bvat.report.pages import replace_between

HERE = Path(__file__).parent
fitted = runpy.run_path(str(HERE.parent / "benchmarks" / "rank_plan.py"))["fitted"]
RESULTS = HERE.parent / "results" / "distributed"
METHODS = {"gcn": "GCN", "vat": "VAT", "obvat": "O-BVAT"}


def measured(speed: dict) -> str:
    """Return what an epoch takes, beside the formula fitted to one rank."""
    sizes = {"nodes": speed["nodes"], "edges": speed["edges"]}
    one, two = speed["ranks"]["1"], speed["ranks"]["2"]
    halo = two["table"][0]["sent"] / two["table"][0]["nodes"]
    plans = {m: fitted(m, one[m], **sizes, ranks=2, halo=halo) for m in METHODS}

    def row(title: str, ranks: int, values: list[str], formula: list[str]) -> str:
        cells = [f"{a} ({b})" if b else a for a, b in zip(values, formula or [""] * 3, strict=True)]
        return f"| {title} | {ranks} | " + " | ".join(cells) + " |"

    mib = 2**20
    lines = [f"| | ranks | {' | '.join(METHODS.values())} |", "|---|---:|" + "---:|" * len(METHODS)]
    lines.append(row("seconds", 1, [f"{one[m]['seconds']:.2f}" for m in METHODS], []))
    lines.append(row("", 2, [f"{two[m]['seconds']:.2f}" for m in METHODS], []))
    speedups = [f"{one[m]['seconds'] / two[m]['seconds']:.2f}" for m in METHODS]
    lines.append(row("speed-up", 2, speedups, []))
    lines.append(row("MiB of memory", 1, [f"{max(one[m]['memory_mb']):.0f}" for m in METHODS], []))
    formula = [f"{plans[m].memory_bytes / mib:.0f}" for m in METHODS]
    lines.append(row("", 2, [f"{max(two[m]['memory_mb']):.0f}" for m in METHODS], formula))
    shares = [f"{max(two[m]['memory_mb']) / max(one[m]['memory_mb']):.2f}" for m in METHODS]
    lines.append(row("memory / one rank", 2, shares, []))
    sent = [f"{two[m]['sent'][0] / 1e6:.2f}" for m in METHODS]
    lines.append(row("MB sent by a rank", 2, sent, [f"{two[m]['formula'][0] / 1e6:.2f}" for m in METHODS]))
    return "\n".join(lines)


def halos(speed: dict) -> str:
    """Return the halos of METIS and of random parts."""
    lines = ["| parts | METIS | random | METIS / random |", "|---:|---:|---:|---:|"]
    for row in speed["halos"]:
        lines.append(f"| {row['parts']} | {row['metis']:.2f} | {row['random']:.2f} | {row['ratio']:.2f} |")
    return "\n".join(lines)


def growth(found: dict) -> str:
    """Return processor seconds against edges."""
    rows = found["rows"]
    cells = [*(f"{row['processor_seconds']:.2f}" for row in rows), f"{found['exponent']:.2f}"]
    lines = [
        "| " + " | ".join(f"{row['edges']:,} edges" for row in rows) + " | exponent |",
        "|" + "---:|" * len(cells),
        "| " + " | ".join(cells) + " |",
    ]
    return "\n".join(lines)


def faults(found: dict) -> str:
    """Return what happened to ranks that were killed or stopped."""
    killed, stopped = found["killed"], found["stopped"]
    return (
        f"Of {killed['kills']} ranks killed with SIGKILL at a random moment, `torchrun` restarted all, and "
        f"{killed['identical']} runs ended with the bits of the undisturbed one. With a time-out of "
        f"{stopped['timeout']} seconds, all ranks ended {stopped['seconds']:.0f} seconds after one was "
        "stopped with SIGSTOP, and said why in one sentence."
    )


def plan(speed: dict) -> str:
    """Return what a graph of 10^9 nodes would take."""
    lines = [
        "| ranks | method | memory | sent | seconds at 10 Gbit/s | at 100 Gbit/s |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for ranks in (16, 32, 64, 128):
        for method in ("vat", "obvat"):
            one = speed["ranks"]["1"][method]
            sizes = {"nodes": speed["nodes"], "edges": speed["edges"]}
            base = fitted(method, one, **sizes, ranks=1, halo=0)
            large = replace(base, nodes=1e9, edges=1e10, ranks=ranks, halo=0.2)
            lines.append(
                f"| {ranks} | {METHODS[method]} | {large.memory_bytes / 2**30:.0f} GiB "
                f"| {large.sent_bytes / 1e9:.1f} GB | {large.seconds(10):.0f} | {large.seconds(100):.0f} |"
            )
    return "\n".join(lines)


def stream(found: dict) -> str:
    """Return what cutting takes with and without --stream."""
    lines = [
        "| edges | nodes | read | parts | memory | without mapped files | processor time | disk |",
        "|---:|---:|---|---|---:|---:|---:|---:|",
    ]
    for row in sorted(found["rows"], key=lambda row: (row["edges"], row["command"])):
        words = row["command"].split()
        how = "`--stream`" if "--stream" in words else "in memory"
        by = f"{words[words.index('--parts') + 1]}, {words[words.index('--by') + 1]}"
        lines.append(
            f"| {row['edges']:,} | {row['nodes']:,} | {how} | {by} | {row['peak_mib']:,} MiB "
            f"| {row['peak_mib_without_mapped_files']:,} MiB | {row['processor_seconds']:.0f} s "
            f"| {row['disk_mib']:,} MiB |"
        )
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """Return every table by its name."""
    speed, grown, killed, streamed = (
        json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
        for name in ("speed-1e7", "growth", "kills", "stream")
    )
    return {
        "measured": measured(speed),
        "halos": halos(speed),
        "growth": growth(grown),
        "faults": faults(killed),
        "plan": plan(speed),
        "stream": stream(streamed),
    }


def with_tables(text: str) -> str:
    """Return the page with its current tables."""
    for name, table in tables().items():
        text = replace_between(text, name, table)
    return text


if __name__ == "__main__":
    page = HERE / "large-graphs.md"
    page.write_text(with_tables(page.read_text("utf-8")), "utf-8")
