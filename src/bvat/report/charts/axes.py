"""Axes: from values to positions, with round numbers at the ticks, linear or logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bvat.report.charts.drawing import HEIGHT, WIDTH
from bvat.report.html import Markup, join, tag

LEFT, RIGHT, TOP = 60, 10, 10


@dataclass(frozen=True)
class Axis:
    """One axis from ``low`` to ``high``; ``names``, of one or more lines, replace the numbers at ticks."""

    label: str
    low: float
    high: float
    ticks: Sequence[float]
    log: bool = False
    names: Sequence[str] = ()

    def at(self, value: float) -> float:
        """Return the place of a value: 0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Plot:
    """The area between two axes."""

    x: Axis
    y: Axis
    width: float = WIDTH
    height: float = HEIGHT

    @property
    def bottom(self) -> float:
        """The position of the horizontal axis."""
        two_lines = self.x.label or any("\n" in name for name in self.x.names)
        return self.height - (42 if two_lines else 24)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the position of a point in the drawing."""
        across, up = self.width - LEFT - RIGHT, self.bottom - TOP
        return LEFT + self.x.at(x) * across, self.bottom - self.y.at(y) * up

    def frame(self) -> Markup:
        """Return grid lines, ticks, numbers and the labels of the axes."""
        bottom, end = self.bottom, self.width - RIGHT
        parts = []
        for value in self.y.ticks:
            y = self.at(self.x.low, value)[1]
            parts.append(tag("path", d=f"M{LEFT} {y:.1f}H{end:g}", stroke="var(--grid)"))
            parts.append(tag("text", tick_label(value), x=LEFT - 6, y=f"{y + 4:.1f}", text_anchor="end"))
        for value, name in zip(self.x.ticks, self.x.names or map(tick_label, self.x.ticks), strict=True):
            x = self.at(value, self.y.low)[0]
            parts.append(tag("path", d=f"M{x:.1f} {bottom:g}v4", stroke="var(--line)"))
            parts += [
                tag("text", line, x=f"{x:.1f}", y=f"{bottom + 17 + 14 * k:g}", text_anchor="middle")
                for k, line in enumerate(name.split("\n"))
            ]
        parts.append(tag("path", d=f"M{LEFT} {bottom:g}H{end:g}", stroke="var(--line)"))
        middle = f"{(LEFT + end) / 2:g}"
        if self.x.label:
            parts.append(tag("text", self.x.label, x=middle, y=f"{self.height - 8:g}", text_anchor="middle"))
        turned = f"translate(12 {(TOP + bottom) / 2:g}) rotate(-90)"
        parts.append(tag("text", self.y.label, transform=turned, text_anchor="middle"))
        return join(parts)


def fitted_axis(
    label: str, values: Sequence[float], *, log: bool = False, cover: bool = True, at: Sequence[float] = ()
) -> Axis:
    """Return an axis for some values (positive ones if ``log``).

    Args:
        label: what the axis shows.
        values: what must fit, not empty.
        log: a logarithmic axis.
        cover: end the axis at ticks; otherwise just beyond the values.
        at: the ticks, instead of round numbers.
    """
    low, high = min(values), max(values)
    if high - low <= 1e-12 * max(abs(low), abs(high)):  # means that are equal but for rounding
        high = low
    if log:
        values_at = list(at) or log_ticks(low, high)
        if cover:
            return Axis(label, values_at[0], values_at[-1], values_at, log)
        margin = (high / low) ** 0.03 if high > low else 2.0
        inside = [tick for tick in values_at if low / 1.001 <= tick <= high * 1.001]
        return Axis(label, low / margin, high * margin, inside, log)
    values_at = list(at) or ticks(low, high, 5 if cover else 6)
    if cover:
        return Axis(label, values_at[0], values_at[-1], values_at)
    inside = [tick for tick in values_at if low - 1e-9 <= tick <= high + 1e-9]
    margin = 0.02 * ((high - low) or abs(high) or 1.0)
    return Axis(label, low - margin, high + margin, inside)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers from at most ``low`` to at least ``high``."""
    span = high - low or abs(high) or 1.0
    raw = max(span / about, 1e-300)
    exponent = math.floor(math.log10(raw))
    power = 10.0**exponent
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12 - exponent) for k in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten from at most ``low`` to at least ``high``, and 2 and 5 between if they are few."""
    steps = (1, 2, 5) if high / low < 100 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 2)
    found = [round(step * 10.0**power, 12) for power in powers for step in steps]
    first = max(k for k, tick in enumerate(found) if tick <= low * (1 + 1e-9))
    last = min(k for k, tick in enumerate(found) if tick >= high * (1 - 1e-9))
    return found[first : max(last, first + 1) + 1]


def tick_label(value: float) -> str:
    """Return a number with few digits.

    Example:
        >>> [tick_label(value) for value in (0.25, 1000, 300_000, 10_000_000)]
        ['0.25', '1000', '300k', '10M']
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e4 else f"{value:g}"
