"""Binary files that somebody has changed and sealed again: checksums are right, what they hold is not.

``python hostile.py FOLDER FIRST TIMES`` tries TIMES mutations of every kind in this process, beginning with
number FIRST of all, and prints how each ended, so that a process that is killed by a signal shows which
mutation killed it.
"""

from __future__ import annotations

import faulthandler
import json
import resource
import shutil
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from safetensors.torch import load, save

import bvat
from bvat.data import synthetic_graph
from bvat.data.checksums import CHECKSUM, UNSEALED, read_sealed_json, seal, sha256, write_sealed_json
from bvat.data.planetoid import read_planetoid
from bvat.data.unpickle import unpickle
from bvat.errors import BvatError
from bvat.inference.runs import open_run
from bvat.models.table import MODELS
from bvat.parts.batches import open_batches
from bvat.parts.folder import check_parts, part_file, whole_graph
from bvat.parts.join import join
from bvat.store.folder import RunFolder
from bvat.store.store import SeedTrainer, train_seeds
from bvat.training.loop import train
from bvat.training.provenance import digest
from bvat.training.settings import Settings, preset
from rank_runs import cut_into

sys.path.append(str(Path(__file__).parents[1] / "data"))
from data_files import planetoid_files, python2_pickle

MEMORY = 8 * 2**30
"""Address space of a process that tries mutations: what a few bytes claim must not be allocated."""
ODD_NUMBERS = (-1, 0, 1, 7, 60, 2**15, 2**31 - 1, -(2**31), 2**62, -(2**63))
ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 3, 10**6, 2**31, 2**63, 10**400, 0.5, 1e300, "", "x", "\x00",
    [], [1], ["a", "a"], {}, {"a": 1}, [[]],
)  # fmt: skip
DTYPES = (torch.int8, torch.int32, torch.int64, torch.float32, torch.float64, torch.bool, torch.complex64)


def odd_tensor(rng: Random, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with another shape, another type, or other entries."""
    flat = tensor.flatten().clone()
    size = flat.numel()
    kind = rng.randrange(10)
    if kind == 0:
        return tensor.to(rng.choice(DTYPES))
    if kind == 1:
        return rng.choice([tensor[None], flat, flat[:, None], flat[:0], flat[:0].reshape(0, 3)]).contiguous()
    if kind == 2:
        return flat[: rng.randrange(size + 1)].clone()
    if kind == 3:
        return torch.cat([flat, flat[: rng.randrange(size + 1)]])
    if kind == 4 and size:
        return flat[torch.tensor(rng.sample(range(size), size))].reshape(tensor.shape)
    if kind == 5:
        return torch.zeros_like(tensor)
    if size:
        for _ in range(rng.choice([1, 1, 3, size])):
            place = rng.randrange(size)
            if tensor.dtype.is_floating_point:
                flat[place] = rng.choice([float("nan"), float("inf"), -1e38, 0.0, 1e-40])
            elif tensor.dtype in (torch.int8, torch.uint8, torch.int32, torch.int64):
                info = torch.iinfo(tensor.dtype)
                flat[place] = min(max(rng.choice([*ODD_NUMBERS, int(flat[place]) + 1]), info.min), info.max)
    return flat.reshape(tensor.shape)


def odd_json(rng: Random, content: Any) -> Any:
    """Return a JSON value of which one value, here or further inside, is another one or missing."""
    if isinstance(content, dict) and content and rng.random() < 0.9:
        key = rng.choice(sorted(content))
        rest = {k: v for k, v in content.items() if k != key}
        return rest if rng.random() < 0.2 else {**content, key: odd_json(rng, content[key])}
    if isinstance(content, list) and content and rng.random() < 0.6:
        place = rng.randrange(len(content))
        return [*content[:place], odd_json(rng, content[place]), *content[place + 1 :]]
    return rng.choice(ODD_VALUES)


def odd_text(rng: Random, text: str) -> str:
    """Return the text of a metadata entry with another value in it."""
    try:
        return json.dumps(odd_json(rng, json.loads(text)))
    except (ValueError, RecursionError):
        return rng.choice(["", "x", "-1", "1" * 50, text[:-1], "[" * 5000])


def odd_safetensors(rng: Random, content: bytes, *, metadata: float = 0.2) -> bytes:
    """Return a safetensors file with one to two changes in its tensors or its metadata, without its seal."""
    tensors, length = load(content), int.from_bytes(content[:8], "little")
    about: dict[str, str] = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    for _ in range(rng.choice([1, 1, 1, 2])):
        if about.keys() - {CHECKSUM} and rng.random() < metadata:
            key = rng.choice(sorted(about.keys() - {CHECKSUM}))
            about = {k: v for k, v in about.items() if k != key or rng.random() < 0.8}
            if key in about:
                about[key] = odd_text(rng, about[key])
            continue
        name = rng.choice(sorted(tensors))
        kind = rng.random()
        if kind < 0.1:
            del tensors[name]
        elif kind < 0.2:
            tensors[name] = tensors[rng.choice(sorted(tensors))].clone()
        elif kind < 0.25:
            tensors["unexpected"] = torch.zeros(2)
        else:
            tensors[name] = odd_tensor(rng, tensors[name])
    if CHECKSUM in about:
        return seal(save(tensors, {**about, CHECKSUM: UNSEALED}))
    return save(tensors, about)


def tiny() -> Any:
    return synthetic_graph(nodes=60, edges=150, features=20, classes=3, train_per_class=5, val=15, test=20)


def reseal_parts(folder: Path, name: str, content: bytes) -> None:
    """Write a file of a folder of parts, with the checksum that partition.json lists."""
    (folder / name).write_bytes(content)
    about = read_sealed_json(folder / "partition.json")
    about["files"][name] = sha256(content)
    write_sealed_json(folder / "partition.json", about)


class Parts:
    """Two parts: checked, joined into one graph, and trained in batches."""

    parts = 2

    def __init__(self, folder: Path) -> None:
        self.good, self.folder = folder / "good", folder / "parts"
        if not self.good.exists():
            graph = (
                tiny()
                if self.parts == 2
                else tiny().with_features(bvat.graph.DenseMatrix(tiny().features.to_dense()))
            )
            cut_into(graph, self.parts, self.good, "random")

    def mutate(self, rng: Random) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.good, self.folder)
        name = rng.choice([part_file(k) for k in range(self.parts)] * 4 + ["splits.safetensors"])
        reseal_parts(self.folder, name, odd_safetensors(rng, (self.good / name).read_bytes(), metadata=0.05))

    def use(self) -> None:
        for read in (check_parts, whole_graph, self.train):
            try:
                read(self.folder)
                accepted = True
            except BvatError as error:
                refused, accepted = error, False
        if not accepted:
            raise refused

    def train(self, folder: Path) -> None:
        graph = open_batches(folder, 1)
        train(graph, Settings(method="vat", epochs=2, hidden=4, scale="unit"), 0)


class OnePart(Parts):
    """One part, trained as the only rank."""

    parts = 1

    def use(self) -> None:
        with suppress(BvatError):
            check_parts(self.folder)
        graph = join(self.folder)
        for method in ("none", "sbvat", "obvat"):
            train(graph, Settings(method=method, epochs=2, hidden=4, count=5, scale="unit"), 0)


class Checkpoints:
    """Checkpoints from which training continues."""

    def __init__(self, folder: Path) -> None:
        self.path, self.graph = folder / "checkpoint.safetensors", tiny()
        self.variants = [
            preset("", "obvat", epochs=6, hidden=4, pretrain=0, search="adam", keep_moments=True),
            preset("", "vat", epochs=8, hidden=4, pretrain=3, average=0.5, guard=True),
            preset("", "obvat", epochs=6, hidden=4, pretrain=2, search="fast"),
            preset("", "none", epochs=6, hidden=4, select="best", patience=3),
        ]
        self.good = []
        for settings in self.variants:
            train(self.graph, settings, checkpoint=self.path, checkpoint_every=4)
            self.good.append(self.path.read_bytes())

    def mutate(self, rng: Random) -> None:
        self.which = rng.randrange(len(self.variants))
        self.path.write_bytes(odd_safetensors(rng, self.good[self.which]))

    def use(self) -> None:
        train(self.graph, self.variants[self.which], checkpoint=self.path, resume=True)


class Classifiers:
    """Files of ``NodeClassifier.save``."""

    def __init__(self, folder: Path) -> None:
        self.path, self.graph, self.good = folder / "mine.safetensors", tiny(), []
        narrow = {model: {"hidden": 8} if "hidden" in row.arguments else {} for model, row in MODELS.items()}
        kinds = [{"method": "none", "model": model, "epochs": 2, **narrow[model]} for model in MODELS]
        kinds += [{"method": method} for method in ("lp", "manireg", "semiemb")]
        for kind in kinds:
            bvat.NodeClassifier(**kind).fit(self.graph).save(self.path)
            self.good.append(self.path.read_bytes())

    def mutate(self, rng: Random) -> None:
        self.path.write_bytes(odd_safetensors(rng, rng.choice(self.good), metadata=0.5))

    def use(self) -> None:
        repr(bvat.NodeClassifier.load(self.path).predict_proba(self.graph))


class RunFolders:
    """Settings and weights of run folders."""

    def __init__(self, folder: Path) -> None:
        self.good, self.folder, self.graph = folder / "good", folder / "run", tiny()
        if not self.good.exists():
            run = RunFolder(self.good)
            settings = preset("", "none", epochs=3, hidden=4)
            run.start(self.graph, settings, resume=False)
            train_seeds(SeedTrainer(run, self.graph, settings), [0], 1)

    def mutate(self, rng: Random) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.good, self.folder)
        path = self.folder / "settings.json"
        if rng.random() < 0.6:
            content = odd_json(rng, read_sealed_json(path))
            content = content if isinstance(content, dict) else {"settings": content}
            write_sealed_json(path, content)
            if {"graph", "settings"} <= content.keys():  # the result names its settings
                seed = self.folder / "seed-0" / "result.json"
                identity = digest([content["graph"], content["settings"]])
                write_sealed_json(seed, {**read_sealed_json(seed), "identity": identity})
            return
        path = self.folder / "seed-0" / "result.json"
        result, weights = read_sealed_json(path), path.with_name("weights.safetensors")
        if rng.random() < 0.4:
            content = odd_json(rng, result)
            result = content if isinstance(content, dict) else {"files": content}
        else:
            weights.write_bytes(odd_safetensors(rng, weights.read_bytes()))
            result["files"]["weights.safetensors"] = sha256(weights.read_bytes())
        write_sealed_json(path, result)

    def use(self) -> None:
        run = open_run(self.folder)
        graph = run.graph()
        run.classifier(graph).probabilities(graph)


class Planetoid:
    """Pickles of sparse matrices and arrays."""

    def __init__(self, folder: Path) -> None:
        self.good = planetoid_files()

    def mutate(self, rng: Random) -> None:
        name = rng.choice(["allx", "tx", "x", "y", "ty", "ally"])
        value = unpickle(self.good[f"ind.tiny.{name}"], name)
        if sp.issparse(value):
            parts = {"data": value.data, "indices": value.indices, "indptr": value.indptr}
            for _ in range(rng.choice([1, 1, 2])):
                if rng.random() < 0.2:
                    parts = {key: part[:0] if key != "indptr" else part for key, part in parts.items()}
                key = rng.choice(sorted(parts))
                parts[key] = odd_tensor(rng, torch.from_numpy(parts[key].copy())).numpy()
            shape: Any = value.shape
            if rng.random() < 0.3:
                shape = (rng.choice([*ODD_NUMBERS, *shape]), rng.choice([*ODD_NUMBERS, *shape]))
            value = sp.csr_matrix((1, 1), dtype=np.float32)
            value.__dict__.update(parts, _shape=shape)
        else:
            value = odd_tensor(rng, torch.from_numpy(value.copy())).numpy()
        self.files = {**self.good, f"ind.tiny.{name}": python2_pickle(value)}

    def use(self) -> None:
        graph = read_planetoid(self.files, "ind.tiny.", name="tiny")
        train(graph, Settings(method="none", epochs=1, hidden=4), 0)


KINDS: dict[str, Callable[[Path], Any]] = {
    "parts": Parts,
    "one part": OnePart,
    "checkpoints": Checkpoints,
    "classifiers": Classifiers,
    "run folders": RunFolders,
    "planetoid": Planetoid,
}


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> None:
    folder, first, times = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    targets = []
    for kind, build in KINDS.items():
        (folder / kind).mkdir(exist_ok=True)
        targets.append((kind, build(folder / kind)))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for number in range(first, times * len(KINDS)):
        kind, target = targets[number // times]
        say(f"{number} ")
        try:
            target.mutate(Random(f"{kind} {number % times}"))
            target.use()
            answer = "accepted"
        except BvatError as error:
            sentence = str(error)
            answer = "refused " + sentence if "\n" not in sentence else "RAW not one line"
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)
            place = [f"{Path(f.filename).name}:{f.lineno}" for f in last if "bvat" in f.filename][-2:]
            answer = f"RAW {type(error).__name__} {error!s:.80} at {' '.join(place)}".replace("\n", " ")
        say(f"{answer}\n")


if __name__ == "__main__":
    faulthandler.enable()
    main()
