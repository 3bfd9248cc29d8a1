"""``explain``: the neighbours and features that carried the decision about a node."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from bvat.audit.audit import smallest_change
from bvat.baselines.table import PUBLISHED
from bvat.data.files import csv_text
from bvat.errors import GraphError, SettingsError
from bvat.graph import UNKNOWN, Graph
from bvat.graph.html import html_table
from bvat.inference.classifier import Classifier
from bvat.inference.tables import node_id, short_number
from bvat.models.base import linearize
from bvat.models.ensemble import Ensemble

FAR = -1
"""``hops`` of a node that no path of given edges leads to: it is similar to one that can be reached."""
Columns = dict[str, NDArray[Any]]
"""A table as arrays of equal length, by the names of its columns."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a model predicts the class c of a node u and not the next likely class k.

    ``margin`` is ``l_c - l_k``, the difference of the logits: the contributions of all nodes and ``constant``
    add up to it, and so do those of all features and ``constant``. ``smallest`` is the norm of the smallest
    change of the features found that changes the class, to ``becomes``, and ``relative`` the same divided by
    the norm of the features in the receptive field; infinite, and None, where none was found.

    Shapes: ``node_columns`` has node, id, hops (0 for u itself, -1 where no path leads), predicted, label
    ("" if unknown), contribution and share; ``feature_columns`` has feature, value (that of u), contribution
    and share. Both have the largest contribution first, of either sign, and nothing that contributed 0. The
    absolute values of ``share`` sum to 1; negative ones speak for k.
    """

    node: int
    id: str
    predicted: str
    next: str
    label: str
    probabilities: dict[str, float]
    margin: float
    constant: float
    smallest: float
    relative: float
    becomes: str | None
    node_columns: Columns
    feature_columns: Columns

    @property
    def neighbours(self) -> Any:
        """The nodes that contributed, as a data frame of pandas if that is installed, else as a dict."""
        return frame(self.node_columns)

    @property
    def features(self) -> Any:
        """The features that contributed, as a data frame of pandas if that is installed, else as a dict."""
        return frame(self.feature_columns)

    def change_text(self) -> str:
        """Say what the smallest change of the class is."""
        if self.becomes is None:
            return "none found"
        return f"{self.smallest:.3g} ({100 * self.relative:.2g} % of the features around) to {self.becomes}"

    def as_dict(self, top: int) -> dict[str, Any]:
        """Return plain values for JSON, with the ``top`` largest contributions."""
        numbers = {name: getattr(self, name) for name in ("margin", "constant", "smallest", "relative")}
        return {
            **{name: getattr(self, name) for name in ("id", "predicted", "next", "label", "probabilities")},
            **{name: value if math.isfinite(value) else None for name, value in numbers.items()},
            "becomes": self.becomes,
            "neighbours": rows_of(self.node_columns, top),
            "features": rows_of(self.feature_columns, top),
        }

    def csv(self) -> str:
        """Return all contributions, those of nodes before those of features."""
        kinds = (("node", "id", self.node_columns), ("feature", "feature", self.feature_columns))
        return csv_text(
            ("kind", "id", "hops", "predicted", "label", "contribution", "share"),
            (
                (kind, row[name], *(row.get(key, "") for key in ("hops", "predicted", "label")),
                 short_number(row["contribution"]), short_number(row["share"]))
                for kind, name, columns in kinds
                for row in rows_of(columns)
            ),
        )  # fmt: skip

    def _repr_html_(self) -> str:
        about = {
            "probability": f"{self.probabilities[self.predicted]:.3f}",
            "next class": f"{self.next} ({self.probabilities[self.next]:.3f})",
            "label": self.label or "unknown",
            "smallest change of class": self.change_text(),
        }
        near, features = rows_of(self.node_columns, 10), rows_of(self.feature_columns, 10)
        return (
            html_table(f"Why {self.id} is {self.predicted}", about)
            + html_table("Neighbours", {row["id"]: f"{row['share']:+.1%} {row['predicted']}" for row in near})
            + html_table("Features", {row["feature"]: f"{row['share']:+.1%}" for row in features})
        )


def explain(classifier: Classifier, graph: Graph, node: int | str) -> Explanation:
    """Return what carried the decision about a node: gradient times input, in the projected coordinates.

    With the projected features ``P = X W0`` and ``G = d(l_c - l_k) / dP`` for the logits l of the node, the
    contributions of node v and of feature j are

        ``<G_v, P_v>``  and  ``<W0_j, (X^T G)_j>``,

    two sums of the same terms ``X_vj <W0_j, G_v>``. They are exact where the logits are linear in X, as those
    of SGC, and for the active linear piece of a network of relus; ``constant`` is what biases add, and the
    remainder of models that are not piecewise linear (attention). An ensemble is linearised through the
    probabilities of its members, with the lengths that divide their rows held fixed.

    Args:
        classifier: of one model.
        graph: the graph that the node is in.
        node: its position, or as text its id.

    Shapes: X (N, D), W0 (D, H), P and G (N, H).

    Example:
        >>> from bvat.trust.explain import explain
        >>> fitted = bvat.NodeClassifier("none", epochs=5).fit(graph)
        >>> found = explain(fitted.classifier_, graph, 7)  # or fitted.explain(7)
        >>> total = found.node_columns["contribution"].sum() + found.constant
        >>> abs(float(total) - found.margin) < 1e-3
        True
    """
    classifier.targets.require_one_class("an explanation", "read the probabilities that bvat predict writes")
    model, u = _explainable(classifier), find_node(graph, node)
    dtype = next(model.parameters()).dtype
    graph = graph if graph.features.dtype == dtype else graph.to(dtype=dtype)
    probabilities = classifier.probabilities(graph).cpu()
    c, k = probabilities[u].topk(2).indices.tolist()
    margin, of_nodes, of_features = _contributions(model, graph, u, c, k)
    smallest, relative, becomes = smallest_change(model, graph, u)
    names = classifier.class_names
    labels = np.array(["", *names])[classifier.labels(graph).cpu().numpy() + 1]
    own = graph.features.select(torch.tensor([u], device=graph.device)).to_dense()[0].cpu().numpy()
    predicted = np.array(names)[probabilities.argmax(1).numpy()]
    ids = np.arange(graph.num_nodes).astype(str) if graph.node_names is None else np.array(graph.node_names)
    about_nodes = {"id": ids, "hops": _hops(graph, u), "predicted": predicted, "label": labels}
    about_features = {"feature": np.array(feature_names(graph)), "value": own}
    return Explanation(
        node=u,
        id=node_id(graph, u),
        predicted=names[c],
        next=names[k],
        label=str(labels[u]),
        probabilities=dict(zip(names, probabilities[u].tolist(), strict=True)),
        margin=margin,
        constant=margin - float(of_nodes.sum()),
        smallest=smallest,
        relative=relative,
        becomes=None if becomes == UNKNOWN else names[becomes],
        node_columns=_largest({"node": np.arange(graph.num_nodes), **about_nodes}, of_nodes),
        feature_columns=_largest(about_features, of_features),
    )


def _contributions(model: Any, graph: Graph, u: int, c: int, k: int) -> tuple[float, Tensor, Tensor]:
    """Return ``l_c - l_k`` at node u, and what every node (N) and every feature (D) adds to it."""
    with torch.no_grad():
        projected = model.project(graph)
    logits, pullback = linearize(_Passes(model), graph, projected, None)  # type: ignore[arg-type]
    select = torch.zeros_like(logits)
    select[u, c], select[u, k] = 1, -1
    gradient = pullback(select)
    with torch.no_grad():
        of_nodes = (gradient.double() * projected).sum(1).cpu()
        of_features = (model.projection().double() * graph.features.transposed_product(gradient)).sum(1).cpu()
    return float(logits[u, c].double() - logits[u, k]), of_nodes, of_features


def find_node(graph: Graph, node: int | str) -> int:
    """Return the position of a node, which is given by it or by its id; GraphError if there is none."""
    found, text = -1, str(node)
    if isinstance(node, str) and graph.node_names is not None:
        found = graph.node_names.index(node) if node in graph.node_names else -1
    elif text.isascii() and text.isdecimal():
        found = int(text)
    if not 0 <= found < graph.num_nodes:
        ends = " to ".join(node_id(graph, v) for v in (0, graph.num_nodes - 1))
        raise GraphError(f"{graph.name} has no node {node}: give an id of its nodes, {ends}")
    return found


def feature_names(graph: Graph) -> list[str]:
    """Return the names of the D features that a reader knew, else their numbers."""
    recipe: Mapping[str, Any] = graph.recipe
    names = [*recipe.get("columns", {}).get("names", ()), *recipe.get("text", {}).get("idf", ())]
    return names + [str(j) for j in range(len(names), graph.num_features)]


def frame(columns: Mapping[str, Any]) -> Any:
    """Return columns as a data frame of pandas, or as a dict of arrays without pandas."""
    try:
        return import_module("pandas").DataFrame(columns)
    except ModuleNotFoundError:
        return {name: np.asarray(column) for name, column in columns.items()}


def rows_of(columns: Columns, top: int | None = None) -> list[dict[str, Any]]:
    """Return the first rows of a table in plain values."""
    cut = {name: column[:top].tolist() for name, column in columns.items()}
    return [dict(zip(cut, row, strict=True)) for row in zip(*cut.values(), strict=True)]


class _Passes:
    """The passes of a model, those of an ensemble with the lengths of its rows held fixed."""

    def __init__(self, model: Any) -> None:
        self.propagate = model.propagate
        if isinstance(model, Ensemble):
            self.propagate = partial(model.propagate, unit=_with_fixed_lengths)
        elif hasattr(model, "linearize"):
            self.linearize = model.linearize


def _with_fixed_lengths(rows: Tensor) -> Tensor:
    found: Tensor = rows / rows.detach().norm(dim=1, keepdim=True).clamp_min(1e-12)
    return found


def _explainable(classifier: Classifier) -> Any:
    method = classifier.settings.method
    if method in PUBLISHED:
        raise SettingsError(
            f"a prediction of {method}, which is no network, cannot be explained: explain a run of a model"
        )
    if not classifier.settings.model_row.is_own:
        raise SettingsError(
            f"{classifier.settings.model} is not bvat's own model, whose decisions alone can be explained: "
            "use bvat audit"
        )
    if len(classifier.models) > 1:
        raise SettingsError("an explanation is that of one model: choose one seed")
    if len(classifier.class_names) < 2:
        raise SettingsError("there is only one class: no prediction needs a reason")
    return classifier.models[0]


def _largest(about: Columns, contributions: Tensor) -> Columns:
    """Return the rows whose contribution (n) is not 0, the largest of either sign first, with shares."""
    values = contributions.numpy()
    order = np.argsort(-np.abs(values), kind="stable")[: np.count_nonzero(values)]
    share = values[order] / max(float(np.abs(values).sum()), np.finfo(np.float64).tiny)
    return {name: column[order] for name, column in about.items()} | {
        "contribution": values[order], "share": share
    }  # fmt: skip


def _hops(graph: Graph, node: int) -> NDArray[Any]:
    """Return the number of edges between a node and each other, int64 (N)."""
    found = dijkstra(graph.adjacency.to_scipy(), unweighted=True, indices=[node])[0]
    return np.where(np.isfinite(found), found, FAR).astype(np.int64)
