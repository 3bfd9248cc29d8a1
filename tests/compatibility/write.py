"""Write what this version of bvat saves, for the tests of later ones.

Run it (``python tests/compatibility/write.py``) once, when a version is released.
Folders of released versions are never written again.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import bvat
from bvat.data import save_graph

HERE = Path(__file__).parent
SETTINGS = """method = "vat"
epochs = 12
epsilon = 0.04
hidden = 16
"""


def main() -> None:
    """Write a graph, settings, a classifier, two runs, and what they predict."""
    folder = HERE / bvat.__version__
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    drawn = bvat.synthetic_graph(
        nodes=60, edges=150, features=24, classes=3, train_per_class=6, val=12, test=24
    )
    graph = replace(drawn, name="kept", class_names=("cats", "dogs", "fish")).with_engine("tensor")
    save_graph(graph, folder / "graph.npz")
    (folder / "settings.toml").write_text(SETTINGS, "utf-8")
    fitted = bvat.NodeClassifier("sbvat", epochs=12, hidden=8, count=5).fit(graph)
    fitted.save(folder / "classifier.safetensors")
    found = {"classifier": fitted.predict_proba(graph)}
    os.chdir(folder)  # run folders record the command, and paths in it
    options = bvat.RunOptions(page=False)
    for name, method, more in (
        ("run", "vat", {"hidden": 8, "epochs": 12, "pretrain": 0}),
        ("ensemble", "auto", {"effort": 1}),
    ):
        done = bvat.run(graph, method, folder=name, options=options, **more)
        found[name] = bvat.inference.open_run(done.path).classifier(graph).probabilities(graph).numpy()
    rounded = {name: values.round(6).tolist() for name, values in found.items()}
    (folder / "probabilities.json").write_text(json.dumps(rounded), "utf-8")


if __name__ == "__main__":
    main()
