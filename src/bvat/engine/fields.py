"""Nodes with disjoint receptive fields: the greedy choice of one process, and the same over all parts.

Over ranks the nodes are the same ones for any number of them. All ranks know the same sequence of candidates.
A chunk of candidates grows its K-hop balls on all ranks at once, one exchange of frontiers per hop; the rank
that owns a node of two balls, or of a ball and a field chosen before, says so; then every rank accepts the
same candidates, in the order of the greedy algorithm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from bvat.engine.compile import Compiled
from bvat.engine.draws import Draws

CHUNK = 64
"""Candidates whose balls grow at once."""
WINDOW = 4096
"""Candidates of which it is asked at once whether they already lie in a field."""


def grown_fields(
    matrix: Any, depth: int, count: int, draws: Draws, among: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Choose at most ``count`` nodes whose K-hop balls do not meet, at random, one after another.

    A uniform draw from all nodes, thrown away unless still a candidate, is a uniform draw from the
    candidates. It needs no permutation of the whole graph; only when candidates get rare is one drawn.

    Returns:
        The chosen nodes int64 (b), and the number of the chosen node in whose ball a node lies, int64 (N).
    """
    size = matrix.shape[0] if among is None else among.numel()
    pattern = matrix.arrays[:2]
    owner = np.full(matrix.shape[0], -1, dtype=np.int64)
    rejected = np.zeros(matrix.shape[0], dtype=np.bool_)
    chosen = np.empty(min(count, size), dtype=np.int64)
    place = None if among is None else among.cpu().numpy()
    candidates = draws.integers(size, 8 * chosen.size)
    found = grow(pattern, depth, _at(place, candidates), owner, rejected, chosen, 0)
    if found < chosen.size:
        rest = draws.permutation(size)
        found = grow(pattern, depth, _at(place, rest), owner, rejected, chosen, found)
    return torch.from_numpy(chosen[:found]).to(matrix.device), torch.from_numpy(owner).to(matrix.device)


def _at(place: Any, numbers: Any) -> Any:
    return numbers if place is None else place[numbers]


@Compiled
def grow(matrix: Any, depth: int, candidates: Any, owner: Any, rejected: Any, chosen: Any, found: int) -> int:
    """Go through the candidates in order and choose those whose ball meets none chosen before.

    ``owner``, ``rejected`` and ``chosen`` are changed in place; returns how many are chosen in all.
    """
    crow, col = matrix
    ball = np.empty(crow.shape[0], dtype=np.int64)
    for u in candidates:
        if found == chosen.shape[0]:
            break
        if owner[u] >= 0 or rejected[u]:
            continue
        ball[0] = u
        size, reached = 1, 0
        owner[u] = found
        free = True
        for _ in range(depth):
            stop = size
            while reached < stop and free:
                v = ball[reached]
                reached += 1
                for k in range(crow[v], crow[v + 1]):
                    w = col[k]
                    if owner[w] == -1:
                        owner[w] = found
                        ball[size] = w
                        size += 1
                    elif owner[w] != found:
                        free = False
                        break
        if free:
            chosen[found] = u
            found += 1
        else:
            rejected[u] = True
            for i in range(size):
                owner[ball[i]] = -1
    return found


def disjoint_fields(matrix: Any, depth: int, count: int, draws: Draws) -> tuple[Tensor, Tensor, Tensor]:
    """Do what :func:`grown_fields` does over all parts, with counted draws.

    Returns:
        The chosen own rows int64 (b) in the order in which they were chosen, for each own row the number of
        the chosen node in whose ball it lies, int64 (n), -1 for none, and the numbers of the chosen own rows
        among those of all ranks, int64 (b).
    """
    search = _Search(matrix, depth, min(count, matrix.halo.ranks.nodes))
    size = matrix.halo.ranks.nodes
    search.go_through(draws.integers(size, 8 * search.count))
    if search.found < search.count:  # candidates are rare: all nodes in random order
        search.go_through(draws.permutation(size))
    chosen = torch.tensor(search.chosen, dtype=torch.int64)
    numbers = torch.nonzero(chosen >= 0).flatten()
    return chosen[numbers], torch.from_numpy(search.owner), numbers


class _Search:
    def __init__(self, matrix: Any, depth: int, count: int) -> None:
        self.ranks, self.halo = matrix.halo.ranks, matrix.halo
        col, crow, size = matrix.col.numpy(), matrix.crow.numpy(), matrix.halo.nodes.numel()
        shape = size, size + self.halo.halo.numel()
        self.pattern = sp.csr_array((np.ones(col.size, dtype=np.int64), col, crow), shape=shape)
        self.depth, self.count, self.found = depth, count, 0
        self.nodes = self.halo.nodes.numpy()
        self.sorted = np.argsort(self.nodes)
        self.owner = np.full(self.nodes.shape[0], -1, dtype=np.int64)
        self.chosen: list[int] = []  # own rows; -1 for those of other ranks
        self.rejected: set[int] = set()
        ends = np.cumsum(self.halo.receive_counts)
        self.holder = np.searchsorted(ends, np.arange(ends[-1]), side="right")  # who owns each halo node

    def _rows(self, nodes: Any) -> Any:
        """Return the own rows of nodes, -1 where another rank owns them."""
        place = np.searchsorted(self.nodes, nodes, sorter=self.sorted).clip(max=self.nodes.shape[0] - 1)
        rows = self.sorted[place]
        return np.where(self.nodes[rows] == nodes, rows, -1)

    def go_through(self, candidates: Any) -> None:
        """Go through candidates in order until enough are chosen."""
        for start in range(0, len(candidates), WINDOW):
            window = list(dict.fromkeys(candidates[start : start + WINDOW].tolist()))
            while window and self.found < self.count:
                window = self._free(window)
                chunk, window = window[:CHUNK], window[CHUNK:]
                self._decide(chunk)
            if self.found == self.count:
                return

    def _free(self, candidates: list[int]) -> list[int]:
        """Return the candidates that were not rejected and lie in no field."""
        left = [u for u in candidates if u not in self.rejected]
        rows = self._rows(np.array(left, dtype=np.int64))
        taken = np.where(rows >= 0, self.owner[rows] >= 0, False).astype(np.int64)
        taken = self.ranks.counts(torch.from_numpy(taken)).numpy()
        return [u for u, here in zip(left, taken.tolist(), strict=True) if not here]

    def _decide(self, chunk: list[int]) -> None:
        """Grow the balls of a chunk of candidates, and accept those that meet no accepted one.

        ``balls`` (k, n) has an entry where an own node lies in the ball of a candidate.
        """
        if not chunk:
            return
        rows = self._rows(np.array(chunk, dtype=np.int64))
        mine, size = np.nonzero(rows >= 0)[0], self.nodes.shape[0]
        balls = _entries(mine, rows[mine], (len(chunk), size))
        for _ in range(self.depth):  # Â has the diagonal too, so that balls only grow
            grown = balls @ self.pattern
            balls = grown[:, :size] + self._pass_on(grown[:, size:])
            balls.data[:] = 1
        told = np.column_stack([balls @ (self.owner >= 0).astype(np.int64), (balls @ balls.T).toarray()])
        met = self.ranks.counts(torch.from_numpy(told)).numpy() > 0
        numbers = np.full(len(chunk), -1, dtype=np.int64)
        for i, node in enumerate(chunk):
            if self.found == self.count:
                break
            if met[i, 0] or (met[i, 1:] & (numbers >= 0)).any():
                self.rejected.add(node)
                continue
            numbers[i] = self.found
            self.found += 1
            self.chosen.append(int(rows[i]))
        candidate, row = balls.nonzero()
        kept = numbers[candidate] >= 0
        self.owner[row[kept]] = numbers[candidate[kept]]

    def _pass_on(self, away: Any) -> Any:
        """Send entries of halo nodes (k, h) to the ranks that own the nodes; return those for us, (k, n)."""
        shape = away.shape[0], self.nodes.shape[0]
        if self.ranks.size == 1:
            return sp.csr_array(shape, dtype=np.int64)
        candidate, place = away.nonzero()
        order = np.argsort(place, kind="stable")  # halo nodes are in the order of their owners
        candidate, place = candidate[order], place[order]
        counts = np.bincount(self.holder[place], minlength=self.ranks.size)
        content = np.stack([self.halo.halo.numpy()[place], candidate], 1).astype(np.int64)
        arrived = self.ranks.deliver(torch.from_numpy(content), counts.tolist()).numpy()
        return _entries(arrived[:, 1], self._rows(arrived[:, 0]), shape)


def _entries(rows: Any, columns: Any, shape: tuple[int, int]) -> Any:
    return sp.csr_array((np.ones(len(rows), dtype=np.int64), (rows, columns)), shape=shape)
