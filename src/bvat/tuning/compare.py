"""``bvat compare``: methods side by side on splits of any graphs, with paired differences.

A cell is one random split of one graph with some number of labels per class, or a split that the graph has
and one seed. Every variant is trained on the same cells, so that differences are paired: what a split makes
easy or hard, it makes so for all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bvat.baselines.table import AUTO
from bvat.data.checksums import read_sealed_json, write_sealed_json
from bvat.errors import BvatError, DataError, printable
from bvat.graph import Graph
from bvat.store.claim import run_shared_tasks, share
from bvat.store.pool import ReportProgress
from bvat.store.progress import ProgressDisplay
from bvat.store.store import Measurement, RunSpec, RunStore
from bvat.training.metrics import METRICS, all_metrics
from bvat.training.provenance import about_graph, digest, sources, versions
from bvat.training.settings import Settings, short_name
from bvat.training.state import check_targets, restore_model
from bvat.training.statistics import clear_sign, sample
from bvat.training.trained import TrainedModel, predict
from bvat.tuning.comparison import GIVEN, Cell, ComparisonPlan
from bvat.tuning.cross_validation import calibration_of
from bvat.tuning.significance import holm, permutation_test, rank_methods
from bvat.tuning.variants import Variant

COMPARE_FORMAT = 2
KEPT = ("metrics", "seconds", "epochs", "events", "phases", "versions")
"""What a cell keeps of a run."""


def measure_test_nodes(graph: Graph, settings: Settings, trained: TrainedModel) -> dict[str, Any]:
    """Return every metric of the test nodes, with probabilities as ``bvat predict`` writes them."""
    model = restore_model(settings, graph.num_features, graph.num_classes, trained.weights).to(graph.device)
    factor = 1.0 if settings.method == AUTO else calibration_of(trained.fit.get("out_of_fold"))
    nodes = graph.test[graph.labelled[graph.test]]
    p = graph.targets.probabilities(factor * predict(model, graph)[nodes].double())
    found = all_metrics(p.cpu().numpy(), graph.labels[nodes].cpu().numpy())
    return {"metrics": found | {"accuracy": trained.selected["test"]}}


TEST_NODES = Measurement("metrics", measure_test_nodes, parameters=dict)


@dataclass(frozen=True)
class _CellRunner:
    """Trains all variants on a cell. It is sent to worker processes, which load the graphs themselves."""

    plan: ComparisonPlan
    folder: Path
    deadline: float = math.inf

    def lock(self, cell: Cell) -> Path:
        return self.folder / "cells" / f".{cell.name}.lock"

    def run(self, cell: Cell, report: ReportProgress) -> None:
        whole, fingerprint = self.plan.read(cell.graph)
        settings = self.plan.settings(cell.graph)
        about = {name: chosen.identity() for name, chosen in settings.items()}
        key = digest([COMPARE_FORMAT, asdict(cell), self.plan.val, fingerprint, about])
        path = self.folder / "cells" / f"{cell.name}.json"
        if (found := read_cell(path)) is None or found["key"] != key:
            graph = cell.of(whole, self.plan.val)
            for chosen in settings.values():  # before anything is trained
                check_targets(graph, chosen)
            store = RunStore.open(self.folder, {cell.name: graph})
            results: dict[str, Any] = {}
            for name, chosen in settings.items():

                def tell(epochs: float, size: int = chosen.epochs) -> None:
                    report(len(results) + epochs / size)

                if time.time() > self.deadline:  # what is finished of the split stays in the store
                    path.unlink(missing_ok=True)  # of other settings
                    return
                result = store.run(RunSpec(cell.name, chosen, cell.seed, TEST_NODES), tell)
                results[name] = {"val": result["selected"]["val"]} | {k: result[k] for k in KEPT}
            about_split = {**about_graph(graph), "has_split": has_split(whole), "splits": whole.num_splits}
            content = {"key": key, "cell": asdict(cell), "graph": about_split, "results": results}
            write_sealed_json(path, content)
        report(len(settings))


def read_cell(path: Path) -> dict[str, Any] | None:
    """Return the content of a cell's file; None if there is no such file or it is damaged."""
    try:
        content = read_sealed_json(path)
    except (OSError, ValueError):
        return None
    return content if {"key", "cell", "graph", "results"} <= content.keys() else None


def compare(plan: ComparisonPlan, out: Path, jobs: int, console: Any = None) -> dict[str, Any]:
    """Run what is missing, and write ``compare.json``; what is finished is kept in ``out/work``."""
    have_split = []
    for source in plan.graphs:  # before hours are spent
        graph, _ = plan.read(source)
        for labels in plan.labels:
            for split in range(graph.num_splits) if plan.given else [plan.first_split]:
                Cell(source, labels, split, graph.num_splits).of(graph, plan.val)
        have_split += [short_name(source)] if has_split(graph) else []
    # who watches learns it before hours are spent; in a log it is beside the results
    if console is not None and console.is_terminal and (note := split_note(plan, have_split)):
        console.print(printable(f"note: {note}"), soft_wrap=True, markup=False, highlight=False)
    cells, size = plan.cells(), len(plan.compared())
    with share(out), ProgressDisplay(f"{len(cells)} splits", dict.fromkeys(cells, size), console) as display:

        def advance(cell: Cell, done: float) -> None:
            display.update(cell, done)
            display.set_title(f"split {display.finished} of {len(cells)}: {cell.name}")

        deadline = math.inf if plan.budget is None else time.time() + 60 * plan.budget
        runner = _CellRunner(plan, out / "work", deadline)
        run_shared_tasks(runner.run, cells, runner.lock, jobs, advance)
        return collect(plan, out)


def has_split(graph: Graph) -> bool:
    """Return whether a graph came with a split, instead of one that was drawn when it was read."""
    return bool(graph.test.numel()) and not graph.validation.startswith("drawn")


def split_note(plan: ComparisonPlan, split: Sequence[str]) -> str:
    """Return a sentence if random splits are drawn of graphs that have their own, the names in ``split``."""
    if plan.given or not split:
        return ""
    have = f"split of {split[0]} is" if len(split) == 1 else f"splits of {', '.join(split)} are"
    return f"the {have} not used, random ones are drawn instead: --splits given uses what a graph has"


def collect(plan: ComparisonPlan, out: Path, *_: Any) -> dict[str, Any]:
    """Write and return the comparison, made of the cells that are finished."""
    cells, missing = _finished_cells(plan, out)
    variants, graphs = plan.compared(), _graphs(plan, cells)
    split = [name for name, about in graphs.items() if about.get("has_split")]
    first, *more = plan.metrics
    result = {
        "format": COMPARE_FORMAT,
        "variants": {name: _title(name) for name in variants},
        "base": plan.against,
        "labels": list(plan.labels),
        "graphs": graphs,
        **_numbers(plan, cells, first),
        "more": [_numbers(plan, cells, metric) for metric in more],
        "split": GIVEN if plan.given else "random",
        "split_note": split_note(plan, split),
        "splits": plan.splits,
        "missing": missing,
        "val": plan.val,
        "settings": {name: each.as_dict() for name, each in plan.all_settings().items()},
        "tuned": [list(where) for where in sorted(plan.tuned)],
        "command": plan.command,
        "versions": versions(),
        "sources": sources(result for cell in cells for result in cell["results"].values()),
    }
    write_sealed_json(out / "compare.json", result)
    return result


def _finished_cells(plan: ComparisonPlan, out: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the cells that are finished, and the names of the others."""
    cells, missing = [], []
    for path in (out / "work" / "cells" / f"{cell.name}.json" for cell in plan.cells()):
        if (found := read_cell(path)) is not None:
            cells.append(found)
        elif path.exists():
            raise DataError(f"{path} is damaged: run this without --report-only to repeat its split")
        else:
            missing.append(path.stem)
    if not cells:
        remedy = "run it without --report-only" if plan.budget is None else "run it again, or raise --budget"
        raise BvatError(f"no split of this comparison is finished in {out}: {remedy}")
    for cell in cells:
        if any("metrics" not in cell["results"].get(name, ()) for name in plan.compared()):
            raise BvatError(f"the splits in {out} are those of other methods: run it without --report-only")
    return cells, missing


def _graphs(plan: ComparisonPlan, cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    about = {cell["cell"]["graph"]: cell["graph"] for cell in reversed(cells)}
    return {short_name(graph): about[graph] for graph in plan.graphs if graph in about}


def _title(name: str) -> dict[str, Any]:
    variant = Variant.parse(name)
    return {"title": variant.title, "colour": variant.colour}


def _numbers(plan: ComparisonPlan, cells: Sequence[dict[str, Any]], metric: str) -> dict[str, Any]:
    """Return what a comparison says by one metric."""
    rows, variants = _rows(plan, cells, metric), plan.compared()
    overall = {str(n): _overall(rows, n, variants) for n in plan.labels}
    found: dict[str, Any] = {"metric": metric, "rows": rows, "overall": overall}
    if plan.significance:
        for row in rows:
            _add_p_values(row, plan.against)
        found["ranks"] = {str(n): _ranks(rows, n, metric) for n in plan.labels}
    return found


def _rows(plan: ComparisonPlan, cells: Sequence[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    """Return every variant against the base on every graph and number of labels, paired over the splits."""
    rows, variants = [], plan.compared()
    for graph, labels in product(plan.graphs, plan.labels):
        here = [c for c in cells if (c["cell"]["graph"], c["cell"]["labels"]) == (graph, labels)]
        if here:
            base = _values(here, plan.against, metric)
            row = {
                "graph": short_name(graph),
                "labels": labels,
                "splits": [cell["cell"]["split"] for cell in here],
                "variants": {name: _entry(name, metric, base, here) for name in variants},
            }
            rows.append(row)
    return rows


def _values(cells: Sequence[dict[str, Any]], name: str, metric: str) -> list[float]:
    """Return a metric of a variant on the test nodes of every cell."""
    found = [cell["results"][name]["metrics"][metric] for cell in cells]
    if None in found:
        cell = cells[found.index(None)]["cell"]
        raise BvatError(
            f"{metric} has no value on split {cell['split']} of {short_name(cell['graph'])}, whose test "
            "nodes are all of one class: use another --metric"
        )
    return found


def _entry(name: str, metric: str, base: list[float], cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one variant: a metric, paired with that of the base, and how it was trained.

    A gain is above zero where the variant is better, also of a metric of which less is better.
    """
    results = [cell["results"][name] for cell in cells]
    values, better = _values(cells, name, metric), -1 if METRICS[metric].lower else 1
    gains = [better * (ours - theirs) for ours, theirs in zip(values, base, strict=True)]
    return {
        **sample(values).as_dict(),
        "values": values,
        "gain": sample(gains).as_dict(),
        "gains": gains,
        "worst": min(gains),
        "wins": sum(gain > 0 for gain in gains),
        "losses": sum(gain < 0 for gain in gains),
        "seconds": sum(each["seconds"] for each in results) / len(results),
        "kept": sum(bool(each["phases"]["second"]) for each in results),
        "weakened": sum("weakened" in "".join(each["events"]) for each in results),
    }


def _add_p_values(row: dict[str, Any], base: str) -> None:
    """Add the p-value of every variant against the base, corrected for the number of variants."""
    others = [entry for name, entry in row["variants"].items() if name != base]
    if len(row["splits"]) < 2:  # a comparison that was stopped
        return
    p_values = [permutation_test(entry["gains"]) for entry in others]
    for entry, p, corrected in zip(others, p_values, holm(p_values), strict=True):
        entry |= {"p": p, "p_holm": corrected}


def _ranks(rows: Sequence[dict[str, Any]], labels: int | str, metric: str) -> dict[str, Any] | None:
    here = [row["variants"].values() for row in rows if row["labels"] == labels]
    if not here:
        return None
    better = -1 if METRICS[metric].lower else 1
    return rank_methods(np.array([[better * entry["mean"] for entry in row] for row in here]))


def _overall(rows: Sequence[dict[str, Any]], labels: int | str, variants: Sequence[str]) -> dict[str, Any]:
    """Return the gains over the base averaged over graphs, each graph counting once."""
    rows, summary = [row for row in rows if row["labels"] == labels], {}
    for name in variants:
        gains = [row["variants"][name]["gain"]["mean"] for row in rows]
        if gains:
            summary[name] = {
                **sample(gains).as_dict(),
                "worst_split": min(row["variants"][name]["worst"] for row in rows),
                "better": sum(clear_sign(row["variants"][name]["gain"]) > 0 for row in rows),
                "worse": sum(clear_sign(row["variants"][name]["gain"]) < 0 for row in rows),
                "graphs": len(rows),
            }
    return summary
