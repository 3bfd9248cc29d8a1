"""What a module or function is called with: x, and whatever else its signature takes and the data has."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bvat.data.convert import refuse_several_kinds
from bvat.errors import GraphError, SettingsError
from bvat.graph import Graph

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Arguments(NamedTuple):
    """What follows x in a call: by position, and by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call_arguments(
    function: Callable[..., Tensor], data: Any, given: Mapping[str, Any]
) -> tuple[Tensor, Tensor | None, Arguments]:
    """Return x (N, D), edge_index (2, E) if there is one, and what follows x in a call of ``function``.

    Args:
        function: a module, or any function of the features.
        data: torch_geometric's Data, a :class:`Graph`, or the features themselves.
        given: arguments by name; they come before what the data has.
    """
    source = _source(data)
    edge_index = given.get("edge_index", getattr(source, "edge_index", None))
    if not isinstance(source.x, Tensor) or isinstance(edge_index, tuple | dict):
        raise GraphError(
            "data must be a bvat Graph, a tensor x (N, D), or have tensors x (N, D) and edge_index (2, E) as "
            "torch_geometric's Data: set data.x and data.edge_index"
        )
    x = source.x if source.x.layout == torch.strided else source.x.to_dense()
    first, *following = _parameters(function)
    if first.name in ("data", "batch", "graph") and not following:
        raise SettingsError(
            f"{_name(function)} is called with {first.name}, not with x: pass a function of the features, "
            "regulariser(lambda x: model(data.update({'x': x})), data.x, logits)"
        )
    named = [parameter for parameter in following if parameter.kind in _NAMED]
    open_ended = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in following)
    unknown = sorted(given.keys() - {parameter.name for parameter in named} - {"edge_index"})
    if unknown and not open_ended:
        raise SettingsError(f"{_name(function)} takes no argument {unknown[0]!r}: leave it out")
    any_number = inspect.Parameter.VAR_POSITIONAL in (p.kind for p in (first, *following[:1]))
    args = (edge_index,) if any_number and edge_index is not None else ()
    # the second argument gets the edges, whatever it is called: edges, adj, ...
    edges = edge_index if named[:1] == following[:1] and not any_number else None
    kwargs = {name: given[name] for name in unknown} | _by_name(function, named, given, source, edges)
    if args or open_ended:
        _warn_of_unused(function, source, {*given, *kwargs})
    return x, edge_index, Arguments(args, kwargs)


def _warn_of_unused(function: Callable[..., Tensor], source: Any, passed: set[str]) -> None:
    for name in ("edge_weight", "edge_attr"):
        if name not in passed and isinstance(getattr(source, name, None), Tensor):
            text = f"{name} of the data is not passed to {_name(function)}, whose signature does not name it"
            warnings.warn(f"{text}: pass {name}=data.{name} if the model uses it", stacklevel=6)


def reads_attributes(model: Any) -> bool:
    """Whether a model is given the attributes of the edges: one of bvat's, or a module that names them."""
    module = vars(model).get("module")
    named = module is not None and any(p.name == "edge_attr" for p in _parameters(module))
    return named or bool(getattr(model, "edge_features", 0))


def _by_name(
    function: Any, named: list[inspect.Parameter], given: Mapping[str, Any], source: Any, edges: Any
) -> dict[str, Any]:
    """Return what is given by the names of parameters, or what the data has; the first may need ``edges``."""
    found = {}
    for parameter in named:
        value = given.get(parameter.name, getattr(source, parameter.name, None))
        needed = parameter.default is inspect.Parameter.empty
        if value is None and needed and parameter is named[0]:
            value = edges
        if value is not None and not callable(value):  # Data has methods too, such as size
            found[parameter.name] = value
        elif needed:
            raise _missing(function, parameter.name)
    return found


def _source(data: Any) -> Any:
    """Return an object with x, and with edge_index, edge_weight, ... if these exist."""
    if isinstance(data, Tensor):
        return SimpleNamespace(x=data)
    if isinstance(data, Graph):
        return data.as_data
    refuse_several_kinds(data)
    return data if hasattr(data, "x") else SimpleNamespace(x=None)


def _parameters(function: Callable[..., Tensor]) -> list[inspect.Parameter]:
    """Return the parameters; torch_geometric's Sequential names its own in an attribute."""
    named = getattr(getattr(function, "signature", None), "param_dict", None)
    if named:
        return [inspect.Parameter(name, _NAMED[0]) for name in named]
    called = function.forward if isinstance(function, nn.Module) else function
    return list(inspect.signature(called).parameters.values())


def _missing(function: Any, name: str) -> SettingsError | GraphError:
    if name == "edge_index":
        return GraphError(f"{_name(function)} needs edge_index: set data.x and data.edge_index")
    return SettingsError(
        f"{_name(function)} needs {name!r}, which the data does not have: set data.{name}, or pass {name}=..."
    )


def _name(function: Any) -> str:
    return type(function).__name__ if isinstance(function, nn.Module) else "the function"
