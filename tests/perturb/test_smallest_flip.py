"""The search for the shortest perturbation that changes a class."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from search_cases import SPACES, make_problem
from torch import Tensor

from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.perturb.problem import Problem
from bvat.perturb.searches import SmallestFlip
from bvat.perturb.searches.smallest_flip import Flip, margins


def flips(problem: Problem, **settings: Any) -> Flip:
    with torch.no_grad():
        return SmallestFlip(**settings).flips(problem)


def classes_under(problem: Problem, r: Tensor) -> Tensor:
    """Return the classes of the chosen nodes under r by an ordinary pass."""
    _, base = problem.next_pass()
    with torch.no_grad():
        logits = problem.model.propagate(problem.inputs, base + problem.space.effect(r))
    return (logits if problem.rows is None else logits[problem.rows]).argmax(1)


@pytest.mark.parametrize("norm", ["field", "row"])
@pytest.mark.parametrize("kind", ["fields", "cut fields"])
@pytest.mark.parametrize("space", SPACES)
def test_the_class_changes_there_and_not_before(graph64: Graph, space: str, kind: str, norm: str) -> None:
    problem = make_problem(graph64, space, kind)
    assert problem.owner is not None
    found = flips(problem, norm=norm)
    clean = problem.clean_logits.argmax(1)
    assert bool(torch.isfinite(found.length).all())
    assert classes_under(problem, found.r).tolist() == found.becomes.tolist()
    assert bool((found.becomes != clean).all())
    assert classes_under(problem, 0.99 * found.r).tolist() == clean.tolist()
    inside = problem.owner >= 0
    squares = problem.space.row_squares(found.r)
    assert float(squares[~inside].sum()) == 0
    reduce = "sum" if norm == "field" else "amax"
    lengths = torch.zeros_like(found.length).scatter_reduce(0, problem.owner[inside], squares[inside], reduce)
    torch.testing.assert_close(lengths.sqrt(), found.length)


def test_rows_of_one_length_change_more_than_a_field(graph64: Graph) -> None:
    """The largest norm of a row is at most the norm of the field, and at least that over sqrt(rows)."""
    problem = make_problem(graph64, "factored", "fields")
    field, rows = (flips(problem, norm=norm).length for norm in ("field", "row"))
    assert bool((rows < 1.001 * field).all())
    assert bool((rows < 0.6 * field).any())
    assert bool((rows > 0.98 * field / problem.field_sizes.sqrt()).all())


def test_the_path_is_the_same_in_every_space_and_on_cut_fields(graph64: Graph) -> None:
    dense, factored, sparse = (
        flips(make_problem(graph64, space, "fields")) for space in ("dense", "factored", "sparse")
    )
    torch.testing.assert_close(factored.length, dense.length)
    assert factored.becomes.tolist() == dense.becomes.tolist()
    cut = flips(make_problem(graph64, "factored", "cut fields"))
    torch.testing.assert_close(cut.length, dense.length)
    # fewer entries to change: the class cannot be changed by less
    assert bool((sparse.length > dense.length).all())


def test_nothing_longer_than_the_reach_is_tried(graph64: Graph) -> None:
    problem = make_problem(graph64, "factored", "fields")
    assert problem.owner is not None
    free = flips(problem)
    sizes = torch.bincount(problem.owner[problem.owner >= 0]).double().sqrt()
    reach = float((free.length / sizes).median())
    bounded = flips(problem, reach=reach)
    too_far = free.length > 1.01 * reach * sizes
    assert 0 < int(too_far.sum()) < too_far.numel()
    assert bool(torch.isinf(bounded.length[too_far]).all())
    assert bounded.becomes[too_far].unique().tolist() == [-1]
    rows = torch.isin(problem.owner, torch.nonzero(too_far).flatten())
    assert float(problem.space.row_squares(bounded.r)[rows].sum()) == 0
    near = ~too_far & (free.length < 0.9 * reach * sizes)
    torch.testing.assert_close(bounded.length[near], free.length[near], rtol=1e-2, atol=0)


def test_margins_name_the_next_likely_classes() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0], [5.0, 4.0, -1.0]])
    first, second = margins(logits, targets=8)
    assert first.tolist() == [[0, 1, -1], [1, -1, 0]]
    assert second.tolist() == [[-1, 1, 0], [1, 0, -1]]
    assert len(list(margins(logits, targets=1))) == 1


def test_it_needs_fields_that_do_not_meet(graph: Graph) -> None:
    with pytest.raises(SettingsError, match="needs disjoint receptive fields"):
        flips(make_problem(graph, "factored", "all nodes"))
