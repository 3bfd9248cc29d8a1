"""The command line: one file per command, no mathematics."""

import warnings
from typing import Any

from bvat.plugins import PluginWarning

_usual = warnings.formatwarning


def _format(message: Warning | str, category: type[Warning], *where: Any) -> str:
    one_line = issubclass(category, PluginWarning)
    return f"bvat: note: {message}\n" if one_line else _usual(message, category, *where)


warnings.formatwarning = _format  # type: ignore[assignment]
