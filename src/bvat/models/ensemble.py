"""An ensemble for few labels: linear classifiers of latent features that spread over graphs, and networks.

It is a function of features and edges alone, so that it predicts other graphs too, and it is split into
``project`` and ``propagate`` like every model, so that audits have its gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from bvat.graph import Graph, GraphInputs, Latent
from bvat.graph.neighbours import METRICS, unit_rows
from bvat.models.table import MODELS

GRAPHS = ("given", "features", "both")
"""The given edges, those between nodes with similar features, and their union."""
VIEWS: dict[str, tuple[str, str]] = {
    "x": ("", "own features"),
    "given-far": ("given", "spread far over the given edges"),
    "given-near": ("given", "spread two steps over the given edges"),
    "features-far": ("features", "spread far over similar nodes"),
    "both-far": ("both", "spread far over given edges and similar nodes"),
}
"""What a linear member reads: the graph that latent features spread over, and how that is called."""
LINEAR: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in VIEWS},
    "given-and-features": ("given-far", "features-far"),
}
"""The views whose concatenation each linear member reads."""
LEAST = 1e-7
"""The smallest probability."""


def walk(inputs: GraphInputs, state: Tensor, own: float, steps: int) -> Tensor:
    """Spread by random walks: repeat ``Z = (1 - own) D^-1 (A + I) Z + own state``, from Z = state.

    With ``D^-1 (A + I) = S Â S^-1``, S the diagonal matrix of D^-1/2, which Â has squared on its diagonal. Of
    a directed graph Â is ``D^-1 (A + I)`` itself.

    Shapes: state (N, r).
    """
    if not steps:
        return state
    matrix = inputs.propagation
    columns = matrix.col.long()
    scale = state.new_ones(state.shape[0])
    if matrix.symmetric:
        diagonal = matrix.rows == columns
        scale[columns[diagonal]] = matrix.values[diagonal].to(state.dtype).sqrt()
    start = state / scale[:, None]
    z, home = start, own * start
    for _ in range(steps):
        z = (matrix @ z).mul_(1 - own).add_(home)  # in place: a view of a large graph is large
    return z * scale[:, None]


def spread_view(name: str, inputs: GraphInputs, latent: Tensor) -> Tensor:
    """Return latent features (N, r) as a view shows them, not yet centred."""
    near = name.endswith("near")
    steps = 0 if name == "x" else 2 if near else 10
    return walk(inputs, latent, 0.0 if near else 0.1, steps)


def smoothed(inputs: GraphInputs, probabilities: Tensor) -> Tensor:
    """Return probabilities (N, C) that spread a little."""
    return walk(inputs, probabilities, 0.2, 5)


class Tensors(nn.Module):
    """Tensors by name, which are fitted already."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                self.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
            else:
                self.register_buffer(name, tensor)

    def __getitem__(self, name: str) -> Tensor:
        found: Tensor = getattr(self, name)
        return found


class Ensemble(nn.Module):
    """A mean of members' probabilities, smoothed over the graphs.

    ``p = sum_g s_g smooth_g(sum_m w_m softmax(t_m logits_m))``, logits ``t log p``, where g is the given
    graph, that of similar features, or none. A linear member has ``logits = Z W + b``, Z the rows of length 1
    of the centred views.

    It is made of tensors named ``latent.weight``, ``latent.shift``, ``mean.VIEW``, ``weight.MEMBER`` and
    ``temperature.MEMBER``, ``smooth.GRAPH`` (and ``smooth.none``), ``linear.MEMBER.weight`` and ``.bias``,
    ``network.MODEL+METHOD-GRAPH.*``, ``about.neighbours`` (k and the number of the metric) and
    ``about.temperature``.
    """

    depth = 2
    """An audit changes the features within two hops; other nodes reach further, but little."""
    reads_whole_graph = True
    latent: Tensors
    mean: Tensors
    weight: Tensors
    temperature: Tensors
    smooth: Tensors
    about: Tensors

    def __init__(self, **tensors: Tensor) -> None:
        super().__init__()
        parts: dict[str, dict[str, Tensor]] = {}
        for name, tensor in sorted(tensors.items()):  # sums in the same order, however they were stored
            part, separator, rest = name.partition(".")
            if not separator:
                raise TypeError(f"an ensemble has no tensor {name}")
            parts.setdefault(part, {})[rest] = tensor
        known = ("latent", "mean", "weight", "temperature", "smooth", "about")
        if not parts.keys() <= {*known, "linear", "network"} or not {*known} - {"mean"} <= parts.keys():
            raise TypeError("these are not the tensors of an ensemble")
        for name in known:
            setattr(self, name, Tensors(parts.get(name, {})))
        linear = _grouped(parts.get("linear", {}))
        self.linear: Any = nn.ModuleDict({name: Tensors(each) for name, each in linear.items()})
        networks = _grouped(parts.get("network", {}))
        self.network: Any = nn.ModuleDict({name: _network(name, state) for name, state in networks.items()})
        self._graphs: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()

    def check(self, features: int, classes: int) -> None:
        """Raise ValueError unless the tensors fit D features, C classes and each other."""
        rank = self.latent["shift"].shape[0]
        expected = {"latent.weight": (features, rank), "about.neighbours": (2,), "about.temperature": ()}
        names = [*self.linear, *self.network]
        for name in names:
            expected |= {f"weight.{name}": (), f"temperature.{name}": ()}
        for name in self.linear:
            if name not in LINEAR:
                raise ValueError(f"there is no member {name}")
            expected[f"linear.{name}.weight"] = (rank * len(LINEAR[name]), classes)
            expected[f"linear.{name}.bias"] = (classes,)
            expected |= {f"mean.{view}": (rank,) for view in LINEAR[name]}
        expected |= {f"smooth.{name}": () for name in ("none", "given", "features")}
        found = {name: tuple(tensor.shape) for name, tensor in self.state_dict().items()}
        for name, shape in expected.items():
            if found.get(name) != shape:
                raise ValueError(f"{name} has shape {found.get(name)}, not {shape}")
        for name, network in self.network.items():
            first = network.projection()
            if first.shape[0] != features or list(network.parameters())[-1].shape[-1] != classes:
                raise ValueError(f"{name} does not fit {features} features and {classes} classes")
        if not 0 <= int(self.about["neighbours"][1]) < len(METRICS):
            raise ValueError("there is no such metric")

    @property
    def names(self) -> list[str]:
        return [*self.linear, *self.network]

    def used_graphs(self) -> set[str]:
        """Return the names of the graphs that members and smoothing read."""
        views = {view for name in self.linear for view in LINEAR[name]}
        used = {VIEWS[view][0] for view in views} | {name.rpartition("-")[2] for name in self.network}
        return (used | {n for n in ("given", "features") if float(self.smooth[n]) > 0}) - {""}

    def graphs(self, inputs: Any) -> dict[str, Any]:
        """Return the graphs that members read, by name; neighbours are looked for once per graph."""
        if isinstance(inputs, Graph) and inputs in self._graphs:
            return self._graphs[inputs]
        k, metric = self.about["neighbours"].tolist()
        latent = Latent(self.latent["weight"], self.latent["shift"])
        found = make_graphs(inputs, self.used_graphs(), k, METRICS[metric], latent)
        if isinstance(inputs, Graph):
            self._graphs[inputs] = found
        return found

    def projection(self) -> Tensor:
        """The linear maps of all members side by side, (D, r + H_1 + H_2 + ...)."""
        return torch.cat([self.latent["weight"], *(net.projection() for net in self.network.values())], 1)

    def draw_masks(self, inputs: Any, generator: Any = None, *, features: bool = True) -> None:
        """Nothing is dropped: an ensemble is not trained."""

    def restrict_masks(self, masks: Any, inputs: Any, nodes: Tensor) -> None:
        """There are no masks."""

    def project(self, inputs: Any, masks: Any = None) -> Tensor:
        projected: Tensor = inputs.features @ self.projection().to(inputs.features.dtype)
        return projected

    def propagate(
        self, inputs: Any, projected: Tensor, masks: Any = None, unit: Callable[[Tensor], Tensor] = unit_rows
    ) -> Tensor:
        """Turn projected features (N, r + ...) into logits (N, C); ``unit`` gives rows the length 1."""
        graphs = self.graphs(inputs)
        mean: Any = sum(
            self.weight[name] * torch.softmax(self.temperature[name] * logits, 1)
            for name, logits in self.member_logits(graphs, projected, unit).items()
        )
        p = self.smooth["none"] * mean
        for name in ("given", "features"):
            if float(self.smooth[name]) > 0:
                p = p + self.smooth[name] * smoothed(graphs[name], mean)
        logits: Tensor = self.about["temperature"] * p.clamp_min(LEAST).log()
        return logits

    def member_logits(
        self, graphs: Mapping[str, Any], projected: Tensor, unit: Callable[[Tensor], Tensor] = unit_rows
    ) -> dict[str, Tensor]:
        """Return the logits (N, C) of every member from projected features (N, r + H_1 + ...)."""
        widths = [
            self.latent["shift"].shape[0],
            *(net.projection().shape[1] for net in self.network.values()),
        ]
        first, *rest = torch.split(projected, widths, 1)
        latent = unit(first - self.latent["shift"])
        views: dict[str, Tensor] = {}
        found = {}
        for name, member in self.linear.items():
            for view in LINEAR[name]:
                if view not in views:
                    spread = spread_view(view, graphs.get(VIEWS[view][0] or "given", graphs["any"]), latent)
                    views[view] = unit(spread - self.mean[view])
            z = torch.cat([views[view] for view in LINEAR[name]], 1)
            found[name] = z @ member["weight"] + member["bias"]
        for (name, network), part in zip(self.network.items(), rest, strict=True):
            found[name] = network.propagate(graphs[name.rpartition("-")[2]], part, None)
        return found

    def forward(self, graph: Any) -> Tensor:
        return self.propagate(graph, self.project(graph))


def make_graphs(inputs: Any, names: set[str], k: int, metric: str, latent: Latent) -> dict[str, Any]:
    """Return the graphs of some names of :data:`GRAPHS`, and the given one as "any" too."""
    found = {"any": inputs, "given": inputs}
    if names & {"features", "both"}:
        similar = inputs.with_feature_neighbours(k, metric=metric, latent=latent)
        found["features"] = similar
        if "both" in names:
            found["both"] = inputs.joined(similar)
    return found


def _grouped(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        member, _, rest = name.partition(".")
        found.setdefault(member, {})[rest] = tensor
    return found


def _network(name: str, state: Mapping[str, Tensor]) -> nn.Module:
    """Return a network with its weights; its width is theirs, and its other settings are the defaults."""
    kind, graph = name.rpartition("-")[::2]
    model = kind.partition("+")[0]
    if model not in MODELS or graph not in GRAPHS or "weights.0" not in state:
        raise TypeError(f"there is no member {name}")
    row: Any = MODELS[model]
    first, last = state["weights.0"], state[max(n for n in state if n.startswith("weights."))]
    network: nn.Module = row.build(row.options(hidden=first.shape[1]), first.shape[0], last.shape[1])
    try:
        network.load_state_dict(dict(state))
    except RuntimeError as error:
        raise TypeError(f"{name} does not have the tensors of its model ({error})") from None
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    return network.eval()
