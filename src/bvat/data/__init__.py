"""Named data sets, readers for your own files, converters, and synthetic graphs."""

from bvat.data.loading import load, names
from bvat.data.store import load_graph, save_graph
from bvat.data.synthetic import synthetic_graph

__all__ = ["load", "load_graph", "names", "save_graph", "synthetic_graph"]
