"""One contract for all searches: every export of ``bvat.perturb.searches`` runs through all of it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
import torch
from search_cases import SEARCHES, SPACES, case_of, make_problem, supported
from torch import Tensor

import bvat.perturb.searches as package
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.perturb import KL, SquaredError
from bvat.perturb.problem import Found, Problem
from core_helpers import lds, seeded

each_search = pytest.mark.parametrize(
    ("kind", "search"),
    [pytest.param(kind, search, id=f"{search.__name__}, {kind}") for search, kind in supported()],
)
each_space = pytest.mark.parametrize("space", SPACES)


def build(search: type[Any], **settings: Any) -> Any:
    return search(**{**case_of(search).settings, **settings})


def find(search: Any, problem: Problem, generator: torch.Generator | None) -> Found | None:
    """Run a search as a regulariser does."""
    with torch.no_grad():
        found: Found | None = search.find(problem, generator)
    return found


def same(one: Found | None, other: Found | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one.r, other.r) and torch.equal(one.row_squares, other.row_squares)


def has(search: type[Any], setting: str) -> bool:
    return setting in getattr(search, "__dataclass_fields__", {})


def test_every_search_is_exported() -> None:
    """A search that is not exported would escape the contract."""
    modules = [import_module(f"{package.__name__}.{info.name}") for info in iter_modules(package.__path__)]
    found = {
        item
        for module in modules
        for item in vars(module).values()
        if isinstance(item, type) and item.__module__ == module.__name__ and hasattr(item, "find")
    }
    assert found - {package.Search} == set(SEARCHES)


@each_space
@each_search
def test_it_finds_a_perturbation_of_the_space(
    graph: Graph, graph64: Graph, kind: str, search: type[Any], space: str
) -> None:
    for inputs in (graph, graph64):
        problem = make_problem(inputs, space, kind)
        found = find(build(search), problem, seeded(3))
        assert (found is not None) == case_of(search).finds
        if found is None:
            continue
        assert found.r.shape == problem.space.shape
        assert found.row_squares.shape == (problem.inputs.propagation.shape[1],)
        assert found.r.dtype == found.row_squares.dtype == inputs.features.dtype
        assert bool(torch.isfinite(found.r).all())
        assert not found.r.requires_grad
        assert float(found.row_squares.max()) > 0
        # the part of a random R that has no effect counts as length, but is not stored
        stored = problem.space.to_dense(found.r).pow(2).sum(1)
        assert bool((stored <= found.row_squares * (1 + 1e-4)).all())
        if case_of(search).climbs:
            torch.testing.assert_close(stored, found.row_squares, rtol=1e-4, atol=1e-9)


def lengths(problem: Problem, found: Found | None, norm: str) -> Tensor:
    """Return the length of each row that a chosen node sees, or of each of their fields."""
    assert found is not None
    if problem.owner is None:
        return found.row_squares.sqrt()
    inside = problem.owner >= 0
    if norm == "row":
        return found.row_squares[inside].sqrt()
    sums = found.row_squares.new_zeros(problem.num_chosen)
    return sums.index_add_(0, problem.owner[inside], found.row_squares[inside]).sqrt()


@each_space
@each_search
def test_lengths_hold(graph64: Graph, kind: str, search: type[Any], space: str) -> None:
    """Every row, or every field, has length epsilon, except where there is nothing to scale."""
    problem = make_problem(graph64, space, kind)
    if has(search, "epsilon"):
        for epsilon in (0.0, 0.3):
            found = lengths(problem, find(build(search, epsilon=epsilon), problem, seeded(3)), "row")
            assert bool((found <= epsilon * (1 + 1e-5)).all())
            assert float(found.max()) == pytest.approx(epsilon, rel=1e-5)
            assert float((found > 0.999 * epsilon).double().mean()) > 0.8 or epsilon == 0
    if has(search, "epsilon") and has(search, "norm"):
        by_field = build(search, epsilon=0.3, norm="field")
        if problem.owner is None:
            with pytest.raises(SettingsError, match="needs disjoint receptive fields"):
                find(by_field, problem, seeded(3))
        else:
            found = lengths(problem, find(by_field, problem, seeded(3)), "field")
            torch.testing.assert_close(found, torch.full_like(found, 0.3), rtol=1e-5, atol=0)


@each_space
@each_search
def test_randomness_comes_from_the_generator_only(
    graph: Graph, kind: str, search: type[Any], space: str
) -> None:
    problem = make_problem(graph, space, kind)
    before = torch.get_rng_state()
    one, again, other = (find(build(search), problem, seeded(seed)) for seed in (3, 3, 4))
    assert same(one, again)
    if case_of(search).draws:
        assert not same(one, other)
        with pytest.raises(SettingsError, match="pass generator="):
            find(build(search), problem, None)
    else:
        assert same(one, other)
        assert same(one, find(build(search), problem, None))
    assert torch.equal(before, torch.get_rng_state())


def tensors_of(problem: Problem) -> Iterator[Tensor]:
    """Yield all tensors that a search can reach."""
    inputs: Any = problem.inputs
    matrices = [inputs.features, *getattr(inputs, "layers", [inputs.propagation])]
    for matrix in matrices:
        yield from (matrix.crow, matrix.col, matrix.values)
    yield from (problem.clean_logits, problem.clean.p, problem.clean.log_p, problem.next_pass()[1])
    upper = getattr(problem.space, "upper", None)
    yield from (part for part in (problem.rows, problem.owner, upper) if part is not None)
    for weight in problem.model.parameters():  # type: ignore[attr-defined]
        yield weight.detach()
        yield weight.grad


@each_space
@each_search
def test_it_changes_nothing(graph: Graph, kind: str, search: type[Any], space: str) -> None:
    """Parameters, their gradients, the graph and the problem stay what they are."""
    problem = make_problem(graph, space, kind)
    for weight in problem.model.parameters():  # type: ignore[attr-defined]
        weight.grad = torch.full_like(weight, 7)
    before = [part.clone() for part in tensors_of(problem)]
    find(build(search), problem, seeded(3))
    assert all(torch.equal(a, b) for a, b in zip(before, tensors_of(problem), strict=True))
    for weight in problem.model.parameters():  # type: ignore[attr-defined]
        weight.grad = None
    find(build(search), problem, seeded(3))
    assert all(weight.grad is None for weight in problem.model.parameters())  # type: ignore[attr-defined]


@each_space
@each_search
def test_a_restored_search_continues_bit_for_bit(
    graph: Graph, kind: str, search: type[Any], space: str
) -> None:
    """Five calls in a row, or three, state_dict and load_state_dict, and two more."""
    problem = make_problem(graph, space, kind)

    def calls(running: Any, generator: torch.Generator, times: int) -> list[Found | None]:
        return [
            None if found is None else Found(*(part.clone() for part in found))
            for found in (find(running, problem, generator) for _ in range(times))
        ]

    whole = calls(build(search), seeded(5), 5)
    generator, first = seeded(5), build(search)
    assert first.state_dict() == {}
    start = calls(first, generator, 3)
    state = first.state_dict()
    kept = {name: tensor.clone() for name, tensor in state.items()}
    calls(first, seeded(9), 1)
    assert all(torch.equal(state[name], kept[name]) for name in kept), "a later call changed the state taken"

    restored, forgetful = build(search), build(search)
    restored.load_state_dict(state)
    at = generator.get_state()
    assert all(map(same, start + calls(restored, generator, 2), whole))
    assert all(torch.equal(state[name], kept[name]) for name in kept), "a later call changed the state given"
    if state:
        assert not same(calls(forgetful, seeded(0).set_state(at), 1)[0], whole[3])


@pytest.mark.parametrize("divergence", [KL(), SquaredError()], ids=["kl", "squared"])
@each_space
@each_search
def test_it_beats_random_directions_of_the_same_length(
    graph64: Graph, kind: str, search: type[Any], space: str, divergence: Any
) -> None:
    problem = make_problem(graph64, space, kind, divergence)
    found = find(build(search), problem, seeded(3))
    if found is None or not case_of(search).climbs:
        return
    reached = float(lds(problem, found.r)[0].sum())
    for seed in range(5):
        r, squares = problem.space.gaussian(seeded(seed))
        random = problem.space.scale_rows(r, (found.row_squares / squares.clamp_min(1e-30)).sqrt())
        assert reached > 1.5 * float(lds(problem, random)[0].sum())


@each_search
def test_a_model_without_gradients_gives_no_nan(graph: Graph, kind: str, search: type[Any]) -> None:
    """A row that no prediction depends on gets no perturbation instead of 0 / 0."""
    problem = make_problem(graph, "factored", kind)
    with torch.no_grad():
        list(problem.model.parameters())[1].zero_()  # type: ignore[attr-defined]
        problem.clean_logits.zero_()
    found = find(build(search), problem, seeded(3))
    if found is None:
        return
    assert bool(torch.isfinite(found.r).all())
    assert bool(torch.isfinite(found.row_squares).all())
    if case_of(search).climbs and not has(search, "gamma"):  # Adam stays near its random start
        assert float(found.row_squares.max()) == 0
