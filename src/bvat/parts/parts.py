"""Cutting a graph into parts: who owns which node, and what each part has to know of the others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from bvat.engine.compile import Compiled
from bvat.engine.dense import DenseMatrix
from bvat.engine.matrix import row_pointers
from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.errors import SettingsError
from bvat.graph import Graph
from bvat.graph.inputs import FeatureMatrix
from bvat.graph.validation import check_matrix, check_numbers

Cut = Literal["metis", "random", "order"]
CUTS = ("metis", "random", "order")
BLOCK = 1024
"""Nodes of a block of METIS: their rows of 16 numbers stay in the cache of a core."""


@dataclass(frozen=True, eq=False)
class Part:
    """What a rank has of a graph: own nodes, own rows of Â, and what it sends and receives.

    Shapes: nodes int64 (n), numbers in the whole graph, first those whose neighbours are all own, of which
    there are ``interior``; crow, col, values: own rows of Â with columns that count own nodes first, then the
    halo; halo int64 (h), numbers in the whole graph in the order of their owners; send int64 (s), own rows
    for rank 0 first; send_counts and receive_counts int64 (P).
    """

    nodes: Tensor
    crow: Tensor
    col: Tensor
    values: Tensor
    halo: Tensor
    send: Tensor
    send_counts: Tensor
    receive_counts: Tensor
    interior: int

    def entries(self) -> tuple[Tensor, Tensor]:
        """Return the own row of each entry of Â, and the number of its column in the whole graph."""
        rows = torch.repeat_interleave(torch.arange(self.nodes.numel()), torch.diff(self.crow.long()))
        return rows, torch.cat([self.nodes, self.halo])[self.col.long()]


def check_part(part: Part, parts: int, nodes: int) -> None:
    """Raise ValueError unless everything in a part is in range: what uses it does not check again.

    Args:
        part: what a file holds.
        parts: number of parts.
        nodes: N, number of nodes of the whole graph.
    """
    size, halo = part.nodes.numel(), part.halo.numel()
    check_numbers("nodes", part.nodes, nodes)
    check_numbers("halo", part.halo, nodes)
    if torch.unique(torch.cat([part.nodes, part.halo])).numel() != size + halo:
        raise ValueError("nodes and halo name a node twice")
    check_matrix(SparseMatrix(part.crow, part.col, part.values, (size, size + halo)))
    if part.values.numel() and not all(map(math.isfinite, torch.aminmax(part.values))):
        raise ValueError("an entry of values is NaN or infinite")
    if not 0 <= part.interior <= size or bool((part.col[: part.crow[part.interior]] >= size).any()):
        raise ValueError("interior counts rows that have neighbours in other parts")
    check_numbers("send", part.send, size)
    for name, counts, total in (
        ("send_counts", part.send_counts, part.send.numel()),
        ("receive_counts", part.receive_counts, halo),
    ):
        check_numbers(name, counts, total + 1, size=parts)
        if int(counts.sum()) != total:
            raise ValueError(f"{name} do not sum to {total}")


def assign(graph: Graph, parts: int, by: Cut = "metis", seed: int = 0) -> Tensor:
    """Return the part that owns each node, int64 (N).

    "metis" cuts few edges, "order" takes runs of consecutive nodes, "random" any nodes; parts are of equal
    size up to one node, those of METIS to 3 %.
    """
    size = graph.num_nodes
    if graph.directed:
        raise SettingsError(f"{graph.name} is directed, and only undirected graphs can be cut into parts")
    if graph.edge_attr is not None:
        raise SettingsError(
            f"{graph.name} has edge attributes, and only graphs without can be cut into parts"
        )
    if by not in CUTS:
        raise SettingsError(f"--by must be {', '.join(CUTS[:-1])} or {CUTS[-1]}, not {by!r}")
    if not 1 <= parts <= size:
        raise SettingsError(f"{size} nodes cannot be cut into {parts} parts: use 1 to {size}")
    if parts == 1:
        return torch.zeros(size, dtype=torch.int64)
    if by == "metis":
        owner = _metis(graph.adjacency, parts, seed)
        empty = int((torch.bincount(owner, minlength=parts) == 0).sum())
        if empty:
            raise SettingsError(f"METIS left {empty} of {parts} parts empty: use fewer --parts")
        return owner
    even = torch.arange(size) * parts // size
    if by == "order":
        return even
    return even[torch.from_numpy(np.random.default_rng(seed).permutation(size))]


def _metis(adjacency: SparseMatrix, parts: int, seed: int) -> Tensor:
    try:
        import pymetis
    except ImportError:
        raise SettingsError(
            "METIS needs the package pymetis: pip install 'bvat[distributed]', or use --by order or random"
        ) from None
    options = pymetis.Options(seed=seed)
    crow, col, _ = adjacency.arrays
    owners = pymetis.part_graph(parts, pymetis.CSRAdjacency(crow, col), options=options)[1]
    return torch.as_tensor(np.asarray(owners), dtype=torch.int64)


def blocks(graph: Graph, by: Cut) -> Tensor | None:
    """Return the small block of METIS of each node, int64 (N); None for other cuts and small graphs.

    Nodes of a part are put in the order of their blocks: an epoch on 10 million edges takes 0.7 of the time
    if the neighbours of a node lie close in memory.
    """
    count = graph.num_nodes // BLOCK
    return _metis(graph.adjacency, count, seed=0) if by == "metis" and count > 1 else None


def cut_share(graph: Graph, owner: Tensor) -> float:
    """Return the share of edges between different parts; owner int64 (N)."""
    crow, col, _ = graph.adjacency.arrays
    return float(_foreign(crow, col, owner.numpy()).sum(dtype=np.int64) / max(1, graph.adjacency.nnz))


def cut(matrix: SparseMatrix, owner: Tensor, rank: Tensor | None = None) -> Iterator[Part]:
    """Yield the parts of a symmetric matrix Â (N, N) one after another.

    Args:
        matrix: Â.
        owner: the part of each node, int64 (N).
        rank: nodes of a part are put in ascending order of this, (N); None for their numbers.
    """
    parts = int(owner.max()) + 1
    crow, col, _ = matrix.arrays
    owners = owner.numpy()
    inside = torch.from_numpy(_foreign(crow, col, owners) == 0)
    order = torch.arange(owner.numel()) if rank is None else torch.argsort(rank, stable=True)
    order = order[torch.argsort(~inside[order], stable=True)]  # those with all neighbours here come first
    order = order[torch.argsort(owner[order], stable=True)]
    sizes = torch.bincount(owner, minlength=parts)
    ends = torch.cumsum(sizes, 0)
    place = torch.empty_like(owner)  # of each node in its part
    place[order] = torch.arange(owner.numel()) - torch.repeat_interleave(ends - sizes, sizes)
    halos = []
    for p, (s, e) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True)):
        need = _halo_of(crow, col, owners, order[e - s : e].numpy(), p)
        halos.append(torch.from_numpy(need[np.lexsort((need, owners[need]))].astype(np.int32)))
    wanted = [torch.bincount(owner[halo.long()], minlength=parts) for halo in halos]
    local = torch.empty(owner.numel(), dtype=torch.int32)
    for part, (size, end) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True)):
        nodes, halo = order[end - size : end], halos[part].long()
        own = matrix.select(nodes)
        local[nodes] = torch.arange(size, dtype=torch.int32)
        local[halo] = torch.arange(size, size + halo.numel(), dtype=torch.int32)
        starts = [int(counts[:part].sum()) for counts in wanted]
        asked = [halos[q][starts[q] : starts[q] + int(wanted[q][part])] for q in range(parts)]
        yield Part(
            nodes=nodes,
            crow=own.crow,
            col=local.index_select(0, own.col),
            values=own.values,
            halo=halo,
            send=place[torch.cat(asked).long()],
            send_counts=torch.tensor([each.numel() for each in asked]),
            receive_counts=wanted[part],
            interior=int(inside[nodes].sum()),
        )


@Compiled
def _foreign(crow: Any, col: Any, owner: Any) -> Any:
    """Return how many neighbours of each node other parts own, int32 (N)."""
    found = np.zeros(owner.shape[0], dtype=np.int32)
    for v in range(owner.shape[0]):
        for k in range(crow[v], crow[v + 1]):
            found[v] += owner[col[k]] != owner[v]
    return found


@Compiled
def _halo_of(crow: Any, col: Any, owner: Any, nodes: Any, part: int) -> Any:
    """Return the neighbours of ``nodes`` that other parts own, each once."""
    seen = np.zeros(owner.shape[0], dtype=np.bool_)
    found = np.empty(owner.shape[0], dtype=np.int64)
    size = 0
    for i in range(nodes.shape[0]):
        for k in range(crow[nodes[i]], crow[nodes[i] + 1]):
            w = col[k]
            if owner[w] != part and not seen[w]:
                seen[w] = True
                found[size] = w
                size += 1
    return found[:size].copy()


def symmetric(matrix: SparseMatrix) -> SymmetricMatrix:
    """Return a matrix that is known to be symmetric as such, with ascending columns."""
    ordered = SparseMatrix.from_scipy(matrix.to_scipy(), matrix.dtype)
    return SymmetricMatrix.of(ordered, matrix.engine)


def stack(blocks: list[tuple[Tensor, Tensor, Tensor]], shape: tuple[int, int]) -> SparseMatrix:
    """Return blocks of rows, each as counts, columns and values, below each other."""
    counts = torch.cat([counts for counts, _, _ in blocks])
    col = torch.cat([col for _, col, _ in blocks]).to(torch.int32)
    return SparseMatrix(row_pointers(counts), col, torch.cat([values for _, _, values in blocks]), shape)


def stack_features(shares: list[FeatureMatrix], factor: float = 1.0) -> FeatureMatrix:
    """Return the features of several parts below each other, multiplied by a factor."""
    if isinstance(shares[0], SparseMatrix):
        rows = sum(share.shape[0] for share in shares)
        blocks = [(torch.diff(x.crow.long()), x.col, x.values * factor) for x in shares]  # type: ignore[union-attr]
        return stack(blocks, (rows, shares[0].shape[1]))
    return DenseMatrix(torch.cat([share.values for share in shares]) * factor)
