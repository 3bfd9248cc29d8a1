"""Your own graph as CSV files: write the files, train, predict and audit.

python examples/own_csv.py [FOLDER]

The same in a shell, with the folder `articles`:

    bvat train articles --text text --out run
    bvat predict run --out predictions.csv
    bvat audit run --out audit.csv --page audit.html
"""

import csv
import random
import sys
import tempfile
from pathlib import Path

import bvat
from bvat.audit import audit

TOPICS = {
    "Biology": ["cell", "gene", "leaf", "enzyme", "root"],
    "Music": ["chord", "tempo", "opera", "violin", "song"],
    "Sailing": ["wind", "harbour", "keel", "tide", "mast"],
}


def write_articles(folder: Path, count: int = 240) -> None:
    """Write nodes.csv (a third of its labels are empty) and edges.csv; the ids are titles."""
    rng = random.Random(0)
    names = [rng.choice(list(TOPICS)) for _ in range(count)]
    everything = [word for words in TOPICS.values() for word in words]
    with (folder / "nodes.csv").open("w", newline="") as nodes:
        table = csv.writer(nodes)
        table.writerow(["id", "label", "text"])
        for number, name in enumerate(names):
            text = " ".join(rng.choices(TOPICS[name], k=3) + rng.choices(everything, k=6))
            table.writerow([f"Article {number}", name if number % 3 else "", text])
    with (folder / "edges.csv").open("w", newline="") as edges:
        table = csv.writer(edges)
        table.writerow(["source", "target"])
        for number, name in enumerate(names):
            for other in rng.sample(range(count), 5):
                if names[other] == name or rng.random() < 0.1:
                    table.writerow([f"Article {number}", f"Article {other}"])


folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
folder.mkdir(parents=True, exist_ok=True)
write_articles(folder)
graph = bvat.load(folder, text="text", train_per_class=10, val=30)
print(graph, *graph.notes, sep="\n  ")
classifier = bvat.NodeClassifier("obvat", epochs=100).fit(graph)
found = audit(classifier.classifier_.models[0], graph)
weakest = int(found.smallest.argmin())
print(
    f"most fragile: {graph.node_names[weakest]}; a change of {found.smallest[weakest]:.2g} turns "
    f"{classifier.classes_[found.predicted[weakest]]} into {classifier.classes_[found.becomes[weakest]]}"
)
print(f"test accuracy {100 * classifier.score(graph):.1f} %")
