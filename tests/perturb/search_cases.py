"""Problems and settings for the contract of searches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

import bvat.perturb.searches as package
from bvat.graph import Graph
from bvat.graph.inputs import ReceptiveFields
from bvat.perturb import KL, AdamAscent, DisjointFields, FastAscent, NoSearch, PowerIteration, RandomDirection
from bvat.perturb.divergence import Divergence
from bvat.perturb.problem import Problem
from bvat.perturb.searches import SmallestFlip
from bvat.perturb.spaces import make_space
from core_helpers import make_gcn, seeded

SEARCHES: list[type[Any]] = [getattr(package, name) for name in package.__all__ if name != "Search"]
SPACES = ["dense", "sparse", "factored"]
KINDS = ["all nodes", "fields", "cut fields"]
"""All nodes at once; disjoint receptive fields within the graph; the same fields cut out of it."""


@dataclass(frozen=True)
class Case:
    """What the contract expects of a search. The defaults are for a new search that has no entry below.

    Every search is built with ``settings``. It must find a perturbation (``finds``) for all ``kinds`` of
    problems, start at random (``draws``), and beat a random direction (``climbs``).
    """

    settings: dict[str, Any] = field(default_factory=dict)
    finds: bool = True
    draws: bool = True
    climbs: bool = True
    kinds: tuple[str, ...] = tuple(KINDS)


CASES: dict[type[Any], Case] = {
    NoSearch: Case(finds=False, draws=False, climbs=False),
    RandomDirection: Case({"epsilon": 0.3}, climbs=False),
    PowerIteration: Case({"epsilon": 0.3, "steps": 2}),
    FastAscent: Case({"epsilon": 0.3}),
    AdamAscent: Case({"step_size": 0.02, "gamma": 0.01, "keep_moments": True}),
    SmallestFlip: Case({"reach": 2.0}, draws=False, kinds=("fields", "cut fields")),
}


def case_of(search: type[Any]) -> Case:
    return CASES.get(search, Case())


def supported() -> list[tuple[type[Any], str]]:
    """Return every search with every kind of problem that it supports."""
    return [(search, kind) for search in SEARCHES for kind in case_of(search).kinds]


def make_problem(graph: Graph, space: Any, kind: str, divergence: Divergence | None = None) -> Problem:
    """Return a problem for a GCN without dropout."""
    model = make_gcn(graph)
    with torch.no_grad():
        clean = model(graph)
    inputs: Any = graph
    rows = owner = None
    if kind != "all nodes":
        selection = DisjointFields(4).choose(graph, model.depth, seeded(2))
        rows, owner = selection.chosen, selection.owner
        assert rows is not None
        assert owner is not None
        clean = clean[rows]
        if kind == "cut fields":
            inputs = ReceptiveFields.around(graph, rows, model.depth)
            rows, owner = None, owner[inputs.nodes]
    base = model.project(inputs).detach()
    return Problem(
        model=model,
        inputs=inputs,
        space=make_space(space, model, inputs),
        divergence=KL() if divergence is None else divergence,
        clean_logits=clean,
        rows=rows,
        owner=owner,
        next_pass=lambda: (None, base),
        same_masks=True,
    )
