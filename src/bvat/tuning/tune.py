"""The search for settings with the best *validation* accuracy.

A trial trains one choice of settings with a few seeds; its value is the mean validation accuracy of the last
epoch. After 1, 2, 4, ... seeds the worse half of the trials stops. The best few trials and the current preset
are then trained again with other seeds, and the one that is best with those is chosen: the maximum of many
noisy values is biased upwards, a second evaluation is not.

The search works on a graph without test nodes, and without labels other than those of training and validation
nodes, so that no result can depend on a test label.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bvat.data.checksums import write_sealed_json
from bvat.data.files import write_atomic
from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.store.claim import share
from bvat.store.pool import ReportProgress, run_tasks
from bvat.store.progress import ProgressDisplay
from bvat.store.store import RunSpec, RunStore
from bvat.training.provenance import about_graph, digest, versions
from bvat.training.settings import Settings, preset, preset_key, short_name
from bvat.training.statistics import sample
from bvat.tuning.cross_validation import blind
from bvat.tuning.space import STARTS, applying, parameters, search_space, suggest, toml_lines, tuned_settings
from bvat.tuning.storage import (
    claim_draw,
    finished,
    give_up,
    give_up_running,
    halving,
    importances,
    open_journal,
    require_optuna,
)

if TYPE_CHECKING:
    import optuna

CHECK_SEEDS_FROM = 1000
"""The first seed of the finalists: distinct from the seeds of trials and of Table 2."""


@dataclass(frozen=True)
class TuningPlan:
    """What to tune, and how thoroughly.

    ``trials`` counts those of earlier calls too, and each has ``seeds`` seeds, from 0 on. The best
    ``finalists`` are trained again with ``check_seeds`` other seeds. ``overrides`` replace settings of the
    preset and are not searched; ``command`` is stored with the result.
    """

    dataset: str
    method: str
    model: str = "gcn"
    trials: int = 40
    seeds: int = 5
    finalists: int = 5
    check_seeds: int = 10
    overrides: dict[str, Any] = dataclasses.field(default_factory=dict)
    sampler_seed: int = 0
    command: str = ""

    def __post_init__(self) -> None:
        self.base()  # wrong values are refused before the graph is read
        search_space(self.method, self.model)

    @property
    def name(self) -> str:
        on = "" if self.model == "gcn" else "-" + re.sub(r"[^\w.-]+", "_", self.model)
        return f"{short_name(self.dataset)}-{self.method}{on}"

    @property
    def space(self) -> dict[str, Any]:
        """The search space, without the settings that the overrides fix."""
        return {
            name: span
            for name, span in search_space(self.method, self.model).items()
            if name not in self.overrides
        }

    def base(self) -> Settings:
        return preset(preset_key(self.dataset), self.method, model=self.model, **self.overrides)

    def fixed(self) -> dict[str, Any]:
        return {k: v for k, v in self.base().as_dict().items() if k not in tuned_settings(self.space)}

    def searched(self) -> dict[str, Any]:
        """Return the settings of the current preset that its branch of the space searches."""
        base = self.base().as_dict()
        return {name: base[name] for name, _, _ in applying(self.space, base)}

    def study_name(self, fingerprint: str) -> str:
        """Return a name that changes with everything the value of a trial depends on."""
        about = [self.space, self.fixed(), self.seeds, fingerprint]
        code = self.base().identity().get("code")
        return f"{self.name}-{digest([*about, code] if code else about, 10)}"


@dataclass(frozen=True)
class _TrialRunner:
    """Runs trials. It is sent to worker processes."""

    plan: TuningPlan
    store: RunStore
    study: str
    journal: Path

    def run(self, number: int, report: ReportProgress) -> None:
        """Run one trial, unless other processes have finished the search."""
        require_optuna()
        import optuna

        plan = self.plan
        storage = open_journal(self.journal)
        study = optuna.load_study(study_name=self.study, storage=storage, pruner=halving())
        if len(finished(study)) < plan.trials:
            trial = study.ask()
            study.sampler = optuna.samplers.TPESampler(seed=plan.sampler_seed + claim_draw(study, trial))
            try:
                study.tell(trial, self.value(trial, report))
            except optuna.TrialPruned:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            except BaseException:
                with suppress(Exception):  # otherwise it is given up when the search is started again
                    give_up(study.get_trials(deepcopy=False)[trial.number], storage)
                raise
        report(plan.seeds * plan.base().epochs)

    def value(self, trial: optuna.Trial, report: ReportProgress) -> float:
        """Return the mean validation accuracy of a trial; prune it if it is in the worse half."""
        import optuna

        plan, graph = self.plan, self.store.graphs[self.plan.dataset]
        if graph.test.numel():
            raise AssertionError("a search must not see test nodes")
        reported = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values  # if begun before
        values = suggest(trial, plan.space, plan.base().as_dict())
        settings = plan.base().replace(**values)
        trial.set_user_attr("settings", values)
        accuracies: list[float] = []
        for seed in range(plan.seeds):
            before = seed * settings.epochs
            try:
                result = self.store.run(
                    RunSpec(plan.dataset, settings, seed),
                    lambda done, before=before: report(before + done),  # type: ignore[misc]
                )
            except TrainingError as error:  # the loss is not finite
                raise optuna.TrialPruned(str(error)) from None
            accuracies.append(result["selected"]["val"])
            trial.set_user_attr("val", accuracies)
            if seed + 1 not in reported:
                trial.report(sample(accuracies).mean, seed + 1)
            if seed + 1 < plan.seeds and trial.should_prune():
                raise optuna.TrialPruned
        return sample(accuracies).mean


def tune(plan: TuningPlan, graph: Graph, out: Path, jobs: int, console: Any = None) -> dict[str, Any]:
    """Search until there are ``plan.trials`` trials, check the best ones, and write the result file.

    Args:
        graph: the graph of the data set; its test nodes and their labels are removed here.
        out: folder for ``DATASET-METHOD.json``, for ``DATASET-METHOD.toml`` with the chosen settings, and
            for ``work/`` (journal and runs), from which an interrupted search continues. Several processes
            can share it.
    """
    require_optuna()
    instead = "compare settings with bvat compare --metric micro_f1"
    graph.targets.require_one_class("tune", instead)
    if not graph.val.numel():
        raise SettingsError(
            f"{plan.dataset} has no validation nodes, which a search needs: hold some out with --val N"
        )
    with share(out) as alone:
        return _search(plan, graph, out, jobs, console, alone=alone)


def _search(
    plan: TuningPlan, graph: Graph, out: Path, jobs: int, console: Any, *, alone: bool
) -> dict[str, Any]:
    """Search; ``alone`` says that no other process does."""
    import optuna

    store = RunStore.open(out / "work", {plan.dataset: blind(graph)})
    study_name = plan.study_name(store.fingerprints[plan.dataset])
    journal = out / "work" / f"{plan.name}.journal"
    storage = open_journal(journal)
    try:
        study = optuna.create_study(study_name=study_name, storage=storage, direction="maximize")
        created = True
    except optuna.exceptions.DuplicatedStudyError:
        study = optuna.load_study(study_name=study_name, storage=storage)
        created = alone and not study.get_trials(deepcopy=False)  # by a process that was killed at once
    if created:  # of several processes that start together, one: no starting point is tried twice
        base = plan.base().as_dict()
        for point in ({}, *STARTS):
            study.enqueue_trial(parameters({**base, **point}, plan.space), skip_if_exists=True)
    if alone:
        give_up_running(study, storage)
    done = len(finished(study))
    tasks = list(range(done, plan.trials))
    size = plan.seeds * plan.base().epochs
    title = f"{len(tasks)} trials to do, {done} already finished"
    with ProgressDisplay(title, dict.fromkeys(tasks, size), console) as display:

        def advance(number: int, epochs: float) -> None:
            display.update(number, epochs)
            ready = done + display.finished
            display.set_title(f"trial {ready} of {plan.trials}: {plan.method} on {plan.dataset}")

        run_tasks(_TrialRunner(plan, store, study_name, journal).run, tasks, jobs, advance)
    result = _result(plan, graph, store, finished(study), jobs, console)
    result["importance"] = importances(study)
    write_sealed_json(out / f"{plan.name}.json", result)
    model = {"model": plan.model} if plan.model != "gcn" else {}
    chosen = {"method": plan.method, **model, **plan.overrides, **result["chosen"]}
    comment = f"# the best of {len(result['trials'])} trials of bvat tune: bvat train GRAPH --settings FILE\n"
    write_atomic(out / f"{plan.name}.toml", comment + toml_lines(chosen))
    return result


def _result(
    plan: TuningPlan, graph: Graph, store: RunStore, trials: Sequence[Any], jobs: int, console: Any
) -> dict[str, Any]:
    """Train the finalists again, choose the best one, and return the content of the result file."""
    rows = [
        {
            "number": number,
            "state": trial.state.name.lower(),
            "settings": trial.user_attrs["settings"],
            "val": sample(trial.user_attrs["val"]).as_dict() if "val" in trial.user_attrs else None,
        }
        for number, trial in enumerate(sorted(trials, key=lambda trial: trial.number))
    ]
    finalists = _finalists(plan, rows)
    seeds = range(CHECK_SEEDS_FROM, CHECK_SEEDS_FROM + plan.check_seeds)
    runs = [
        [RunSpec(plan.dataset, plan.base().replace(**entry["settings"]), seed) for seed in seeds]
        for entry in finalists
    ]
    store.run_all([run for part in runs for run in part], jobs, console)
    for entry, part in zip(finalists, runs, strict=True):
        entry["val"] = sample([result["selected"]["val"] for result in store.results(part)]).as_dict()
    chosen = max(finalists, key=lambda entry: entry["val"]["mean"])  # among equals the first: the preset
    return {
        "dataset": short_name(plan.dataset),
        "method": plan.method,
        "model": plan.model,
        "objective": "mean validation accuracy (%) of the weights that are kept; the finalists are compared "
        "with other seeds than those of the trials; the search sees no test labels",
        "graph": {**about_graph(graph), "test": 0},
        "chosen": chosen["settings"],
        "chosen_from": chosen["from"],
        "val": chosen["val"],
        "finalists": finalists,
        "check_seeds": list(seeds),
        "trial_seeds": list(range(plan.seeds)),
        "space": plan.space,
        "fixed": plan.fixed(),
        "starts": ["preset", *STARTS],
        "sampler": f"TPE, seed {plan.sampler_seed}; successive halving over seeds",
        "trials": rows,
        "versions": {**versions(), "optuna": metadata.version("optuna")},
        "command": plan.command,
    }


def _finalists(plan: TuningPlan, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the preset and the best trials, without settings that are there already."""
    complete = [row for row in rows if row["state"] == "complete"]
    best = sorted(complete, key=lambda row: (-row["val"]["mean"], row["number"]))[: plan.finalists]
    finalists: list[dict[str, Any]] = [{"from": "preset", "settings": plan.searched()}]
    for row in best:
        if all(row["settings"] != entry["settings"] for entry in finalists):
            finalists.append({"from": f"trial {row['number']}", "settings": row["settings"]})
    return finalists
