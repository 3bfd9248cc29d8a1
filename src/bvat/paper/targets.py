"""The tables and figures of the paper: the runs each one needs, and how their results are collected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bvat.data import load
from bvat.data.checksums import read_sealed_json, write_sealed_json
from bvat.errors import SettingsError
from bvat.paper import figures, table2
from bvat.paper.request import Request
from bvat.store.claim import share
from bvat.store.store import RunSpec, RunStore
from bvat.training.provenance import sources, versions
from bvat.training.settings import short_name
from bvat.tuning.variants import Variant

RESULT_FORMAT = 1
"""Version of the JSON files of tables and figures, from which pages are made."""


TARGETS = {
    "table2": (table2.plan, table2.collect),
    **dict.fromkeys((*figures.FIG1, *figures.SWEEPS), (figures.plan, figures.collect)),
}
"""The tables and figures: which runs each one needs, and what is made of them."""


def reproduce(
    names: Sequence[str], request: Request, out: Path, jobs: int, console: Any = None, *, add: bool = False
) -> dict[str, dict[str, Any]]:
    """Reproduce some of :data:`TARGETS`: do the missing runs, and write one JSON file per target.

    Finished runs in ``out`` are not repeated. With ``add``, rows of Table 2 in the folder that this call does
    not replace are kept.
    """
    unknown = set(names) - set(TARGETS)
    if unknown:
        raise SettingsError(f"there is no {min(unknown)!r} to reproduce: use {', '.join(TARGETS)} or all")
    wanted = {dataset for name in names for dataset in request.datasets_of(name)}
    store = RunStore.open(out, {dataset: load(dataset) for dataset in sorted(wanted)})
    plans = {name: TARGETS[name][0](request, name) for name in names}
    with share(out):
        store.run_all([run for plan in plans.values() for run in plan], jobs, console)
        found = {}
        for name in names:
            found[name] = TARGETS[name][1](request, store, name) | _provenance(request, store, plans[name])
            path = out / f"{name}.json"
            if add and name == "table2" and path.exists():
                found[name] = table2.merged(found[name], read_result(path))
            write_sealed_json(path, found[name])
    return found


def read_result(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = read_sealed_json(path)
        if content["format"] == RESULT_FORMAT:
            return content
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise SettingsError(
        f"{path} is damaged or from another version: run bvat reproduce {path.stem} again, or delete it"
    )


def _provenance(request: Request, store: RunStore, plan: list[RunSpec]) -> dict[str, Any]:
    """Return what is needed to get the same numbers again."""
    settings: dict[str, dict[str, Any]] = {}
    for run in plan:
        name = Variant(run.settings.model, run.settings.method).name
        settings.setdefault(short_name(run.dataset), {}).setdefault(name, run.settings.as_dict())
    return {
        "format": RESULT_FORMAT,
        "command": request.command,
        "versions": versions(),
        "sources": sources(store.results(plan)),
        "seeds": {run.dataset: len(request.seeds_of(run.dataset)) for run in plan},
        "settings": settings,
    }
