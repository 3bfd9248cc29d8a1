"""Epoch times of the methods on this machine (``bvat bench``); ``benchmarks/`` has the rest."""
