"""Which runs there are, what their files say, and paired differences between several."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bvat.errors import BvatError, DataError, SettingsError
from bvat.inference.runs import run_folder
from bvat.store.folder import AUTO_FILE, RunFolder
from bvat.training.statistics import sample, summarize
from bvat.tuning.cross_validation import checked_estimate, estimate_of

MEASURES = {"val": "validation accuracy", "test": "test accuracy", "macro_f1": "test macro F1"}
"""What is compared, in percent."""


@dataclass(frozen=True)
class RunRecord:
    """A run folder as its files describe it.

    ``about`` is its ``settings.json``, ``results`` are the results of the finished seeds, ``damaged`` the
    seeds that are left out because their files are not intact, and ``faults`` has a sentence for each of them
    and for what else is damaged.
    """

    path: Path
    about: dict[str, Any]
    results: tuple[dict[str, Any], ...]
    damaged: tuple[int, ...]
    faults: tuple[str, ...]
    cross_validation: dict[str, Any] | None
    """The accuracy by cross-validation, of a run that trained on all labelled nodes."""

    @property
    def settings(self) -> dict[str, Any]:
        found = self.about.get("settings")
        return found if isinstance(found, dict) else {}

    def values(self, measure: str) -> dict[int, float]:
        """Return a measure of each finished seed that has it; see :data:`MEASURES`."""
        found = {result["seed"]: measure_of(result, measure) for result in self.results}
        return {seed: value for seed, value in found.items() if value is not None}

    def summary(self) -> dict[str, Any]:
        """Return the run as plain values: one row of a table."""
        newest = max((file.stat().st_mtime for file in self.path.glob("seed-*/result.json")), default=None)
        return {
            "run": str(self.path),
            "dataset": self.about.get("dataset"),
            "model": self.settings.get("model"),
            "method": self.settings.get("method"),
            "seeds": sorted(result["seed"] for result in self.results),
            "damaged": list(self.damaged),
            "unfinished": len(RunFolder(self.path).started()) - len(self.results) - len(self.damaged),
            **{name: summarize(list(self.values(name).values())) for name in MEASURES},
            "finished": newest,
            "version": self.about.get("version"),
            "nodes": self.results[0].get("nodes", {}) if self.results else {},
            "cross_validation": self.cross_validation,
        }


def measure_of(result: dict[str, Any], measure: str) -> float | None:
    try:
        value = result["f1"]["test"]["macro"] if measure == "macro_f1" else result["selected"][measure]
    except (KeyError, TypeError):
        return None
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def read_run(path: str | Path) -> RunRecord:
    """Read a run folder; it may have no finished seed yet. DataError if it is none."""
    folder = run_folder(path)
    about = folder.read("settings.json")
    results, damaged, faults = list[dict[str, Any]](), list[int](), list[str]()
    for seed in folder.seeds():
        try:
            results.append(folder.checked_result(seed))
        except DataError as error:
            damaged.append(seed)
            faults.append(str(error))
    estimate = None
    try:
        kept = (folder.path / AUTO_FILE).exists()
        estimate = checked_estimate(folder.read(AUTO_FILE)["estimate"]) if kept else estimate_of(results)
    except (BvatError, KeyError, TypeError, AttributeError) as error:
        why = str(error) if isinstance(error, BvatError) else "it is damaged"
        faults.append(f"the accuracy by cross-validation of {folder.path} is left out: {why}")
    return RunRecord(folder.path, about, tuple(results), tuple(damaged), tuple(faults), estimate)


def find_runs(root: str | Path) -> tuple[list[RunRecord], list[str]]:
    """Return the runs in a folder and its subfolders, and a sentence about each that cannot be read.

    The many runs of ``bvat compare``, ``reproduce`` and ``tune`` are left out.
    """
    if not Path(root).is_dir():
        raise DataError(f"there is no folder {root}: give the folder that holds your runs")
    found, faults = list[RunRecord](), list[str]()
    for name, folders, files in os.walk(root):
        folders.sort()
        if "settings.json" not in files:
            continue
        folders.clear()  # a run has no runs inside
        try:
            if RunFolder(Path(name)).read("settings.json").get("keep") != "result":
                found.append(read_run(name))
                faults += found[-1].faults
        except BvatError as error:
            faults.append(str(error))
    return found, faults


def compare_runs(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Compare runs on the same graph and split with the first of them, paired by seed.

    Raises:
        SettingsError: they were trained on different graphs or splits, or share no seed.
    """
    base, *others = runs
    rows = []
    for run in others:
        seeds = _shared_seeds(base, run)
        rows.append({"run": str(run.path), "seeds": seeds, **_differences(base, run, seeds)})
    shared = sorted(set.intersection(*(set(run.settings) for run in runs)))
    values = {name: [run.settings[name] for run in runs] for name in shared}
    changed = {name: each for name, each in values.items() if len(set(map(repr, each))) > 1}
    summaries = [run.summary() for run in runs]
    return {"base": summaries[0], "runs": summaries[1:], "differences": rows, "settings": changed}


def _shared_seeds(base: RunRecord, run: RunRecord) -> list[int]:
    if not base.about.get("graph") or run.about.get("graph") != base.about.get("graph"):
        raise SettingsError(
            f"{base.path} and {run.path} were trained on different graphs or splits: compare runs on the "
            "same one"
        )
    for measure in ("test", "val"):
        if shared := base.values(measure).keys() & run.values(measure).keys():
            return sorted(shared)
    raise SettingsError(
        f"{base.path} and {run.path} have no finished seed in common with a test or validation accuracy: "
        "train the same seeds, and hold nodes out with --test N"
    )


def _differences(base: RunRecord, run: RunRecord, seeds: Sequence[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for measure in MEASURES:
        before, after = base.values(measure), run.values(measure)
        gains = [after[seed] - before[seed] for seed in seeds if seed in before and seed in after]
        found[measure] = {**sample(gains).as_dict(), "values": gains} if gains else None
    return found
