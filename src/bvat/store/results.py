"""Results of a seed and of several seeds as plain values, for files and ``--json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_high
from typing import Any

from bvat._version import __version__
from bvat.graph import Graph
from bvat.training.baseline import fit_notes
from bvat.training.provenance import sources, versions
from bvat.training.settings import Settings
from bvat.training.statistics import accuracy_summary, accuracy_text, summarize_f1
from bvat.training.trained import TrainedModel, held_out

ENOUGH = 30
"""Fewer held-out labels say little of how sure predictions are: the calibration stays near none."""


def seed_result(trained: TrainedModel, peak_rss_mb: float) -> dict[str, Any]:
    copied = ("seed", "selected", "last", "best", "space", "epoch_ms", "events", "phases", "f1", "nodes",
              "stopped")  # fmt: skip
    return {
        **{name: getattr(trained, name) for name in (*copied, *(["fit"] if trained.fit else []))},
        "epochs": len(trained.metrics),
        "peak_rss_mb": peak_rss_mb,
        "version": __version__,
        "versions": versions(),
    }


def summary_of(
    graph: Graph,
    settings: Settings,
    results: Sequence[dict[str, Any]],
    cross_validation: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Combine the results of several seeds: what ``bvat train --json`` prints."""
    accuracies = {
        f"{name}_accuracy": accuracy_summary([result["selected"][name] for result in results], nodes)
        for name, nodes in held_out(graph).items()
    }
    # the row per label is in the result of the seed
    fits = [{k: v for k, v in each["fit"].items() if k != "out_of_fold"} for each in results if "fit" in each]
    return {
        "dataset": graph.name,
        "method": settings.method,
        "space": results[0]["space"],
        "seeds": len(results),
        "epochs": max(result["epochs"] for result in results),
        "settings": settings.as_dict(),
        "validation": graph.validation,
        **accuracies,
        "cross_validation": cross_validation,
        **summarize_f1(graph, results, cross_validation),
        "epoch_ms": median_high(result["epoch_ms"] for result in results),
        "stopped": [f"seed {each['seed']} {each['stopped']}" for each in results if each.get("stopped")],
        "events": _events(results),
        **({"fit": fits} if fits else {}),
        "peak_rss_mb": max(result["peak_rss_mb"] for result in results),
        "version": __version__,
        "versions": versions(),
    }


def _events(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return what happened in training, each sentence once after the seeds that it is about."""
    seeds: dict[str, list[int]] = {}
    for each in results:
        for text in (*each.get("events", ()), *fit_notes(each)):
            seeds.setdefault(text, []).append(each["seed"])
    told = [f"seed{'s' * (len(of) > 1)} {', '.join(map(str, of))}, {text}" for text, of in seeds.items()]
    found = sources(results)
    mixed = f"the seeds were trained with different sources of bvat {__version__}: {', '.join(found)}"
    return told if len(found) == 1 else [*told, mixed]


def score_texts(summary: Mapping[str, Any], digits: int = 2) -> dict[str, str]:
    """Return the scores of a summary in words, by what they are: those that there are nodes for."""
    shown = {}
    found = summary["cross_validation"]
    if found is not None:
        interval = (found["low"], found["high"])
        text = accuracy_text(found["accuracy"], found["nodes"], digits=digits, interval=interval)
        shown["cross-validated accuracy"] = text
        if "micro_f1" in found:
            shown["cross-validated micro F1"] = f"{found['micro_f1']:.{digits}f} %"
        shown["cross-validated macro F1"] = f"{found['macro_f1']:.{digits}f} %"
    for name, word in (("val", "validation"), ("test", "test")):
        part = summary[f"{name}_accuracy"]
        if part is not None:
            shown[f"{word} accuracy"] = accuracy_text(part["mean"], part["nodes"], part["std"], digits)
    part = "test" if summary["f1_nodes"] == "test" else "val"
    for name in ("micro", "macro"):
        f1 = summary.get(f"{part}_{name}_f1")
        if f1 is not None and f1["mean"] is not None:
            spread = "" if f1["std"] is None else f" ± {f1['std']:.{digits}f}"
            shown[f"{summary['f1_nodes']} {name} F1"] = f"{f1['mean']:.{digits}f}{spread} %"
    return shown


def cross_validation_text(found: Mapping[str, Any]) -> str:
    few = found["nodes"] < ENOUGH
    return (
        f"Out-of-fold: {found['folds']} further models, each trained without one fold of the "
        f"{found['nodes']:,} labelled nodes, were measured on that fold; the model of the run is trained on "
        "all of these nodes."
        + (f" With fewer than {ENOUGH} labels, probabilities are hardly calibrated." if few else "")
    )


def member_rows(summary: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return the members of the first seed's ensemble: title, weight, out-of-fold accuracy, seconds."""
    return [
        (
            row["title"],
            f"{row['weight']:.2f}",
            "no estimate" if row["accuracy"] is None else f"{row['accuracy']:.1f} % of {row['nodes']} nodes",
            f"{row['seconds']:.1f} s",
        )
        for row in _first_fit(summary).get("members", ())
    ]


def ensemble_notes(summary: Mapping[str, Any]) -> list[str]:
    """Return how an ensemble uses the edges, a sentence each."""
    fit = _first_fit(summary)
    if "members" not in fit:
        return []
    shares = ", ".join(f"{name} {share:.2f}" for name, share in fit["smoothing"].items())
    trust = (
        f"Trust in the given edges before any label is seen: {fit['edges_agree']:.2f} (1: neighbours have "
        "similar features, 0.1: they have not)."
    )
    return [trust, f"Smoothing of the predictions (over given edges, similar nodes, none): {shares}."]


def _first_fit(summary: Mapping[str, Any]) -> Any:
    return (summary.get("fit") or [{}])[0]


def is_result(stored: dict[str, Any], seed: int) -> bool:
    """Return whether what a file holds is the result of a seed."""
    scores: list[Any] = [stored.get(name) for name in ("selected", "last", "best")]
    if not all(isinstance(score, dict) and {"epoch", "val", "test"} <= score.keys() for score in scores):
        return False
    numbers = [stored.get(name) for name in ("epochs", "epoch_ms", "peak_rss_mb")]
    numbers += [value for score in scores for value in score.values() if value is not None]
    kinds = {"space": str, "events": list, "files": dict, "nodes": dict}
    return (
        stored.get("seed") == seed
        and all(type(number) in (int, float) for number in numbers)
        and all(isinstance(stored.get(name, kind()), kind) for name, kind in kinds.items())
    )
