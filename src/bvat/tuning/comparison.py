"""What to compare: methods and their settings, graphs, and the splits that all of them see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any

from bvat.data import load
from bvat.data.splits import resplit
from bvat.errors import GraphError, SettingsError
from bvat.graph import Graph
from bvat.training.metrics import ACCURACY, chosen_metrics
from bvat.training.provenance import digest, graph_fingerprint
from bvat.training.settings import Settings, short_name
from bvat.tuning.cross_validation import without_validation
from bvat.tuning.variants import Variant, settings_of

BASE = "gcn"
"""What all others are compared with."""
GIVEN = "given"
"""In place of a number of labels per class: the splits that a graph has."""
SEEDS = 10
"""Training seeds on the only split that a graph has."""
DEFAULT_VARIANTS = ("gcn", "consistency", "random", "vat", "sbvat", "obvat", "appnp", "appnp/vat", "auto")


@dataclass(frozen=True)
class ComparisonPlan:
    """What to compare.

    Args:
        graphs: names or paths.
        variants: see :class:`Variant`.
        labels: numbers of training nodes per class; ``(GIVEN,)`` for the splits that the graphs have.
        splits: number of random splits, split k has seed ``first_split + k``; number of training seeds for
            each given split, by default 10 on a single one and 1 on each of several.
        val: validation nodes per random split; 0: every method has the training labels alone, and
            networks are trained for a fixed number of epochs.
        first_split: seed of the first split.
        overrides: settings that replace the defaults of every variant.
        tuned: settings by name of graph and variant, in place of the defaults; overrides replace them.
        against: the variant that all others are compared with.
        metrics: see :data:`bvat.training.metrics.METRICS`; tables show all, gains are those of each.
        significance: whether to test the differences, and to rank the methods over the graphs.
        budget: minutes after which no run is started any more.
        directed: whether edges keep their direction.
        command: the command line, repeated in the result.
    """

    graphs: tuple[str, ...]
    variants: tuple[str, ...] = DEFAULT_VARIANTS
    labels: tuple[int | str, ...] = (5, 20)
    splits: int | None = 10
    val: int = 500
    first_split: int = 0
    overrides: dict[str, Any] = field(default_factory=dict)
    tuned: Mapping[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    against: str = BASE
    metrics: tuple[str, ...] = (ACCURACY,)
    significance: bool = False
    budget: float | None = None
    directed: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        names = [short_name(graph) for graph in self.graphs]
        if len(set(names)) < len(names):
            raise SettingsError("two graphs have the same name: rename one of the files")
        if self.against not in self.variants:
            raise SettingsError(f"{self.against} must be among the methods: all others are compared with it")
        seen = [] if self.splits is None and self.given else [self.splits]
        counts = [self.val + 1, *seen, *(() if self.given else self.labels)]
        if not self.graphs or not self.labels or any(not isinstance(n, int) or n < 1 for n in counts):
            raise SettingsError("a comparison needs graphs, and labels and splits of at least 1")
        chosen_metrics(self.metrics)
        if self.significance and self.splits == 1 and not self.given:
            raise SettingsError("p-values need at least two splits: use more --splits, or no --significance")
        for graph in self.graphs:
            self.settings(graph)  # wrong values are refused before anything is trained

    @property
    def given(self) -> bool:
        return self.labels == (GIVEN,)

    def read(self, graph: str) -> tuple[Graph, str]:
        """Return one of the graphs, and a digest of it and of all its splits."""
        return read_graph(graph, self.directed)

    def compared(self) -> tuple[str, ...]:
        """Return the variants: first what all are compared with."""
        return tuple(dict.fromkeys((self.against, *(Variant.parse(name).name for name in self.variants))))

    def settings(self, graph: str) -> dict[str, Settings]:
        """Return the settings of every variant on a graph."""
        found, name = settings_of(self.compared(), self.overrides), short_name(graph)
        for variant in found:
            if (tuned := self.tuned.get((name, variant))) is not None:
                found[variant] = Variant.parse(variant).settings(**(tuned | self.overrides))
        return found if self.val else {name: without_validation(each) for name, each in found.items()}

    def all_settings(self) -> dict[str, Settings]:
        """Return the settings of every variant, by graph where they differ."""
        of_graphs = {short_name(graph): self.settings(graph) for graph in self.graphs}
        found = {}
        for variant in self.compared():
            each = {graph: settings[variant] for graph, settings in of_graphs.items()}
            first = next(iter(each.values()))
            if all(one == first for one in each.values()):
                found[variant] = first
            else:
                found |= {f"{variant} on {graph}": one for graph, one in each.items()}
        return found

    def cells(self) -> list[Cell]:
        """Return all cells, split by split, so that a comparison that is stopped has whole splits."""
        if self.given:
            counts = {graph: number_of_splits(graph, self.directed) for graph in self.graphs}
            return [Cell(graph, GIVEN, k, counts[graph]) for k, graph in self._runs(counts)]
        return [
            Cell(graph, labels, split)
            for split in range(self.first_split, self.first_split + (self.splits or 0))
            for labels in self.labels
            for graph in self.graphs
        ]

    def _runs(self, counts: Mapping[str, int]) -> Iterator[tuple[int, str]]:
        """Yield the runs of each graph on its splits, all splits before the next seed."""
        needed = {
            graph: count * (self.splits or (SEEDS if count == 1 else 1)) for graph, count in counts.items()
        }
        if self.significance and min(needed.values()) < 2:
            raise SettingsError(
                "p-values need at least two splits or seeds: use more --seeds, or no --significance"
            )
        for k in range(max(needed.values())):
            yield from ((k, graph) for graph in self.graphs if k < needed[graph])


@dataclass(frozen=True)
class Cell:
    """One random split of one graph, or one of the splits that it has and one seed.

    ``given`` is the number of splits that the graph has; ``split`` then counts them, and again for the next
    seed.
    """

    graph: str
    labels: int | str
    split: int
    given: int = 1

    @property
    def name(self) -> str:
        return f"{short_name(self.graph)}-{self.labels}-{self.split}"

    @property
    def seed(self) -> int:
        return self.split // self.given if self.labels == GIVEN else 0

    def of(self, graph: Graph, val: int) -> Graph:
        """Return the graph with the split of this cell; GraphError if a part of it has no labels."""
        if isinstance(self.labels, int):
            return resplit(graph, self.labels, val, self.split)
        graph = graph.with_split(self.split % self.given)
        for name, part in (("training", graph.train), ("validation", graph.val), ("test", graph.test)):
            if not bool(graph.labelled[part].any()):
                raise GraphError(
                    f"{graph.name} has no {name} nodes with labels in its split: add some, or draw random "
                    "splits with --splits 10"
                )
        return graph


@lru_cache(maxsize=2)
def read_graph(source: str, directed: bool) -> tuple[Graph, str]:
    """Return a graph and a digest of it and of all its splits."""
    graph = load(source, directed=directed)
    known = graph_fingerprint(graph)
    return graph, known if graph.splits is None else digest(
        [known, sha256(graph.splits.numpy().tobytes()).hexdigest()]
    )


@cache
def number_of_splits(source: str, directed: bool) -> int:
    return read_graph(source, directed)[0].num_splits
