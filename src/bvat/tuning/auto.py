"""``--method auto``: compare methods and models on validation data within a time budget, keep the best.

Candidates are repeated with other seeds on the validation nodes, or, where these are few, over the folds of a
cross-validation of all labelled nodes. They are tried one after the other, each to its end unless it is
clearly behind. Test nodes and their labels are unknown to the choice.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bvat.errors import SettingsError, TrainingError
from bvat.graph import Graph
from bvat.perturb.methods import PLAIN
from bvat.store.pool import ReportProgress, run_tasks
from bvat.store.progress import ProgressDisplay
from bvat.store.store import RunSpec, RunStore
from bvat.training.settings import Settings
from bvat.training.statistics import Sample, accuracy_text, sample, wilson
from bvat.tuning.cross_validation import (
    Choice,
    blind,
    can_cross_validate,
    cross_validate,
    estimate,
    labelled_folds,
    pooled,
    refitted,
)
from bvat.tuning.variants import CANDIDATES, Variant, settings_of

REPETITIONS = 3
"""Seeds per candidate that is not given up."""
FEW = 100
"""With fewer validation nodes than this, cross-validation takes the place of the hold-out."""
BUDGET = 120.0
"""Seconds, unless asked otherwise."""
OUT_OF_TIME = "the time was over"
"""Why a candidate has fewer repetitions than the winner."""


def candidates_for(overrides: dict[str, Any]) -> tuple[str, ...]:
    """Return the candidates; a model that is asked for leaves only its own."""
    model = overrides.get("model")
    if model is None:
        return CANDIDATES
    own = ("grand",) if model == "random-propagation" else ()
    return tuple(Variant(model, method).name for method in (PLAIN, "vat", "consistency", *own))


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
        budget: seconds after which no further candidate is started; the one under way ends early. The first
            candidate gets all folds of a cross-validation, or one seed, however long that takes.
        candidates: see :mod:`bvat.tuning.variants`, in the order in which they are tried. By default
            :data:`CANDIDATES`, or those of the model in ``overrides``.
        overrides: settings that replace the defaults of every candidate.
        work: folder for the runs, which are found there again; a temporary one by default.
    """
    overrides = overrides or {}
    candidates = candidates or candidates_for(overrides)
    settings_by = settings_of(candidates, overrides)
    if len(graph.val) < FEW and not can_cross_validate(graph):  # nothing can be compared
        return cross_validate(graph, settings_by[candidates[0]])
    plan = _Plan.of(graph)
    validated = plan.unit == "seeds"
    with TemporaryDirectory() as temporary:
        work = work or Path(temporary)
        tried = _race(plan, work, settings_by, budget, jobs, console)
        winner = _best(tried)
        settings = settings_by[winner["name"]]
        found = None
        if not validated:
            settings = refitted(settings, winner["phases"])
            found = estimate(graph, settings, plan.graphs, work, jobs, console)
    for entry in tried:
        entry["outcome"] = _outcome(entry, winner)
    report = {
        "validation": (
            f"{len(graph.val)} validation nodes, up to {len(plan.graphs)} seeds"
            if validated
            else f"{len(plan.graphs)}-fold cross-validation over the {len(graph.train) + len(graph.val)} "
            "labelled nodes, each fold at its best epoch"
        ),
        "budget_seconds": budget,
        "chosen": winner["name"],
        "title": winner["title"],
        "tried": tried,
        "text": _sentence(winner, tried),
    }
    method = settings_by[winner["name"]].method
    return Choice(method, settings, graph if validated else pooled(graph), found, report)


@dataclass(frozen=True)
class _Plan:
    """How candidates are compared: the graph of each repetition, and how many repetitions are made together.

    On the few nodes of a fold nothing can be told apart, so that a candidate gets all of them before the next
    one starts. One seed on many validation nodes says more: all candidates get the first seed, and those that
    are not clearly behind the next one.
    """

    unit: str
    graphs: list[Graph]
    together: int

    @classmethod
    def of(cls, graph: Graph) -> _Plan:
        if len(graph.val) >= FEW:
            return cls("seeds", [blind(graph)] * REPETITIONS, 1)
        parts = labelled_folds(graph)
        return cls("folds", parts, len(parts))

    def spec(self, settings: Settings, number: int) -> RunSpec:
        return RunSpec(str(number), settings, number if self.unit == "seeds" else 0)

    def nodes(self, count: int) -> int:
        """Return on how many nodes some repetitions were compared: seeds share theirs."""
        sizes = [len(graph.val) for graph in self.graphs[:count]]
        return max(sizes, default=0) if self.unit == "seeds" else sum(sizes)


class _Repetition(NamedTuple):
    """What a worker process trains until the deadline."""

    name: str
    spec: RunSpec
    deadline: float


class _OutOfTime(Exception):
    """The budget is used up."""


def _train(store: RunStore, task: _Repetition, report: ReportProgress) -> None:
    """Train unless the time is over; what is under way then, or has no finite loss, leaves no result."""

    def tell(_: float) -> None:
        report(time.time())
        if time.time() > task.deadline:
            raise _OutOfTime

    with suppress(TrainingError, _OutOfTime):
        tell(0)
        store.run(task.spec, tell)
    report(time.time())


def _race(
    plan: _Plan, work: Path, settings: dict[str, Settings], budget: float, jobs: int, console: Any
) -> list[dict[str, Any]]:
    """Repeat the candidates until the time is over; the first one is trained whatever the budget.

    Returns each candidate as plain values; ``val`` holds one accuracy per repetition.
    """
    store = RunStore.open(work, {str(k): graph for k, graph in enumerate(plan.graphs)})
    tried = {name: _described(plan, name, []) for name in settings}
    alive, started = _alive(tried), time.time()
    with ProgressDisplay("comparing methods", {"time": budget}, console) as display:

        def advance(task: _Repetition, now: float) -> None:
            display.update("time", min(budget, now - started))
            display.set_title(f"comparing methods: {Variant.parse(task.name).title}")

        for first in range(0, len(plan.graphs), plan.together):
            end = first + plan.together
            tasks = _tasks(plan, {name: settings[name] for name in alive}, first, started + budget)
            run_tasks(partial(_train, store), tasks, jobs, advance)
            late = time.time() - started >= budget
            found = {name: _found(plan, store, name, settings[name], end, late=late) for name in alive}
            if first and OUT_OF_TIME in (entry["stopped"] for entry in found.values()):
                break  # a round that only some could finish would favour the first ones
            tried |= found
            if end < len(plan.graphs):
                _give_up(found)
            alive = _alive(found)
    return list(tried.values())


def _alive(found: dict[str, dict[str, Any]]) -> list[str]:
    return [name for name, entry in found.items() if not entry["stopped"]]


def _tasks(plan: _Plan, settings: dict[str, Settings], first: int, deadline: float) -> list[_Repetition]:
    numbers = range(first, first + plan.together)
    tasks = [_Repetition(n, plan.spec(s, k), deadline) for n, s in settings.items() for k in numbers]
    sure = plan.together if first == 0 else 0
    return [task._replace(deadline=math.inf) for task in tasks[:sure]] + tasks[sure:]


def _give_up(found: dict[str, dict[str, Any]]) -> None:
    complete = [found[name] for name in _alive(found)]
    best = max(map(_mean, complete), default=0.0)
    for entry in complete:
        if wilson(_mean(entry), entry["nodes"])[1] < best:
            entry["stopped"] = "given up, clearly behind"


def _found(
    plan: _Plan, store: RunStore, name: str, settings: Settings, count: int, *, late: bool
) -> dict[str, Any]:
    """Return a candidate after its first ``count`` repetitions, as many of them as are finished."""
    results = (store.result(plan.spec(settings, k)) for k in range(count))
    entry = _described(plan, name, list(takewhile(bool, results)))
    if len(entry["val"]) < count:
        entry["stopped"] = OUT_OF_TIME if late else "its loss is not finite"
    return entry


def _described(plan: _Plan, name: str, results: Sequence[Any]) -> dict[str, Any]:
    return {
        "name": name,
        "title": Variant.parse(name).title,
        "unit": plan.unit,
        "of": len(plan.graphs),
        "nodes": plan.nodes(len(results)),
        "val": [result["selected"]["val"] for result in results],
        "seconds": [result["seconds"] for result in results],
        "phases": [result["phases"] for result in results],
        "stopped": "",
    }


def _mean(entry: dict[str, Any]) -> float:
    return sample(entry["val"]).mean if entry["val"] else -math.inf


def _best(tried: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the candidate with the best mean among those with the most repetitions; of equals the first."""
    winner = max(tried, key=lambda entry: (len(entry["val"]), _mean(entry)))
    if not winner["val"]:
        raise TrainingError("no candidate could be trained: check the features, or use --method none")
    return winner


def _gain(winner: dict[str, Any], entry: dict[str, Any]) -> Sample:
    return sample([ours - theirs for ours, theirs in zip(winner["val"], entry["val"], strict=False)])


def _outcome(entry: dict[str, Any], winner: dict[str, Any]) -> str:
    """Say on what a candidate was compared, and whether that tells it apart from the winner."""
    count = len(entry["val"])
    if entry is winner:
        return "chosen"
    about = f"{count} of {entry['of']} {entry['unit']}, {entry['nodes']} nodes"
    if entry["stopped"]:
        return f"{about if count else 'not compared'}: {entry['stopped']}"
    gain = _gain(winner, entry)
    return f"{about}: {'clearly behind' if gain.n > 1 and gain.low > 0 else 'cannot be told apart from it'}"


def _sentence(winner: dict[str, Any], tried: list[dict[str, Any]]) -> str:
    """Say what won, by how much, how sure that is, and what was not compared."""
    reached = accuracy_text(_mean(winner), winner["nodes"])
    text: str = f"{winner['title']} was chosen with {reached} over {len(winner['val'])} of {winner['of']} "
    text += winner["unit"] + _over_plain(winner, tried)
    others = [entry for entry in tried if entry is not winner and entry["val"]]
    close = [entry["title"] for entry in others if entry["outcome"].endswith("told apart from it")]
    text += f"; {', '.join(close)} cannot be told apart from it." if close else "."
    text += "" if others else " No other candidate was compared."
    late = sum(entry["outcome"].endswith(OUT_OF_TIME) for entry in tried)
    text += f" The time was over before {late} of {len(tried)} candidates were compared." if late else ""
    return text


def _over_plain(winner: dict[str, Any], tried: list[dict[str, Any]]) -> str:
    """Say how much better the winner is than a plain GCN, if that was compared."""
    plain = next((entry for entry in tried if entry["name"] == "gcn"), winner)
    if plain is winner or not plain["val"]:
        return ""
    gain = _gain(winner, plain)
    text = f", {gain.mean:+.1f} points against a plain GCN"
    if gain.n < 2:
        return text
    return text + f" (95 % interval over the {winner['unit']} {gain.low:+.1f} to {gain.high:+.1f})"
