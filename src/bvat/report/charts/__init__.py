"""Charts as SVG: the same drawing is embedded in a page and written as a standalone file."""

from bvat.report.charts.axes import Axis, Plot, ticks
from bvat.report.charts.bars import bar_chart
from bvat.report.charts.drawing import Drawing, Key, dot_key, legend, standalone
from bvat.report.charts.lines import Line, line_chart

__all__ = [
    "Axis",
    "Drawing",
    "Key",
    "Line",
    "Plot",
    "bar_chart",
    "dot_key",
    "legend",
    "line_chart",
    "standalone",
    "ticks",
]
