"""The model: an ordinary module, which knows nothing of bvat, and what makes it."""

import torch
from torch import Tensor, nn

import bvat


class Jumping(nn.Module):
    """The hidden features of a node beside the means of those one and two hops away."""

    def __init__(self, in_features: int, classes: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(in_features, hidden), nn.Linear(3 * hidden, classes)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        states = [self.drop(self.first(self.drop(x)).relu())]
        source, target = edge_index
        degree = torch.zeros_like(x[:, :1]).index_add_(0, target, torch.ones_like(x[source, :1])).clamp_min(1)
        for _ in range(2):
            last = states[-1]
            states.append(torch.zeros_like(last).index_add_(0, target, last[source]) / degree)
        logits: Tensor = self.last(torch.cat(states, 1))
        return logits


def make(
    in_features: int, classes: int, *, hidden: int = 16, dropout: float = 0.5
) -> bvat.models.WrappedModule:
    """Return the module, and that a prediction depends on features two hops away."""
    return bvat.wrap(Jumping(in_features, classes, hidden, dropout), depth=2)
