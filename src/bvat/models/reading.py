"""How a module reads its features: which linear maps stand first, found by watching one pass and checked.

A module that reads ``x`` only through maps ``x W`` (``GCNConv``, ``GATConv``, ``Linear``, with dropout before
them) or ``S x W`` with a linear aggregation S (``SAGEConv``) need not have ``x`` itself perturbed: the effect
``R W`` can be added behind the maps, and perturbations live in the small factored space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bvat.errors import SettingsError, TrainingError
from bvat.models.arguments import Arguments


@dataclass(frozen=True)
class LinearMap:
    """A Linear submodule that reads x, directly or through the aggregation of a message passing module."""

    name: str
    through: str | None = None


@dataclass(frozen=True)
class Reading:
    """What is known about a module.

    ``maps`` are side by side, and empty when x is read in another way, which ``reason`` then explains;
    ``depth`` is the number of hops the module looks, None when that cannot be told.
    """

    maps: tuple[LinearMap, ...]
    depth: int | None
    reason: str = ""


def read_module(module: nn.Module, x: Tensor, arguments: Arguments) -> Reading:
    """Watch one pass of the module in eval mode, then check what was seen at random weights.

    Weights are moved at random for the check, so that a path that starts at zero does not stay hidden.

    Shapes: x (N, D).
    """
    with evaluation(module), torch.random.fork_rng([x.device] if x.is_cuda else []), torch.no_grad():
        maps, reason, hops = _watch(module, x, arguments)
        generator = torch.Generator().manual_seed(0)
        moved = {name: _moved(p, generator) for name, p in module.named_parameters()}
        base = _call(module, moved, x, arguments)
        noise = 1e3 * torch.finfo(base.dtype).eps * base.abs().max()
        depth: int | None = hops
        if not hops:  # no message passing seen: a module that sees no neighbours turns with its nodes
            turned = _call(module, moved, x.roll(1, 0), arguments)
            depth = 0 if bool((turned - base.roll(1, 0)).abs().max() <= noise) else None
        if maps:
            r = torch.randn(x.shape, generator=generator).to(x) * x.square().mean().sqrt().clamp_min(1e-6)
            change = _call(module, moved, x + r, arguments) - base
            of = {id(p): moved[name] for name, p in module.named_parameters()}
            effects = [r @ of[id(module.get_submodule(m.name).weight)].t() for m in maps]
            with injected(module, maps, effects):
                behind = _call(module, moved, x, arguments) - base
            size = change.abs().max()
            limit = torch.finfo(base.dtype).eps ** 0.5 * size + noise
            if not bool((change - behind).abs().max() <= limit):
                names = ", ".join(repr(m.name) for m in maps)
                maps, reason = (), f"x is not read through {names} alone"
            elif not bool(size > noise):
                maps, reason = (), "the output does not change with x"
    return Reading(maps, depth, reason)


@contextmanager
def injected(module: nn.Module, maps: Sequence[LinearMap], effects: Sequence[Tensor]) -> Iterator[None]:
    """Within the block, ``effects[k]`` (N, H_k), aggregated as the input of map k, is added to its output."""
    calls = [0] * len(maps)

    def add(k: int, spread: _Aggregation | None) -> Any:
        def hook(_: nn.Module, __: Any, output: Tensor) -> Tensor:
            calls[k] += 1
            return output + (effects[k] if spread is None else spread(effects[k]))

        return hook

    with ExitStack() as stack:
        for k, m in enumerate(maps):
            spread = None
            if m.through is not None:
                spread = _Aggregation(module.get_submodule(m.through))
                stack.callback(spread.handle.remove)
            linear = module.get_submodule(m.name)
            stack.callback(linear.register_forward_hook(add(k, spread)).remove)
        yield
    if any(count != 1 for count in calls):
        raise TrainingError(
            "the module no longer reads its features as it did when it was inspected: "
            "use a fresh copy of it, or bvat.wrap(module, factored=False)"
        )


@contextmanager
def evaluation(module: nn.Module) -> Iterator[None]:
    """Within the block the module is in eval mode; afterwards each part has the mode that it had."""
    before = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


class _Aggregation:
    """Repeats the aggregation that a message passing module has just done, on other values."""

    def __init__(self, conv: Any) -> None:
        self.conv, self.busy = conv, False
        self.handle = conv.register_propagate_forward_hook(self._remember)

    def _remember(self, _: nn.Module, inputs: Any, __: Tensor) -> None:
        if not self.busy:
            self.inputs = inputs

    def __call__(self, effect: Tensor) -> Tensor:
        edge_index, size, kwargs = self.inputs
        x = (effect, effect) if isinstance(kwargs["x"], tuple) else effect
        self.busy = True
        try:
            spread: Tensor = self.conv.propagate(edge_index, size=tuple(size), **{**kwargs, "x": x})
        finally:
            self.busy = False
        return spread


def _watch(module: nn.Module, x: Tensor, arguments: Arguments) -> tuple[tuple[LinearMap, ...], str, int]:
    """Return the maps that read x, why there are none, and how many aggregations there were."""
    maps: list[LinearMap] = []
    calls, aggregations = Counter[str](), Counter[str]()
    aggregated: list[tuple[str, Tensor]] = []  # holds the tensors, so that no address is used twice

    def on_linear(name: str) -> Any:
        def hook(_: nn.Module, args: Any) -> None:
            calls[name] += 1
            if args and _same(args[0], x):
                maps.append(LinearMap(name))
            maps.extend(LinearMap(name, conv) for conv, out in aggregated if args and _same(args[0], out))

        return hook

    def on_aggregation(name: str) -> Any:
        def hook(_: nn.Module, inputs: Any, out: Tensor) -> None:
            aggregations[name] += 1
            given = inputs[2].get("x")
            given = given if isinstance(given, tuple) else (given,)
            if all(part is None or _same(part, x) for part in given):
                aggregated.append((name, out))

        return hook

    with ExitStack() as stack:
        for name, part in module.named_modules():
            if _is_linear(part):
                stack.callback(part.register_forward_pre_hook(on_linear(name)).remove)
            elif hasattr(part, "register_propagate_forward_hook"):
                stack.callback(part.register_propagate_forward_hook(on_aggregation(name)).remove)
        out = module(x, *arguments.args, **arguments.kwargs)
    if not isinstance(out, Tensor) or out.dim() != 2 or out.shape[0] != x.shape[0]:
        raise SettingsError("the model must return logits (N, C), one row per node: wrap it so that it does")
    hops = aggregations.total()
    for m in maps:
        if calls[m.name] > 1 or (m.through is not None and aggregations[m.through] > 1):
            return (), f"{m.name!r} reads x but is used more than once in a pass", hops
    return tuple(maps), "" if maps else "no Linear layer reads x directly", hops


def _same(given: Any, x: Tensor) -> bool:
    """Whether ``given`` is x, perhaps as a view of it; dropout in eval mode hands on the tensor itself."""
    return isinstance(given, Tensor) and given.data_ptr() == x.data_ptr() and given.shape == x.shape


def _is_linear(part: nn.Module) -> bool:
    kind = type(part)
    theirs = kind.__name__ == "Linear" and kind.__module__.startswith("torch_geometric.")
    return (theirs or isinstance(part, nn.Linear)) and isinstance(part._parameters.get("weight"), Tensor)


def _moved(parameter: Tensor, generator: torch.Generator) -> Tensor:
    if not parameter.is_floating_point():
        return parameter
    scale = float(parameter.abs().mean()) or 1.0
    return parameter + 0.1 * scale * torch.randn(parameter.shape, generator=generator).to(parameter)


def _call(module: nn.Module, weights: dict[str, Tensor], x: Tensor, arguments: Arguments) -> Tensor:
    out: Tensor = torch.func.functional_call(module, weights, (x, *arguments.args), arguments.kwargs)
    return out
