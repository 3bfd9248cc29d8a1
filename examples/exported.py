"""Use a trained model in a program that has torch but not bvat.

python examples/exported.py

Once, with bvat, for a folder `articles` with nodes.csv and edges.csv:

    bvat train articles --text text --method vat --out run
    bvat export run --out exported/model.safetensors

This writes the weights, with the scaling of the features, and `exported/model.py`, which reads them.
`classify` below is the program that uses the two: it imports only torch and the standard library.
"""

import csv
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def classify(folder: Path, exported: Path) -> dict[str, str]:
    """Return the class of every article, without bvat: texts and edges in, names out."""
    import torch

    model = runpy.run_path(str(exported / "model.py"))["load"](exported / "model.safetensors")
    articles, links = read(folder / "nodes.csv"), read(folder / "edges.csv")
    number = {article["id"]: k for k, article in enumerate(articles)}
    edges = torch.tensor([[number[link[end]] for link in links] for end in ("source", "target")])
    words = model.count_words([article["text"] for article in articles])
    best = model(words, edges).argmax(1).tolist()
    return {name: model.about["classes"][k] for name, k in zip(number, best, strict=True)}


if __name__ == "__main__":
    folder, here = Path(tempfile.mkdtemp()), Path(__file__).parent
    run, exported, bvat = folder / "run", folder / "exported", [sys.executable, "-m", "bvat"]
    for command in (
        [sys.executable, here / "own_csv.py", folder],
        [*bvat, "train", folder, "--text", "text", "--method", "vat", "--out", run],
        [*bvat, "export", run, "--out", exported / "model.safetensors"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    found = classify(folder, exported)
    labels = {row["id"]: row["label"] for row in read(folder / "nodes.csv") if row["label"]}
    right = sum(found[name] == label for name, label in labels.items())
    print(f"{len(found)} articles; train and test accuracy {100 * right / len(labels):.1f} %")
