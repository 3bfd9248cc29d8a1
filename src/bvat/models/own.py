"""Models that are not bvat's: any ``torch.nn.Module`` called as ``model(x, edge_index)``, in training."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bvat.errors import SettingsError
from bvat.models.arguments import Arguments
from bvat.models.wrapped import KNOWN, WrappedModule
from bvat.plugins import path_of


def build(
    made: Any,
    in_features: int,
    classes: int,
    options: Mapping[str, Any],
    generator: torch.Generator | None = None,
) -> Any:
    """Return a model for D features and C classes.

    Initial weights come from ``generator`` if the call takes one, else from torch's own, seeded alike.

    Args:
        made: a class or function called as ``made(in_features, classes, **options)``, which returns a module,
            what :func:`bvat.wrap` returns, or a model split into ``project`` and ``propagate``; or such a
            module, which is copied: all seeds then start from its weights.
        in_features, classes: D and C.
        options: settings of the model.
        generator: source of the initial weights.
    """
    with torch.random.fork_rng([]):
        if generator is not None:
            torch.manual_seed(generator.initial_seed())
        if isinstance(made, nn.Module | WrappedModule):
            found: Any = copy.deepcopy(made)
        else:
            found = _called(made, in_features, classes, options, generator)
    if isinstance(found, WrappedModule) and isinstance(found.module, nn.Module):
        return OwnModule(found.module, found.given_depth, found.factored, classes)
    if not isinstance(found, nn.Module):
        raise SettingsError(f"{path_of(made)} must return a torch.nn.Module, not {type(found).__name__}")
    return found if hasattr(found, "draw_masks") else OwnModule(found, classes=classes)


def _called(
    made: Callable[..., Any], in_features: int, classes: int, options: Mapping[str, Any], generator: Any
) -> Any:
    given = dict(options)
    try:
        signature = inspect.signature(made)
        if "generator" in signature.parameters:
            given["generator"] = generator
        signature.bind(in_features, classes, **given)
    except (TypeError, ValueError) as error:
        names = ", ".join(("in_features", "classes", *given))
        raise SettingsError(
            f"{path_of(made)} is called with ({names}), which it does not take ({error}): give a class or "
            "function that takes these"
        ) from None
    return made(in_features, classes, **given)


class OwnModule(WrappedModule):
    """A module as a model in training: its parameters, its modes and its state are the module's.

    Called with a graph it makes a clean pass, which updates the statistics of batch normalisation. One logit
    for two classes counts as the logits (0, l), whose softmax is sigmoid(l): cross-entropy, entropy and KL
    are then those of a yes-or-no label.
    """

    def __init__(
        self, module: nn.Module, depth: int | None = None, factored: bool = True, classes: int = 0
    ) -> None:
        super().__init__(module, depth, factored)
        self.classes = classes
        self.independent = False  # whether each class is a yes-or-no label of its own

    def __getattr__(self, name: str) -> Any:
        if "module" not in self.__dict__:  # while it is copied
            raise AttributeError(name)
        return getattr(self.__dict__["module"], name)

    @property
    def first_weights(self) -> list[nn.Parameter]:
        """The weights that multiply x, each (H, D); none if x is read in another way, or nothing is known."""
        known = self.module.__dict__.get(KNOWN)
        maps = () if known is None else known.reading.maps
        return [self.module.get_parameter(f"{m.name}.weight".lstrip(".")) for m in maps]

    def inspect(self, graph: Any) -> str:
        """Find out how the module reads x; return why it is not through linear maps, if so."""
        self.inputs(graph)
        return str(self._known.reading.reason)

    def _tell(self, reason: str) -> None:
        """Say nothing: it is an event of the training."""

    def to(self, *args: Any, **kwargs: Any) -> OwnModule:
        self.module.to(*args, **kwargs)
        return self

    def train(self, mode: bool = True) -> OwnModule:
        self.module.train(mode)
        return self

    def eval(self) -> OwnModule:
        return self.train(False)

    def state_dict(self) -> dict[str, Tensor]:
        """Return copies, so that weights that are shared can be stored by name."""
        state = self.module.state_dict()
        odd = [name for name, value in state.items() if not isinstance(value, Tensor)]
        if odd:
            raise SettingsError(f"the state {odd[0]!r} of {path_of(self.module)} is no tensor: leave it out")
        return {name: value.clone() for name, value in state.items()}

    def _run(self, x: Tensor, arguments: Arguments, seed: int | None) -> Tensor:
        logits = super()._run(x, arguments, seed)
        if logits.shape[1] == 1 and self.classes == 2 and not self.independent:
            return torch.cat([torch.zeros_like(logits), logits], 1)
        if self.classes and logits.shape[1] != self.classes:
            raise SettingsError(
                f"{path_of(self.module)} returns {logits.shape[1]} logits per node, but there are "
                f"{self.classes} classes or labels: return one for each"
            )
        return logits
