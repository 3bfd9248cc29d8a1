"""Your own model: split it into ``project`` (linear in the features) and ``propagate`` (the rest).

python examples/custom_model.py
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bvat
from bvat.graph import GraphInputs


class TwoHop(nn.Module):
    """``logits = Â relu(Â X W0 + X W1) W2``: separate maps for the neighbours and the node itself."""

    depth = 2  # a prediction depends on features up to two hops away

    def __init__(self, in_features: int, classes: int, hidden: int = 16) -> None:
        super().__init__()
        self.first = nn.Parameter(0.2 * torch.randn(in_features, 2 * hidden))  # [W0 | W1]
        self.last = nn.Linear(hidden, classes)

    def projection(self) -> Tensor:
        """Return the linear map of the features, (D, 2 H); a perturbation R acts through R times this."""
        return self.first

    def draw_masks(self, inputs: GraphInputs, generator: torch.Generator | None = None, **_: bool) -> None:
        """Return the dropout masks of a pass: this model has none."""

    def restrict_masks(self, masks: None, inputs: GraphInputs, nodes: Tensor) -> None:
        """Return the masks for a part of the graph."""

    def project(self, inputs: GraphInputs, masks: None = None) -> Tensor:
        """Return X [W0 | W1], (N, 2 H)."""
        return inputs.features @ self.first

    def propagate(self, inputs: GraphInputs, projected: Tensor, masks: None = None) -> Tensor:
        """Return the logits, (N, C)."""
        around, own = projected.chunk(2, dim=1)
        return inputs.propagation @ self.last((inputs.propagation @ around.contiguous() + own).relu())


torch.manual_seed(0)
graph = bvat.synthetic_graph(nodes=600, edges=1500, features=300, seed=0)
model = TwoHop(graph.num_features, graph.num_classes)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
regulariser = bvat.SBVAT(epsilon=0.1, count=50, generator=0)
for _ in range(60):
    logits = model.propagate(graph, model.project(graph))
    loss = F.cross_entropy(logits[graph.train], graph.labels[graph.train])
    loss = loss + 0.3 * bvat.entropy(logits) + regulariser(model, graph, logits).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
right = (logits.argmax(1) == graph.labels)[graph.test].double().mean()
print(f"test accuracy {100 * right.item():.1f} %")
