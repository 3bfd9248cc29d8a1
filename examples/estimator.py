"""The scikit-learn interface: fit, predict, score, save and load, and a small search for alpha.

python examples/estimator.py
"""

import tempfile
from pathlib import Path

import numpy as np

import bvat

graph = bvat.synthetic_graph(nodes=600, edges=1500, features=300, seed=0)

# Choose alpha on the validation nodes, not on the test nodes.
best = max(
    (bvat.NodeClassifier("sbvat", epochs=60, alpha=alpha, seed=0).fit(graph) for alpha in (0.1, 0.5)),
    key=lambda each: each.score(graph, graph.val),
)
print(best)

probabilities = best.predict_proba(graph)  # (N, C)
unsure = int(probabilities.max(axis=1).argmin())
print(f"least certain: node {unsure}, {probabilities[unsure].round(2).tolist()} for {best.classes_.tolist()}")

path = Path(tempfile.mkdtemp()) / "model.safetensors"
best.save(path)
again = bvat.NodeClassifier.load(path)
assert np.array_equal(again.predict_proba(graph), probabilities)
print(f"test accuracy {100 * again.score(graph):.1f} %")
