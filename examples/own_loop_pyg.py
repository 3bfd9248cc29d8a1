"""Your own training loop with a torch_geometric model: the regulariser is two lines, marked (1) and (2).

python examples/own_loop_pyg.py [obvat | sbvat]
"""

import sys

import torch
import torch.nn.functional as F
from torch_geometric.nn import GAT

import bvat


def main(method: str = "obvat") -> float:
    """Train on a synthetic graph; return the test accuracy."""
    torch.manual_seed(0)
    data = bvat.to_pyg(bvat.synthetic_graph(nodes=600, edges=1500, features=300, seed=0))
    model = GAT(300, 32, num_layers=2, out_channels=4, heads=4, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    regulariser = {"obvat": bvat.OBVAT, "sbvat": bvat.SBVAT}[method](generator=0)  # (1)

    for epoch in range(1, 41):
        model.train()
        logits = model(data.x, data.edge_index)
        outcome = regulariser(model, data, logits)  # (2)
        loss = F.cross_entropy(logits[data.train_mask], data.y[data.train_mask])
        loss = loss + 0.7 * bvat.entropy(logits) + 1.2 * outcome.loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 20 == 0:
            print(f"epoch {epoch:3d}  loss {loss.item():.3f}  R_vadv {outcome.r_vadv:.4f} ({outcome.space})")

    model.eval()
    right = model(data.x, data.edge_index).argmax(1) == data.y
    accuracy = right[data.test_mask].double().mean().item()
    print(f"test accuracy {100 * accuracy:.1f} %")
    return accuracy


if __name__ == "__main__":
    main(*sys.argv[1:])
