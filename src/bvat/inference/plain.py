"""A node classifier that bvat exported, in plain PyTorch: this file, the weights and torch are all it needs.

    model = load("model.safetensors")
    probabilities = model(features, edge_index)  # (N, C); the columns are model.about["classes"]

``features`` are the raw ones, (N, D) floats in the order of ``model.about["features"]``: they are scaled here
as they were for training. Texts become word counts with ``model.count_words``. Directions, self-loops and
duplicates of edges do not matter.
"""

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def load(path: str | Path) -> "ExportedModel":
    """Read a ``.safetensors`` file, which holds numbers and text only: nothing in it is executed."""
    content = bytearray(Path(path).read_bytes())
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    about = json.loads(header.pop("__metadata__")["about"])
    kinds = {"F32": torch.float32, "F64": torch.float64}
    weights = {}
    for name, entry in header.items():
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        shape, kind = entry["shape"], kinds[entry["dtype"]]
        flat = torch.frombuffer(content[start:end], dtype=kind) if end > start else torch.empty(0, dtype=kind)
        weights[name] = flat.reshape(shape)
    return ExportedModel(about, weights)


def network_name(model: str) -> str:
    """Return the method of :class:`ExportedModel` that computes a model's logits."""
    return "_" + model.replace("-", "_")


class ExportedModel(nn.Module):
    """One or several trained models, whose probabilities are averaged, with the scaling of their features."""

    def __init__(self, about: dict[str, Any], weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.about, self.names = about, list(weights)
        for name, tensor in weights.items():
            self.register_buffer(name.replace(".", "_"), tensor)

    def weight(self, name: str) -> Tensor:
        """Return a tensor by its name in the file."""
        found: Tensor = getattr(self, name.replace(".", "_"))
        return found

    def listed(self, prefix: str) -> list[Tensor]:
        """Return the tensors ``prefix.0``, ``prefix.1``, ... of one model."""
        count = sum(name.startswith(f"{prefix}.") for name in self.names)
        return [self.weight(f"{prefix}.{k}") for k in range(count)]

    def count_words(self, texts: list[str]) -> Tensor:
        """Return how often each word of ``about["words"]`` occurs in each text, (N, W)."""
        number = {word: k for k, word in enumerate(self.about["words"])}
        counts = torch.zeros(len(texts), len(number))
        for row, text in enumerate(texts):
            for word in re.findall(r"\w\w+", text.lower()):
                if word in number:
                    counts[row, number[word]] += 1
        return counts

    def forward(self, features: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Return the probabilities (N, C) from raw features (N, D), edges (2, E) and their weights (E)."""
        if edge_weight is None:
            edge_weight = torch.ones_like(edge_index[0], dtype=torch.float32)
        edges = Edges(features.shape[0], edge_index, edge_weight)
        return self.probabilities(self.scaled(features, edges), edges)

    def scaled(self, features: Tensor, edges: "Edges") -> Tensor:
        """Return the features as they were for training, (N, D)."""
        parts, start = [], 0
        for number, (kind, width) in enumerate(self.about["scaling"]):
            if kind == "degree":  # made from the edges alone: floor(log2(degree)) + 1, one-hot
                place = torch.frexp(edges.degree())[1].clamp_max(width - 1)
                parts.append((place[:, None] == torch.arange(width)).float())
                continue
            part = features[:, start : start + width].double()
            start += width
            if kind == "columns":
                part = (part - self.weight(f"mean.{number}")) * self.weight(f"scale.{number}")
            elif kind == "text":
                part = part * self.weight(f"idf.{number}")
            if kind in ("rows", "text"):
                total = part.abs().sum(1, keepdim=True)
                part = part / torch.where(total > 0, total, torch.ones_like(total))
            parts.append(part.float())
        return torch.cat(parts, 1)

    def probabilities(self, x: Tensor, edges: "Edges") -> Tensor:
        """Return the mean probabilities (N, C) of all models for scaled features (N, D)."""
        network = getattr(self, network_name(self.about["model"]))
        factor = self.about["temperature"]
        models = [(factor * network(f"model{k}", x, edges)).softmax(1) for k in range(self.about["models"])]
        return torch.stack(models).mean(0)

    def _gcn(self, name: str, x: Tensor, edges: "Edges") -> Tensor:
        first, *rest = self.listed(f"{name}.weights")
        state = edges.spread(x @ first)
        for weight in rest:
            state = edges.spread(torch.relu(state) @ weight)
        return state

    def _sgc(self, name: str, x: Tensor, edges: "Edges") -> Tensor:
        state = x @ self.weight(f"{name}.weights.0")
        for _ in range(self.about["layers"]):
            state = edges.spread(state)
        return state

    def _mlp(self, name: str, x: Tensor, edges: "Edges") -> Tensor:
        biases = self.listed(f"{name}.biases")
        for layer, weight in enumerate(self.listed(f"{name}.weights")):
            x = (torch.relu(x) if layer else x) @ weight
            x = x + biases[layer] if biases else x
        return x

    def _appnp(self, name: str, x: Tensor, edges: "Edges") -> Tensor:
        own, keep = self._mlp(name, x, edges), self.about["teleport"]
        state = own
        for _ in range(self.about["power_steps"]):
            state = (1 - keep) * edges.spread(state) + keep * own
        return state

    def _random_propagation(self, name: str, x: Tensor, edges: "Edges") -> Tensor:
        ratio = 1.0 if self.about["spread"] == "mean" else 1 - self.about["teleport"]
        if f"{name}.columns" in self.names:
            x = x * self.weight(f"{name}.columns")
        start = x @ self.weight(f"{name}.weights.0")
        start = start / sum(ratio**k for k in range(self.about["power_steps"] + 1))
        state = start
        for _ in range(self.about["power_steps"]):
            state = ratio * edges.spread(state) + start
        biases = self.listed(f"{name}.biases")
        for layer, weight in enumerate(self.listed(f"{name}.weights")):
            if layer:
                state = self._normalised(f"{name}.norms.{layer - 1}", torch.relu(state)) @ weight
            state = state + biases[layer]
        return state

    def _auto(self, name: str, x: Tensor, edges: "Edges") -> Tensor:
        """The ensemble: linear maps of latent features that spread over graphs, and networks."""
        of = {n.removeprefix(f"{name}."): self.weight(n) for n in self.names if n.startswith(f"{name}.")}
        latent = unit_rows(x @ of["latent.weight"] - of["latent.shift"])
        k, metric = of["about.neighbours"].int().tolist()
        similar = similar_nodes(latent, k, euclidean=bool(metric))
        both = torch.cat([torch.stack([edges.row, edges.col])[:, edges.weight > 0], similar], 1)
        graphs = {"given": edges, "features": Edges(edges.nodes, similar, torch.ones_like(similar[0]))}
        graphs["both"] = Edges(edges.nodes, both, torch.ones_like(both[0]))
        mean = torch.zeros(())
        for key in sorted(n.removeprefix("weight.") for n in of if n.startswith("weight.")):
            if f"linear.{key}.weight" in of:
                pieces = ["given-far", "features-far"] if key == "given-and-features" else [key]
                views = [spread_view(piece, graphs, latent) - of[f"mean.{piece}"] for piece in pieces]
                z = torch.cat([unit_rows(view) for view in views], 1)
                logits = z @ of[f"linear.{key}.weight"] + of[f"linear.{key}.bias"]
            else:
                kind, _, on = key.rpartition("-")
                network = getattr(self, network_name(kind.partition("+")[0]))
                logits = network(f"{name}.network.{key}", x, graphs[on])
            mean = mean + of[f"weight.{key}"] * (of[f"temperature.{key}"] * logits).softmax(1)
        p = of["smooth.none"] * mean
        for key in ("given", "features"):
            p = p + of[f"smooth.{key}"] * graphs[key].walk(mean, 0.2, 5)
        return of["about.temperature"] * p.clamp_min(1e-7).log()

    def _normalised(self, name: str, state: Tensor) -> Tensor:
        """Apply a batch normalisation if the model has it."""
        if f"{name}.weight" not in self.names:
            return state
        mean, variance = self.weight(f"{name}.running_mean"), self.weight(f"{name}.running_var")
        scaled = (state - mean) / (variance + 1e-5).sqrt()
        return scaled * self.weight(f"{name}.weight") + self.weight(f"{name}.bias")

    def _sage(self, name: str, x: Tensor, edges: "Edges") -> Tensor:
        biases = self.listed(f"{name}.biases")
        for layer, weight in enumerate(self.listed(f"{name}.weights")):
            neighbours, own = ((torch.relu(x) if layer else x) @ weight).chunk(2, 1)
            x = edges.mean(neighbours) + own + biases[layer]
        return x

    def _gat(self, name: str, x: Tensor, edges: "Edges") -> Tensor:
        weights, biases = self.listed(f"{name}.weights"), self.listed(f"{name}.biases")
        source, target = self.listed(f"{name}.source"), self.listed(f"{name}.target")
        for layer, weight in enumerate(weights):
            h = ((nn.functional.elu(x) if layer else x) @ weight).view(x.shape[0], *source[layer].shape)
            scores = (h * source[layer]).sum(2)[edges.col] + (h * target[layer]).sum(2)[edges.row]
            x = edges.attend(nn.functional.leaky_relu(scores, 0.2), h)
            x = (x.mean(1) if layer == len(weights) - 1 else x.flatten(1)) + biases[layer]
        return x

    def _monet(self, name: str, x: Tensor, edges: "Edges") -> Tensor:
        parts = ("weights", "biases", "maps", "shifts", "centres", "sharpness")
        layers = zip(*(self.listed(f"{name}.{part}") for part in parts), strict=True)
        for layer, (weight, bias, *kernel) in enumerate(layers):
            h = ((torch.relu(x) if layer else x) @ weight).view(x.shape[0], kernel[2].shape[0], -1)
            v = torch.tanh(edges.pseudo() @ kernel[0] + kernel[1])
            apart = (v[:, None] - kernel[2]) * kernel[3]
            factor = (-0.5 * apart.square().sum(2)).exp() * (edges.normal > 0)[:, None]
            if self.about["aggregation"] == "mean":
                factor = factor * edges.pseudo()[:, :1].square()
            x = edges.sums(factor[:, :, None] * h[edges.col]).sum(1) + bias
        return x


def unit_rows(rows: Tensor) -> Tensor:
    """Divide every row by its length; rows of zeros stay."""
    found: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return found


def spread_view(name: str, graphs: dict[str, "Edges"], latent: Tensor) -> Tensor:
    """Return latent features as a member of the ensemble reads them."""
    if name == "x":
        return latent
    graph, _, reach = name.rpartition("-")
    return graphs[graph].walk(latent, 0.0, 2) if reach == "near" else graphs[graph].walk(latent, 0.1, 10)


def similar_nodes(latent: Tensor, k: int, *, euclidean: bool) -> Tensor:
    """Return an edge from every node to its k nearest ones, (2, E)."""
    found = [latent.new_zeros(2, 0, dtype=torch.int64)]
    for start in range(0, latent.shape[0], 1024):
        rows = latent[start : start + 1024]
        scores = rows @ latent.T
        close = scores > 0 if not euclidean else torch.ones_like(scores, dtype=torch.bool)
        scores = 2 * scores - latent.square().sum(1) if euclidean else scores
        here = torch.arange(rows.shape[0])
        close[here, start + here] = False
        scores[here, start + here] = -torch.inf
        best = scores.topk(min(k, latent.shape[0] - 1), 1).indices
        row = (start + here)[:, None].expand_as(best)
        kept = close.gather(1, best)
        found.append(torch.stack([row[kept], best[kept]]))
    return torch.cat(found, 1)


class Edges:
    """Every edge in both directions with its largest weight, and an edge from every node to itself."""

    def __init__(self, nodes: int, edge_index: Tensor, edge_weight: Tensor) -> None:
        row, col = torch.cat([edge_index, edge_index.flip(0)], 1)
        weight = torch.cat([edge_weight, edge_weight]).float()
        weight, order = weight.sort(descending=True, stable=True)
        key, place = (row * nodes + col)[order].sort(stable=True)
        row, col, weight = row[order][place], col[order][place], weight[place]
        again = torch.cat([key.new_zeros(1, dtype=torch.bool)[: key.shape[0]], key[1:] == key[:-1]])
        weight = torch.where(again | (row == col), torch.zeros_like(weight), weight)  # 0: no edge
        itself = torch.arange(nodes, device=row.device)
        self.nodes, self.row, self.col = nodes, torch.cat([row, itself]), torch.cat([col, itself])
        self.weight = torch.cat([weight, torch.zeros(nodes, device=row.device)])
        loops = torch.cat([weight, torch.ones(nodes, device=row.device)])
        root = self.sums(loops).rsqrt()
        self.normal = root[self.row] * loops * root[self.col]

    def sums(self, values: Tensor) -> Tensor:
        """Return the sum over the edges of each node; values (edges, ...)."""
        return values.new_zeros(self.nodes, *values.shape[1:]).index_add(0, self.row, values)

    def spread(self, h: Tensor) -> Tensor:
        """Return D^-1/2 (A + I) D^-1/2 h."""
        return self.sums(self.normal[:, None] * h[self.col])

    def walk(self, state: Tensor, own: float, steps: int) -> Tensor:
        """Repeat Z = (1 - own) D^-1 (A + I) Z + own state, from Z = state."""
        scale = self.normal[-self.nodes :].sqrt()[:, None]
        start = state / scale
        z = start
        for _ in range(steps):
            z = (1 - own) * self.spread(z) + own * start
        return z * scale

    def degree(self) -> Tensor:
        """Return the number of neighbours of each node."""
        return self.sums((self.weight > 0).float())

    def pseudo(self) -> Tensor:
        """Return the roots of 1 / degree at both ends of each edge, where degrees count the node itself."""
        roots = self.normal[-self.nodes :].sqrt()
        return torch.stack([roots[self.row], roots[self.col]], 1)

    def mean(self, h: Tensor) -> Tensor:
        """Return the mean over the neighbours of each node, weighted by the edges, 0 where there are none."""
        whole = self.sums(self.weight).clamp_min(torch.finfo(h.dtype).tiny)[:, None]
        return self.sums(self.weight[:, None] * h[self.col]) / whole

    def attend(self, scores: Tensor, h: Tensor) -> Tensor:
        """Return sums of h (N, heads, F) weighted by the softmax of scores (edges, heads) at each node."""
        scores = scores.masked_fill((self.normal == 0)[:, None], -torch.inf)
        top = scores.new_full((self.nodes, scores.shape[1]), -torch.inf)
        top = top.scatter_reduce(0, self.row[:, None].expand_as(scores), scores, "amax")
        alpha = (scores - top[self.row]).exp()
        alpha = alpha / self.sums(alpha)[self.row]
        return self.sums(alpha[:, :, None] * h[self.col])
