"""Any ``torch.nn.Module``, or function of the features, as a model that the regularisers can perturb."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from bvat.engine.cpu import DEFAULT_ENGINE
from bvat.engine.draws import Source, as_draws
from bvat.engine.sparse import SparseMatrix, SymmetricMatrix
from bvat.engine.tensor import TensorEngine
from bvat.errors import SettingsError
from bvat.graph import DenseMatrix, Graph
from bvat.graph.repair import repaired_adjacency
from bvat.models.arguments import Arguments, call_arguments
from bvat.models.base import ProjectedModel
from bvat.models.reading import Reading, injected, read_module


@dataclass
class _Known:
    """What is remembered about a module: how it reads x, and whether its last pass drew random numbers."""

    reading: Reading
    draws: bool | None = None
    told: bool = False
    pattern: tuple[Tensor, int, SparseMatrix] | None = None
    """The last edges, their version, and the pattern of A + I made of them."""

    def __reduce__(self) -> Any:  # copies of a module are inspected again
        return type(None), ()


Model = nn.Module | Callable[..., Tensor]
"""A module, or a function of the features."""

KNOWN = "_known_to_bvat"
"""The attribute of a module that holds what is known about it."""


def wrap(module: Model, *, depth: int | None = None, factored: bool = True) -> WrappedModule:
    """State what inspection cannot find out about a module; a regulariser wraps plain modules by itself.

    Args:
        module: called as ``module(x, edge_index, ...)`` with what its ``forward`` takes and the data has, or
            a function of the features; returns logits (N, C).
        depth: K, how many hops away a feature can change a node's prediction (S-BVAT needs it). Left out, it
            is the number of aggregations that torch_geometric's layers do in a pass.
        factored: whether to look for linear maps at the start; without, x itself is perturbed.

    Example:
        >>> class Perceptron(torch.nn.Linear):  # ignores the edges
        ...     def forward(self, x, edge_index):
        ...         return super().forward(x)
        >>> model = Perceptron(graph.num_features, graph.num_classes)
        >>> logits = model(graph.features.to_dense(), None)
        >>> outcome = bvat.SBVAT(generator=0)(wrap(model, depth=0), graph, logits)
        >>> outcome.space
        'factored'
    """
    return WrappedModule(module, depth, factored)


def adapt(model: Any, data: Any, arguments: Mapping[str, Any] | None = None) -> tuple[ProjectedModel, Graph]:
    """Return what the regularisers work on: unchanged, or a module and what it is called with wrapped."""
    adapted, inputs = model, data
    if not hasattr(model, "draw_masks"):
        if not callable(model):
            raise SettingsError(f"model must be a module or a function of the features, not {model!r}")
        adapted = WrappedModule(model)
    if isinstance(adapted, WrappedModule):
        inputs = adapted.inputs(data, arguments)
    elif arguments:
        name = next(iter(arguments))
        raise SettingsError(f"{type(model).__name__} reads the graph only: it takes no argument {name!r}")
    return adapted, inputs


@dataclass(frozen=True, eq=False)
class EdgeInputs:
    """What a wrapped module reads; shapes: features x (N, D), edge_index int64 (2, E).

    It is never cut to a subgraph: batch statistics and the degrees at the boundary would change.
    """

    features: DenseMatrix
    edge_index: Tensor | None
    known: _Known
    arguments: Arguments
    """What follows x in a call of the module."""

    @property
    def engine(self) -> TensorEngine:
        return self.features.engine

    @cached_property
    def propagation(self) -> SparseMatrix:
        """The pattern of A + I without directions, (N, N), all entries 1: where features can spread."""
        if not isinstance(self.edge_index, Tensor):  # for all nodes, edges are not needed
            alone = SparseMatrix.from_scipy(sp.eye_array(self.features.shape[0], format="csr"))
            return alone.to(self.features.device)
        size, last = self.features.shape[0], self.known.pattern
        if last is not None and last[0] is self.edge_index and last[1] == self.edge_index._version:
            return last[2]
        source, target = self.edge_index.cpu().numpy()
        edges = sp.coo_array((np.ones(source.size), (source, target)), shape=(size, size))
        whole = repaired_adjacency(edges)[0].to_scipy() + sp.eye_array(size, format="csr")
        pattern = SymmetricMatrix.of(SparseMatrix.from_scipy(whole).to(self.edge_index.device))
        self.known.pattern = self.edge_index, self.edge_index._version, pattern
        return pattern


class WrappedModule:
    """A module as a :class:`ProjectedModel`; built by :func:`wrap`.

    Where the first thing done to x is linear, ``project`` gives zeros (N, H) and ``propagate`` runs the
    module with what is added to them put behind those maps; otherwise ``project`` gives x itself.

    Dropout inside modules draws from torch's own generators, so the masks of a pass are a seed for them. For
    ``dropout="shared"`` draw it first: ``masks = wrapped.draw_masks(data); logits = wrapped(data, masks)``.
    Perturbed passes leave the statistics of batch normalisation alone.
    """

    perturbed_on = "whole"

    def __init__(self, module: Model, depth: int | None = None, factored: bool = True) -> None:
        if depth is not None and depth < 0:
            raise SettingsError(f"depth must not be negative, not {depth}")
        self.module: Any = getattr(module, "_orig_mod", module)  # of torch.compile: hooks need the original
        self.given_depth, self.factored = depth, factored
        if not isinstance(self.module, nn.Module):
            self._of_function = _Known(Reading((), None))

    def inputs(self, data: Any, arguments: Mapping[str, Any] | None = None) -> EdgeInputs:
        """Return what the module reads: from ``data``, and ``arguments`` by name; inspect the module once.

        Args:
            data: torch_geometric's Data, a :class:`Graph`, or the features (N, D).
            arguments: what else to call the module with, before what the data has.
        """
        if isinstance(data, EdgeInputs):
            return data
        x, edge_index, following = call_arguments(self.module, data, arguments or {})
        if isinstance(self.module, nn.Module) and self.module.__dict__.get(KNOWN) is None:
            self.module.__dict__[KNOWN] = _Known(read_module(self.module, x, following))
        known = self._known
        if self.factored and known.reading.reason and not known.told:
            known.told = True
            self._tell(known.reading.reason)
        engine = data.engine if isinstance(data, Graph) else DEFAULT_ENGINE
        return EdgeInputs(DenseMatrix(x, engine), edge_index, known, following)

    def _tell(self, reason: str) -> None:
        text = f"bvat perturbs x itself, which takes N x D numbers, because {reason}"
        warnings.warn(text + "; bvat.wrap(model, factored=False) says that this is wanted", stacklevel=5)

    @property
    def _known(self) -> _Known:
        return self.module.__dict__[KNOWN] if isinstance(self.module, nn.Module) else self._of_function

    @property
    def _maps(self) -> tuple[Any, ...]:
        return self._known.reading.maps if self.factored else ()

    @property
    def training(self) -> bool:
        """Whether the module is in training mode; a function may be, and is watched for random numbers."""
        return getattr(self.module, "training", True)

    @property
    def depth(self) -> int:
        """K; -1 where it is not known, which matters to S-BVAT and audits only."""
        found = self.given_depth if self.given_depth is not None else self._known.reading.depth
        return -1 if found is None else found

    def _weights(self) -> list[Tensor]:
        return [self.module.get_parameter(f"{m.name}.weight".lstrip(".")) for m in self._maps]

    def projection(self) -> Tensor | None:
        """W0 (D, H), the linear maps side by side; None when x itself is perturbed."""
        weights = self._weights()
        return torch.cat([weight.t() for weight in weights], 1) if weights else None

    def draw_masks(
        self, inputs: Any, generator: Source | None = None, *, features: bool = True
    ) -> int | None:
        """Draw the seed of one pass; None in eval mode and for modules that draw nothing."""
        if not features:
            raise SettingsError(
                "dropout 'reuse' cannot tell a module's masks apart: use pair, fresh or shared"
            )
        if not self.training:
            return None
        inputs = self.inputs(inputs)
        known = self._known
        if not known.draws:  # dropout may have been set since
            with torch.no_grad(), _frozen_statistics(self.module):
                self._run(inputs.features.values, inputs.arguments, 0)
        return as_draws(generator).seed() if known.draws else None

    def restrict_masks(self, masks: int | None, inputs: Any, nodes: Tensor) -> int | None:
        """Refuse: the passes run on the whole graph."""
        raise SettingsError("a wrapped module runs on the whole graph: its masks cannot be cut")

    def project(self, inputs: Any, masks: int | None = None) -> Tensor:
        """Return zeros (N, H) for what is added behind the linear maps, or x (N, D)."""
        x = self.inputs(inputs).features.values
        width = sum(weight.shape[0] for weight in self._weights())
        return x.new_zeros(x.shape[0], width) if width else x

    def propagate(self, inputs: Any, projected: Tensor, masks: int | None = None) -> Tensor:
        """Run the module; projected (N, H) or (N, D), logits (N, C)."""
        inputs, maps = self.inputs(inputs), self._maps
        with _frozen_statistics(self.module):
            if not maps:
                return self._run(projected, inputs.arguments, masks)
            effects = torch.split(projected, [weight.shape[0] for weight in self._weights()], 1)
            with injected(self.module, maps, effects):
                return self._run(inputs.features.values, inputs.arguments, masks)

    def __call__(self, data: Any, masks: int | None = None) -> Tensor:
        """Return the logits (N, C) of an ordinary pass, with the dropout that ``masks`` stands for."""
        inputs = self.inputs(data)
        return self._run(inputs.features.values, inputs.arguments, masks)

    def _run(self, x: Tensor, arguments: Arguments, seed: int | None) -> Tensor:
        """Run the module, seeded, and notice whether it drew random numbers."""
        cuda = [x.device] if x.is_cuda else []
        with torch.random.fork_rng(cuda, enabled=seed is not None):
            if seed is not None:
                torch.default_generator.manual_seed(seed)
                for device in cuda:
                    with torch.cuda.device(device):
                        torch.cuda.manual_seed(seed)
            before = _random_state(x)
            logits: Tensor = self.module(x, *arguments.args, **arguments.kwargs)
            if self.training:
                self._known.draws = not torch.equal(before, _random_state(x))
        return logits


@contextmanager
def _frozen_statistics(module: Model) -> Iterator[None]:
    """Within the block running statistics are updated in copies, which are thrown away at its end.

    The modules that a function calls are met when it calls them.
    """
    kept: dict[nn.Module, dict[str, Any]] = {}

    def copy(part: nn.Module, *_: Any) -> None:
        if part.training and part not in kept and part._buffers.get("running_mean") is not None:
            kept[part] = dict(part._buffers)
            part._buffers.update({name: b.clone() for name, b in part._buffers.items() if b is not None})

    watching: Any = nullcontext()
    if isinstance(module, nn.Module):
        module.apply(copy)
    else:
        watching = register_module_forward_pre_hook(copy)
    try:
        with watching:
            yield
    finally:
        for part, before in kept.items():
            part._buffers.update(before)


def _random_state(x: Tensor) -> Tensor:
    return torch.cuda.get_rng_state(x.device) if x.is_cuda else torch.get_rng_state()
