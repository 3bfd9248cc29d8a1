"""``plot()`` of the objects that can be drawn.

Charts are drawn by a higher package. ``bvat/__init__.py`` tells :class:`Plottable` which one, so that nothing
here has to import it; nor does this module import anything heavy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar


class Plottable:
    """Adds ``plot()`` to the objects that can be drawn."""

    draw: ClassVar[Callable[..., Any]]

    def plot(self, what: str | None = None, ax: Any = None) -> Any:
        """Return matplotlib's Axes, one per chart, or that of the chart ``what``: see :func:`bvat.plot`."""
        return Plottable.draw(self, what=what, ax=ax)
