"""The dropout masks and projected features of the perturbed passes, by policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from bvat.engine.draws import Source
from bvat.errors import SettingsError
from bvat.graph.inputs import GraphInputs
from bvat.models.base import ProjectedModel

DropoutPolicy = Literal["fresh", "pair", "reuse", "shared"]
POLICIES = ("fresh", "pair", "reuse", "shared")

NextPass = Callable[[], tuple[Any, Tensor]]
"""Returns the masks of a pass and its projected features, (N, H)."""


@dataclass(frozen=True)
class PerturbedPasses:
    """Where the perturbed passes get their masks from.

    ``search`` serves the passes of the search, without gradient; ``last`` the pass of the loss.
    """

    search: NextPass
    last: NextPass
    same_masks: bool
    """Whether clean and perturbed passes share their masks, so that they agree at r = 0."""
    same_passes: bool
    """Whether all perturbed passes have the same masks."""


def make_passes(
    policy: DropoutPolicy,
    model: ProjectedModel,
    inputs: GraphInputs,
    generator: Source | None,
    masks: Any,
    projected: Tensor | None,
) -> PerturbedPasses:
    """Return the passes on ``inputs`` (the graph, or a part of it that knows its ``nodes``).

    ``masks`` and ``projected`` (N, H) are those of the clean pass on the whole graph.
    """
    nodes: Tensor | None = getattr(inputs, "nodes", None)
    if policy == "reuse" and projected is None:
        policy = "pair"
    if policy == "shared":
        held = masks if nodes is None else model.restrict_masks(masks, inputs.whole, nodes)  # type: ignore[attr-defined]
        if held is None and model.training and model.draw_masks(inputs, generator) is not None:
            raise SettingsError("dropout 'shared' needs the masks of the clean pass: call with masks=...")
    else:
        held = model.draw_masks(inputs, generator, features=policy != "reuse")
    # held is None in training mode too when the rate is 0: then all passes agree at r = 0
    if policy == "reuse" and projected is not None:
        base = projected if nodes is None else projected.index_select(0, nodes)
    elif policy == "fresh" and held is not None:
        unused = [held]

        def fresh() -> tuple[Any, Tensor]:
            drawn = unused.pop() if unused else model.draw_masks(inputs, generator)
            return drawn, model.project(inputs, drawn)

        return PerturbedPasses(fresh, fresh, same_masks=False, same_passes=False)
    else:
        base = model.project(inputs, held)
    same = policy == "shared" or held is None
    return PerturbedPasses(
        lambda: (held, base.detach()), lambda: (held, base), same, same or policy != "fresh"
    )
