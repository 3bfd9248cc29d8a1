"""Virtual adversarial training for graph neural networks."""

from bvat._version import __version__

__all__ = ["__version__"]
