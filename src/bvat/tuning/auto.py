"""``--method auto``: compare methods and models on validation data within a time budget, keep the best.

Candidates are repeated with other seeds on the validation nodes, or, where these are few, over the folds of a
cross-validation of all labelled nodes. Optuna's successive halving decides after each repetition which
candidates are worth another one. Test nodes and their labels are unknown to the choice.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch

from bvat.data.resplit import folds
from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.training.pool import ReportProgress, run_tasks
from bvat.training.progress import ProgressDisplay
from bvat.training.settings import Settings
from bvat.training.statistics import sample
from bvat.training.store import RunSpec, RunStore
from bvat.tuning.blind import blind
from bvat.tuning.storage import require_optuna
from bvat.tuning.variants import CANDIDATES, Variant, settings_of

REPETITIONS = 3
"""Seeds per candidate that is not given up."""
FOLDS = 5
"""Folds of the cross-validation."""
FEW = 100
"""With fewer validation nodes than this, cross-validation takes the place of the hold-out."""
BUDGET = 120.0
"""Seconds, unless asked otherwise."""


@dataclass(frozen=True)
class Choice:
    """What was chosen, and why.

    ``graph`` is what to train on: after a cross-validation all labelled nodes are training nodes, and
    ``settings`` then have the number of epochs that the folds needed.
    """

    variant: Variant
    settings: Settings
    graph: Graph
    report: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, from which :meth:`read` makes the same choice again."""
        return {"settings": self.settings.as_dict(), "report": self.report}

    @classmethod
    def read(cls, content: dict[str, Any], graph: Graph) -> Choice:
        """Return a choice made before for the same graph."""
        try:
            report = content["report"]
            pooled = _pooled(graph) if report["cross_validated"] else graph
            return cls(Variant.parse(report["chosen"]), Settings(**content["settings"]), pooled, report)
        except (KeyError, TypeError, AttributeError) as error:
            raise SettingsError(
                f"the stored choice of a method is damaged ({error}): use another --out to choose again"
            ) from None


def candidates_for(overrides: dict[str, Any]) -> tuple[str, ...]:
    """Return the candidates; a model that is asked for leaves only its own."""
    model = overrides.get("model")
    if model is None:
        return CANDIDATES
    own = ("grand",) if model == "random-propagation" else ()
    return tuple(Variant(model, method).name for method in ("gcn", "vat", "consistency", *own))


def parse_budget(text: str) -> float:
    """Read ``90s``, ``2m``, ``1.5h`` or a number of seconds."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text.lower())
    seconds = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    if not 0 < seconds < 1e7:
        raise SettingsError(f"a budget is a time such as 90s, 2m or 1h, not {text!r}")
    return seconds


def choose(
    graph: Graph,
    *,
    budget: float = BUDGET,
    jobs: int = 1,
    candidates: Sequence[str] | None = None,
    overrides: dict[str, Any] | None = None,
    work: Path | None = None,
    console: Any = None,
) -> Choice:
    """Choose a model and a method for a graph.

    Args:
        graph: with training nodes, and validation nodes unless there are few labels.
        budget: seconds after which no further candidate or repetition is started; those under way end early.
        jobs: number of parallel processes.
        candidates: see :mod:`bvat.tuning.variants`; the first one always gets its first repetition. By
            default :data:`CANDIDATES`, or those of the model in ``overrides``.
        overrides: settings that replace the defaults of every candidate.
        work: folder for the runs, which are found there again; a temporary one by default.
        console: where progress is shown.
    """
    require_optuna("bvat train --method auto")
    overrides = overrides or {}
    candidates = candidates or candidates_for(overrides)
    graphs, cross_validated = _repetitions(blind(graph))
    if not graphs:
        raise SettingsError(
            f"{graph.name} has too few labels to choose a method by validation: label more nodes, or use "
            "--method gcn"
        )
    settings_by = settings_of(candidates, overrides)
    with TemporaryDirectory() as temporary:
        store = RunStore.open(work or Path(temporary), {str(k): part for k, part in enumerate(graphs)})
        repeated = [(str(k), 0 if cross_validated else k) for k in range(len(graphs))]
        tried = _compare(store, settings_by, repeated, budget, jobs, console)
    winner = _best(tried)
    for entry in tried:
        entry["outcome"] = _outcome(entry, winner)
    variant = Variant.parse(winner["name"])
    settings = settings_by[winner["name"]]
    report = {
        "validation": (
            f"{len(graphs)}-fold cross-validation over the {len(graph.train) + len(graph.val)} labelled nodes"
            if cross_validated
            else f"{len(graph.val)} validation nodes, up to {len(graphs)} seeds"
        ),
        "cross_validated": cross_validated,
        "budget_seconds": budget,
        "chosen": winner["name"],
        "title": variant.title,
        "tried": tried,
        "text": _sentence(winner, tried),
    }
    if cross_validated:
        graph, settings = _refit(graph, settings, winner)
    return Choice(variant, settings, graph, report)


def _repetitions(graph: Graph) -> tuple[list[Graph], bool]:
    """Return the graph of each repetition, and whether these are folds."""
    if len(graph.val) >= FEW:
        return [graph] * REPETITIONS, False
    count = min(FOLDS, len(graph.train) + len(graph.val))
    return folds(graph, count) if count > 1 else [], True


@dataclass(frozen=True)
class _Repetition:
    """One repetition of one candidate: what a worker process trains."""

    name: str
    spec: RunSpec


class _OutOfTime(Exception):
    """The budget is used up."""


@dataclass(frozen=True)
class _Worker:
    """Trains repetitions until the deadline. It is sent to worker processes."""

    store: RunStore
    deadline: float

    def run(self, task: _Repetition, report: ReportProgress) -> None:
        """Train unless the time is over; what is under way then, or has no finite loss, leaves no result."""

        def tell(_: float) -> None:
            report(time.time())
            if time.time() > self.deadline:
                raise _OutOfTime

        with suppress(TrainingError, _OutOfTime):
            tell(0)
            self.store.run(task.spec, tell)
        report(time.time())


def _compare(
    store: RunStore, settings: dict[str, Settings], repeated: Sequence[tuple[str, int]], budget: float,
    jobs: int, console: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """Repeat the candidates round by round; Optuna's successive halving keeps the better half after each.

    Returns each candidate as plain values; ``val`` holds one accuracy per repetition.
    """
    import optuna

    pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    trials = {name: study.ask() for name in settings}
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in settings}
    alive, started = list(settings), time.time()
    with ProgressDisplay("comparing methods", {"time": budget}, console) as display:

        def advance(task: _Repetition, now: float) -> None:
            display.update("time", min(budget, now - started))
            display.set_title(f"comparing methods: {Variant.parse(task.name).title}")

        for number, (graph, seed) in enumerate(repeated):
            tasks = [_Repetition(name, RunSpec(graph, settings[name], seed)) for name in alive]
            if number == 0:  # whatever the budget, there is one answer
                _Worker(store, math.inf).run(tasks[0], functools.partial(advance, tasks[0]))
            run_tasks(_Worker(store, started + budget).run, tasks, jobs, advance)
            for task in tasks:
                found = store.result(task.spec)
                if found is not None:
                    results[task.name].append(found)
                    values = [result["selected"]["val"] for result in results[task.name]]
                    trials[task.name].report(sample(values).mean, number + 1)
            done = [name for name in alive if len(results[name]) == number + 1]
            better = [name for name in done if not trials[name].should_prune()]
            alive = [name for name in better if not _is_plain(name, results[name], better)]
            if not alive or time.time() - started >= budget:
                break
    return [_described(name, results[name]) for name in settings]


def _is_plain(name: str, results: list[dict[str, Any]], others: Sequence[str]) -> bool:
    """Return whether a method's regulariser brought nothing so far and its plain model is a candidate too."""
    variant = Variant.parse(name)
    plain = Variant(variant.model, "gcn").name
    return name != plain in others and not any(result["phases"]["second"] for result in results)


def _described(name: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "title": Variant.parse(name).title,
        "val": [result["selected"]["val"] for result in results],
        "seconds": [result["seconds"] for result in results],
        "phases": [result["phases"] for result in results],
    }


def _best(tried: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the candidate with the best mean among those with the most repetitions; of equals the first."""
    most = max(len(entry["val"]) for entry in tried)
    if not most:
        raise TrainingError("no candidate could be trained: check the features, or use --method gcn")
    return max((e for e in tried if len(e["val"]) == most), key=lambda e: sample(e["val"]).mean)


def _outcome(entry: dict[str, Any], winner: dict[str, Any]) -> str:
    if entry is winner:
        return "chosen"
    if not entry["val"]:
        return "not tried: the time was over"
    return "given up early" if len(entry["val"]) < len(winner["val"]) else "compared to the end"


def _sentence(winner: dict[str, Any], tried: list[dict[str, Any]]) -> str:
    """Say what won, by how much, and how sure that is."""
    mean = sample(winner["val"]).mean
    text = f"{winner['title']} was chosen with {mean:.1f} % validation accuracy"
    count = len(winner["val"])
    text += f" (mean of {count} repetitions)" if count > 1 else ""
    plain = next((entry for entry in tried if entry["name"] == "gcn"), None)
    if plain is None or plain is winner or not plain["val"]:
        others = [e for e in tried if e is not winner and e["val"]]
        if not others:
            return text + "; no other candidate was compared."
        count = min(len(e["val"]) for e in others)
        second = max(others, key=lambda e: (len(e["val"]), sample(e["val"]).mean))
        said = f"; of the others {second['title']} came closest, with {sample(second['val']).mean:.1f} %"
        return text + said + (f" after {len(second['val'])} of them." if count < len(winner["val"]) else ".")
    pairs = [ours - theirs for ours, theirs in zip(winner["val"], plain["val"], strict=False)]
    gain = sample(pairs)
    text += f", {gain.mean:+.1f} points against a plain GCN"
    if len(pairs) < 2:
        return text + "; with one repetition it is unknown how sure that is."
    sure = "more" if gain.low > 0 else "less"
    return text + (
        f" (95 % interval over the repetitions {gain.low:+.1f} to {gain.high:+.1f}), which is {sure} than "
        "the repetitions differ by chance."
    )


def _pooled(graph: Graph) -> Graph:
    """Return the graph with its validation nodes among the training nodes."""
    train = torch.cat([graph.train, graph.val]).sort().values
    said = f"none: all {train.numel()} labelled nodes are training nodes, epochs from cross-validation"
    return dataclasses.replace(graph, train=train, val=graph.val[:0], validation=said)


def _refit(graph: Graph, settings: Settings, winner: dict[str, Any]) -> tuple[Graph, Settings]:
    """Return all labelled nodes as training nodes, and as many epochs as the folds needed."""
    first = max(1, round(median(phases["first"] for phases in winner["phases"])))
    second = round(median(phases["second"] for phases in winner["phases"]))
    pooled = _pooled(graph)
    fixed: dict[str, Any] = {"select": "last", "patience": 0, "guard": False, "margin": 0.0}
    if not second or settings.method == "gcn":
        plain: dict[str, Any] = {"method": "gcn", "alpha": 0.0, "beta": 0.0, "pretrain": 0, "epochs": first}
        return pooled, dataclasses.replace(settings, **fixed, **plain)
    return pooled, dataclasses.replace(settings, **fixed, pretrain=first, epochs=first + second)
