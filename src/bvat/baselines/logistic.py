"""Multinomial logistic regression on few labelled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Matrix = NDArray[np.float64]


def logistic_regression(
    x: Matrix, labels: NDArray[np.int64], classes: int, strength: float
) -> tuple[Matrix, Matrix]:
    """Minimise strength * sum of cross-entropies + |W|^2 / 2, as scikit-learn does; return W and b.

    Shapes: x (n, d), labels (n); W (d, C), b (C).
    """
    onehot = np.eye(classes)[labels]
    width = x.shape[1]

    def loss(flat: Any) -> tuple[float, Matrix]:
        weight, bias = flat[: width * classes].reshape(width, classes), flat[width * classes :]
        logits = x @ weight + bias
        logits -= logits.max(1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        value = -strength * float((onehot * log_p).sum()) + float((weight**2).sum()) / 2
        error = strength * (np.exp(log_p) - onehot)
        return value, np.concatenate([(x.T @ error + weight).ravel(), error.sum(0)])

    start = np.zeros((width + 1) * classes)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    return found[: width * classes].reshape(width, classes), found[width * classes :]
