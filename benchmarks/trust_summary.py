"""What ``benchmarks/trust.py`` measured, by graph, and whether it meets the aims."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bvat.baselines.table import AutoOptions
from bvat.training.provenance import package_versions, versions
from bvat.trust.review import SUSPECT

LABELS, FLIPPED, COVERAGE, BINS = 20, 0.1, 0.9, 15
MEASURES = ("coverage", "size", "worst_class")
"""Of sets: share that has the true class, mean number of classes, coverage of the class with the least."""
CLEAN = ("accuracy", "calibration_error")
FLIP = ("flipped_accuracy", "mended_accuracy", "accuracy_without_wrong", "average_precision", "auroc",
        "suspects", "suspects_right", "wrong")  # fmt: skip


def _means(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means over the draws of a graph, those of flipped labels over the draws that have some."""
    flips = [run for run in runs if "auroc" in run]
    found: dict[str, Any] = {"draws": sorted(run["draw"] for run in runs)}
    found |= {name: _mean(runs, name) for name in CLEAN} | {"sets": _sets(runs, ("bvat", "bvat weighted"))}
    if not flips:
        return found
    each = {name: _mean(flips, name) for name in FLIP}
    each["lost"] = _mean(flips, "accuracy") - each["flipped_accuracy"]
    each["regained"] = each["mended_accuracy"] - each["flipped_accuracy"]
    return found | {"flipped": {"draws": sorted(run["draw"] for run in flips), **each}}


def _mean(runs: Sequence[Mapping[str, Any]], name: str) -> float:
    return float(np.mean([run[name] for run in runs]))


def _sets(runs: Sequence[Mapping[str, Any]], names: Iterable[str]) -> dict[str, dict[str, float]]:
    return {name: {key: _mean([run["sets"][name] for run in runs], key) for key in MEASURES}
            for name in names}  # fmt: skip


def beside_snaps(by_graph: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return means over the graphs of all kinds of sets, from the draws that have those of TorchCP too."""
    both = [[run for run in own if len(run["sets"]) > 2] for own in by_graph.values()]
    graphs = [_sets(own, own[0]["sets"]) for own in both if own]
    return {
        "runs": sum(map(len, both)),
        "graphs": len(graphs),
        "mean": {name: {key: _mean([each[name] for each in graphs], key) for key in MEASURES}
                 for name in (graphs[0] if graphs else ())},
    }  # fmt: skip


def regained(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return which part of the accuracy that wrong labels cost comes back without the suspects.

    ``of_means`` is what graphs regain on average divided by what they lose on average. ``mean_of_ratios``
    divides graph by graph; where next to nothing is lost its ratio is next to arbitrary.
    """
    lost, back = ([row[name] for row in rows] for name in ("lost", "regained"))
    return {
        "lost": float(np.mean(lost)),
        "regained": float(np.mean(back)),
        "of_means": float(np.sum(back) / np.sum(lost)),
        "mean_of_ratios": float(np.mean(np.divide(back, lost))),
    }


def regained_by_draw(by_graph: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[int, float]:
    """Return :func:`regained` ``of_means`` of each draw in which every graph with wrong labels has some."""
    flips = [{r["draw"]: r for r in own if "auroc" in r} for own in by_graph.values()]
    flips = [own for own in flips if own]
    draws = sorted(set.intersection(*map(set, flips))) if flips else []
    return {n: regained([_means([own[n]])["flipped"] for own in flips])["of_means"] for n in draws}


def targets_of(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what was aimed at, from means by graph."""
    error = [row["calibration_error"] for row in rows.values()]
    covered = [row["sets"]["bvat"]["coverage"] for row in rows.values()]
    flips = [row["flipped"] for row in rows.values() if "flipped" in row]
    least, most = COVERAGE - 0.02, COVERAGE + 0.04
    found = {
        "mean calibration error at most 5 %": (float(np.mean(error)), 0, 5),
        "calibration error of each graph at most 10 %": (max(error), 0, 10),
        f"mean coverage from {least:.2f} to {most:.2f}": (float(np.mean(covered)), least, most),
        f"coverage of each graph at least {COVERAGE - 0.04:.2f}": (min(covered), COVERAGE - 0.04, 1),
    }
    if flips:
        back = regained(flips)["of_means"]
        found |= {
            "average precision of flipped labels at least 0.5": (_mean(flips, "average_precision"), 0.5, 1),
            "AUROC of flipped labels at least 0.85": (_mean(flips, "auroc"), 0.85, 1),
            "at least half of the lost accuracy is regained": (back, 0.5, np.inf),
        }
    return {name: {"measured": value, "met": bool(low <= value <= high)}
            for name, (value, low, high) in found.items()}  # fmt: skip


def summary(runs: Sequence[Mapping[str, Any]], protocol: str) -> dict[str, Any]:
    """Return means by graph, the targets, and what the runs were made with."""
    by_graph = {
        graph: [run for run in runs if run["graph"] == graph and "sets" in run]
        for graph in dict.fromkeys(run["graph"] for run in runs)
    }
    rows = {graph: _means(own) for graph, own in by_graph.items()}
    flips = [row["flipped"] for row in rows.values() if "flipped" in row]
    return {
        "command": f"python benchmarks/trust.py {' '.join(rows)} --effort {runs[0]['effort']}"
        f" --draws {','.join(map(str, sorted({run['draw'] for run in runs})))}; --flip and --torchcp where "
        "the draws of a graph say so",
        "protocol": protocol,
        "sources": sorted({run["source"] for run in runs}),
        "versions": versions() | package_versions(["scikit-learn"]),
        "settings": {
            "auto": dataclasses.asdict(AutoOptions(effort=runs[0]["effort"])),
            "labels": LABELS, "flipped": FLIPPED, "coverage": COVERAGE, "bins": BINS, "suspect": SUSPECT,
        },
        "runs": len(runs),
        "flipped_runs": sum(len(row["draws"]) for row in flips),
        "regained": regained(flips) if flips else None,
        "regained_by_draw": regained_by_draw(by_graph),
        "sets": beside_snaps(by_graph),
        "by_graph": rows,
        "targets": targets_of(rows),
    }  # fmt: skip
