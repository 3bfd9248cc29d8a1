"""The search for presets: settings with the best *validation* accuracy.

A trial trains one choice of settings with a few seeds; its value is the mean validation accuracy of the last
epoch. The best few trials, and the preset of today, are then trained again with other seeds, and the one
that is best *there* is chosen: the best of many noisy numbers is too good by luck, a second look is not.

The graph that a search works on has no test nodes, and no labels but those of its training and validation
nodes, so that no result of a search can depend on a test label.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bvat.data.files import write_json
from bvat.errors import SettingsError, TrainingError
from bvat.graph import UNKNOWN, Graph
from bvat.paper.request import about_graph
from bvat.training.perform import perform, progress_bar
from bvat.training.pool import Report, run_tasks
from bvat.training.runs import Run, Workshop, versions
from bvat.training.settings import Settings, preset, preset_key, short_name
from bvat.training.statistics import sample
from bvat.tuning.space import parameters, search_space, starting_points, suggest, tuned_settings

if TYPE_CHECKING:
    import optuna

CHECK_SEEDS_FROM = 1000
"""The first seed that finalists are trained with: apart from those of the trials and of Table 2."""


def blind(graph: Graph) -> Graph:
    """Return the graph without test nodes and without any label that is not of a train or val node."""
    labels = torch.full_like(graph.labels, UNKNOWN)
    for nodes in (graph.train, graph.val):
        labels[nodes] = graph.labels[nodes]
    return dataclasses.replace(graph, labels=labels, test=graph.test[:0])


@dataclass(frozen=True)
class Search:
    """One search: a data set, a method, and how thorough it is.

    Args:
        dataset: name or path.
        method: what is tuned.
        trials: number of trials in all, those of earlier calls included.
        seeds: seeds of each trial, from 0.
        finalists: how many of the best trials are trained again.
        check_seeds: with how many other seeds.
        overrides: settings that replace those of the preset and are not searched.
        sampler_seed: of Optuna's sampler.
        command: the command line, repeated in the result.
    """

    dataset: str
    method: str
    trials: int = 40
    seeds: int = 5
    finalists: int = 5
    check_seeds: int = 10
    overrides: dict[str, Any] = dataclasses.field(default_factory=dict)
    sampler_seed: int = 0
    command: str = ""

    @property
    def name(self) -> str:
        """The name of result file and study."""
        return f"{short_name(self.dataset)}-{self.method}"

    @property
    def space(self) -> dict[str, Any]:
        """What is searched, without what the overrides fix."""
        return {name: span for name, span in search_space(self.method).items() if name not in self.overrides}

    def base(self) -> Settings:
        """Return the preset of today."""
        return preset(preset_key(self.dataset), self.method, **self.overrides)

    def study_name(self, fingerprint: str) -> str:
        """Return a name that changes with all that the value of a trial depends on."""
        fixed = {k: v for k, v in self.base().as_dict().items() if k not in tuned_settings(self.space)}
        content = json.dumps([self.space, fixed, self.seeds, fingerprint], sort_keys=True)
        return f"{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"


@dataclass(frozen=True)
class _Trial:
    """What a process does for one trial."""

    search: Search
    workshop: Workshop
    study: str
    storage: str

    def __call__(self, number: int, report: Report) -> None:
        require_optuna()
        import optuna

        search = self.search
        sampler = optuna.samplers.TPESampler(seed=search.sampler_seed + number)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=8, n_warmup_steps=1)
        study = optuna.load_study(
            study_name=self.study, storage=open_storage(self.storage), sampler=sampler, pruner=pruner
        )
        if len(finished(study)) < search.trials:  # other processes may have been faster
            study.optimize(lambda trial: self.value(trial, report), n_trials=1)
        report(search.seeds * search.base().epochs)

    def value(self, trial: optuna.Trial, report: Report) -> float:
        """Return the mean validation accuracy; give up early what is worse than most trials."""
        import optuna

        search, graph = self.search, self.workshop.graphs[self.search.dataset]
        if graph.test.numel():
            raise AssertionError("a search must not see test nodes")
        values = suggest(trial, search.space, search.base().as_dict())
        settings = dataclasses.replace(search.base(), **values)
        trial.set_user_attr("settings", values)
        trial.set_user_attr("worker", [platform.node(), os.getpid()])
        accuracies: list[float] = []
        for seed in range(search.seeds):
            before = seed * settings.epochs
            try:
                result = self.workshop.do(
                    Run(search.dataset, settings, seed),
                    lambda done, before=before: report(before + done),  # type: ignore[misc]
                )
            except TrainingError as error:  # a loss that is not finite
                raise optuna.TrialPruned(str(error)) from None
            accuracies.append(result["last"]["val"])
            trial.set_user_attr("val", accuracies)
            trial.report(sample(accuracies).mean, seed)
            if seed + 1 < search.seeds and trial.should_prune():
                raise optuna.TrialPruned
        return sample(accuracies).mean


def open_storage(storage: str) -> Any:
    """Return the Optuna storage of a URL (``sqlite:///study.db``, ``postgresql://...``) or journal file."""
    import optuna

    if "://" in storage:
        return optuna.storages.get_storage(storage)
    from optuna.storages.journal import JournalFileBackend

    Path(storage).parent.mkdir(parents=True, exist_ok=True)
    return optuna.storages.JournalStorage(JournalFileBackend(storage))


def finished(study: optuna.Study) -> list[Any]:
    """Return the trials that have a value, given up early or not."""
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def take_up_abandoned(study: optuna.Study) -> None:
    """Queue again the trials that processes of this machine were working on when they were killed."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        host, process = trial.user_attrs.get("worker", ("", 0))
        if host == platform.node() and not _is_alive(process):
            study.tell(trial.number, state=TrialState.FAIL)
            study.enqueue_trial(trial.params)


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # signal 0 is not a question everywhere
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is there, and somebody else's
        pass
    return True


def require_optuna() -> None:
    """Raise SettingsError unless Optuna is there; keep it quiet if it is."""
    try:
        import optuna
    except ImportError:
        raise SettingsError("bvat tune needs Optuna: pip install 'bvat[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def tune(
    search: Search, graph: Graph, out: Path, jobs: int, storage: str | None = None, console: Any = None
) -> dict[str, Any]:
    """Search until there are ``search.trials`` trials, check the best ones, write the result file.

    Args:
        search: what to search.
        graph: of the data set; test nodes and their labels are taken away here.
        out: folder for ``DATASET-METHOD.json``, and for ``work/`` (journal and runs), which makes the
            search go on where it was.
        jobs: processes side by side.
        storage: an Optuna storage URL, for several machines, or a journal file; default in ``out``.
        console: where progress is shown.
    """
    require_optuna()
    import optuna

    if not graph.val.numel():
        raise SettingsError(f"{search.dataset} has no validation nodes: a search needs some")
    workshop = Workshop.open(out / "work", {search.dataset: blind(graph)})
    place = storage or str(out / "work" / f"{search.name}.journal")
    study_name = search.study_name(workshop.fingerprints[search.dataset])
    study = optuna.create_study(
        study_name=study_name, storage=open_storage(place), direction="maximize", load_if_exists=True
    )
    if not study.get_trials(deepcopy=False):
        base = search.base().as_dict()
        for point in ({}, *starting_points()):
            study.enqueue_trial(parameters({**base, **point}, search.space), skip_if_exists=True)
    take_up_abandoned(study)
    done = len(finished(study))
    tasks = list(range(done, search.trials))
    size = search.seeds * search.base().epochs
    with progress_bar(console) as bar:
        whole = bar.add_task(f"{len(tasks)} trials, {done} found finished", total=size * len(tasks) or 1)
        reached = dict.fromkeys(tasks, 0.0)

        def advance(number: int, epochs: float) -> None:
            reached[number] = epochs
            ready = done + sum(value >= size for value in reached.values())
            bar.update(
                whole,
                completed=sum(reached.values()),
                description=f"trial {ready} of {search.trials}: {search.method} on {search.dataset}",
            )

        run_tasks(_Trial(search, workshop, study_name, place), tasks, jobs, advance)
    result = _result(search, graph, workshop, finished(study), jobs, console)
    write_json(out / f"{search.name}.json", result)
    return result


def _result(
    search: Search, graph: Graph, workshop: Workshop, trials: Sequence[Any], jobs: int, console: Any
) -> dict[str, Any]:
    """Train the finalists again, choose, and put everything together."""
    rows = [
        {
            "number": trial.number,
            "state": trial.state.name.lower(),
            "settings": trial.user_attrs["settings"],
            "val": sample(trial.user_attrs["val"]).as_dict() if "val" in trial.user_attrs else None,
        }
        for trial in sorted(trials, key=lambda trial: trial.number)
    ]
    complete = [row for row in rows if row["state"] == "complete"]
    best = sorted(complete, key=lambda row: (-row["val"]["mean"], row["number"]))[: search.finalists]
    today = {k: v for k, v in search.base().as_dict().items() if k in applicable(search)}
    finalists: list[dict[str, Any]] = [{"from": "preset", "settings": today}]
    for row in best:
        if all(row["settings"] != entry["settings"] for entry in finalists):
            finalists.append({"from": f"trial {row['number']}", "settings": row["settings"]})
    seeds = range(CHECK_SEEDS_FROM, CHECK_SEEDS_FROM + search.check_seeds)
    runs = [
        [Run(search.dataset, dataclasses.replace(search.base(), **entry["settings"]), seed) for seed in seeds]
        for entry in finalists
    ]
    perform(workshop, [run for part in runs for run in part], jobs, console)
    for entry, part in zip(finalists, runs, strict=True):
        vals = [result["last"]["val"] for run in part if (result := workshop.result(run)) is not None]
        entry["val"] = sample(vals).as_dict()
    chosen = max(finalists, key=lambda entry: entry["val"]["mean"])  # of equals the first: the preset
    return {
        "dataset": short_name(search.dataset),
        "method": search.method,
        "objective": "mean validation accuracy (%) of the last epoch; chosen among the finalists on other "
        "seeds than those of the trials; no test label was known to the search",
        "graph": {**about_graph(graph), "test": 0},
        "chosen": chosen["settings"],
        "chosen_from": chosen["from"],
        "val": chosen["val"],
        "finalists": finalists,
        "check_seeds": list(seeds),
        "trial_seeds": list(range(search.seeds)),
        "space": search.space,
        "fixed": {k: v for k, v in search.base().as_dict().items() if k not in tuned_settings(search.space)},
        "starts": ["preset", *starting_points()],
        "sampler": f"TPE, seed {search.sampler_seed}; median pruning",
        "trials": rows,
        "versions": {**versions(), "optuna": _optuna_version()},
        "command": search.command,
    }


def applicable(search: Search) -> set[str]:
    """Return the settings of the preset that the search could have changed: those of its branch."""
    names = set(search.space) - {"when"}
    for setting, parts in search.space.get("when", {}).items():
        names |= set(parts.get(getattr(search.base(), setting), {}))
    return names


def _optuna_version() -> str:
    import optuna

    return str(optuna.__version__)
