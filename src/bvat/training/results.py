"""Results of a seed and of several seeds as plain values, for files and ``--json``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bvat._version import __version__
from bvat.graph import Graph
from bvat.training.baseline import fit_notes
from bvat.training.provenance import sources, versions
from bvat.training.scores import summarize_f1
from bvat.training.settings import Settings
from bvat.training.statistics import summarize
from bvat.training.trained import TrainedModel


def seed_result(trained: TrainedModel, peak_rss_mb: float) -> dict[str, Any]:
    """Return the result of one seed as plain values."""
    return {
        "seed": trained.seed,
        **({"fit": trained.fit} if trained.fit else {}),
        "selected": trained.selected,
        "last": trained.last,
        "best": trained.best,
        "space": trained.space,
        "epochs": len(trained.metrics),
        "epoch_ms": trained.epoch_ms,
        "events": trained.events,
        "phases": trained.phases,
        "f1": trained.f1,
        "stopped": trained.stopped,
        "peak_rss_mb": peak_rss_mb,
        "version": __version__,
        "versions": versions(),
    }


def summary_of(graph: Graph, settings: Settings, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Combine the results of several seeds: what ``bvat train --json`` prints."""
    times = sorted(result["epoch_ms"] for result in results)
    return {
        "dataset": graph.name,
        "method": settings.method,
        "space": results[0]["space"],
        "seeds": len(results),
        "epochs": max(result["epochs"] for result in results),
        "settings": settings.as_dict(),
        "validation": graph.validation,
        "val_accuracy": summarize([result["selected"]["val"] for result in results]),
        "test_accuracy": summarize([result["selected"]["test"] for result in results]),
        **summarize_f1(graph, results),
        "epoch_ms": times[len(times) // 2],
        "stopped": [
            f"seed {result['seed']} {result['stopped']}" for result in results if result.get("stopped")
        ],
        "events": by_seed(
            (each["seed"], text) for each in results for text in (*each.get("events", ()), *fit_notes(each))
        )
        + _mixed_sources(results),
        **({"fit": [result["fit"] for result in results]} if "fit" in results[0] else {}),
        "peak_rss_mb": max(result["peak_rss_mb"] for result in results),
        "version": __version__,
        "versions": versions(),
    }


def _mixed_sources(results: Sequence[dict[str, Any]]) -> list[str]:
    """Say that not all seeds were trained by the same program, if so."""
    found = sources(results)
    if len(found) == 1:
        return []
    return [f"the seeds were trained with different sources of bvat {__version__}: {', '.join(found)}"]


def by_seed(notes: Iterable[tuple[int, str]]) -> list[str]:
    """Return each sentence once, after the seeds that it is about."""
    seeds: dict[str, list[int]] = {}
    for seed, text in notes:
        seeds.setdefault(text, []).append(seed)
    return [f"seed{'s' * (len(of) > 1)} {', '.join(map(str, of))}, {text}" for text, of in seeds.items()]


def is_result(stored: dict[str, Any], seed: int) -> bool:
    """Return whether an object has what the result of a seed has, each with the right type."""

    def number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    chosen: list[Any] = [stored.get(name) for name in ("selected", "last", "best")]
    return (
        stored.get("seed") == seed
        and isinstance(stored.get("space"), str)
        and all(number(stored.get(name)) for name in ("epochs", "epoch_ms", "peak_rss_mb"))
        and isinstance(stored.get("events", []), list)
        and isinstance(stored.get("files", {}), dict)
        and all(isinstance(each, dict) and {"epoch", "val", "test"} <= each.keys() for each in chosen)
        and all(value is None or number(value) for each in chosen for value in each.values())
    )
