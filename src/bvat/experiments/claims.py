"""What reproduces and what does not, in words made from the numbers.

A claim is ``{"holds": True, False or None, "text": a sentence}``; None marks a remark without a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bvat.experiments.paper import short as title

Claim = dict[str, Any]

ADVERSARIAL = ("vat", "sbvat", "obvat")
JUDGED = ("cora", "citeseer", "pubmed")
"""The data sets whose splits, labels and features are the paper's to the last node; NELL is told apart."""


def claim(holds: bool | None, text: str) -> Claim:
    """Return a claim."""
    return {"holds": holds, "text": text}


def number(value: float, digits: int = 1) -> str:
    """Return a number with a real minus sign."""
    return f"{value:.{digits}f}".replace("-", "−")


def named(dataset: str) -> str:
    """Return how a data set is written in a sentence."""
    return "NELL" if dataset == "nell" else dataset.capitalize() if dataset.islower() else dataset


def listed(parts: Sequence[str]) -> str:
    """Join parts with commas and an "and"."""
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)


def table2_claims(cells: Mapping[str, Mapping[str, Any]], selection: str = "last") -> list[Claim]:
    """Judge Table 2: the adversarial methods against the paper, cell by cell, and against our ablation."""
    found = [
        (method, dataset, cell[selection], cell["paper"])
        for method, row in cells.items()
        for dataset, cell in row.items()
        if cell["paper"] is not None
    ]
    claims = _against_paper([entry for entry in found if entry[0] in ADVERSARIAL and entry[1] in JUDGED])
    claims += _against_paper([entry for entry in found if entry[0] in ADVERSARIAL and entry[1] == "nell"])
    claims += _against_paper([entry for entry in found if entry[0] in ("gcn", "random")])
    return claims + _order(cells, selection) + _ablation(cells, selection)


def _against_paper(entries: list[tuple[str, str, Any, Any]]) -> list[Claim]:
    if not entries:
        return []
    total = len(entries)
    methods = listed(list(dict.fromkeys(title(method) for method, *_ in entries)))
    where = listed(list(dict.fromkeys(named(dataset) for _, dataset, *_ in entries)))
    short = [
        f"{title(method)} on {named(dataset)} ({number(ours['mean'])} against {number(published['mean'])}"
        + (f" ± {number(published['std'])})" if published["std"] is not None else ")")
        for method, dataset, ours, published in entries
        if ours["verdict"] == "below"
    ]
    at_least_mean = sum(ours["difference"] >= -1e-9 for _, _, ours, _ in entries)
    what = f"{methods} on {where}"
    reached = total - len(short)
    text = f"{what}: {reached} of {total} means are at or above the paper's mean minus one standard deviation"
    text += f", {at_least_mean} of {total} at or above the mean itself."
    if short:
        text += f" Short of it: {listed(short)}."
    return [claim(not short, text)]


def _order(cells: Mapping[str, Mapping[str, Any]], selection: str) -> list[Claim]:
    """Whether the paper's order of methods, GCN < VAT < S-BVAT < O-BVAT, is met on each data set."""
    chain = [method for method in ("gcn", *ADVERSARIAL) if method in cells]
    claims = []
    for dataset in cells[chain[0]] if len(chain) > 1 else ():
        means = {method: cells[method][dataset][selection]["mean"] for method in chain}
        ranked = sorted(chain, key=lambda method: means[method])
        said = " < ".join(f"{title(method)} {number(means[method])}" for method in ranked)
        claims.append(claim(ranked == chain, f"Order on {named(dataset)}: {said}."))
    return claims


def _ablation(cells: Mapping[str, Mapping[str, Any]], selection: str) -> list[Claim]:
    """How much of the gain over a GCN comes without any perturbation."""
    if not {"gcn", "consistency"} <= set(cells):
        return []
    claims = []
    for dataset, base in cells["gcn"].items():
        gain = cells["consistency"][dataset][selection]["mean"] - base[selection]["mean"]
        others = {
            method: cells[method][dataset][selection]["mean"] - base[selection]["mean"]
            for method in ADVERSARIAL
            if method in cells
        }
        text = f"On {named(dataset)}, entropy and two dropout passes alone, without any perturbation, give "
        text += f"{number(gain)} points over the GCN"
        if others:
            said = listed([f"{title(method)} {number(value)}" for method, value in others.items()])
            text += f"; with perturbations it is {said}"
        claims.append(claim(None, text + "."))
    return claims
