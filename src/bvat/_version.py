"""The version of bvat, in one place."""

__version__ = "0.2.0"
