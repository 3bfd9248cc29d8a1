"""A whole run: the choice of a method, seeds trained into a folder, a summary and a page."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bvat.baselines.table import AUTO
from bvat.engine.cpu import choose_device
from bvat.errors import SettingsError, printable
from bvat.graph import Graph
from bvat.graph.targets import ONE_CLASS, SEVERAL_LABELS, OneClass
from bvat.plugins import imported
from bvat.runs.parts import whole
from bvat.store.claim import choose_folder, claim
from bvat.store.folder import AUTO_FILE, RunFolder
from bvat.store.progress import ProgressDisplay
from bvat.store.results import summary_of
from bvat.store.store import SeedTrainer, train_seeds
from bvat.training.provenance import graph_fingerprint
from bvat.training.settings import Settings, preset, preset_key, short_name
from bvat.training.state import check_targets
from bvat.training.trackers import TRACKERS
from bvat.tuning.cross_validation import (
    Choice,
    cross_validate,
    estimate_of,
    for_ensemble,
    lacks_validation,
)

DEFAULTS = {ONE_CLASS.name: AUTO, SEVERAL_LABELS.name: "vat"}
"""The method for any graph, by what is predicted."""


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out; none of this says what is trained.

    Args:
        name: of a new folder, ``runs/NAME-METHOD``; by default the name of the graph.
        threads: per process; more than one changes the rounding.
        device: "cpu" or "cuda"; None or "auto" is a GPU if there is one.
        trackers: where to log every epoch: any of "tensorboard", "mlflow" and "wandb".
        page: whether to write ``report.html``.
        command: the command line that the page shows.
        console: a rich console for progress and notes; None shows no progress, and notes are warnings.
    """

    name: str = ""
    threads: int = 1
    device: str | None = None
    trackers: Sequence[str] = ()
    page: bool = True
    command: str = ""
    console: Any = None


@dataclass(frozen=True)
class FinishedRun:
    """What a run has made.

    Args:
        path: the run folder, which ``bvat predict``, ``audit``, ``export`` and ``runs`` read.
        graph: that was trained on; after a cross-validation all labelled nodes are training nodes.
        settings: of the run; after a cross-validation with its number of epochs.
        results: one per seed, as in its ``result.json``.
        summary: what ``bvat train --json`` prints, as in ``result.json`` of the run.
    """

    path: Path
    graph: Graph
    settings: Settings
    results: list[dict[str, Any]]
    summary: dict[str, Any]


def run(
    graph: Graph,
    method: Settings | str | None = None,
    *,
    folder: Path | str | None = None,
    seeds: int | Sequence[int] = 1,
    jobs: int = 1,
    resume: bool = False,
    options: RunOptions | None = None,
    **overrides: Any,
) -> FinishedRun:
    """Train seeds into a run folder, as ``bvat train`` does.

    Without validation nodes, all labelled nodes are training nodes, and cross-validation says for how many
    epochs to train and how accurate the model is. A run that was interrupted continues with ``resume=True``
    and the same arguments; the result is that of a run left alone, bit for bit.

    Args:
        graph: to train on.
        method: settings, or the name of a method, whose settings come from the preset of the data set or the
            defaults for any graph. "auto" is an ensemble, see :mod:`bvat.tuning.auto`.
            By default "obvat" for the paper's data sets, else "auto", or "vat" if nodes have several labels.
        folder: the run folder; by default a new one, ``runs/NAME-METHOD``.
        seeds: how many, from 0 on, or which.
        jobs: number of parallel processes. With several, a script needs ``if __name__ == "__main__":``, as
            for every use of multiprocessing.
        resume: continue an unfinished run.
        options: how to carry it out.
        overrides: settings that replace those of the method.

    Raises:
        SettingsError: the folder holds another run, another process is working in it, or a setting is wrong.

    Example:
        >>> import bvat, tempfile
        >>> graph = bvat.synthetic_graph(nodes=120, edges=300, features=40)
        >>> folder = tempfile.mkdtemp()
        >>> done = bvat.run(graph, "vat", folder=folder, seeds=2, epochs=5)
        >>> done.summary["test_accuracy"]["values"] == [each["selected"]["test"] for each in done.results]
        True
        >>> sorted(path.name for path in done.path.iterdir() if path.suffix in (".json", ".html"))
        ['report.html', 'result.json', 'settings.json']
    """
    settings, name = resolve(method, "" if graph.recipe else graph.name, overrides, graph.targets)
    check_importable(settings)
    check_targets(graph, settings)
    how = options or RunOptions()
    how = how if graph.engine.leads else replace(how, console=None)
    device = choose_device(how.device)
    _prepare_trackers(how.trackers, leads=graph.engine.leads)
    label = f"{how.name or short_name(graph.name)}-{name}"
    path = graph.engine.agree(
        lambda: Path(folder) if folder else choose_folder(Path("runs"), label, resume=resume)
    )
    place = RunFolder(path)
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    with claim(place.path) if graph.engine.leads else nullcontext():
        choice = None
        if settings.method == AUTO:
            graph = for_ensemble(graph)
        elif lacks_validation(graph):
            place.check_new(resume=resume)
            choice = _choose(place, graph, settings, how, jobs)
            settings, graph = choice.settings, choice.graph
        elif not graph.engine.total(graph.val.numel()) and graph.engine.leads:
            note("there are no validation nodes: training runs to its last epoch", how.console)
        trainer = SeedTrainer(
            place, graph, settings, resume=resume, device=device, trackers=tuple(how.trackers),
            notes=how.console is not None and len(numbers) == 1,
        )  # fmt: skip
        return _finished(trainer, numbers, jobs, name, how, choice)


def _finished(
    trainer: SeedTrainer, seeds: list[int], jobs: int, name: str, how: RunOptions, choice: Choice | None
) -> FinishedRun:
    """Train the seeds, and write the summary and the page."""
    place, graph, settings = trainer.folder, trainer.graph, trainer.settings
    if graph.engine.leads:
        place.start(graph, settings, resume=trainer.resume or choice is not None)  # AUTO_FILE is there
    results = _train(trainer, seeds, 1 if graph.engine.processes else jobs, name, how)
    summary = summary_of(graph, settings, results, choice.estimate if choice else estimate_of(results))
    summary["events"] += choice.notes if choice else []
    if graph.engine.leads:
        place.summarize(seeds, summary)
    if graph.engine.leads and how.page:
        with keep_results(how.console):
            from bvat.report.run_page import write_run_page

            write_run_page(place, whole(graph), settings, seeds, summary, how.command)
    return FinishedRun(place.path, graph, settings, results, summary)


def _prepare_trackers(names: Sequence[str], *, leads: bool) -> None:
    """Refuse what cannot work before anything is trained."""
    for name in names:
        if name not in TRACKERS:
            raise SettingsError(f"a tracker is {', '.join(TRACKERS)}, not {name!r}")
        if leads:
            TRACKERS[name].prepare()


def resolve(
    method: Settings | str | None, dataset: str, overrides: dict[str, Any], targets: OneClass = ONE_CLASS
) -> tuple[Settings, str]:
    """Return the settings of a method and its name; the default depends on what is predicted."""
    if isinstance(method, Settings):
        return method.replace(**overrides), method.method
    known = preset_key(dataset)
    method = method or ("obvat" if known else DEFAULTS[targets.name])
    return preset(known, method, **overrides), method


def check_importable(settings: Settings) -> None:
    """Raise SettingsError unless a model can be imported by the name that a run folder records."""
    if settings.model_row.is_own:
        return
    found = settings.model_row.load()
    if settings.own is not None and (
        settings.model.startswith("__main__:") or imported(settings.model, here=True) is not found
    ):
        raise SettingsError(
            f"a run folder needs a model that can be imported again, and {settings.model} is another one: "
            "pass a class or function that stands in a module, or train it with bvat.train"
        )


def note(text: str, console: Any) -> None:
    """Tell the user something: on the console, or without one as a warning."""
    if console is None:
        warnings.warn(text, stacklevel=3)
    else:
        console.print(printable(f"note: {text}"), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def keep_results(console: Any) -> Iterator[None]:
    """Around writing a page: an error there is a note, and the results that the page shows are not lost."""
    try:
        yield
    except Exception as error:
        note(f"the page was not written ({type(error).__name__}: {error})", console)


def _choose(folder: RunFolder, graph: Graph, asked: Settings, how: RunOptions, jobs: int) -> Choice:
    """Return the choice stored in the run folder, or make and store it now."""
    about = {"graph": graph_fingerprint(graph), **asked.as_dict()}
    if (folder.path / AUTO_FILE).exists():
        stored = folder.read(AUTO_FILE)
        folder.check_same("option", stored.get("asked"), about)
        return Choice.read(stored, graph, asked.given_model)
    choice = cross_validate(graph, asked, jobs=jobs, console=how.console)
    folder.write(AUTO_FILE, {**choice.as_dict(), "asked": about})
    return choice


def _train(
    trainer: SeedTrainer, seeds: list[int], jobs: int, method: str, how: RunOptions
) -> list[dict[str, Any]]:
    title, epochs = f"{method} on {trainer.graph.name}", trainer.settings.epochs
    labels = {seed: f"seed {seed}" for seed in seeds}
    sizes = dict.fromkeys(seeds, epochs)
    with ProgressDisplay(title, sizes, how.console, labels=labels, unit="epochs") as display:

        def finished(seed: int, result: dict[str, Any]) -> None:
            if result.get("stopped"):
                display.set_title(f"{title} (seed {seed} {result['stopped']})")

        return train_seeds(trainer, seeds, jobs, display.update, finished=finished, threads=how.threads)
