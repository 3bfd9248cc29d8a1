"""O-BVAT in one file: a GCN, perturbations in the factored space, training and evaluation, as in the paper.

python examples/minimal.py [DATASET]

Deng, Dong, Zhu: Batch Virtual Adversarial Training for Graph Convolutional Networks, arXiv:1902.09192.
"""

import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bvat

H, DROPOUT, EPOCHS = 16, 0.5, 200
ALPHA, BETA = 0.7, 1.5  # Eq. 6: weights of the entropy and of R_vadv
GAMMA, T, STEP, START = 1.0, 10, 5e-4, 1e-3  # Eq. 10: penalty; Algorithm 2: steps, step size, scale of R^(0)


class GCN(nn.Module):
    """``p(y | X, W) = softmax(Â relu(Â X W0) W1)``, split where the features have been projected to X W0."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.W0 = nn.Parameter(nn.init.xavier_uniform_(torch.empty(features, H)))
        self.W1 = nn.Parameter(nn.init.xavier_uniform_(torch.empty(H, classes)))

    def project(self, X: Tensor) -> Tensor:
        """Return X W0, (N, H)."""
        return F.dropout(X, DROPOUT, self.training) @ self.W0

    def propagate(self, A: Tensor, XW: Tensor) -> Tensor:
        """Return log p(y | X, W), (N, C)."""
        hidden = F.dropout((A @ XW).relu(), DROPOUT, self.training)
        return (A @ (hidden @ self.W1)).log_softmax(dim=1)


def lds(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return LDS_u = KL(p(y | X_u, Ŵ) || p(y | X_u + R_u, W)) of each node u (Eq. 3), (N)."""
    return (log_p.exp() * (log_p - log_q)).sum(dim=1)


def r_vadv(model: GCN, A: Tensor, X: Tensor, log_p: Tensor) -> Tensor:
    """Return R_vadv(V, W), the mean LDS over all nodes, with R found by Algorithm 2."""
    log_p = log_p.detach()  # the clean side uses Ŵ and carries no gradient
    Q, U = torch.linalg.qr(model.W0.detach())  # R = Z Qᵀ loses nothing: R W0 = Z U and |R|_F = |Z|_F
    Z = (START * torch.randn(len(X), H)).requires_grad_()  # line 1: R^(0), (N, H) instead of (N, D)
    adam = torch.optim.Adam([Z], lr=STEP, maximize=True)
    XW = model.project(X)  # one dropout mask of the features for all perturbed passes
    for _ in range(T):  # lines 2 to 5: ascend Eq. 10, with LDS summed over the nodes
        log_q = model.propagate(A, XW.detach() + Z @ U)
        objective = lds(log_p, log_q).sum() - GAMMA * Z.square().sum()
        (Z.grad,) = torch.autograd.grad(objective, Z)
        adam.step()
    RW = Z.detach() @ (Q.T @ model.W0)  # line 6: R is a constant, W0 is not
    return lds(log_p, model.propagate(A, XW + RW)).mean()  # line 7


torch.manual_seed(0)
torch.set_flush_denormal(True)  # confident predictions underflow, and denormal numbers are slow
graph = bvat.load(sys.argv[1]) if len(sys.argv) > 1 else bvat.synthetic_graph(600, 1500, 300)
A, X = (torch.from_numpy(matrix.toarray()).float() for matrix in bvat.to_scipy(graph)[:2])
A = A + torch.eye(len(A))  # Â = D^-1/2 (A + I) D^-1/2
A = (A / (A.sum(0) * A.sum(1)[:, None]).sqrt()).to_sparse()
model = GCN(graph.num_features, graph.num_classes)
optimizer = torch.optim.Adam([{"params": [model.W0], "weight_decay": 5e-4}, {"params": [model.W1]}], lr=0.01)

for _ in range(EPOCHS):
    log_p = model.propagate(A, model.project(X))
    L0 = F.nll_loss(log_p[graph.train], graph.labels[graph.train])
    E = -(log_p.exp() * log_p).sum(dim=1)
    L = L0 + ALPHA * E.mean() + BETA * r_vadv(model, A, X, log_p)  # Eq. 6
    optimizer.zero_grad()
    L.backward()
    optimizer.step()

predicted = model.eval().propagate(A, model.project(X)).argmax(dim=1)
right = (predicted == graph.labels)[graph.test].double().mean()
print(f"test accuracy {100 * right.item():.1f} %")
