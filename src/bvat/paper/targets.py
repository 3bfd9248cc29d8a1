"""All tables and figures that can be asked for: which runs each needs, and what it makes of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bvat.data import load
from bvat.data.files import write_json
from bvat.errors import SettingsError
from bvat.paper import figures, table2, timing
from bvat.paper.request import Request
from bvat.training.perform import perform
from bvat.training.runs import RESULT_FORMAT, Run, Workshop, versions
from bvat.training.settings import short_name


@dataclass(frozen=True)
class Target:
    """A table or figure."""

    plan: Callable[[Request], list[Run]]
    collect: Callable[[Request, Workshop], dict[str, Any]]


TARGETS = {
    "table2": Target(table2.plan, table2.collect),
    "fig1a": Target(partial(figures.plan_fig1, target="fig1a"), figures.collect_fig1a),
    "fig1b": Target(partial(figures.plan_fig1, target="fig1b"), figures.collect_fig1b),
    "fig1c": Target(partial(figures.plan_fig1, target="fig1c"), figures.collect_fig1c),
    "fig3": Target(figures.plan_fig3, figures.collect_fig3),
    "fig4": Target(figures.plan_fig4, figures.collect_fig4),
    "time": Target(timing.plan_time, timing.collect_time),
}


def reproduce(
    names: Sequence[str], request: Request, out: Path, jobs: int, console: Any = None
) -> dict[str, dict[str, Any]]:
    """Make tables and figures: do the runs that are missing, and write one JSON file each.

    Args:
        names: of :data:`TARGETS`.
        request: data sets, methods and seeds.
        out: folder for ``NAME.json`` and ``runs/``; what is finished there is not done again.
        jobs: processes side by side.
        console: where progress is shown.
    """
    unknown = set(names) - set(TARGETS)
    if unknown:
        raise SettingsError(f"there is no {min(unknown)!r} to reproduce: use {', '.join(TARGETS)} or all")
    wanted = {dataset for name in names for dataset in request.datasets_of(name)}
    workshop = Workshop.open(out, {dataset: load(dataset) for dataset in sorted(wanted)})
    plans = {name: TARGETS[name].plan(request) for name in names}
    perform(workshop, [run for plan in plans.values() for run in plan], jobs, console)
    found = {}
    for name in names:
        found[name] = {**TARGETS[name].collect(request, workshop), **_provenance(request, plans[name])}
        write_json(out / f"{name}.json", found[name])
    return found


def _provenance(request: Request, plan: list[Run]) -> dict[str, Any]:
    """Return what one needs to get the same numbers again."""
    settings: dict[str, dict[str, Any]] = {}
    for run in plan:
        settings.setdefault(short_name(run.dataset), {}).setdefault(
            run.settings.method, run.settings.as_dict()
        )
    return {
        "format": RESULT_FORMAT,
        "command": request.command,
        "versions": versions(),
        "seeds": {run.dataset: len(request.seeds_of(run.dataset)) for run in plan},
        "settings": settings,
    }
