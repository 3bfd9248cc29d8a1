"""``bvat compare``: methods side by side on splits of any graphs, with paired differences.

A cell is one random split of one graph with some number of labels per class, or the split that the graph has
and one seed. Every variant is trained on the same cells, so that differences are paired: what a split makes
easy or hard, it makes so for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from bvat.data import load
from bvat.data.checksums import read_sealed_json, write_sealed_json
from bvat.data.splits import resplit
from bvat.errors import BvatError, DataError, GraphError, SettingsError, printable
from bvat.graph import UNKNOWN, Graph
from bvat.store.claim import run_shared_tasks, share
from bvat.store.pool import ReportProgress
from bvat.store.progress import ProgressDisplay
from bvat.store.store import RunSpec, RunStore
from bvat.training.provenance import about_graph, digest, graph_fingerprint, sources, versions
from bvat.training.settings import Settings, short_name
from bvat.training.statistics import clear_sign, sample
from bvat.tuning.cross_validation import without_validation
from bvat.tuning.variants import Variant, settings_of

COMPARE_FORMAT = 1
BASE = "gcn"
"""What all others are compared with."""
GIVEN = "given"
"""In place of a number of labels per class: the split that a graph has."""
DEFAULT_VARIANTS = ("gcn", "consistency", "random", "vat", "sbvat", "obvat", "appnp", "appnp/vat", "auto")


@dataclass(frozen=True)
class ComparisonPlan:
    """What to compare.

    Args:
        graphs: names or paths.
        variants: see :class:`Variant`.
        labels: numbers of training nodes per class; ``(GIVEN,)`` for the splits that the graphs have.
        splits: number of random splits, split k has seed ``first_split + k``; number of training seeds if the
            splits are given.
        val: validation nodes per random split; 0: every method has the training labels alone, and
            networks are trained for a fixed number of epochs.
        first_split: seed of the first split.
        overrides: settings that replace the defaults of every variant.
        against: the variant that all others are compared with.
        command: the command line, repeated in the result.
    """

    graphs: tuple[str, ...]
    variants: tuple[str, ...] = DEFAULT_VARIANTS
    labels: tuple[int | str, ...] = (5, 20)
    splits: int = 10
    val: int = 500
    first_split: int = 0
    overrides: dict[str, Any] = field(default_factory=dict)
    against: str = BASE
    command: str = ""

    def __post_init__(self) -> None:
        names = [short_name(graph) for graph in self.graphs]
        if len(set(names)) < len(names):
            raise SettingsError("two graphs have the same name: rename one of the files")
        if self.against not in self.variants:
            raise SettingsError(f"{self.against} must be among the methods: all others are compared with it")
        counts = [self.splits, self.val + 1, *(() if self.given else self.labels)]
        if not self.graphs or not self.labels or any(not isinstance(n, int) or n < 1 for n in counts):
            raise SettingsError("a comparison needs graphs, and labels and splits of at least 1")
        self.settings()  # wrong values are refused before anything is trained

    @property
    def given(self) -> bool:
        return self.labels == (GIVEN,)

    def compared(self) -> tuple[str, ...]:
        """Return the variants: first what all are compared with."""
        return tuple(dict.fromkeys((self.against, *(Variant.parse(name).name for name in self.variants))))

    def settings(self) -> dict[str, Settings]:
        """Return the settings of every variant."""
        found = settings_of(self.compared(), self.overrides)
        return found if self.val else {name: without_validation(each) for name, each in found.items()}

    def cells(self) -> list[Cell]:
        """Return all cells, split by split, so that a comparison that is stopped has whole splits."""
        return [
            Cell(graph, labels, split)
            for split in range(self.first_split, self.first_split + self.splits)
            for labels in self.labels
            for graph in self.graphs
        ]


@dataclass(frozen=True)
class Cell:
    """One random split of one graph, or the split that it has and one seed."""

    graph: str
    labels: int | str
    split: int

    @property
    def name(self) -> str:
        return f"{short_name(self.graph)}-{self.labels}-{self.split}"

    @property
    def seed(self) -> int:
        return self.split if self.labels == GIVEN else 0

    def of(self, graph: Graph, val: int) -> Graph:
        """Return the graph with the split of this cell; GraphError if a part of it has no labels."""
        if isinstance(self.labels, int):
            return resplit(graph, self.labels, val, self.split)
        for name, part in (("training", graph.train), ("validation", graph.val), ("test", graph.test)):
            if not bool((graph.labels[part] != UNKNOWN).any()):
                raise GraphError(
                    f"{graph.name} has no {name} nodes with labels in its split: add some, or draw random "
                    "splits with --splits 10"
                )
        return graph


@dataclass(frozen=True)
class _CellRunner:
    """Trains all variants on a cell. It is sent to worker processes, which load the graphs themselves."""

    plan: ComparisonPlan
    folder: Path

    def lock(self, cell: Cell) -> Path:
        return self.folder / "cells" / f".{cell.name}.lock"

    def run(self, cell: Cell, report: ReportProgress) -> None:
        whole, fingerprint = _graph(cell.graph)
        settings = self.plan.settings()
        about = {name: chosen.identity() for name, chosen in settings.items()}
        key = digest([COMPARE_FORMAT, asdict(cell), self.plan.val, fingerprint, about])
        path = self.folder / "cells" / f"{cell.name}.json"
        if (found := read_cell(path)) is None or found["key"] != key:
            graph = cell.of(whole, self.plan.val)
            store = RunStore.open(self.folder, {cell.name: graph})
            results: dict[str, Any] = {}
            for name, chosen in settings.items():

                def tell(epochs: float, size: int = chosen.epochs) -> None:
                    report(len(results) + epochs / size)

                result = store.run(RunSpec(cell.name, chosen, cell.seed), tell)
                kept = {k: result[k] for k in ("seconds", "epochs", "events", "phases", "versions")}
                results[name] = {k: result["selected"][k] for k in ("val", "test")} | kept
            about_split = {**about_graph(graph), "has_split": has_split(whole)}
            content = {"key": key, "cell": asdict(cell), "graph": about_split, "results": results}
            write_sealed_json(path, content)
        report(len(settings))


@lru_cache(maxsize=2)
def _graph(source: str) -> tuple[Graph, str]:
    graph = load(source)
    return graph, graph_fingerprint(graph)


def read_cell(path: Path) -> dict[str, Any] | None:
    """Return the content of a cell's file; None if there is no such file or it is damaged."""
    try:
        content = read_sealed_json(path)
    except (OSError, ValueError):
        return None
    return content if {"key", "cell", "graph", "results"} <= content.keys() else None


def compare(plan: ComparisonPlan, out: Path, jobs: int, console: Any = None) -> dict[str, Any]:
    """Run what is missing, and write ``compare.json``; what is finished is kept in ``out/work``."""
    split = []
    for source in plan.graphs:  # before hours are spent
        graph = load(source)
        for labels in plan.labels:
            Cell(source, labels, plan.first_split).of(graph, plan.val)
        split += [short_name(source)] if has_split(graph) else []
    # who watches learns it before hours are spent; in a log it is beside the results
    if console is not None and console.is_terminal and (note := split_note(plan, split)):
        console.print(printable(f"note: {note}"), soft_wrap=True, markup=False, highlight=False)
    cells, size = plan.cells(), len(plan.compared())
    with share(out), ProgressDisplay(f"{len(cells)} splits", dict.fromkeys(cells, size), console) as display:

        def advance(cell: Cell, done: float) -> None:
            display.update(cell, done)
            display.set_title(f"split {display.finished} of {len(cells)}: {cell.name}")

        runner = _CellRunner(plan, out / "work")
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
    cells, variants = _finished_cells(plan, out), plan.compared()
    rows, graphs = _rows(plan, cells), _graphs(plan, cells)
    split = [name for name, about in graphs.items() if about.get("has_split")]
    result = {
        "format": COMPARE_FORMAT,
        "variants": {name: _title(name) for name in variants},
        "base": plan.against,
        "labels": list(plan.labels),
        "graphs": graphs,
        "rows": rows,
        "overall": {str(n): _overall(rows, n, variants) for n in plan.labels},
        "split": GIVEN if plan.given else "random",
        "split_note": split_note(plan, split),
        "splits": plan.splits,
        "val": plan.val,
        "settings": {name: each.as_dict() for name, each in plan.settings().items()},
        "command": plan.command,
        "versions": versions(),
        "sources": sources(result for cell in cells for result in cell["results"].values()),
    }
    write_sealed_json(out / "compare.json", result)
    return result


def _finished_cells(plan: ComparisonPlan, out: Path) -> list[dict[str, Any]]:
    cells = []
    for path in (out / "work" / "cells" / f"{cell.name}.json" for cell in plan.cells()):
        if (found := read_cell(path)) is not None:
            cells.append(found)
        elif path.exists():
            raise DataError(f"{path} is damaged: run this without --report-only to repeat its split")
    if not cells:
        raise BvatError(f"no split of this comparison is finished in {out}: run it without --report-only")
    return cells


def _graphs(plan: ComparisonPlan, cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    about = {cell["cell"]["graph"]: cell["graph"] for cell in reversed(cells)}
    return {short_name(graph): about[graph] for graph in plan.graphs if graph in about}


def _title(name: str) -> dict[str, Any]:
    variant = Variant.parse(name)
    return {"title": variant.title, "colour": variant.colour}


def _rows(plan: ComparisonPlan, cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every variant against the base on every graph and number of labels, paired over the splits."""
    rows, variants = [], plan.compared()
    for graph, labels in product(plan.graphs, plan.labels):
        here = [c for c in cells if (c["cell"]["graph"], c["cell"]["labels"]) == (graph, labels)]
        if here:
            base = _tests(here, plan.against)
            row = {
                "graph": short_name(graph),
                "labels": labels,
                "splits": [cell["cell"]["split"] for cell in here],
                "variants": {name: _entry(name, _tests(here, name), base, here) for name in variants},
            }
            rows.append(row)
    return rows


def _tests(cells: Sequence[dict[str, Any]], name: str) -> list[float]:
    """Return the test accuracies of a variant."""
    return [cell["results"][name]["test"] for cell in cells]


def _entry(
    name: str, tests: list[float], base: list[float], cells: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return one variant: its test accuracies, paired with those of the base, and how it was trained."""
    results = [cell["results"][name] for cell in cells if name in cell["results"]]
    gains = [ours - theirs for ours, theirs in zip(tests, base, strict=True)]
    return {
        **sample(tests).as_dict(),
        "values": tests,
        "gain": sample(gains).as_dict(),
        "worst": min(gains),
        "wins": sum(gain > 0 for gain in gains),
        "losses": sum(gain < 0 for gain in gains),
        "seconds": sum(each["seconds"] for each in results) / len(results) if results else None,
        "kept": sum(bool(each["phases"]["second"]) for each in results),
        "weakened": sum("weakened" in "".join(each["events"]) for each in results),
    }


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
