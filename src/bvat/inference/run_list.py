"""Runs side by side: which there are, what is in one, and paired differences between several."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bvat.errors import BvatError, DataError, SettingsError
from bvat.store.folder import AUTO_FILE, RunFolder
from bvat.training.statistics import sample, summarize
from bvat.tuning.cross_validation import checked_estimate

MEASURES = {"val": "validation accuracy", "test": "test accuracy", "macro_f1": "test macro F1"}
"""What is compared, in percent."""


@dataclass(frozen=True)
class RunRecord:
    """A run folder as its files describe it.

    ``about`` is its ``settings.json``, ``results`` are the results of the finished seeds, and ``damaged`` has
    a sentence for each seed that is left out because its files are not intact.
    """

    path: Path
    about: dict[str, Any]
    results: tuple[dict[str, Any], ...]
    damaged: dict[int, str] = field(default_factory=dict)
    cross_validation: dict[str, Any] | None = None
    """The accuracy by cross-validation, of a run that trained on all labelled nodes."""
    notes: tuple[str, ...] = ()
    """What else is damaged, a sentence each."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the run."""
        found = self.about.get("settings")
        return found if isinstance(found, dict) else {}

    def values(self, measure: str) -> dict[int, float]:
        """Return a measure of each finished seed that has it; see :data:`MEASURES`."""
        return {
            result["seed"]: value
            for result in self.results
            if (value := measure_of(result, measure)) is not None
        }

    def summary(self) -> dict[str, Any]:
        """Return the run as plain values: one row of a table."""
        newest = max((file.stat().st_mtime for file in self.path.glob("seed-*/result.json")), default=None)
        return {
            "run": str(self.path),
            "dataset": self.about.get("dataset"),
            "model": self.settings.get("model"),
            "method": self.settings.get("method"),
            "seeds": sorted(result["seed"] for result in self.results),
            "damaged": sorted(self.damaged),
            "unfinished": len(RunFolder(self.path).started()) - len(self.results) - len(self.damaged),
            **{name: summarize(list(self.values(name).values())) for name in MEASURES},
            "finished": newest,
            "version": self.about.get("version"),
            "nodes": self.results[0].get("nodes", {}) if self.results else {},
            "cross_validation": self.cross_validation,
        }

    @property
    def faults(self) -> list[str]:
        """A sentence for everything of the run that is damaged."""
        return [*self.damaged.values(), *self.notes]


def measure_of(result: dict[str, Any], measure: str) -> float | None:
    """Return one measure of the result of a seed; None where it is missing."""
    try:
        value = result["f1"]["test"]["macro"] if measure == "macro_f1" else result["selected"][measure]
    except (KeyError, TypeError):
        return None
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def read_run(path: str | Path) -> RunRecord:
    """Read a run folder; it may have no finished seed yet. DataError if it is none."""
    folder = RunFolder(Path(path))
    if not folder.exists:
        raise DataError(f"{folder.path} is not a run folder: give a folder that bvat train wrote")
    about = folder.read("settings.json")
    results, damaged = [], {}
    for seed in folder.seeds():
        try:
            results.append(folder.checked_result(seed))
        except DataError as error:
            damaged[seed] = str(error)
    estimate, notes = None, tuple[str, ...]()
    if (folder.path / AUTO_FILE).exists():
        try:
            estimate = checked_estimate(folder.read(AUTO_FILE).get("estimate"))
        except (BvatError, KeyError, TypeError, AttributeError) as error:
            why = str(error) if isinstance(error, BvatError) else f"{AUTO_FILE} is damaged"
            notes = (f"the accuracy by cross-validation of {folder.path} is left out: {why}",)
    return RunRecord(folder.path, about, tuple(results), damaged, estimate, notes)


@dataclass(frozen=True)
class FoundRuns:
    """The runs in a folder, sentences about what cannot be read, and how many runs are not listed."""

    runs: list[RunRecord] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    internal: int = 0


def find_runs(root: str | Path, *, internal: bool = False) -> FoundRuns:
    """Return the runs in a folder and its subfolders.

    Args:
        root: the folder.
        internal: whether to list the runs of ``bvat compare``, ``reproduce`` and ``tune`` too.
    """
    top = Path(root)
    if not top.is_dir():
        raise DataError(f"there is no folder {top}: give the folder that holds your runs")
    runs: list[RunRecord] = []
    faults: list[str] = []
    hidden = 0
    for name, folders, files in os.walk(top):
        folders.sort()
        if "settings.json" in files:
            folders.clear()  # a run has no runs inside
            try:
                if not internal and RunFolder(Path(name)).read("settings.json").get("keep") == "result":
                    hidden += 1
                    continue
                runs.append(read_run(name))
                faults += runs[-1].faults
            except BvatError as error:
                faults.append(str(error))
    return FoundRuns(runs, faults, hidden)


def compare_runs(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Compare runs on the same graph and split with the first of them, paired by seed.

    Raises:
        SettingsError: they were trained on different graphs or splits, or share no seed.
    """
    base = runs[0]
    rows = []
    for run in runs[1:]:
        if not base.about.get("graph") or run.about.get("graph") != base.about.get("graph"):
            raise SettingsError(
                f"{base.path} and {run.path} were trained on different graphs or splits: compare runs on the "
                "same one"
            )
        shared = sorted(base.values("test").keys() & run.values("test").keys()) or sorted(
            base.values("val").keys() & run.values("val").keys()
        )
        if not shared:
            raise SettingsError(
                f"{base.path} and {run.path} have no finished seed in common with a test or validation "
                "accuracy: train the same seeds, and hold nodes out with --test N"
            )
        rows.append({"run": str(run.path), "seeds": shared, **_differences(base, run, shared)})
    changed = {
        name: [run.settings.get(name) for run in runs]
        for name in sorted({name for run in runs for name in run.settings})
        if len({repr(run.settings.get(name)) for run in runs}) > 1
    }
    return {"base": base.summary(), "runs": [run.summary() for run in runs[1:]], "differences": rows,
            "settings": changed}  # fmt: skip


def _differences(base: RunRecord, run: RunRecord, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the paired differences of each measure over the seeds that have it in both runs."""
    found: dict[str, Any] = {}
    for measure in MEASURES:
        before, after = base.values(measure), run.values(measure)
        gains = [after[seed] - before[seed] for seed in seeds if seed in before and seed in after]
        found[measure] = {**sample(gains).as_dict(), "values": gains} if gains else None
    return found
