"""``--method auto``: compare methods and models on validation data within a time budget, keep the best.

Candidates are repeated with other seeds on the validation nodes, or, where these are few, over the folds of a
cross-validation of all labelled nodes. Optuna's successive halving decides after each repetition which
candidates are worth another one. Test nodes and their labels are unknown to the choice.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bvat.data.resplit import folds
from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.training.pool import ReportProgress, run_tasks
from bvat.training.progress import ProgressDisplay
from bvat.training.settings import Settings
from bvat.training.statistics import sample
from bvat.training.store import RunSpec, RunStore
from bvat.tuning.blind import blind
from bvat.tuning.storage import open_storage, require_optuna
from bvat.tuning.variants import CANDIDATES, Variant

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
    candidates: Sequence[str] = CANDIDATES,
    overrides: dict[str, Any] | None = None,
    work: Path | None = None,
    console: Any = None,
) -> Choice:
    """Choose a model and a method for a graph.

    Args:
        graph: with training nodes, and validation nodes unless there are few labels.
        budget: seconds after which no further candidate or repetition is started; those under way end early.
        jobs: number of parallel processes.
        candidates: see :mod:`bvat.tuning.variants`; the first one always gets its first repetition.
        overrides: settings that replace the defaults of every candidate.
        work: folder for the runs, which are found there again; a temporary one by default.
        console: where progress is shown.
    """
    require_optuna("bvat train --method auto")
    graphs, cross_validated = _repetitions(blind(graph))
    if not graphs:
        raise SettingsError(
            f"{graph.name} has too few labels to choose a method by validation: label more nodes, or use "
            "--method gcn"
        )
    with TemporaryDirectory() as temporary:
        folder = work or Path(temporary)
        store = RunStore.open(folder, {str(k): part for k, part in enumerate(graphs)})
        trials = _Trials(store, tuple(candidates), overrides or {}, str(folder / "auto.journal"),
                         len(graphs), cross_validated, time.time() + budget)  # fmt: skip
        values = _run(trials, budget, jobs, console)
    tried = [_described(name, values.get(name)) for name in candidates]
    winner = _best(tried, len(graphs))
    variant = Variant.parse(winner["name"])
    settings = variant.settings(**(overrides or {}))
    report = {
        "validation": (
            f"{len(graphs)}-fold cross-validation over the {len(graph.train) + len(graph.val)} labelled nodes"
            if cross_validated
            else f"{len(graph.val)} validation nodes, up to {len(graphs)} seeds"
        ),
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
class _Trials:
    """One Optuna trial per candidate. It is sent to worker processes."""

    store: RunStore
    candidates: tuple[str, ...]
    overrides: dict[str, Any]
    journal: str
    repetitions: int
    folds: bool
    deadline: float

    def study(self) -> Any:
        """Return the study, with the pruner that gives candidates up."""
        import optuna

        return optuna.create_study(
            study_name="auto",
            storage=open_storage(self.journal),
            direction="maximize",
            load_if_exists=True,
            sampler=optuna.samplers.RandomSampler(seed=0),
            pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
        )

    def run(self, name: str, report: ReportProgress) -> None:
        """Repeat a candidate until it is given up or the time is over."""
        require_optuna("bvat train --method auto")
        import optuna

        left = self.deadline - time.time()
        if left <= 0 and name != self.candidates[0]:
            return
        study = self.study()
        trial = study.ask({"candidate": optuna.distributions.CategoricalDistribution([name])})
        variant = Variant.parse(name)
        settings = variant.settings(**self.overrides)
        results: list[dict[str, Any]] = []
        pruned = False
        for k in range(self.repetitions):
            if results and time.time() > self.deadline:
                break
            spec = RunSpec(str(k), settings, 0 if self.folds else k)
            try:
                results.append(self.store.run(spec, lambda _: report(time.time())))
            except TrainingError:  # the loss is not finite: this candidate is out
                pruned = True
                break
            report(time.time())
            trial.report(sample([result["selected"]["val"] for result in results]).mean, k + 1)
            trial.set_user_attr("results", [_kept(result) for result in results])
            if k + 1 < self.repetitions and trial.should_prune():
                pruned = True
                break
        complete = len(results) == self.repetitions
        value = sample([result["selected"]["val"] for result in results]).mean if complete else None
        state = optuna.trial.TrialState
        study.tell(trial, value, state=state.COMPLETE if complete else state.PRUNED)
        trial.set_user_attr("given_up", pruned)


def _kept(result: dict[str, Any]) -> dict[str, Any]:
    return {name: result[name] for name in ("selected", "phases", "seconds", "events")}


def _run(trials: _Trials, budget: float, jobs: int, console: Any) -> dict[str, Any]:
    """Run the candidates; return what each gave, by name."""
    trials.study()  # made before workers look for it
    started, names = time.time(), list(trials.candidates)
    with ProgressDisplay("comparing methods", {"time": budget}, console) as display:

        def advance(name: str, now: float) -> None:
            display.update("time", min(budget, now - started))
            display.set_title(f"comparing methods: {Variant.parse(name).title}")

        run_tasks(trials.run, names, jobs, advance)
    found: dict[str, Any] = {}
    for trial in trials.study().get_trials(deepcopy=False):
        results = trial.user_attrs.get("results")
        if results and trial.params["candidate"] in names:
            found[trial.params["candidate"]] = {
                "results": results,
                "given_up": trial.user_attrs.get("given_up", False),
            }
    return found


def _described(name: str, found: dict[str, Any] | None) -> dict[str, Any]:
    """Return a candidate as plain values; ``val`` holds one accuracy per repetition."""
    title = Variant.parse(name).title
    if found is None:
        return {"name": name, "title": title, "val": [], "outcome": "not tried: the time was over"}
    results = found["results"]
    return {
        "name": name,
        "title": title,
        "val": [result["selected"]["val"] for result in results],
        "seconds": [result["seconds"] for result in results],
        "phases": [result["phases"] for result in results],
        "outcome": "given up early" if found["given_up"] else "compared",
    }


def _best(tried: list[dict[str, Any]], repetitions: int) -> dict[str, Any]:
    """Return the candidate with the best mean among those with the most repetitions; of equals the first."""
    most = max(len(entry["val"]) for entry in tried)
    if not most:
        raise TrainingError("no candidate could be trained: check the features, or use --method gcn")
    return max((e for e in tried if len(e["val"]) == most), key=lambda e: sample(e["val"]).mean)


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
        second = max(others, key=lambda e: sample(e["val"]).mean)
        return text + f"; the next best, {second['title']}, had {sample(second['val']).mean:.1f} %."
    pairs = [ours - theirs for ours, theirs in zip(winner["val"], plain["val"], strict=False)]
    gain = sample(pairs)
    text += f", {gain.mean:+.1f} points against a plain GCN"
    if len(pairs) < 2:
        return text + "; with one repetition it is unknown how sure that is."
    sure = "which is clear" if gain.low > 0 else "which is within the noise of the repetitions"
    return text + f" (95 % interval {gain.low:+.1f} to {gain.high:+.1f}), {sure}."


def _refit(graph: Graph, settings: Settings, winner: dict[str, Any]) -> tuple[Graph, Settings]:
    """Return all labelled nodes as training nodes, and as many epochs as the folds needed."""
    import torch

    first = max(1, round(median(phases["first"] for phases in winner["phases"])))
    second = round(median(phases["second"] for phases in winner["phases"]))
    train = torch.cat([graph.train, graph.val]).sort().values
    said = f"none: all {train.numel()} labelled nodes are training nodes, epochs from cross-validation"
    pooled = dataclasses.replace(graph, train=train, val=graph.val[:0], validation=said)
    fixed: dict[str, Any] = {"select": "last", "patience": 0, "guard": False, "margin": 0.0}
    if not second or settings.method == "gcn":
        plain: dict[str, Any] = {"method": "gcn", "alpha": 0.0, "beta": 0.0, "pretrain": 0, "epochs": first}
        return pooled, dataclasses.replace(settings, **fixed, **plain)
    return pooled, dataclasses.replace(settings, **fixed, pretrain=first, epochs=first + second)
