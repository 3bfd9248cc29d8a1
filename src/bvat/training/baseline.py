"""Fitting a baseline where a model is trained: the same result, with one epoch that is the whole fit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bvat.baselines.base import Fit, Once
from bvat.baselines.table import AUTO, BASELINES
from bvat.data.tensors import read_safetensors, write_safetensors
from bvat.errors import GraphError, SettingsError, TrainingError
from bvat.graph import Graph
from bvat.training.callbacks import Callback
from bvat.training.provenance import digest, graph_fingerprint
from bvat.training.settings import Settings
from bvat.training.state import check_targets
from bvat.training.statistics import split_scores
from bvat.training.trained import METRICS, TrainedModel, accuracy, held_out, predict, reached

SHARED = "shared-"
"""How the names of files begin that hold what several baselines need."""


def fit_baseline(
    graph: Graph,
    settings: Settings,
    seed: int,
    shared: Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> TrainedModel:
    """Fit a baseline on the CPU, wherever the graph is; an ensemble tells callbacks of its first answer."""
    if not graph.train.numel():
        raise GraphError(f"{graph.name} has no labels to train on: label a few nodes of each class")
    check_targets(graph, settings)
    if graph.directed and settings.method != AUTO:
        raise SettingsError(
            f"{settings.method} needs undirected edges: read {graph.name} without directed, or use a network"
        )
    graph = graph.to("cpu")
    started = time.perf_counter()
    baseline = BASELINES[settings.method]

    def tell(text: str) -> None:
        for callback in callbacks:
            callback.on_note(text)

    more: dict[str, Any] = {"tell": tell} if settings.method == AUTO else {}
    if shared is not None and baseline.shares:
        more["once"] = kept_in(shared, graph, seed, settings)
    fit: Fit = baseline.fit(graph, seed, settings.of_method, **more)
    ms = 1000 * (time.perf_counter() - started)
    logits = predict(fit.model, graph)
    weights = dict(fit.model.state_dict())
    if not all(bool(tensor.isfinite().all()) for tensor in (logits, *weights.values())):
        raise TrainingError(f"{settings.method} found no finite numbers: scale the features of {graph.name}")
    row = _metrics(graph, logits, ms)
    unread = f"{settings.method} does not use the edge attributes of {graph.name}"
    alone = torch.zeros(graph.num_nodes, dtype=torch.bool) if fit.unscored is None else fit.unscored
    return TrainedModel(
        seed=seed,
        weights=weights,
        last=reached(row),
        best=reached(row),
        selected=reached(row),
        metrics=[row],
        space="none",
        epoch_ms=ms,
        phases={"first": 0, "second": 1},
        f1=split_scores(logits.argmax(1), graph),
        nodes=held_out(graph),
        events=[unread] if graph.edge_attr is not None else [],
        fit={
            "chosen": fit.chosen if graph.val.numel() else {},
            "unscored": 100 * float(alone.double().mean()),
            "unscored_test": 100 * float(alone[graph.test].double().mean()) if graph.test.numel() else None,
            **fit.report,
        },
    )


def kept_in(folder: Path, graph: Graph, seed: int, settings: Settings) -> Once:
    """Return a function that keeps what it computes for a graph, a seed and settings in a folder.

    A file that cannot be used counts as missing.
    """
    identity = digest(
        {"graph": graph_fingerprint(graph), "seed": seed, "options": asdict(settings.of_method)}
    )

    def once(name: str, compute: Callable[[], Tensor]) -> Tensor:
        path = folder / f"{SHARED}{name}-{identity}.safetensors"
        try:
            return read_safetensors(path)[1][name]
        except (OSError, ValueError, KeyError):
            found = compute()
        with suppress(OSError):  # a full disk: only the time is lost
            write_safetensors(path, {name: found}, {})
        return found

    return once


def fit_notes(result: Mapping[str, Any]) -> list[str]:
    """Return what a reader should know of the fit of a seed, a sentence each."""
    fit, notes = result.get("fit", {}), list[str]()
    estimate = fit.get("estimate")
    if "members" in fit and estimate is None and not result["nodes"]["val"]:
        notes.append("no class has two labelled nodes, so how accurate the predictions are is unknown")
    if unknown := [each["class"] for each in (estimate or {"f1": []})["f1"] if not each["nodes"]]:
        notes.append(f"the accuracy says nothing of {', '.join(unknown)}: too few labels to hold one out")
    if fit.get("chosen"):
        chosen = ", ".join(f"{name} {value:g}" for name, value in fit["chosen"].items())
        notes.append(f"chosen on the validation nodes: {chosen}")
    if fit.get("unscored"):
        test = fit["unscored_test"]
        of_test = "" if test is None else f" ({test:.1f} % of the test nodes)"
        notes.append(
            f"{fit['unscored']:.1f} % of the nodes{of_test} are linked to no training node and got the most "
            "common training class"
        )
    return notes


def _metrics(graph: Graph, logits: Tensor, ms: float) -> dict[str, float]:
    loss = float(F.cross_entropy(logits[graph.train], graph.labels[graph.train]))
    row = dict.fromkeys(METRICS, 0.0) | {"epoch": 1, "loss": loss, "supervised": loss, "ms": ms}
    for name in ("train", "val", "test"):
        row[f"{name}_accuracy"] = accuracy(logits, graph, getattr(graph, name))
    return row | dict.fromkeys(("val_loss", "largest_class", "val_micro_f1"), math.nan)
