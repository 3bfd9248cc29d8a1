"""Neighbours from features: a few latent dimensions in which nodes are compared, and the nearest nodes there.

Where neighbours in the given graph disagree, or where there are no edges at all, similar features say more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from bvat.engine.sparse import SparseMatrix
from bvat.errors import SettingsError
from bvat.graph.inputs import FeatureMatrix

RANK = 128
"""Latent dimensions: with few labels more of them bring nothing (results/few-labels)."""
EXACT = 30_000
"""Up to this many nodes all pairs are compared; beyond, neighbours are found approximately."""
ROWS_AT_ONCE = 128
METRICS = ("cosine", "euclidean")

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class Latent:
    """A map of the features to r dimensions, ``h = x W - shift``.

    Sparse features, and dense ones that are never negative and mostly zero, are weighted by how rare they are
    (TF-IDF), others are centred and divided by their standard deviations; if there are more than r columns,
    W ends with the r largest principal directions of the rows of length 1.

    Shapes: weight (D, r), shift (r).
    """

    weight: Tensor
    shift: Tensor

    @classmethod
    def fit(cls, features: FeatureMatrix, rank: int = RANK) -> Latent:
        """Find the map for features (N, D); the same features give the same map."""
        content: Any = features.to("cpu", torch.float32).to_scipy()
        if not isinstance(features, SparseMatrix) and (content >= 0).all() and (content == 0).mean() > 0.5:
            content = sp.csr_array(content)
        mean = np.zeros(content.shape[1])
        counts = sp.issparse(content)
        if counts and features.values.numel() and float(features.values.min()) >= 0:
            shared = np.bincount(content.indices, minlength=content.shape[1])
            factor = np.log((1 + content.shape[0]) / (1 + shared)) + 1
            content = content @ sp.diags_array(factor)
        else:
            content = features.to("cpu", torch.float64).to_dense().numpy()
            mean, deviation = content.mean(0), content.std(0)
            factor = 1 / np.where(deviation > 1e-6 * np.abs(mean), deviation, np.inf)
            content = (content - mean) * factor
        weight = factor[:, None] * _directions(content, rank)
        shift = mean @ weight
        return cls(torch.from_numpy(weight).float(), torch.from_numpy(shift).float())

    def rows(self, features: FeatureMatrix) -> Tensor:
        """Return the latent features of the nodes, rows of length 1 or 0, shape (N, r)."""
        return unit_rows(features.to(dtype=torch.float32) @ self.weight - self.shift)


def _directions(content: Any, rank: int) -> NDArray[np.float64]:
    """Return the principal directions of the rows of length 1, (D, r); the identity if D <= r."""
    rows, columns = content.shape
    if columns <= rank:
        return np.eye(columns)
    squares = (content * content).sum(axis=1)
    scale = 1 / np.sqrt(np.where(squares > 0, squares, np.inf))
    scaled = sp.diags_array(scale) @ content
    from sklearn.utils.extmath import randomized_svd  # a second to import

    _, _, directions = randomized_svd(scaled.astype(np.float32), min(rank, rows), n_iter=4, random_state=0)
    return np.asarray(directions.T, np.float64)


def unit_rows(rows: Tensor) -> Tensor:
    """Divide every row by its length; rows of zeros stay."""
    found: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return found


def nearest_nodes(latent: Tensor, k: int, metric: str = "cosine", exact: int = EXACT) -> Any:
    """Return which nodes are among the k nearest of each other, symmetric, as a scipy matrix of 0 and 1.

    Nodes without latent features, and pairs whose cosine is not positive, are not joined. Of more than
    ``exact`` nodes the neighbours are found approximately.

    Shapes: latent (N, r); the result (N, N).
    """
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise SettingsError(f"the number of neighbours must be a whole number from 1 up, not {k!r}")
    if metric not in METRICS:
        raise SettingsError(f"the metric must be one of {', '.join(METRICS)}, not {metric!r}")
    rows = np.ascontiguousarray(latent.detach().cpu().numpy(), np.float32)
    count = rows.shape[0]
    k = min(k, count - 1)
    if k < 1:
        return sp.csr_array((count, count), dtype=np.float32)
    find = _all_pairs if count <= exact else _approximate
    ends, close = find(rows, k, metric)
    starts = np.repeat(np.arange(count), ends.shape[1])
    real = close.ravel() & (ends.ravel() != starts)
    matrix = sp.csr_array(
        (np.ones(int(real.sum()), np.float32), (starts[real], ends.ravel()[real])), shape=(count, count)
    )
    both = matrix.maximum(matrix.T).tocsr()
    both.sort_indices()
    return both


def _all_pairs(rows: Rows, k: int, metric: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Compare all pairs, some rows at a time."""
    squares = (rows**2).sum(1)
    ends, close = [], []
    for start in range(0, rows.shape[0], ROWS_AT_ONCE):
        part = rows[start : start + ROWS_AT_ONCE]
        scores = part @ rows.T
        found = scores > 0 if metric == "cosine" else np.ones_like(scores, bool)
        if metric == "euclidean":
            scores = 2 * scores - squares
        itself = np.arange(part.shape[0])
        scores[itself, start + itself] = -np.inf
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k].copy()  # not a view of eight bytes per pair
        ends.append(best)
        close.append(np.take_along_axis(found, best, axis=1))
    return np.concatenate(ends), np.concatenate(close)


def _approximate(rows: Rows, k: int, metric: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    from pynndescent import NNDescent  # compiles for seconds

    threads = torch.get_num_threads()
    try:
        found = NNDescent(rows, metric=metric, n_neighbors=k + 1, random_state=0, n_jobs=1).neighbor_graph
    finally:
        torch.set_num_threads(threads)  # numba's threads may be those of torch, and it sets them to all cores
    ends, distances = np.asarray(found[0], np.int64), found[1]
    return np.maximum(ends, 0), (ends >= 0) & ((distances < 1) | (metric == "euclidean"))


def agreement(features: Tensor, edges: Any, others: Any, pairs: int = 20_000) -> float:
    """Return how similar nodes are along ``edges``, as a share of how similar they are along ``others``.

    Mean cosines of the latent features, both above that of random pairs: about 0 where edges say nothing of
    the features, 1 where they say as much. No label is needed.

    Shapes: features (N, r), edges and others scipy (N, N).
    """
    rng = np.random.default_rng(0)
    rows = features.detach().cpu().numpy()

    def mean_cosine(starts: Any, ends: Any) -> float:
        chosen = rng.permutation(starts.size)[:pairs]
        parts = np.array_split(chosen, 1 + chosen.size // 1000)  # not all rows at once
        cosines = np.concatenate([(rows[starts[part]] * rows[ends[part]]).sum(1) for part in parts])
        return float(cosines.mean()) if chosen.size else 0.0

    random = mean_cosine(*rng.integers(0, rows.shape[0], (2, pairs)))
    along, base = (mean_cosine(*matrix.tocoo().coords) - random for matrix in (edges, others))
    return along / base if base > 1e-6 else 1.0
