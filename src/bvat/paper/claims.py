"""Sentences, made from the numbers, about what reproduces and what does not.

A claim is ``{"holds": True, False or None, "text": a sentence}``; None marks a remark without a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from bvat.paper.published import short as title
from bvat.perturb.methods import ON_GCN
from bvat.training.settings import short_name

Claim = dict[str, Any]

ADVERSARIAL = ("vat", "sbvat", "obvat")
JUDGED = ("cora", "citeseer", "pubmed")
"""The data sets with exactly the splits, labels and features of the paper; NELL is reported separately."""


def claim(holds: bool | None, text: str) -> Claim:
    """Return a claim."""
    return {"holds": holds, "text": text}


def number(value: float, digits: int = 1) -> str:
    """Format a number with a true minus sign, and without one for zero."""
    shown = f"{value:.{digits}f}"
    return shown.replace("-", "−") if float(shown) else f"{0:.{digits}f}"


def named(dataset: str) -> str:
    """Return the name of a data set in a sentence."""
    name = short_name(dataset)
    return {"cora": "Cora", "citeseer": "Citeseer", "pubmed": "Pubmed", "nell": "NELL"}.get(name, name)


def listed(parts: Sequence[str]) -> str:
    """Join parts with commas and an "and"."""
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)


def table2_claims(cells: Mapping[str, Mapping[str, Any]], selection: str = "last") -> list[Claim]:
    """Compare Table 2 with the paper, cell by cell, and the adversarial methods with our ablation."""
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
        f"{title(method)} on {named(dataset)} ({number(ours['mean'])}, published: {number(published['mean'])}"
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
        text += f" Below: {listed(short)}."
    return [claim(not short, text)]


def _order(cells: Mapping[str, Mapping[str, Any]], selection: str) -> list[Claim]:
    """Check the paper's order of methods, GCN < VAT < S-BVAT < O-BVAT, on each data set."""
    chain = [method for method in ("gcn", *ADVERSARIAL) if method in cells]
    if len(chain) < 2:
        return []
    met, other = [], []
    for dataset in cells[chain[0]]:
        means = {method: cells[method][dataset][selection]["mean"] for method in chain}
        ranked = sorted(chain, key=lambda method: means[method])
        if ranked == chain:
            met.append(named(dataset))
        else:
            other.append(f"{named(dataset)} ({' < '.join(title(method) for method in ranked)})")
    said = " < ".join(title(method) for method in chain)
    text = f"The paper's order of means, {said}, is found on {listed(met) if met else 'no data set'}"
    text += f"; not on {listed(other)}." if other else "."
    return [claim(not other, text)]


def _ablation(cells: Mapping[str, Mapping[str, Any]], selection: str) -> list[Claim]:
    """State how much of the gain over a GCN needs no perturbation."""
    if not {"gcn", "consistency"} <= set(cells):
        return []

    def gains(method: str) -> str:
        parts = [
            f"{number(row[selection]['mean'] - cells['gcn'][dataset][selection]['mean'])} on {named(dataset)}"
            for dataset, row in cells[method].items()
        ]
        return f"{title(method)} {listed(parts)}"

    regularised = [method for method in cells if method in ON_GCN or "/" in method]
    others = [method for method in regularised if method not in ("gcn", "random", "consistency")]
    said = "; ".join(gains(method) for method in ("consistency", *others))
    ablation = "consistency has the entropy and two dropout passes that must agree, but no perturbation"
    return [claim(None, f"Gain over the GCN in points ({ablation}): {said}.")]


def fig1a_claims(panel: Mapping[str, Any]) -> list[Claim]:
    """Check the shape of Figure 1a: VAT and S-BVAT jump and stay, S-BVAT is above VAT, O-BVAT rises.

    The paper measures with dropout on; results with dropout off are reported without a verdict.
    """
    means = {line["name"]: line["mean"] for line in panel["series"]}
    where = panel["title"]
    if panel.get("dropout") == "off":
        said = [
            f"{title(method)} {mean[0]:.2f} at T = 0, {mean[1]:.2f} at T = 1 and {mean[-1]:.2f} at the end"
            for method, mean in means.items()
        ]
        return [claim(None, f"{where}: R_vadv of {listed(said)}.")]
    claims = []
    for method in ("vat", "sbvat"):
        if method not in means:
            continue
        start, first, *rest = means[method]
        jumps = first >= 1.5 * start and all(abs(value - first) <= 0.3 * first for value in rest)
        low, high = min(first, *rest), max(first, *rest)
        word = "jumps and stays" if jumps else "does not jump and stay"
        text = f"from {start:.2f} at T = 0 to {first:.2f} at T = 1, then between {low:.2f} and {high:.2f}"
        claims.append(claim(jumps, f"{where}: {title(method)}'s R_vadv {word}: {text}."))
    if {"vat", "sbvat"} <= set(means):
        above = all(s > v for s, v in zip(means["sbvat"][1:], means["vat"][1:], strict=True))
        word = "is above VAT's at every T ≥ 1" if above else "is not above VAT's at every T ≥ 1"
        claims.append(claim(above, f"{where}: S-BVAT's R_vadv {word}."))
    if "obvat" in means:
        curve = means["obvat"]
        rises = all(after > before for before, after in pairwise(curve))
        word = "rises with every step" if rises else "does not rise with every step"
        text = f"{where}: O-BVAT's R_vadv {word}, from {curve[0]:.2f} at T = 0 to {curve[-1]:.2f} at the end."
        claims.append(claim(rises, text))
    return claims


def trained_claims(panel: Mapping[str, Any], method: str) -> list[Claim]:
    """Check Figures 1b and 1c: the model trained with the method is below the GCN at every T ≥ 1."""
    without, with_ = (line["mean"] for line in panel["series"])
    below = all(w < v for v, w in zip(without[1:], with_[1:], strict=True))
    word = "is below the GCN's" if below else "is not below the GCN's"
    text = (
        f"{panel['title']}: R_vadv of a model trained with {method} {word} at every T ≥ 1 "
        f"({with_[-1]:.2f} compared with {without[-1]:.2f} at the last T)."
    )
    return [claim(below, text)]


def sweep_claims(panel: Mapping[str, Any], x: Sequence[float], varied: str) -> list[Claim]:
    """Compare validation accuracies over the values of a setting with the published points."""
    claims = []
    for line in panel["series"]:
        best = max(range(len(x)), key=lambda i, line=line: line["mean"][i])  # type: ignore[misc]
        text = f"{panel['title']}, {line['label']}: best validation accuracy {line['mean'][best]:.1f} % "
        text += f"at {varied} = {x[best]:g}"
        holds = None
        published = line["paper"] or line.get("compare")
        if published:
            theirs = max(range(len(x)), key=lambda i, published=published: published[i])  # type: ignore[misc]
            gaps = [ours - paper for ours, paper in zip(line["mean"], published, strict=True)]
            mean_gap = sum(abs(gap) for gap in gaps) / len(gaps)
            holds = mean_gap <= 1.5
            text += f" (paper: {published[theirs]:.1f} % at {x[theirs]:g}); over the range the means are "
            text += f"{mean_gap:.1f} points from the paper's on average, {number(min(gaps))} to "
            text += f"{number(max(gaps))}"
        claims.append(claim(holds, text + "."))
    return claims


def time_claims(dataset: str, ratios: Mapping[str, float], published: Mapping[str, float]) -> list[Claim]:
    """Compare epoch times relative to a GCN with those of the paper."""
    claims = []
    for method, theirs in published.items():
        if method == "gcn" or method not in ratios:
            continue
        ours = ratios[method]
        text = f"An epoch of {title(method)} on {named(dataset)} takes {ours:.1f} times as long as a GCN's "
        text += f"(paper: {theirs:.1f}, on a GPU)."
        claims.append(claim(None, text))
    return claims
