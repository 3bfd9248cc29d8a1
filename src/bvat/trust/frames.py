"""Tables for notebooks: data frames of pandas where it is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def frame(columns: Mapping[str, Any]) -> Any:
    """Return columns as a data frame, or as they are without pandas."""
    try:
        return import_module("pandas").DataFrame(columns)
    except ModuleNotFoundError:
        return columns
