"""Ratios of what was measured side by side."""

from __future__ import annotations

from typing import Any


def all_ratios(methods: dict[str, Any], pyg: dict[str, Any], spaces: dict[str, Any]) -> dict[str, Any]:
    """Return the ratios of medians.

    Returns:
        ``method_over_gcn``, ``method_over_gcn_p10`` and ``method_step_over_gcn_step`` by data set and method;
        ``pyg_over_ours`` and ``pyg_step_over_ours`` by data set and form; ``space_over_factored`` and
        ``space_memory_over_factored`` by data set, method and space. None if one of the two is missing.
    """
    return {
        "method_over_gcn": _over(methods, "gcn", "epoch_ms"),
        "method_over_gcn_p10": _over(methods, "gcn", "epoch_ms_p10"),
        "method_step_over_gcn_step": _over(methods, "gcn", "step_ms"),
        "pyg_over_ours": _over(_forms(pyg), "ours", "epoch_ms", leave_out=("ours",)),
        "pyg_step_over_ours": _over(_forms(pyg), "ours", "step_ms", leave_out=("ours",)),
        "space_over_factored": {name: _over(each, "factored", "epoch_ms") for name, each in spaces.items()},
        "space_memory_over_factored": {
            name: _over(each, "factored", "peak_mb") for name, each in spaces.items()
        },
    }


def _forms(pyg: dict[str, Any]) -> dict[str, Any]:
    names = ("ours", "edge_index", "sparse")
    return {dataset: {name: each[name] for name in names if name in each} for dataset, each in pyg.items()}


def _over(
    table: dict[str, Any], base: str, key: str, leave_out: tuple[str, ...] = ()
) -> dict[str, dict[str, float | None]]:
    """Return ``row[name][key] / row[base][key]`` for every row of a table and every name in it."""
    result: dict[str, dict[str, float | None]] = {}
    for dataset, row in table.items():
        below = (row.get(base) or {}).get(key)
        result[dataset] = {}
        for name, measured in row.items():
            if name not in leave_out:
                above = (measured or {}).get(key)
                result[dataset][name] = above / below if above is not None and below else None
    return result
